package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// report writes results.tsv and the summary. A test that is not in the results
// did not run, and counts as failed: nothing that was to run may go missing.
func report(w io.Writer, file string, of provenance, tests []string, left []test, results map[string]result) error {
	var tsv strings.Builder
	fmt.Fprintln(&tsv, of)
	type count struct{ passed, failed int }
	groups, order, total := map[string]*count{}, []string{}, count{}
	for _, name := range tests {
		r, ran := results[name]
		if !ran {
			r = result{state: "missing", failure: "the suite ended before it, or does not know it"}
		}
		group, _, _ := strings.Cut(strings.TrimPrefix(name, "["), "]")
		if groups[group] == nil {
			groups[group], order = &count{}, append(order, group)
		}
		if r.state == "passed" {
			groups[group].passed++
			total.passed++
		} else {
			groups[group].failed++
			total.failed++
			fmt.Fprintf(w, "%s: %s\n    %s\n", r.state, name, r.failure)
		}
		fmt.Fprintf(&tsv, "%s\t%.1f\t%s\t%s\n", r.state, r.took.Seconds(), name, r.failure)
	}
	for _, t := range left {
		fmt.Fprintf(&tsv, "left out\t\t%s\t%s\n", t.name, t.reason)
		fmt.Fprintf(w, "left out: %s\n    %s\n", t.name, t.reason)
	}
	if err := os.WriteFile(file, []byte(tsv.String()), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\ngroup\tpassed\tfailed\n")
	for _, group := range order {
		fmt.Fprintf(table, "%s\t%d\t%d\n", group, groups[group].passed, groups[group].failed)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print summary: %w", err)
	}
	fmt.Fprintf(w, "\nresults in %s\n%d passed, %d failed\n", file, total.passed, total.failed)
	if total.failed > 0 {
		return errFailed
	}
	return nil
}
