package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/mutants/operator"
)

const (
	uncovered  fate = "uncovered"
	equivalent fate = "equivalent"
	untried    fate = "not tried" // the time of its package was over
)

// errSlow reports that the tests of a package take longer than the time for a package.
var errSlow = errors.New("the tests take too long")

// outcome is the result of a generated mutant.
type outcome struct {
	operator.Mutant
	fate fate
	by   string // "<test>", or "<directory> <test>" for a test of another package
	took time.Duration
}

// everything are the packages that operators break by default.
var everything = []string{"./pkg/events/...", "./services/watcher/...", "./services/reconcilers/...", "./services/writer/..."}

// factory tries the generated mutants of packages.
type factory struct {
	workshop
	jobs       int
	each       time.Duration       // time for the tests of a package, one by one; 0: no bound
	further    map[string][]string // by package: other suites that run, too
	equivalent map[string]string   // by name: why the mutant changes nothing
	left       []string            // tests that fail with nothing broken
}

// try tries the chosen mutants of a package with the package's own tests, and those that survive with further
// suites. It begins no mutant after the time for a package. The further suites have no bound, because only
// mutants that are hard to notice reach them.
//
// Errors: errSlow; the package cannot be built with its mutants.
func (f *factory) try(ctx context.Context, p *operator.Package, chosen []operator.Mutant) ([]outcome, error) {
	until := time.Now().Add(cmp.Or(f.each, 365*24*time.Hour))
	texts := p.Switched()
	outcomes := make([]outcome, len(chosen))
	for i, m := range chosen {
		outcomes[i] = outcome{Mutant: m, fate: untried}
		if _, known := f.equivalent[m.Name]; known {
			outcomes[i].fate = equivalent
		}
	}
	for i, of := range append([]string{p.Dir}, f.further[p.Dir]...) {
		var open []*outcome
		for i := range outcomes {
			switch outcomes[i].fate {
			case untried, uncovered, survived:
				open = append(open, &outcomes[i])
			case killed, hung, misbuilt, equivalent:
			}
		}
		if len(open) == 0 {
			break
		}
		if err := f.trySuite(ctx, p, texts, of, open, until); err != nil {
			return nil, err
		}
		if i == 0 {
			outcomes = slices.DeleteFunc(outcomes, func(o outcome) bool { return o.fate == untried })
			until = time.Time{}
		}
	}
	return outcomes, ctx.Err()
}

// trySuite tries mutants with one suite until the given time; zero: no bound.
func (f *factory) trySuite(ctx context.Context, p *operator.Package, texts map[string][]byte, of string, open []*outcome, until time.Time) error {
	suites, err := f.build(ctx, texts, []string{of})
	if err != nil {
		return err
	}
	defer discard(suites)
	for _, s := range suites {
		began := time.Now()
		left, err := f.measure(ctx, s, len(p.Mutants), f.jobs, until)
		if err != nil {
			return err
		}
		f.left = append(f.left, left...)
		fmt.Fprintf(os.Stderr, "%s: %d tests of %s in %v; %d fail by themselves\n", p.Dir, len(s.tests), s.dir, time.Since(began).Round(time.Second), len(left))
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range max(f.jobs, 1) {
		workers.Go(func() {
			for i := range next {
				began, o := time.Now(), open[i]
				f.one(ctx, p, suites, o)
				o.took += time.Since(began)
				if ctx.Err() != nil {
					continue // a test that was cut short says nothing about the mutant
				}
				fmt.Fprintf(os.Stderr, "%4d/%d %-10s %5.1fs  %s  %s\n", i+1, len(open), o.fate, o.took.Seconds(), o.Name, o.by)
			}
		})
	}
	for i := range open {
		if until.IsZero() || time.Now().Before(until) {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	return ctx.Err()
}

func discard(suites []*suite) {
	for _, s := range suites {
		os.RemoveAll(filepath.Dir(s.binary))
	}
}

// one tries one mutant with suites.
func (f *factory) one(ctx context.Context, p *operator.Package, suites []*suite, o *outcome) {
	if o.fate == untried {
		o.fate = uncovered
	}
	for _, s := range suites {
		on := o.ID()
		if !o.Switched() {
			built, err := f.alone(ctx, p, s, o.Mutant)
			if err != nil {
				o.fate, o.by = misbuilt, strings.ReplaceAll(err.Error(), "\n", " ")
				return
			}
			s, on = built, 0 // nothing is switched in it, and every test reaches what is the 0th there
		}
		if f.ask(ctx, p, s, on, o); !o.Switched() {
			discard([]*suite{s})
		}
	}
}

// ask runs the tests of a suite that reach a mutant until one notices it.
func (f *factory) ask(ctx context.Context, p *operator.Package, s *suite, on int, o *outcome) {
	for _, tests := range s.reaching(on) {
		if o.fate, o.by = f.workshop.try(ctx, s, tests, on); o.fate == survived {
			continue
		}
		if s.dir != p.Dir && o.by != "" {
			o.by = s.dir + " " + o.by
		}
		return
	}
}

// alone builds a suite for a mutant that cannot be switched. All of its tests count as reaching the mutant.
//
// Errors: it does not compile.
func (f *factory) alone(ctx context.Context, p *operator.Package, like *suite, m operator.Mutant) (*suite, error) {
	file, text := p.Alone(m)
	built, err := f.build(ctx, map[string][]byte{file: text}, []string{like.dir + ":" + like.only})
	if err != nil {
		return nil, err
	}
	for _, t := range like.tests {
		built[0].tests = append(built[0].tests, test{t.name, t.took, []byte{1}})
	}
	return built[0], nil
}

// chosen returns the mutants of packages whose name matches.
func chosen(packages []*operator.Package, only *regexp.Regexp) map[*operator.Package][]operator.Mutant {
	all := map[*operator.Package][]operator.Mutant{}
	for _, p := range packages {
		for _, m := range p.Mutants {
			if only.MatchString(m.Name) {
				all[p] = append(all[p], m)
			}
		}
	}
	return all
}

// readTable reads a file of lines with two columns, keyed by the first; # begins a comment.
func readTable(root, name string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "cmd", "mutants", "testdata", name))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	table := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		key, rest, two := strings.Cut(line, "\t")
		if rest = strings.TrimSpace(rest); !two || rest == "" {
			return nil, fmt.Errorf("read %s: line %d needs a tab and a second column", name, i+1)
		}
		if _, twice := table[key]; twice {
			return nil, fmt.Errorf("read %s: %s is there twice", name, key)
		}
		table[key] = rest
	}
	return table, nil
}

// newFactory reads the tables about generated mutants.
func newFactory(root, scratch string, o options) (*factory, error) {
	f := &factory{workshop: workshop{root, scratch, o.limit}, jobs: o.jobs, each: o.each, further: map[string][]string{}}
	further, err := readTable(root, "further.tsv")
	for dir, dirs := range further {
		f.further[dir] = strings.Fields(dirs)
	}
	var other error
	f.equivalent, other = readTable(root, "equivalent.tsv")
	return f, errors.Join(err, other)
}
