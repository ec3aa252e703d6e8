package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
)

// row is the score of a package, or of all.
type row struct {
	Package    string  `json:"package,omitempty"`
	Mutants    int     `json:"mutants"`
	Killed     int     `json:"killed"`
	Hung       int     `json:"hung"`
	Survived   int     `json:"survived"`
	Uncovered  int     `json:"uncovered"`
	Equivalent int     `json:"equivalent"`
	Score      float64 `json:"score"` // percentage killed or hung, of those that are not equivalent
}

func (r *row) count(f fate) {
	switch f {
	case killed:
		r.Killed++
	case hung:
		r.Hung++
	case survived:
		r.Survived++
	case uncovered:
		r.Uncovered++
	case equivalent:
		r.Equivalent++
	case misbuilt:
		return // no mutant
	}
	r.Mutants++
	r.Score = math.Floor(1000*float64(r.Killed+r.Hung)/float64(max(r.Mutants-r.Equivalent, 1))) / 10
}

func (r row) line() string {
	return fmt.Sprintf("%-66s %5d mutants %5d killed %3d hung %4d survived %4d uncovered %3d equivalent  %5.1f %%",
		r.Package, r.Mutants, r.Killed, r.Hung, r.Survived, r.Uncovered, r.Equivalent, r.Score)
}

// rows are the scores by package, and that of all.
func rows(all []outcome) (each []row, whole row) {
	whole.Package = ""
	for _, o := range all {
		i := slices.IndexFunc(each, func(r row) bool { return r.Package == o.Dir })
		if i < 0 {
			i = len(each)
			each = append(each, row{Package: o.Dir})
		}
		each[i].count(o.fate)
		whole.count(o.fate)
	}
	return each, whole
}

// tell prints what was not noticed, and the scores.
func tell(to io.Writer, all []outcome) {
	for _, o := range all {
		switch o.fate {
		case survived, uncovered:
			fmt.Fprintf(to, "\n%s %s, line %d:\n-%s\n+%s\n", o.Name, o.fate, o.Line, o.Before, o.After)
		case misbuilt:
			fmt.Fprintf(to, "\n%s does not build: %s\n", o.Name, o.by)
		case killed, hung, equivalent:
		}
	}
	each, whole := rows(all)
	fmt.Fprintln(to)
	for _, r := range each {
		fmt.Fprintln(to, r.line())
	}
	whole.Package = "all"
	fmt.Fprintln(to, whole.line())
}

// proof is what docs/evidence has of a run over generated mutants.
type proof struct {
	Commit   string   `json:"commit"`
	Only     string   `json:"only,omitempty"`
	Patterns []string `json:"patterns"`
	Sample   int      `json:"sample,omitempty"`
	Seed     uint64   `json:"seed,omitempty"`
	Seconds  int      `json:"seconds"`
	Exit     int      `json:"exitCode"`
	All      row      `json:"all"`
	Rows     []row    `json:"packages"`
	// LeftOut are tests that failed with nothing broken, and were not run.
	LeftOut []string `json:"testsLeftOut,omitempty"`
	// NotTried are packages that there was no time for.
	NotTried  []string          `json:"notTried,omitempty"`
	Survived  []string          `json:"survived"`
	Uncovered []string          `json:"uncovered"`
	Hung      []string          `json:"hung"`
	Killed    map[string]bodies `json:"killed"` // by file
}

// bodies says which tests killed what in the functions of a file: by
// <function>@<sum of its text> and test, the mutants as <operator>:<number>.
type bodies map[string]map[string]string

// record sorts outcomes into a proof; least is the score that is asked for.
func (p *proof) record(all []outcome, least float64) {
	p.Rows, p.All = rows(all)
	p.Exit = 0
	if p.All.Score < least {
		p.Exit = 1
	}
	p.Survived, p.Uncovered, p.Hung, p.Killed = nil, nil, nil, map[string]bodies{}
	for _, o := range all {
		switch o.fate {
		case survived:
			p.Survived = append(p.Survived, o.Name)
		case uncovered:
			p.Uncovered = append(p.Uncovered, o.Name)
		case hung:
			p.Hung = append(p.Hung, o.Name)
		case killed:
			of := p.Killed[o.File]
			if of == nil {
				of = bodies{}
				p.Killed[o.File] = of
			}
			body := o.Function + "@" + o.Sum
			if of[body] == nil {
				of[body] = map[string]string{}
			}
			of[body][o.by] = strings.TrimSpace(of[body][o.by] + " " + short(o.Name))
		case misbuilt, equivalent:
		}
	}
}

// short is the end of a mutant's name: <operator>:<number>.
func short(name string) string {
	parts := strings.Split(name, ":")
	return strings.Join(parts[len(parts)-2:], ":")
}

// writtenProof is what docs/evidence has of a run over written mutants.
func writtenProof(ctx context.Context, file, commit string, took time.Duration, exit int, all []finding) error {
	var whole row
	var missed []string
	for _, f := range all {
		whole.count(f.fate)
		if f.fate == survived {
			missed = append(missed, f.name)
		}
	}
	return evidence.Write(ctx, file, map[string]any{
		"commit": commit, "seconds": int(took.Seconds()), "exitCode": exit, "all": whole, "survived": missed,
		"seed": "none: all of those that are written down, in their order",
	})
}
