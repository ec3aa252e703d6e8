package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// row is the score of a package, or of all.
type row struct {
	Package    string  `json:"package,omitempty"`
	Of         int     `json:"of,omitempty"`       // how many mutants the sample is drawn from
	NotTried   int     `json:"notTried,omitempty"` // drawn, but not begun before the package's time was over
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
	case misbuilt, untried:
		return // no mutant, or unknown
	}
	r.Mutants++
	r.rate()
}

// rate calculates the score.
func (r *row) rate() {
	r.Score = math.Floor(1000*float64(r.Killed+r.Hung)/float64(max(r.Mutants-r.Equivalent, 1))) / 10
}

// plus adds the counts of another row.
func (r *row) plus(o row) {
	r.Of += o.Of
	r.NotTried += o.NotTried
	r.Mutants += o.Mutants
	r.Killed += o.Killed
	r.Hung += o.Hung
	r.Survived += o.Survived
	r.Uncovered += o.Uncovered
	r.Equivalent += o.Equivalent
	r.rate()
}

func (r row) line() string {
	return fmt.Sprintf("%-66s %5d mutants %5d killed %3d hung %4d survived %4d uncovered %3d equivalent  %5.1f %%",
		r.Package, r.Mutants, r.Killed, r.Hung, r.Survived, r.Uncovered, r.Equivalent, r.Score)
}

// tell prints the mutants that survived among the outcomes, and the scores of all packages.
func (p *proof) tell(to io.Writer, all []outcome) {
	for _, o := range all {
		switch o.fate {
		case survived, uncovered:
			fmt.Fprintf(to, "\n%s %s, line %d:\n-%s\n+%s\n", o.Name, o.fate, o.Line, o.Before, o.After)
		case misbuilt:
			fmt.Fprintf(to, "\n%s does not build: %s\n", o.Name, o.by)
		case killed, hung, equivalent, untried:
		}
	}
	fmt.Fprintln(to)
	for _, r := range p.Rows {
		fmt.Fprintln(to, r.line())
	}
	whole := p.All
	whole.Package = "all"
	fmt.Fprintln(to, whole.line())
	if p.Sample > 0 {
		fmt.Fprintf(to, "%.1f %% if each package counts by the number of its mutants; %d packages not tried\n", p.Weighted, len(p.TooSlow)+len(p.NotTried))
	}
}

// proof is the evidence of a run over generated mutants in docs/evidence.
type proof struct {
	Commit   string   `json:"commit"`
	Only     string   `json:"only,omitempty"`
	Patterns []string `json:"patterns"`
	Sample   int      `json:"sample,omitempty"`
	Packages int      `json:"packagesDrawn,omitempty"` // 0: all
	Seed     uint64   `json:"seed,omitempty"`
	Each     int      `json:"secondsForEachPackage,omitempty"`
	Seconds  int      `json:"seconds"`
	Exit     int      `json:"exitCode"`
	All      row      `json:"all"`
	// Weighted is the score under the assumption that in each tried package the mutants that were not drawn
	// score like those that were.
	Weighted float64 `json:"weighted"`
	Rows     []row   `json:"packages"`
	// LeftOut are tests that failed with nothing broken, and were skipped.
	LeftOut []string `json:"testsLeftOut,omitempty"`
	// NotTried are packages that there was no time for. TooSlow are packages whose tests take longer than the
	// time for each package.
	NotTried  []string          `json:"notTried,omitempty"`
	TooSlow   []string          `json:"tooSlow,omitempty"`
	Survived  []string          `json:"survived"`
	Uncovered []string          `json:"uncovered"`
	Hung      []string          `json:"hung"`
	Killed    map[string]bodies `json:"killed"` // by file
}

// bodies maps the functions of a file, as <function>@<hash of its text>, and the tests that killed mutants in
// them to those mutants, as <operator>:<number>.
type bodies map[string]map[string]string

// has reports whether a package has been tried.
func (p *proof) has(dir string) bool {
	return slices.Contains(p.TooSlow, dir) || slices.ContainsFunc(p.Rows, func(r row) bool { return r.Package == dir })
}

// goOn takes over the findings of an earlier run from the file, if that run had the same commit and drew the
// same mutants.
//
// Errors: the file cannot be read.
func (p *proof) goOn(file string) error {
	text, err := os.ReadFile(file)
	if file == "" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var before proof
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		return fmt.Errorf("read the run to go on with from %s: %w", file, err)
	}
	same := before.Commit == p.Commit && !strings.HasSuffix(p.Commit, "changes") && before.Only == p.Only && slices.Equal(before.Patterns, p.Patterns) &&
		before.Sample == p.Sample && before.Packages == p.Packages && before.Seed == p.Seed
	if same {
		before.Each = max(before.Each, p.Each)
		*p = before
	}
	return nil
}

// add adds the outcomes of a package to the proof: drawn is how many mutants were drawn, of how many there
// are, and least the score that is asked for.
func (p *proof) add(dir string, all []outcome, drawn, of int, least float64) {
	r := row{Package: dir, Of: of, NotTried: drawn - len(all)}
	for _, o := range all {
		r.count(o.fate)
	}
	p.Rows = append(p.Rows, r)
	p.All = row{}
	noticed, weights := 0.0, 0.0
	for _, r := range p.Rows {
		p.All.plus(r)
		if counted := r.Mutants - r.Equivalent; counted > 0 {
			noticed += float64(r.Of) * float64(r.Killed+r.Hung) / float64(counted)
			weights += float64(r.Of)
		}
	}
	p.Weighted = math.Floor(1000*noticed/max(weights, 1)) / 10
	p.Exit = 0
	if p.All.Score < least {
		p.Exit = 1
	}
	if p.Killed == nil {
		p.Killed = map[string]bodies{}
	}
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
		case misbuilt, equivalent, untried:
		}
	}
}

// short is the end of a mutant's name: <operator>:<number>.
func short(name string) string {
	parts := strings.Split(name, ":")
	return strings.Join(parts[len(parts)-2:], ":")
}
