package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
)

// writtenProof is the evidence of runs over written mutants in docs/evidence. All of them take hours, so a run
// goes on with an earlier one: a kill counts as long as neither the file that was broken nor the tests that
// noticed have changed since.
type writtenProof struct {
	Commit  string `json:"commit"` // of the newest run
	Seed    string `json:"seed"`
	Seconds int    `json:"seconds"` // of all tries together
	Exit    int    `json:"exitCode"`
	All     row    `json:"all"`
	// NotTried are the mutants that no run has tried as they are now.
	NotTried int      `json:"notTried"`
	Survived []string `json:"survived"`
	// Tried has the newest try of each mutant, by its name.
	Tried map[string]attempt `json:"tried"`
}

// attempt is one try of a written mutant.
type attempt struct {
	Fate    fate    `json:"fate"`
	By      string  `json:"by,omitempty"`   // the step that noticed it
	Test    string  `json:"test,omitempty"` // the first test in it that failed
	Commit  string  `json:"commit"`
	Date    string  `json:"date"`
	Seconds float64 `json:"seconds"`
	// Inputs is the hash of the mutant, of the file that it breaks, and of the tests that noticed it.
	Inputs string `json:"inputs"`
}

// readWritten reads the evidence of earlier runs; a file that does not exist has none.
//
// Errors: the file cannot be read.
func readWritten(file string) (*writtenProof, error) {
	p := &writtenProof{Tried: map[string]attempt{}}
	text, err := os.ReadFile(file)
	if file == "" || errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(text, p)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tries to go on with from %s: %w", file, err)
	}
	if p.Tried == nil {
		p.Tried = map[string]attempt{}
	}
	return p, nil
}

// left returns the mutants that are still to be tried: first those that no run has tried, then those whose
// code or tests have changed, or that survived. It forgets tries of mutants that have been removed.
//
// Errors: a file cannot be read.
func (p *writtenProof) left(root string, all []mutant) ([]mutant, error) {
	names := map[string]bool{}
	var fresh, changed []mutant
	for _, m := range all {
		names[m.name] = true
		was, tried := p.Tried[m.name]
		if !tried {
			fresh = append(fresh, m)
			continue
		}
		now, err := inputs(root, m, was.By)
		if err != nil {
			return nil, err
		}
		if was.Fate != killed && was.Fate != hung || now != was.Inputs {
			changed = append(changed, m)
		}
	}
	maps.DeleteFunc(p.Tried, func(name string, _ attempt) bool { return !names[name] })
	return append(fresh, changed...), nil
}

// add records a try.
//
// Errors: a file cannot be read.
func (p *writtenProof) add(root string, f finding, now time.Time) error {
	hash, err := inputs(root, f.mutant, f.by)
	if err != nil {
		return err
	}
	p.Tried[f.name] = attempt{
		Fate: f.fate, By: f.by, Test: f.test, Commit: p.Commit, Date: now.UTC().Format(time.RFC3339), Seconds: f.took.Round(time.Second / 10).Seconds(), Inputs: hash,
	}
	return nil
}

// score counts the tries of all mutants. Those of open count as not tried, whatever became of them before.
func (p *writtenProof) score(all, open []mutant, least float64) {
	p.Seed = "none: all of those that are written down, in their order"
	p.All, p.NotTried, p.Survived, p.Exit = row{}, 0, nil, 0
	seconds := 0.0
	for _, m := range all {
		was, tried := p.Tried[m.name]
		if !tried || slices.ContainsFunc(open, func(o mutant) bool { return o.name == m.name }) {
			p.NotTried++
			continue
		}
		seconds += was.Seconds
		if p.All.count(was.Fate); was.Fate == survived {
			p.Survived = append(p.Survived, m.name)
		}
	}
	p.Seconds = int(seconds)
	if p.NotTried > 0 || p.All.Score < least {
		p.Exit = 1
	}
}

// inputs is the hash of a mutant, of the file that it breaks, and of the tests of a step, if that is not empty.
//
// Errors: a file cannot be read.
func inputs(root string, m mutant, step string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, m.file, strings.Join(m.hunk, "\n"))
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", fmt.Errorf("read the code of mutant %s: %w", m.name, err)
	}
	sum.Write(text)
	if step != "" {
		if err := hashTests(sum, root, step); err != nil {
			return "", fmt.Errorf("read the tests of %s: %w", step, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// hashTests writes the test files of a step's packages, and all files of a package that is a test level of its
// own (below test), to a hash.
func hashTests(to interface{ Write([]byte) (int, error) }, root, step string) error {
	s := stepOf(step)
	dir := filepath.Join(root, filepath.FromSlash(cmp.Or(s.dir, strings.TrimSuffix(s.args[0], "/..."))))
	level := strings.HasPrefix(filepath.ToSlash(strings.TrimPrefix(dir, root)), "/test/")
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != dir && s.dir == "" && !strings.HasSuffix(s.args[0], "/...") && d.Name() != "testdata":
			return fs.SkipDir
		case d.IsDir(), !level && !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "testdata"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintln(to, strings.TrimPrefix(file, root), len(text))
		_, err = bytes.NewReader(text).WriteTo(to)
		return err
	})
}

// tryWritten tries the mutants that are left, and writes the evidence now and then.
//
// Errors: errSurvived; the tests fail with nothing broken; a file cannot be read or written.
func (l *lab) tryWritten(ctx context.Context, all []mutant, made *writtenProof, o options) error {
	open, err := made.left(l.root, all)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d of %d mutants are to be tried\n", len(open), len(all))
	save := func() error {
		made.score(all, open, o.least)
		if o.evidence == "" {
			return nil
		}
		return evidence.Write(ctx, o.evidence, made)
	}
	var findings []finding
	began, saved := time.Now(), time.Now()
	err = l.tryAll(ctx, open, o.jobs, began.Add(o.time), func(f finding) error {
		findings = append(findings, f)
		open = slices.DeleteFunc(slices.Clone(open), func(m mutant) bool { return m.name == f.name })
		if err := made.add(l.root, f, time.Now()); err != nil || time.Since(saved) < time.Minute {
			return err
		}
		saved = time.Now()
		return save()
	})
	if err := errors.Join(err, save()); err != nil {
		return err
	}
	result := report(os.Stdout, findings, o.least)
	fmt.Printf("of all: %d tried, %d noticed (%.1f %%), %d not tried\n", made.All.Mutants, made.All.Killed+made.All.Hung, made.All.Score, made.NotTried)
	if result == nil && made.Exit != 0 {
		result = errSurvived
	}
	return result
}
