package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/millrace/millrace/cmd/bench/cpuprofile"
)

// fakeProgram answers like millrace to --version and --help.
func fakeProgram(t *testing.T, answer string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millrace")
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho '"+answer+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// busy is a profile as a process returns it, with information about the machine.
func busy() *profile.Profile {
	in := &profile.Function{ID: 1, Name: "decide"}
	binary := &profile.Mapping{ID: 1, File: "/home/user/millrace", BuildID: "abc"}
	at := &profile.Location{ID: 1, Mapping: binary, Line: []profile.Line{{Function: in, Line: 7}}}
	return &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}}, TimeNanos: 5, Comments: []string{"of a user"},
		Sample: []*profile.Sample{{Location: []*profile.Location{at}, Value: []int64{3}}}, Mapping: []*profile.Mapping{binary},
		Location: []*profile.Location{at}, Function: []*profile.Function{in},
	}
}

// The evidence names both programs and has every number with its ratios.
func TestEvidenceNamesItsPrograms(t *testing.T) {
	b := &bench{work: small, turns: 1, binary: fakeProgram(t, "millrace one"), earlier: fakeProgram(t, "millrace two"), profiler: &cpuprofile.Profiler{}}
	b.results = newResults(small)
	b.results.add("heal", "kcm-tuned", metric{"p50", "ms", 10})
	b.results.add("heal", "millrace", metric{"p50", "ms", 8})
	b.results.add("heal", earlier, metric{"p50", "ms", 16})
	file := filepath.Join(t.TempDir(), "speed.json")
	taken := func(function string) *profile.Profile {
		p := busy()
		p.Function[0].Name, p.PeriodType = function, &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
		return p
	}
	b.profiler.Add(taken("decide"))
	if err := b.prove(context.Background(), file); err == nil || !strings.Contains(err.Error(), "no sample of the profile") {
		t.Errorf("a profile without the guards is evidence of their cost: %v", err)
	}
	for _, prefixes := range cpuprofile.Guards {
		b.profiler.Add(taken(prefixes[0]))
	}
	if err := b.prove(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var said speed
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	if said.Millrace != "millrace one" || said.Earlier != "millrace two" || len(said.Rows) != 1 || said.Rows[0].ToTuned != "0.80x" || said.Rows[0].ToEarlier != "0.50x" {
		t.Errorf("%s", text)
	}
}

// A program that is older than signed turns takes part without keys; a program without a name does not take
// part.
func TestAnEarlierProgramTakesPart(t *testing.T) {
	for answer, signs := range map[string]bool{"--turn-keys-file strings": true, "--kubeconfig string": false} {
		b := &bench{earlier: fakeProgram(t, answer)}
		who, err := b.contender(earlier)
		if err != nil {
			t.Fatal(err)
		}
		if m := who.(millrace); m.signs != signs || m.name() != earlier || m.profiler != nil {
			t.Errorf("%q: %+v", answer, m)
		}
	}
	if _, err := (&bench{}).contender(earlier); err == nil || !strings.Contains(err.Error(), "--earlier") {
		t.Errorf("without a program: %v", err)
	}
}

// Another build of Millrace has its own columns if it took part.
func TestTheTableHasTheEarlierProgram(t *testing.T) {
	r := newResults(full)
	r.add("heal", "millrace", metric{"p50", "ms", 8})
	if got := len(r.cells()[0]); got != 8 {
		t.Errorf("%d columns without it", got)
	}
	r.add("heal", earlier, metric{"p50", "ms", 16})
	if got := strings.Join(r.cells()[1], "|"); got != "heal|p50|ms|-|-|8.00|-|-|16.0|0.50x" {
		t.Error(got)
	}
}
