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

var runners = map[string]string{"kcm": "the real kube-controller-manager (v1.36.3)", "millrace": "Millrace"}

// record takes over the results of a run into test/e2e, and writes the page about
// all of them.
func record(root string, o options) error {
	name, ok := recorded[o.by]
	if !ok {
		return fmt.Errorf("record the results of --by=%s: only those of kcm and millrace are kept", o.by)
	}
	tests, err := lines(filepath.Join(root, "test", "e2e", "tests.txt"))
	if err != nil {
		return err
	}
	file := filepath.Join(root, "test", "e2e", name)
	rows, err := outcomes(file)
	if err != nil {
		return err
	}
	fresh, err := outcomes(o.record)
	if err != nil {
		return err
	}
	for test, row := range fresh {
		if !strings.HasPrefix(row, "left out\t") {
			rows[test] = row
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, recordHead, runners[o.by])
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
	page := bytes.NewBufferString(conformanceHead)
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

| group | tests | passed with kube-controller-manager | passed with Millrace |
| --- | --- | --- | --- |
`
