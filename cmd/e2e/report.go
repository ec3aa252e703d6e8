package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// report prints the summary of a run. A test without a result counts as failed, so that no test of the run
// can go missing; one that the suite does not have is not counted.
//
// Errors: errFailed, if a test did not pass.
func report(w io.Writer, tests []string, outcome map[string]result) error {
	type count struct{ passed, failed int }
	groups, order, total := map[string]*count{}, []string{}, count{}
	for _, name := range tests {
		r, known := outcome[name]
		if !known {
			r = result{state: missing, failure: "the run ended before it"}
		}
		group, _, _ := strings.Cut(strings.TrimPrefix(name, "["), "]")
		if groups[group] == nil {
			groups[group], order = &count{}, append(order, group)
		}
		if r.state == absent {
			continue
		}
		if r.state == "passed" {
			groups[group].passed++
			total.passed++
			continue
		}
		groups[group].failed++
		total.failed++
		fmt.Fprintf(w, "%s: %s\n    %s\n", r.state, name, r.failure)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\ngroup\tpassed\tfailed\n")
	for _, group := range order {
		fmt.Fprintf(table, "%s\t%d\t%d\n", group, groups[group].passed, groups[group].failed)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print summary: %w", err)
	}
	fmt.Fprintf(w, "\n%d passed, %d failed\n", total.passed, total.failed)
	if total.failed > 0 {
		return errFailed
	}
	return nil
}
