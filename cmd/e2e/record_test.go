package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRowsAreOfOneRun: the results kept of each runner are one run of all its tests, by a committed build;
// newer.tsv names the tests that are newer than that run, and no others.
func TestRowsAreOfOneRun(t *testing.T) {
	l, err := readLists(checkout(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runners {
		run, whole := keptOf(t, r.by), l.whole(r.by)
		if len(run.rows) > 0 {
			if err := acceptable(run, r.by, nil); err != nil {
				t.Errorf("%s: %v", r.file, err)
			}
		}
		for _, name := range whole {
			if _, known := run.rows[name]; known == slices.Contains(l.newer, test{name, r.by}) {
				t.Errorf("%s has a row: %t; newer.tsv says otherwise: %s", r.file, known, name)
			}
		}
		for name := range run.rows {
			if !slices.Contains(whole, name) {
				t.Errorf("%s has a row of a test that is not run: %s", r.file, name)
			}
		}
	}
	for _, n := range l.newer {
		if !slices.Contains(l.whole(n.about), n.name) {
			t.Errorf("newer.tsv: %s does not run %s", n.about, n.name)
		}
	}
}

// TestConformanceIsUpToDate compares the page with the files that it is written from, and Millrace with the
// baseline: every test that passes in the baseline passes with Millrace.
func TestConformanceIsUpToDate(t *testing.T) {
	root := checkout(t)
	want, err := conformance(root)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(pageFile(root))
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("docs/conformance.md is not what the files in test/e2e say: go run ./cmd/e2e --page")
	}
	l, err := readLists(root)
	if err != nil {
		t.Fatal(err)
	}
	baseline, ours := keptOf(t, "kcm"), keptOf(t, "millrace")
	for _, name := range l.whole("millrace") {
		state := ours.result(name).state
		if baseline.result(name).state == "passed" && state != "passed" && !slices.Contains(l.newer, test{name, "millrace"}) {
			t.Errorf("%s passes with kube-controller-manager, and with Millrace it is %q", name, state)
		}
	}
}

func ran(by string) string {
	return provenance{by: by, version: "abc1234", begun: "2026-11-23T20:00:00Z", machine: "linux/amd64, 2 cores, go1.26.8"}.String() + "\n"
}

const noteOfEnd = "# note\tended at 2026-11-23T20:40:00Z after 40m0s, 16 tests at a time\n"

// recorder is a checkout with two tests (one of them new), one test that is left out, and one of a controller
// that does not exist yet.
func recorder(t *testing.T) (root string, kept func(name string) string) {
	root = write(t, map[string]string{
		"test/e2e/tests.txt":    "[sig-apps] Job a\n[sig-apps] Job b|c\n[sig-auth] left\n",
		"test/e2e/left-out.tsv": "[sig-auth] left\tno cloud\n",
		"test/e2e/not-yet.tsv":  "[sig-node] later\tsome-controller\n",
		"test/e2e/newer.tsv":    "[sig-apps] Job b|c\tkcm\n[sig-apps] Job b|c\tmillrace\n[sig-apps] Job a\tnone\n[sig-apps] Job b|c\tnone\n",
		"test/e2e/baseline.tsv": ran("kcm") + "passed\t1.0\t[sig-apps] Job a\t\nskipped\t1.0\t[sig-auth] left\tno cloud\n",
		"test/e2e/millrace.tsv": ran("millrace") + "passed\t1.0\t[sig-apps] Job a\t\n",
	})
	return root, func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		_, rows, _ := strings.Cut(string(text), "\n")
		return rows
	}
}

