package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/mutants/operator"
)

// today is the default seed.
func today(now time.Time) uint64 {
	n, _ := strconv.ParseUint(now.UTC().Format("20060102"), 10, 64)
	return n
}

// fewest is the minimum that a sample of all packages has of each package, if it has so many.
const fewest = 5

// drawFromAll draws about n mutants at random: each package's share, but at least [fewest] of each.
func drawFromAll(all map[*operator.Package][]operator.Mutant, n int, seed uint64) map[*operator.Package][]operator.Mutant {
	dice := rand.New(rand.NewPCG(seed, 0))
	total := 0
	for _, mutants := range all {
		total += len(mutants)
	}
	drawn := map[*operator.Package][]operator.Mutant{}
	for _, p := range slices.SortedFunc(maps.Keys(all), byDir) {
		pool := slices.Clone(all[p])
		dice.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
		share := (n*len(pool) + total/2) / total
		drawn[p] = pool[:min(max(share, fewest), len(pool))]
	}
	return drawn
}

// draw draws n mutants at random from a limited number of packages, because each package must be built. It
// draws the packages first, each with a probability in proportion to its mutants.
func draw(all map[*operator.Package][]operator.Mutant, n, packagesDrawn int, seed uint64) map[*operator.Package][]operator.Mutant {
	dice := rand.New(rand.NewPCG(seed, 0))
	packages := slices.SortedFunc(maps.Keys(all), byDir)
	var urn []*operator.Package
	for _, p := range packages {
		urn = append(urn, slices.Repeat([]*operator.Package{p}, len(all[p]))...)
	}
	from := map[*operator.Package]bool{}
	for range packagesDrawn {
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

func byDir(a, b *operator.Package) int { return strings.Compare(a.Dir, b.Dir) }

// earlier has the kills of earlier runs, keyed by a mutant's name and the hash of its function.
type earlier map[string]kill

// kill is a test that killed a mutant, as in outcome, and the commit.
type kill struct{ by, commit string }

// readEarlier reads the evidence of earlier runs from the files that match a pattern.
//
// Errors: no file matches; one cannot be read.
func readEarlier(pattern string) (earlier, error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find earlier runs: %s matches no file: %w", pattern, cmp.Or(err, os.ErrNotExist))
	}
	e := earlier{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read an earlier run: %w", err)
		}
		var p proof
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("read an earlier run from %s: %w", file, err)
		}
		for name, by := range p.kills() {
			e[name] = kill{by, p.Commit}
		}
	}
	return e, nil
}

// kills are the tests that killed mutants, by name and hash.
func (p *proof) kills() map[string]string {
	all := map[string]string{}
	for file, of := range p.Killed {
		for body, tests := range of {
			function, sum, _ := strings.Cut(body, "@")
			for by, names := range tests {
				for name := range strings.FieldsSeq(names) {
					all[file+":"+function+":"+name+"@"+sum] = by
				}
			}
		}
	}
	return all
}

// of returns what killed a mutant. It is known only if a named test killed it, and the function is unchanged
// since. Evidence that names a test in the directory of the oracle itself is from before its tests were divided
// into packages, and does not say which has the test.
func (e earlier) of(m operator.Mutant) (d kill, known bool) {
	d, known = e[m.Name+"@"+m.Sum]
	return d, known && strings.HasPrefix(d.test(), "Test") && d.dir() != oracle
}

// test is the name of the test, dir the directory of the test; empty: the package's own.
func (d kill) test() string { return d.by[strings.LastIndexByte(d.by, ' ')+1:] }

func (d kill) dir() string { return d.by[:max(0, strings.LastIndexByte(d.by, ' '))] }

// comparable returns the mutants that a named test killed in an earlier run, in functions that are unchanged.
func (e earlier) comparable(all map[*operator.Package][]operator.Mutant) map[*operator.Package][]operator.Mutant {
	some := map[*operator.Package][]operator.Mutant{}
	for p, mutants := range all {
		for _, m := range mutants {
			if _, known := e.of(m); known && m.Switched() {
				some[p] = append(some[p], m)
			}
		}
	}
	return some
}

// again tries mutants that earlier runs killed: first with the test that killed each, and if that one does
// not notice now, with all tests of its package. It begins no mutant after until.
//
// Errors: errSurvived if one survives now; the tests of a package do not build.
func (f *factory) again(ctx context.Context, to io.Writer, e earlier, drawn map[*operator.Package][]operator.Mutant, until time.Time) error {
	tried, missed := 0, 0
	for _, p := range slices.SortedFunc(maps.Keys(drawn), byDir) {
		mutants := drawn[p]
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
				d, _ := e.of(m)
				fmt.Fprintf(to, "\n%s survives, and was killed by %s at %s:\n-%s\n+%s\n", m.Name, d.by, d.commit, m.Before, m.After)
			} else {
				fmt.Fprintf(to, "%-10s %5.1fs  %s  %s\n", now, time.Since(began).Seconds(), m.Name, by)
			}
		}
		discard(suites)
	}
	fmt.Fprintf(to, "%d mutants tried that were killed once: %d survive now\n", tried, missed)
	if missed > 0 {
		return errSurvived
	}
	return ctx.Err()
}

// dir is the directory of the test that killed a mutant.
func (e earlier) dir(m operator.Mutant) string {
	d, _ := e.of(m)
	return cmp.Or(d.dir(), m.Dir)
}

func (f *factory) retry(ctx context.Context, e earlier, suites []*suite, m operator.Mutant) (now fate, by string) {
	d, _ := e.of(m)
	for _, s := range suites {
		if s.dir != e.dir(m) {
			continue
		}
		name, _, _ := strings.Cut(d.test(), "/")
		for _, tests := range [][]test{{{name: name}}, {{name: ".*", took: time.Minute}}} {
			if now, by = f.workshop.try(ctx, s, tests, m.ID()); now != survived {
				return now, by
			}
		}
	}
	return survived, ""
}
