package main

import (
	"context"
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

// TestSiteIsWhole: whatever the schedule may hit is there.
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

// TestEveryFaultIsKnown: each kind of the schedule is one that is played.
func TestEveryFaultIsKnown(t *testing.T) {
	process := []fault.Kind{fault.Kill, fault.Restart, fault.Pause}
	for _, f := range fault.Plan(1, 200, time.Minute, size{3, 2}.site()) {
		_, wired := conditions[f.Kind]
		_, fronted := troubles[f.Kind]
		if !wired && !fronted && !slices.Contains(process, f.Kind) {
			t.Errorf("nobody knows how to play %v", f)
		}
	}
}

func TestClassOfSample(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	strikeAt := func(kind fault.Kind, from, to int, targets ...string) strike {
		return strike{Fault: fault.Fault{Kind: kind, Targets: targets}, Began: at(from), Ended: at(to)}
	}
	sample := crowd.Sample{Deleted: at(100), Born: at(101)}
	for _, c := range []struct {
		want    string
		strikes []strike
	}{
		{"peace", nil},
		{"peace", []strike{strikeAt(fault.Kill, 90, 97, "writer-1"), strikeAt(fault.Kill, 102, 103, "writer-1")}},
		{"writer killed", []strike{strikeAt(fault.Kill, 100, 102, "writer-1")}},
		{"bus killed", []strike{strikeAt(fault.Kill, 99, 102, "bus-1")}},
		{"start", []strike{strikeAt(fault.Kill, 95, 99, "writer-1")}}, // it is back, but not for long
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

func TestOptionsAreChecked(t *testing.T) {
	good := options{faults: 1, time: time.Second, size: size{3, 2}, users: 1, pause: time.Second}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*options){
		"no faults": func(o *options) { o.faults = 0 },
		"no time":   func(o *options) { o.time = 0 },
		"two buses": func(o *options) { o.size.buses = 2 },
		"nobody":    func(o *options) { o.users = 0 },
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

// TestBooksAreKept: an earlier run can be judged again.
func TestBooksAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.json.gz")
	h := check.History{
		Logs:  map[kinds.Name][]check.Entry{"pods": {{Sequence: 1, Op: events.Mark}}},
		Turns: []check.Turn{{Sequence: 7, Turn: events.Turn{Controller: "x", Lane: events.Act}}},
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
