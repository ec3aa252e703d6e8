package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/cmd/internal/fault"
	"github.com/millrace/millrace/cmd/internal/localcluster/crowd"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestSiteIsWhole: every target that the schedule may hit exists.
func TestSiteIsWhole(t *testing.T) {
	site := size{buses: 3, replicas: 2}.site()
	for name, pair := range map[string][2][]string{
		"services": {site.Services, {"reconcilers-1", "reconcilers-2", "watcher-1", "watcher-2", "writer-1", "writer-2"}},
		"buses":    {site.Buses, {"bus-1", "bus-2", "bus-3"}},
		"fronts":   {site.Fronts, {"writer-1", "writer-2"}},
		"wires": {site.Wires, {"reconcilers-1>bus", "reconcilers-2>bus", "watcher-1>api", "watcher-1>bus", "watcher-2>api", "watcher-2>bus",
			"writer-1>api", "writer-1>bus", "writer-2>api", "writer-2>bus"}},
	} {
		slices.Sort(pair[0])
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("the %s are %v, want %v", name, pair[0], pair[1])
		}
	}
}

// TestEveryFaultIsKnown: torture can play every kind of fault of the schedule.
func TestEveryFaultIsKnown(t *testing.T) {
	process := []fault.Kind{fault.Kill, fault.Restart, fault.Pause}
	for _, f := range fault.Plan(1, 200, time.Minute, size{3, 2}.site()) {
		_, wired := conditions[f.Kind]
		_, fronted := troubles[f.Kind]
		if !wired && !fronted && !slices.Contains(process, f.Kind) {
			t.Errorf("no table says how to play %v", f)
		}
	}
}

func TestClassOfSample(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	strikeAt := func(kind fault.Kind, from, to int, targets ...string) strike {
		return strike{Fault: fault.Fault{Kind: kind, Targets: targets}, Began: at(from), Ended: at(to)}
	}
	sample := crowd.Sample{Deleted: at(100), Created: at(101)}
	for _, c := range []struct {
		want    string
		strikes []strike
	}{
		{"peace", nil},
		{"peace", []strike{strikeAt(fault.Kill, 90, 97, "writer-1"), strikeAt(fault.Kill, 102, 103, "writer-1")}},
		{"writer killed", []strike{strikeAt(fault.Kill, 100, 102, "writer-1")}},
		{"bus killed", []strike{strikeAt(fault.Kill, 99, 102, "bus-1")}},
		{"start", []strike{strikeAt(fault.Kill, 95, 99, "writer-1")}}, // the process is back, but not for long
		{"start", []strike{strikeAt(fault.Restart, 100, 102, "watcher-1")}},
		{"several processes killed", []strike{strikeAt(fault.Kill, 100, 102, "writer-1", "writer-2")}},
		{"several processes killed", []strike{strikeAt(fault.Kill, 100, 102, "bus-1"), strikeAt(fault.Kill, 100, 102, "writer-1")}},
		{"API server or etcd killed", []strike{strikeAt(fault.Kill, 100, 102, "etcd")}},
		{"pause", []strike{strikeAt(fault.Pause, 90, 102, "bus-1", "bus-2")}},
		{"network", []strike{strikeAt(fault.Cut, 90, 102, "writer-1>bus", "writer-2>bus")}},
		{"answers", []strike{strikeAt(fault.Lose, 90, 102, "writer-1")}},
		{"several things", []strike{strikeAt(fault.Cut, 90, 102, "writer-1>bus"), strikeAt(fault.Kill, 100, 102, "bus-2")}},
	} {
		if got := classOf(sample, c.strikes); got != c.want {
			t.Errorf("%v is %q, want %q", c.strikes, got, c.want)
		}
	}
}

