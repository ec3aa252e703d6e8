package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/mutants/operator"
)

// today is the seed where none is given.
func today(now time.Time) uint64 {
	n, _ := strconv.ParseUint(now.UTC().Format("20060102"), 10, 64)
	return n
}

// packagesInSample is the most packages that a sample is drawn from: each must be built.
const packagesInSample = 4

// draw takes n mutants at random. They are of a few packages only, which are drawn first,
// each as likely as it has mutants.
func draw(all map[*operator.Package][]operator.Mutant, n int, seed uint64) map[*operator.Package][]operator.Mutant {
	dice := rand.New(rand.NewPCG(seed, 0))
	var packages []*operator.Package
	for p := range all {
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b *operator.Package) int { return strings.Compare(a.Dir, b.Dir) })
	var urn []*operator.Package
	for _, p := range packages {
		urn = append(urn, slices.Repeat([]*operator.Package{p}, len(all[p]))...)
	}
	from := map[*operator.Package]bool{}
	for range packagesInSample {
		if len(urn) > 0 {
			from[urn[dice.IntN(len(urn))]] = true
		}
	}
	var pool []operator.Mutant
	for _, p := range packages {
		if from[p] {
			pool = append(pool, all[p]...)
		}
	}
	dice.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	drawn := map[*operator.Package][]operator.Mutant{}
	for _, m := range pool[:min(n, len(pool))] {
		p := packages[slices.IndexFunc(packages, func(p *operator.Package) bool { return p.Dir == m.Dir })]
		drawn[p] = append(drawn[p], m)
	}
	return drawn
}

// earlier is what an earlier run killed.
type earlier struct {
	commit string
	killer map[string]string // by name and sum of the function: the test, as in outcome
}

func readEarlier(file string) (*earlier, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read an earlier run: %w", err)
	}
	var p proof
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read an earlier run from %s: %w", file, err)
	}
	e := &earlier{p.Commit, map[string]string{}}
	for file, of := range p.Killed {
		for body, tests := range of {
			function, sum, _ := strings.Cut(body, "@")
			for by, names := range tests {
				for name := range strings.FieldsSeq(names) {
					e.killer[file+":"+function+":"+name+"@"+sum] = by
				}
			}
		}
	}
	return e, nil
}

// test is the test that killed a mutant, if the function is still as it was then.
func (e *earlier) test(m operator.Mutant) (by string, known bool) {
	by, known = e.killer[m.Name+"@"+m.Sum]
	return by, known && strings.HasPrefix(by[strings.LastIndexByte(by, ' ')+1:], "Test")
}

// comparable are the mutants that an earlier run killed by a test that has a name, in
// functions that are as they were.
func (e *earlier) comparable(all map[*operator.Package][]operator.Mutant) map[*operator.Package][]operator.Mutant {
	some := map[*operator.Package][]operator.Mutant{}
	for p, mutants := range all {
		for _, m := range mutants {
			if _, known := e.test(m); known && m.Switched() {
				some[p] = append(some[p], m)
			}
		}
	}
	return some
}

// again tries mutants that an earlier run killed: with the test that killed each then, and
// with all tests of that package if that one notices nothing now. No mutant is begun when
// the time is over.
//
// Errors: errSurvived if one survives now; the tests of a package do not build.
func (f *factory) again(ctx context.Context, to io.Writer, e *earlier, drawn map[*operator.Package][]operator.Mutant, until time.Time) error {
	tried, missed := 0, 0
	for p, mutants := range drawn {
		if time.Now().After(until) {
			break
		}
		dirs := []string{p.Dir}
		for _, m := range mutants {
			if dir := e.dir(m); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
		suites, err := f.build(ctx, p.Switched(), dirs)
		if err != nil {
			return err
		}
		for _, m := range mutants {
			if time.Now().After(until) {
				break
			}
			began := time.Now()
			now, by := f.retry(ctx, e, suites, m)
			if tried++; now == survived {
				missed++
				fmt.Fprintf(to, "\n%s survives, and was killed by %s at %s:\n-%s\n+%s\n", m.Name, by, e.commit, m.Before, m.After)
			} else {
				fmt.Fprintf(to, "%-10s %5.1fs  %s  %s\n", now, time.Since(began).Seconds(), m.Name, by)
			}
		}
		discard(suites)
	}
	fmt.Fprintf(to, "%d mutants tried that were killed at %s: %d survive now\n", tried, e.commit, missed)
	if missed > 0 {
		return errSurvived
	}
	return ctx.Err()
}

// dir is where the test is that killed a mutant.
func (e *earlier) dir(m operator.Mutant) string {
	by, _ := e.test(m)
	if dir, _, further := strings.Cut(by, " "); further {
		return dir
	}
	return m.Dir
}

func (f *factory) retry(ctx context.Context, e *earlier, suites []*suite, m operator.Mutant) (fate, string) {
	by, _ := e.test(m)
	for _, s := range suites {
		if s.dir != e.dir(m) {
			continue
		}
		name, _, _ := strings.Cut(by[strings.LastIndexByte(by, ' ')+1:], "/")
		for _, tests := range [][]test{{{name: name}}, {{name: ".*", took: time.Minute}}} {
			if now, by := f.workshop.try(ctx, s, tests, m.ID()); now != survived {
				return now, by
			}
		}
	}
	return survived, by
}
