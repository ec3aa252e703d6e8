package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// recorded are the files of test/e2e that keep what came of every test, by who ran
// the controllers.
var recorded = map[string]string{"kcm": "baseline.tsv", "millrace": "millrace.tsv"}

const recordHead = "# What came of the tests with %s on this cluster: state, seconds, test, failure. Written by go run ./cmd/e2e --record.\n"

var runners = map[string]string{"kcm": "the real kube-controller-manager (" + kubernetesVersion + ")", "millrace": "Millrace"}

// record takes over the results of a run into test/e2e, and writes the page about
// all of them. All rows of Millrace are of one run of one commit: a run of some of the
// tests, or of a program with changes that no commit has, is refused. The baseline is of
// a fixed version, so that a run of some tests replaces the rows of those.
func record(root string, o options) error {
	name, ok := recorded[o.by]
	if !ok {
		return fmt.Errorf("record the results of --by=%s: only those of kcm and millrace are kept", o.by)
	}
	tests, err := lines(filepath.Join(root, "test", "e2e", "tests.txt"))
	if err != nil {
		return err
	}
	of, fresh, err := readRun(o.record)
	if err != nil {
		return err
	}
	file := filepath.Join(root, "test", "e2e", name)
	rows := map[string]string{}
	if o.by == "kcm" {
		if rows, err = outcomes(file); err != nil {
			return err
		}
	}
	for test, row := range fresh {
		if !strings.HasPrefix(row, "left out\t") {
			rows[test] = row
		}
	}
	if err := whole(root, o, of, rows); err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, recordHead, runners[o.by])
	fmt.Fprintln(&text, of)
	for _, test := range slices.Sorted(maps.Keys(rows)) {
		if slices.Contains(tests, test) {
			fmt.Fprintln(&text, rows[test])
		}
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("record results: %w", err)
	}
	page, err := conformance(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(pageFile(root), page, 0o644); err != nil {
		return fmt.Errorf("write the page about the results: %w", err)
	}
	return nil
}

// readRun reads the results of a run: of which run they are, and its lines by test.
func readRun(file string) (provenance, map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return provenance{}, nil, fmt.Errorf("read results: %w", err)
	}
	of, err := provenanceIn(file, string(text))
	if err != nil {
		return provenance{}, nil, err
	}
	rows, err := outcomes(file)
	return of, rows, err
}

// whole refuses rows that are not those of one run of one commit.
func whole(root string, o options, of provenance, rows map[string]string) error {
	if of.by != o.by {
		return fmt.Errorf("record %s: it is a run by %s, and not by %s", o.record, of.by, o.by)
	}
	if strings.HasSuffix(of.version, "-dirty") {
		return fmt.Errorf("record %s: its program was built from %s, with changes that no commit has: commit, build and run again", o.record, of.version)
	}
	dir := filepath.Join(root, "test", "e2e")
	run, _, err := selection(options{tests: filepath.Join(dir, "tests.txt")}, filepath.Join(dir, "left-out.tsv"))
	if err != nil {
		return err
	}
	for _, test := range run {
		if _, ok := rows[test]; !ok {
			return fmt.Errorf("record %s: it lacks %s; all rows are to be of one run: make e2e", o.record, test)
		}
	}
	return nil
}

func pageFile(root string) string { return filepath.Join(root, "docs", "conformance.md") }

// outcomes reads a file of results: its lines, by test.
func outcomes(file string) (map[string]string, error) {
	all, err := lines(file)
	if err != nil {
		return nil, err
	}
	rows := map[string]string{}
	for _, line := range all {
		fields := strings.SplitN(line, "\t", 4)
		if len(fields) < 3 {
			return nil, fmt.Errorf("read %s: %q has no state, seconds and test; it is to be a results.tsv", file, line)
		}
		rows[fields[2]] = line
	}
	return rows, nil
}

func stateOf(rows map[string]string, test string) string {
	if state, _, ok := strings.Cut(rows[test], "\t"); ok {
		return state
	}
	return "not run"
}

// conformance is the page: every test, with both results side by side.
func conformance(root string) ([]byte, error) {
	dir := filepath.Join(root, "test", "e2e")
	results := map[string]map[string]string{}
	for by, name := range recorded {
		rows, err := outcomes(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		results[by] = rows
	}
	tests, left, err := selection(options{tests: filepath.Join(dir, "tests.txt")}, filepath.Join(dir, "left-out.tsv"))
	if err != nil {
		return nil, err
	}
	groups := map[string][]string{}
	for _, test := range tests {
		group := groupOf(test)
		groups[group] = append(groups[group], test)
	}
	var table, sums bytes.Buffer
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		passed := map[string]int{}
		fmt.Fprintf(&table, "\n## %s\n\n| test | kube-controller-manager | Millrace |\n| --- | --- | --- |\n", group)
		for _, test := range slices.Sorted(slices.Values(groups[group])) {
			for by := range results {
				if stateOf(results[by], test) == "passed" {
					passed[by]++
				}
			}
			fmt.Fprintf(&table, "| %s | %s | %s |\n", escaped(strings.TrimPrefix(test, group+" ")), stateOf(results["kcm"], test), stateOf(results["millrace"], test))
		}
		fmt.Fprintf(&sums, "| %s | %d | %d | %d |\n", group, len(groups[group]), passed["kcm"], passed["millrace"])
	}
	of, _, err := readRun(filepath.Join(dir, recorded["millrace"]))
	if err != nil {
		return nil, err
	}
	page := bytes.NewBufferString(conformanceHead)
	fmt.Fprintf(page, conformanceTable, of.version, of.date, kubernetesVersion)
	page.Write(sums.Bytes())
	page.Write(table.Bytes())
	fmt.Fprint(page, "\n## Left out\n\n| test | kube-controller-manager | why |\n| --- | --- | --- |\n")
	for _, t := range left {
		fmt.Fprintf(page, "| %s | %s | %s |\n", escaped(t.name), stateOf(results["kcm"], t.name), escaped(t.reason))
	}
	return page.Bytes(), nil
}

// groupOf is what a test is about: its special interest group, and the word after it.
func groupOf(test string) string {
	sig, rest, _ := strings.Cut(test, "] ")
	about, _, _ := strings.Cut(rest, " ")
	if about == "Garbage" {
		about = "Garbage collector"
	}
	return sig + "] " + about
}

// escaped is a text that a table can hold.
func escaped(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const conformanceHead = `# Conformance

Kubernetes' own end-to-end tests of the controllers that Millrace has, on one kind of cluster: simulated nodes, everything else real.
Written from ` + "`test/e2e`" + ` by ` + "`go run ./cmd/e2e --record`" + ` ([how](../test/e2e/README.md)); do not edit.
`

const conformanceTable = `
All results of Millrace are of one run of one build: %s, begun at %s. Those of kube-controller-manager are of %s.

| group | tests | passed with kube-controller-manager | passed with Millrace |
| --- | --- | --- | --- |
`