// TestEachRuleOfTheRunBites breaks each rule in the report of a sound run.
func TestEachRuleOfTheRunBites(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }
	well := func() *report {
		r := &report{}
		for i := range 20 {
			begun := float64(100 * i)
			r.Strikes = append(r.Strikes, strike{Fault: fault.Fault{Number: i + 1, Kind: fault.Kill, Targets: []string{"writer-1"}}, Began: at(begun), Ended: at(begun + 2), Hit: 1})
			r.Samples = append(r.Samples, crowd.Sample{Deleted: at(begun), Created: at(begun + 0.9)}, crowd.Sample{Deleted: at(begun + 50), Created: at(begun + 50.01)})
		}
		return r
	}
	late := func(r *report, kind fault.Kind, target string, seconds float64) {
		for i := range r.Strikes {
			r.Strikes[i].Kind, r.Strikes[i].Targets, r.Strikes[i].Ended = kind, []string{target}, at(100*float64(i)+40)
			r.Samples[2*i].Created = at(100*float64(i) + seconds)
		}
	}
	for name, c := range map[string]struct {
		rule  string
		spoil func(*report)
	}{
		"all is well":        {"", func(*report) {}},
		"one late of twenty": {"", func(r *report) { r.Samples[0].Created = at(2.9) }},
		"stopped":            {"", func(r *report) { late(r, fault.Pause, "writer-1", 2.9) }},
		"cut off":            {"", func(r *report) { late(r, fault.HalfOpen, "writer-1>bus", 4.9) }},
		"a bus":              {"", func(r *report) { late(r, fault.Kill, "bus-1", 19) }},
		"nothing is promised": {"", func(r *report) {
			first, sample := r.Strikes[0], r.Samples[0]
			late(r, fault.Pause, "etcd", 30)
			r.Strikes[0], r.Samples[0] = first, sample // one that counts
		}},
		"a crash":                 {"ends", func(r *report) { r.Crashes = []string{"writer-1.1 ended by itself with code 2: panic: boom"} }},
		"an end in disorder":      {"ends", func(r *report) { r.Unclean = "stop writer-1: it ended with code 1" }},
		"a fault that was not":    {"faults", func(r *report) { r.Strikes[0].Error = "signal writer-1: operation not permitted" }},
		"two late of twenty":      {"hand-over", func(r *report) { r.Samples[0].Created, r.Samples[2].Created = at(1.5), at(101.5) }},
		"one late by three times": {"hand-over", func(r *report) { r.Samples[0].Created = at(3.5) }},
		"stopped for too long":    {"hand-over", func(r *report) { late(r, fault.Pause, "writer-1", 3.5) }},
		"cut off for too long":    {"hand-over", func(r *report) { late(r, fault.HalfOpen, "writer-1>bus", 5.5) }},
		"a bus for too long":      {"hand-over", func(r *report) { late(r, fault.Kill, "bus-1", 21) }},
		"replaced":                {"hand-over", func(r *report) { late(r, fault.Restart, "watcher-1", 1.5) }},
		"it never went on":        {"hand-over", func(r *report) { r.Samples[0].Created, r.Samples[0].Open = at(60), true }},
		"nothing was measured":    {"hand-over", func(r *report) { r.Samples = nil }},
		"measured only in peace": {"hand-over", func(r *report) {
			r.Strikes[0].Targets = []string{"etcd"}
			r.Strikes, r.Samples = r.Strikes[:1], r.Samples[:2]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := well()
			c.spoil(r)
			r.HandOvers = handOvers(r.Samples, r.Strikes)
			found := r.unasked(20)
			switch {
			case c.rule == "" && len(found) > 0:
				t.Errorf("%v", found)
			case c.rule != "" && (len(found) != 1 || found[0].Rule != c.rule):
				t.Errorf("%s was not broken alone, but %v", c.rule, found)
			}
		})
	}
}

// TestStallsOfTheMachine: a delay of less than half of a writer's time is no stall.
func TestStallsOfTheMachine(t *testing.T) {
	var m machine
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	m.note(noon, noon.Add(tick+stalled-time.Millisecond))
	m.note(noon, noon.Add(time.Second))
	want := []check.Fault{{Kind: "stall", Target: check.Machine, Began: noon, Ended: noon.Add(time.Second)}}
	if got := m.faults(); !reflect.DeepEqual(got, want) {
		t.Errorf("the stalls are %v, want %v", got, want)
	}
}

// TestEvidenceSaysWhatWasPlayed: the evidence has the figures of the run and the exit code.
func TestEvidenceSaysWhatWasPlayed(t *testing.T) {
	s := &session{commit: "c0ffee", options: options{size: size{3, 2}}}
	s.report.Strikes = []strike{{Fault: fault.Fault{Kind: fault.Kill}, Hit: 2}, {Fault: fault.Fault{Kind: fault.Cut}}}
	s.report.Violations = []check.Violation{{Rule: "I2"}, {Rule: "I2"}}
	s.report.HandOvers = []handOver{{Fault: "writer killed or replaced", Promise: killPromise, Samples: 3, P50: 20 * time.Millisecond, Longest: 512 * time.Millisecond}}
	s.report.Load = time.Minute
	text, err := json.Marshal(s.proof(true, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"commit":"c0ffee"`, `"faults":1`, `"missed":1`, `"hits":{"cut":0,"kill":2}`, `"faultsPerMinute":1`, `"exitCode":1`,
		`"violations":2`, `"violationsByRule":{"I2":2}`, `"p50Seconds":0.02,"longestSeconds":0.512`, `"seconds":3600`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := options{faults: 1, time: time.Second, size: size{3, 2}, users: 1, pause: time.Second}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*options){
		"no faults": func(o *options) { o.faults = 0 },
		"no time":   func(o *options) { o.time = 0 },
		"two buses": func(o *options) { o.size.buses = 2 },
		"no users":  func(o *options) { o.users = 0 },
	} {
		o := good
		spoil(&o)
		if err := o.check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	full := good
	full.dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(full.dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), full); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory that is in use was taken: %v", err)
	}
}

// TestBooksAreKept: the books of an earlier run can be checked again.
func TestBooksAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.json.gz")
	h := check.History{
		Logs:  map[kinds.Name][]check.Entry{"pods": {{Sequence: 1, Op: events.Mark}}},
		Turns: []check.Turn{{Sequence: 7, Turn: events.Turn{Controller: "x", Lane: events.LaneWrite}}},
	}
	if err := keep(path, &h); err != nil {
		t.Fatal(err)
	}
	if err := judgeAgain(path); err != nil {
		t.Error(err)
	}
	h.Leaks = []string{"a log"}
	if err := keep(path, &h); err != nil {
		t.Fatal(err)
	}
	if err := judgeAgain(path); !errors.Is(err, errBroken) {
		t.Errorf("a leak is judged %v", err)
	}
}

// TestAddressesDiffer: each process has addresses of its own.
func TestAddressesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		address, err := freeAddress()
		if err != nil || seen[address] {
			t.Fatalf("%q again, or %v", address, err)
		}
		seen[address] = true
	}
}

func TestCountsAreSorted(t *testing.T) {
	if got := counts(map[string]int{"kill": 2, "cut": 7, "pause": 2}); got != "7 cut, 2 kill, 2 pause" {
		t.Errorf("counts are %q", got)
	}
}
