package main

import (
	"fmt"
	"io"
	"time"
)

// line is the result of a target in one line.
func (f finding) line() string {
	state := "ok"
	if f.crashed {
		state = "CRASHED"
	}
	return fmt.Sprintf("%-58s %9d execs %5d new inputs of %5d %6.1fs  %s", f.target, f.executions, f.fresh, f.corpus, f.took.Seconds(), state)
}

// report prints the crashes and the totals.
//
// Errors: errFound.
func report(to io.Writer, found []finding) error {
	crashes, executions, took := 0, uint64(0), time.Duration(0)
	for _, f := range found {
		executions, took = executions+f.executions, took+f.took
		if f.crashed {
			crashes++
			fmt.Fprintf(to, "\n%v:\n%s\n", f.target, f.says)
		}
	}
	fmt.Fprintf(to, "%d targets, %d execs in %v, %d crashed\n", len(found), executions, took.Round(time.Second), crashes)
	if crashes > 0 {
		fmt.Fprintln(to, "what crashed a target is in testdata/fuzz of its package: commit it with the mend")
		return errFound
	}
	return nil
}

// figures are the figures that are written as evidence.
func figures(commit string, found []finding) map[string]any {
	type figure struct {
		Target     string  `json:"target"`
		Executions uint64  `json:"executions"`
		NewInputs  int     `json:"newInputs"`
		Inputs     int     `json:"inputs"`
		Seconds    float64 `json:"seconds"`
		Crashed    bool    `json:"crashed"`
	}
	each := make([]figure, 0, len(found))
	crashes, executions, took := 0, uint64(0), time.Duration(0)
	for _, f := range found {
		each = append(each, figure{f.String(), f.executions, f.fresh, f.corpus, f.took.Round(time.Second / 10).Seconds(), f.crashed})
		executions, took = executions+f.executions, took+f.took
		if f.crashed {
			crashes++
		}
	}
	return map[string]any{
		"commit": commit, "seed": "none: Go's fuzzing takes a new one each time",
		"seconds": took.Round(time.Second).Seconds(), "executions": executions, "crashes": crashes, "targets": each,
	}
}
