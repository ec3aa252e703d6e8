package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// runner is a program that runs the controllers under test, and whose results are kept.
type runner struct {
	by         string // as --by has it
	file       string // in test/e2e
	title      string
	kubernetes string // another minor version than that of test/cluster
}

var runners = []runner{
	{by: "kcm", file: "baseline.tsv", title: "kube-controller-manager"},
	{by: "millrace", file: "millrace.tsv", title: "Millrace"},
	{by: "none", file: "none.tsv", title: "no controllers"},
}

// elsewhere are the runs on other versions of Kubernetes.
var elsewhere = []runner{
	{by: "millrace", file: "millrace-1.35.tsv", title: "Millrace on Kubernetes 1.35", kubernetes: "1.35"},
	{by: "millrace", file: "millrace-1.34.tsv", title: "Millrace on Kubernetes 1.34", kubernetes: "1.34"},
}

const recordHead = "# What came of the tests with %s on this cluster: state, seconds, test, failure. Written by go run ./cmd/e2e --record.\n"

const newerHead = "# Tests that a recorded run is older than, and whose run: name, tab, runner. A test that is added to a list is named here until\n" +
	"# go run ./cmd/e2e --record takes over a run that has it.\n"

// record copies the results of a run into test/e2e, and writes the page about all of them. All rows of a file
// belong to one run of one build: record refuses a run of some of the tests, and a run of a program with
// uncommitted changes.
func record(root string, o options) error {
	all := slices.Concat(runners, elsewhere)
	i := slices.IndexFunc(all, func(r runner) bool { return r.by == o.by && r.kubernetes == o.kubernetes })
	if i < 0 {
		return fmt.Errorf("record the results of --by=%s: only those of kcm, millrace and none are kept, and with MILLRACE_KUBERNETES=1.34 or 1.35 those of millrace", o.by)
	}
	l, err := readLists(root)
	if err != nil {
		return err
	}
	run, err := readResults(o.record)
	if err != nil {
		return err
	}
	if !run.noted(ended) || run.noted(broken) {
		return fmt.Errorf("record %s: it does not say that the run came to a good end: go on with it (--resume), or run all tests", o.record)
	}
	if err := acceptable(run, o.by, l.whole(o.by)); err != nil {
		return fmt.Errorf("record %s: %w", o.record, err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, recordHead, all[i].title)
	fmt.Fprintln(&text, run.of)
	for _, line := range run.notes {
		fmt.Fprintln(&text, line)
	}
	whole := l.whole(o.by)
	for _, test := range slices.Sorted(maps.Keys(run.rows)) {
		if slices.Contains(whole, test) {
			fmt.Fprintln(&text, run.rows[test])
		}
	}
	if err := os.WriteFile(filepath.Join(root, "test", "e2e", all[i].file), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("record results: %w", err)
	}
	if o.kubernetes != "" {
		return writePage(root)
	}
	if err := noLonger(root, l.newer, o.by); err != nil {
		return err
	}
	return writePage(root)
}

func writePage(root string) error {
	page, err := conformance(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(pageFile(root), page, 0o644); err != nil {
		return fmt.Errorf("write the page about the results: %w", err)
	}
	return nil
}

// noLonger removes the tests of a runner from newer.tsv.
func noLonger(root string, newer []test, by string) error {
	var text strings.Builder
	text.WriteString(newerHead)
	for _, t := range newer {
		if t.about != by {
			fmt.Fprintf(&text, "%s\t%s\n", t.name, t.about)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "test", "e2e", "newer.tsv"), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("record results: %w", err)
	}
	return nil
}

// acceptable returns an error if the results are not those of a whole run of one build.
func acceptable(run results, by string, whole []string) error {
	if run.of.by != by {
		return fmt.Errorf("it is a run by %s, and not by %s", run.of.by, by)
	}
	if strings.HasSuffix(run.of.version, "-dirty") {
		return fmt.Errorf("its program was built from %s, with changes that no commit has: commit, build and run again", run.of.version)
	}
	for _, test := range whole {
		if _, ok := run.rows[test]; !ok {
			return fmt.Errorf("it lacks %s; all rows are to be of one run of all tests", test)
		}
	}
	return nil
}

func pageFile(root string) string { return filepath.Join(root, "docs", "conformance.md") }
