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

// today is the seed where none is given.
func today(now time.Time) uint64 {
	n, _ := strconv.ParseUint(now.UTC().Format("20060102"), 10, 64)
	return n
}

// fewest is what a sample of all packages has at least of each, if there are so many.
const fewest = 5

// drawFromAll takes about n mutants at random: of each package its share, and the fewest.
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

// draw takes n mutants at random. They are of so many packages only, which are drawn first,
// each as likely as it has mutants; each must be built.
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

// earlier is what earlier runs killed, by a mutant's name and the sum of its function.
type earlier map[string]kill

// kill is what killed a mutant: a test, as in outcome, at a commit.
type kill struct{ by, commit string }

// readEarlier reads the evidence of earlier runs, the files that match a pattern.
//
// Errors: there is none; one cannot be read.
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

// kills are the tests that killed something, by name and sum.
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

// of is what killed a mutant, if it was a test with a name, and the function is still as it
// was then.
func (e earlier) of(m operator.Mutant) (d kill, known bool) {
	d, known = e[m.Name+"@"+m.Sum]
	return d, known && strings.HasPrefix(d.test(), "Test")
}

// test is the name of the test, dir the directory that it is in; empty: the package's own.
func (d kill) test() string { return d.by[strings.LastIndexByte(d.by, ' ')+1:] }

func (d kill) dir() string { return d.by[:max(0, strings.LastIndexByte(d.by, ' '))] }

// comparable are the mutants that an earlier run killed by a test that has a name, in
// functions that are as they were.
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

// again tries mutants that earlier runs killed: with the test that killed each then, and
// with all tests of its package if that one notices nothing now. No mutant is begun when
// the time is over.
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

// dir is where the test is that killed a mutant.
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