// TestRecordKeepsWholeRuns: a run of all tests replaces the previous one, removes its tests from newer.tsv,
// and is on the page.
func TestRecordKeepsWholeRuns(t *testing.T) {
	root, kept := recorder(t)
	of := func(by, rows string) options {
		file := filepath.Join(root, by+"-results.tsv")
		put(t, file, ran(by)+rows)
		return options{by: by, record: file}
	}
	ours := "failed\t2.0\t[sig-apps] Job b|c\tit broke\npassed\t1.0\t[sig-apps] Job a\t\n" + noteOfEnd
	if err := record(root, of("millrace", ours)); err != nil {
		t.Fatal(err)
	}
	if got, want := kept("test/e2e/millrace.tsv"), ran("millrace")+noteOfEnd+"passed\t1.0\t[sig-apps] Job a\t\nfailed\t2.0\t[sig-apps] Job b|c\tit broke\n"; got != want {
		t.Errorf("what is kept is\n%s", got)
	}
	page, err := os.ReadFile(pageFile(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| no controllers | not run yet |", "| [sig-apps] Job | 2 | 1 | 1 | - |\n", "| b\\|c | not run | failed | not run |\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	all := "passed\t2.0\t[sig-apps] Job b|c\t\npassed\t2.0\t[sig-apps] Job a\t\nfailed\t9.0\t[sig-auth] left\tno\npassed\t2.0\t[sig-node] later\t\n" + noteOfEnd
	if err := record(root, of("kcm", all)); err != nil {
		t.Fatal(err)
	}
	if got := kept("test/e2e/newer.tsv"); strings.Contains(got, "\tkcm") || strings.Contains(got, "\tmillrace") || strings.Count(got, "\tnone") != 2 {
		t.Errorf("newer.tsv is\n%s", got)
	}
	none := "passed\t2.0\t[sig-apps] Job b|c\t\nfailed\t2.0\t[sig-apps] Job a\tno Job\n" + noteOfEnd
	if err := record(root, of("none", none)); err != nil {
		t.Fatal(err)
	}
	if page, err = os.ReadFile(pageFile(root)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Millrace | abc1234 | 2026-11-23T20:00:00Z | ended at 2026-11-23T20:40:00Z after 40m0s, 16 tests at a time | linux/amd64, 2 cores, go1.26.8 | [millrace.tsv](../test/e2e/millrace.tsv) |\n",
		"| [sig-apps] Job | 2 | 2 | 1 | 1 |\n", "| **all** | 2 | 2 | 1 | 1 |\n", "| a | passed | passed | failed |\n", "| b\\|c | passed | failed | passed |\n",
		"| [sig-node] later | passed | some-controller |\n", "| [sig-auth] left | failed | no cloud |\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	root, kept := recorder(t)
	before := kept("test/e2e/millrace.tsv")
	whole := "passed\t1.0\t[sig-apps] Job a\t\npassed\t1.0\t[sig-apps] Job b|c\t\n"
	refused := map[string]string{
		"a run of some tests":              ran("millrace") + "passed\t1.0\t[sig-apps] Job a\t\n" + noteOfEnd,
		"a run that was interrupted":       ran("millrace") + whole,
		"a run whose cluster did not last": ran("millrace") + whole + "# note\tbroken: millrace ended by itself\n" + noteOfEnd,
		"a run of uncommitted changes":     strings.Replace(ran("millrace"), "abc1234", "abc1234-dirty", 1) + whole + noteOfEnd,
		"another runner":                   ran("kcm") + whole + noteOfEnd,
		"a file that names no run":         whole + noteOfEnd,
		"a file that is none of results":   ran("millrace") + whole + "what?\n" + noteOfEnd,
	}
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		file := filepath.Join(root, "refused.tsv")
		put(t, file, refused[what])
		if err := record(root, options{by: "millrace", record: file}); err == nil {
			t.Errorf("taken over: %s", what)
		}
	}
	put(t, filepath.Join(root, "shadow.tsv"), ran("shadow")+whole+noteOfEnd)
	if err := record(root, options{by: "shadow", record: filepath.Join(root, "shadow.tsv")}); err == nil {
		t.Error("taken over: a run in shadow")
	}
	if after := kept("test/e2e/millrace.tsv"); after != before {
		t.Errorf("what is kept changed:\n%s", after)
	}
}

// TestARunOnAnotherVersionIsKeptApart: it has a file and a row of its own, and changes nothing about the runs
// on the usual version. What its suite does not have is counted apart.
func TestARunOnAnotherVersionIsKeptApart(t *testing.T) {
	root, kept := recorder(t)
	ours, newer := kept("test/e2e/millrace.tsv"), kept("test/e2e/newer.tsv")
	file := filepath.Join(root, "older.tsv")
	put(t, file, ran("millrace")+"passed\t1.0\t[sig-apps] Job a\t\nabsent\t0.0\t[sig-apps] Job b|c\tno test of v1.35.4\n"+noteOfEnd)
	if err := record(root, options{by: "millrace", kubernetes: "1.35", record: file}); err != nil {
		t.Fatal(err)
	}
	if kept("test/e2e/millrace.tsv") != ours || kept("test/e2e/newer.tsv") != newer || !strings.Contains(kept("test/e2e/millrace-1.35.tsv"), "absent\t0.0\t") {
		t.Errorf("kept are\n%s\n%s", kept("test/e2e/millrace.tsv"), kept("test/e2e/millrace-1.35.tsv"))
	}
	page, err := os.ReadFile(pageFile(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 1.35 | abc1234 | 2026-11-23T20:00:00Z | 1 | 1 | none | [millrace-1.35.tsv](../test/e2e/millrace-1.35.tsv) |\n", "| 1.34 | not run yet |",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	put(t, file, ran("millrace")+"passed\t1.0\t[sig-apps] Job a\t\nfailed\t9.0\t[sig-apps] Job b|c\tno\n"+noteOfEnd)
	if err := record(root, options{by: "millrace", kubernetes: "1.34", record: file}); err != nil {
		t.Fatal(err)
	}
	if page, _ := os.ReadFile(pageFile(root)); !strings.Contains(string(page), "| 1 | 0 | [sig-apps] Job b\\|c: failed | ") {
		t.Errorf("the page does not name what failed:\n%s", page)
	}
	put(t, file, ran("millrace")+"passed\t1.0\t[sig-apps] Job a\tfailed at first: a conflict\nabsent\t0.0\t[sig-apps] Job b|c\t\n"+noteOfEnd)
	if err := record(root, options{by: "millrace", kubernetes: "1.34", record: file}); err != nil {
		t.Fatal(err)
	}
	if page, _ := os.ReadFile(pageFile(root)); !strings.Contains(string(page), "| 1 | 1 | [sig-apps] Job a: passed when it was run again (failed at first: a conflict) | ") {
		t.Errorf("the page does not name what was run again:\n%s", page)
	}
	for _, other := range []options{{by: "kcm", kubernetes: "1.35", record: file}, {by: "millrace", kubernetes: "1.33", record: file}} {
		if err := record(root, other); err == nil {
			t.Errorf("taken over: %+v", other)
		}
	}
}
