package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var here = provenance{by: "millrace", version: "abc1234", begun: "2026-11-23T20:00:00Z", machine: "linux/amd64, 2 cores, go1.26.8"}

// TestResultsAreThereAtAnyTime: the file has each result before the run ends, and none of a test that did not
// end; a resumed run continues from there.
func TestResultsAreThereAtAnyTime(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.tsv")
	file, outcome, err := begin(name, here, false)
	if err != nil || len(outcome) > 0 {
		t.Fatalf("begin: %v, %v", outcome, err)
	}
	for test, r := range map[string]result{
		"good":  {state: "passed", took: 1500 * time.Millisecond},
		"bad":   {state: "failed", took: 90 * time.Second, failure: "it broke"},
		"begun": {state: missing, failure: "the run was interrupted"},
	} {
		if err := file.add(test, r); err != nil {
			t.Fatal(err)
		}
	}
	r, err := readResults(name) // while it is open
	if err != nil || r.of != here || len(r.rows) != 2 || r.noted(ended) {
		t.Fatalf("before the end there is %+v, %v", r, err)
	}
	if got := r.result("bad"); got != (result{state: "failed", took: 90 * time.Second, failure: "it broke"}) {
		t.Errorf("result is %+v", got)
	}
	if got := r.result("begun"); got.state != "not run" || got.took != 0 {
		t.Errorf("a test without result is %+v", got)
	}
	later := here
	later.begun = "2026-11-23T21:00:00Z"
	file, outcome, err = begin(name, later, true)
	if err != nil || len(outcome) != 2 || outcome["bad"].state != "failed" {
		t.Fatalf("resumed: %v, %v", outcome, err)
	}
	if err := file.add("begun", result{state: "passed"}); err != nil {
		t.Fatal(err)
	}
	file.note(ended + " well")
	if err := file.close(); err != nil {
		t.Fatal(err)
	}
	r, err = readResults(name)
	if err != nil || r.of != here || len(r.rows) != 3 || !r.noted(ended) || !r.noted("resumed") {
		t.Errorf("after the end there is %+v, %v", r, err)
	}
	if file, outcome, err = begin(name, later, false); err != nil || len(outcome) > 0 {
		t.Fatalf("begin anew: %v, %v", outcome, err)
	}
	if err := file.close(); err != nil {
		t.Fatal(err)
	}
	if r, err = readResults(name + ".before"); err != nil || len(r.rows) != 3 {
		t.Errorf("of the run before there is %+v, %v", r, err)
	}
}

func TestOnlyTheSameRunIsResumed(t *testing.T) {
	other, elsewhere := here, here
	other.version, elsewhere.machine = "def5678", "linux/arm64, 8 cores, go1.26.8"
	for what, c := range map[string]struct {
		was  string
		asks provenance
	}{
		"another build":                    {here.String() + "\n", other},
		"another machine":                  {here.String() + "\n", elsewhere},
		"a run whose cluster did not last": {here.String() + "\n" + noteMark + "\t" + broken + ": etcd\n", here},
	} {
		name := filepath.Join(t.TempDir(), "results.tsv")
		put(t, name, c.was)
		if _, _, err := begin(name, c.asks, true); err == nil {
			t.Errorf("resumed: %s", what)
		}
		if text, _ := os.ReadFile(name); string(text) != c.was {
			t.Errorf("%s: the file is now %q", what, text)
		}
	}
	if _, _, err := begin(filepath.Join(t.TempDir(), "none.tsv"), here, true); err == nil {
		t.Error("resumed: a run that was never begun")
	}
}

func TestReportCountsWhatDidNotRunAsFailed(t *testing.T) {
	var out strings.Builder
	tests := []string{"[sig-apps] good", "[sig-apps] bad", "[sig-auth] absent"}
	outcome := map[string]result{
		"[sig-apps] good": {state: "passed", took: 1500 * time.Millisecond},
		"[sig-apps] bad":  {state: "failed", failure: "it broke"},
	}
	if err := report(&out, tests, outcome); !errors.Is(err, errFailed) {
		t.Errorf("error is %v, want %v", err, errFailed)
	}
	for _, want := range []string{"failed: [sig-apps] bad\n    it broke\n", "missing: [sig-auth] absent\n", "\n1 passed, 2 failed\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := report(&out, tests[:1], outcome); err != nil || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed\n") {
		t.Errorf("error %v, output:\n%s", err, out.String())
	}
	out.Reset()
	outcome["[sig-apps] newer"] = result{state: absent}
	if err := report(&out, []string{"[sig-apps] good", "[sig-apps] newer"}, outcome); err != nil || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed\n") {
		t.Errorf("with a test that the suite does not have: error %v, output:\n%s", err, out.String())
	}
}

func TestReadReportKeepsOnlyWhatRan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	put(t, file, `[{"SpecReports":[
	  {"ContainerHierarchyTexts":["[sig-apps] A","b"],"LeafNodeText":"c ","LeafNodeType":"It","State":"passed","RunTime":2000000000},
	  {"ContainerHierarchyTexts":["[sig-apps] A"],"LeafNodeText":"filtered","LeafNodeType":"It","State":"skipped"},
	  {"ContainerHierarchyTexts":["[sig-apps] A"],"LeafNodeText":"gave up","LeafNodeType":"It","State":"skipped","Failure":{"Message":"needs\n  a cloud"}},
	  {"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"}]}]`)
	got, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["[sig-apps] A b c"].took != 2*time.Second || got["[sig-apps] A gave up"].failure != "needs a cloud" {
		t.Errorf("results are %+v", got)
	}
	put(t, file, `[{"SpecReports":[
	  {"LeafNodeType":"SynchronizedBeforeSuite","State":"timedout","Failure":{"Message":"a node is tainted"}},
	  {"ContainerHierarchyTexts":["[sig-apps] A"],"LeafNodeText":"b","LeafNodeType":"It","State":"skipped"}]}]`)
	if got, err = readReport(file); err != nil || len(got) != 1 || got[beforeAll].state != "failed" || got[beforeAll].failure != "the suite could not begin: a node is tainted" {
		t.Errorf("results of a suite that could not begin are %+v, %v", got, err)
	}
}

// TestTestsHaveDirectoriesOfTheirOwn: the directory names of all tests differ.
func TestTestsHaveDirectoriesOfTheirOwn(t *testing.T) {
	l, err := readLists(checkout(t))
	if err != nil {
		t.Fatal(err)
	}
	names := l.whole("kcm")
	for i, name := range names {
		names[i] = fileName(name)
		if len(names[i]) > 200 || strings.ContainsAny(names[i], "/ ") {
			t.Errorf("no name of a directory: %q", names[i])
		}
	}
	slices.Sort(names)
	if n := len(slices.Compact(names)); n != len(l.whole("kcm")) {
		t.Errorf("%d tests have %d directories", len(l.whole("kcm")), n)
	}
}

// TestOnlyTheNegativeControlHasShortLimits: in the negative control a test gets a minute more than it takes
// with kube-controller-manager.
func TestOnlyTheNegativeControlHasShortLimits(t *testing.T) {
	for by, want := range map[string]time.Duration{"kcm": 30 * time.Minute, "millrace": 30 * time.Minute, "none": 100 * time.Second} {
		if got := (options{by: by, limit: 30 * time.Minute}).limitOf(40 * time.Second); got != want {
			t.Errorf("%s: %s, want %s", by, got, want)
		}
	}
}
