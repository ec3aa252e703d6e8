package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

// sample is a module with one target of each kind.
const sample = `package sample

import "testing"

func FuzzSound(f *testing.F) {
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, data []byte) {})
}

func FuzzCrashes(f *testing.F) {
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2 {
			panic("too long")
		}
	})
}

func FuzzHangs(f *testing.F) {
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2 {
			for {
			}
		}
	})
}
`

// A sound target leaves nothing behind. An input that crashes or hangs a target is kept, and the other
// targets still run.
func TestEachTargetHasItsShare(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\n\ngo 1.26\n", "sample_test.go": sample} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	all, err := targets(t.Context(), dir)
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	program := filepath.Join(t.TempDir(), "sample.test")
	if err := build(t.Context(), dir, ".", program); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	for _, fuzzed := range all {
		s := session{target: fuzzed, dir: dir, program: program, cache: cache, share: 4 * time.Second, stalled: 3 * time.Second}
		if fuzzed.name != "FuzzSound" {
			s.share = 2 * time.Minute // a finding ends the run earlier
		}
		f, err := s.fuzz(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kept, err := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", fuzzed.name, "*"))
		if err != nil {
			t.Fatal(err)
		}
		if bad := fuzzed.name != "FuzzSound"; f.crashed != bad || (len(kept) > 0) != bad {
			t.Errorf("%s: crashed %v, kept %v:\n%s", fuzzed.name, f.crashed, kept, f.says)
		}
		if !f.crashed && (f.executions == 0 || f.took < s.share) {
			t.Errorf("%s: %d executions in %v", fuzzed.name, f.executions, f.took)
		}
	}
}

// Each target has its day, and every day has targets.
func TestASliceFollowsTheOther(t *testing.T) {
	root, err := binaries.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	all, err := targets(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Errorf("%d targets: the test has lost its point", len(all))
	}
	const slice = 6
	had, day := map[target]bool{}, time.Date(2026, 2, 27, 12, 0, 0, 0, time.UTC)
	for n := range (len(all) + slice - 1) / slice {
		chosen := choose(all, regexp.MustCompile(""), slice, day.AddDate(0, 0, n))
		if len(chosen) != slice {
			t.Errorf("day %d has %d targets", n, len(chosen))
		}
		for _, c := range chosen {
			had[c] = true
		}
	}
	if len(had) != len(all) {
		t.Errorf("%d of %d targets have a day", len(had), len(all))
	}
	if found := choose(all, regexp.MustCompile("archive:"), 0, day); len(found) != 3 || found[0].name != "FuzzFile" {
		t.Errorf("%v", found)
	}
}

// The seeds are small, and belong to targets that exist.
func TestSeedsAreSmall(t *testing.T) {
	root, err := binaries.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	all, err := targets(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	known, total := map[string]bool{}, int64(0)
	for _, each := range all {
		known[each.String()] = true
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(each.dir), "testdata", "fuzz", each.name, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
	}
	if total > 1<<20 {
		t.Errorf("the seeds have %d bytes", total)
	}
	for _, p := range planters {
		if !known[p.String()] {
			t.Errorf("seeds are planted for %v, which is not there", p.target)
		}
	}
}

// The go command's fuzzer sometimes reports the end of its time as a failure of the target, without an input.
// timeIsUp must match no other failure.
func TestTheEndOfTheTimeIsNoCrash(t *testing.T) {
	const lines = "fuzz: elapsed: 1m6s, execs: 91234 (30000/sec), new interesting: 7 (total: 22)\n"
	for text, up := range map[string]bool{
		lines + "--- FAIL: FuzzWrite (66.70s)\n    context deadline exceeded\nFAIL\n": true,
		lines + "PASS\n": false,
		lines + "--- FAIL: FuzzWrite (66.70s)\n    --- FAIL: FuzzWrite (0.00s)\n        fuzz_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzWrite/1\nFAIL\n": false,
		lines + "--- FAIL: FuzzWrite (66.70s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n":                                                                               false,
		lines + "panic: x\n--- FAIL: FuzzWrite (66.70s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzWrite/1\nFAIL\n":                                                  false,
	} {
		if timeIsUp(text) != up {
			t.Errorf("%v is said of\n%s", !up, text)
		}
	}
}

// The figures of a run come from the output of the go command.
func TestFiguresAreRead(t *testing.T) {
	var f finding
	f.read("fuzz: elapsed: 0s, gathering baseline coverage: 0/6 completed\n" +
		"fuzz: elapsed: 3s, execs: 1234 (411/sec), new interesting: 5 (total: 20)\n" +
		"fuzz: elapsed: 6s, execs: 91234 (30000/sec), new interesting: 7 (total: 22)\nPASS\n")
	if f.executions != 91234 || f.fresh != 7 || f.corpus != 22 || !strings.Contains(f.line(), "91234 execs") {
		t.Errorf("%+v", f)
	}
	const line = "fuzz: elapsed: 3s, execs: 1234 (411/sec), new interesting: 5 (total: 20)"
	if progress(line) != progress(strings.ReplaceAll(line, "3s", "6s")) || progress(line) == progress(strings.ReplaceAll(line, "1234", "1235")) {
		t.Error("progress is not told from standing still")
	}
}
