package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// stack is a sample of so many nanoseconds, the innermost function first.
func stack(nanoseconds int64, functions ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, nanoseconds}}
	for _, name := range functions {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return s
}

// A guard's share includes the functions that it calls. A function counts once however often it is on the
// stack, and also where the compiler has inlined it.
func TestSharesAreOfWhatIsCalledBelow(t *testing.T) {
	inlined := stack(40, "main.other")
	inlined.Location[0].Line = append(inlined.Location[0].Line, profile.Line{Function: &profile.Function{Name: guards["promises"][0]}})
	p := &profile.Profile{Sample: []*profile.Sample{
		stack(20, "crypto/ed25519.Sign", guards["signatures"][0]+"(*Key).Sign", guards["signatures"][0]+"Turn", "main.main"),
		inlined,
		stack(940, "main.main"),
	}}
	got := guardShares(p)
	if got["signatures"] != 2 || got["promises"] != 4 {
		t.Errorf("the shares are %v, want 2 and 4 percent", got)
	}
}

// fakeProgram answers like millrace to --version and --help.
func fakeProgram(t *testing.T, answer string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millrace")
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho '"+answer+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// The evidence names both programs and has every number with its ratios.
func TestEvidenceNamesItsPrograms(t *testing.T) {
	b := &bench{work: small, turns: 1, binary: fakeProgram(t, "millrace one"), earlier: fakeProgram(t, "millrace two"), profiler: &profiler{}}
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
	b.profiler.taken = []*profile.Profile{taken("decide")}
	if err := b.prove(context.Background(), file); err == nil || !strings.Contains(err.Error(), "no sample of the profile") {
		t.Errorf("a profile without the guards is evidence of their cost: %v", err)
	}
	for _, prefixes := range guards {
		b.profiler.taken = append(b.profiler.taken, taken(prefixes[0]))
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
