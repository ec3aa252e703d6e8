package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one small break.
type mutant struct {
	name  string // "<area>/<name>"
	file  string // relative to the root of the repository
	like  string // the real bug that it represents
	tests []string
	hunk  []string // lines that begin with ' ', '-' or '+', as in a diff
	at    string   // its place in testdata, "shell.txt:12"
}

// catalogue returns every written mutant, in the order of files and lines.
//
// Errors: a file cannot be read.
func catalogue(root string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, "cmd", "mutants", "testdata", "*.txt"))
	if err != nil {
		return nil, fmt.Errorf("find the files of mutants: %w", err)
	}
	var all []mutant
	known := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read mutants: %w", err)
		}
		read, err := parse(filepath.Base(file), string(text))
		if err != nil {
			return nil, err
		}
		for _, m := range read {
			if known[m.name] {
				return nil, fmt.Errorf("%s: mutant %s is there already; give it another name", m.at, m.name)
			}
			known[m.name] = true
		}
		all = append(all, read...)
	}
	return all, nil
}

// fitting returns the mutants that fit the tree.
//
// Errors: some do not fit; the error names each, with the text that it looked for.
func fitting(root string, all []mutant) (fit []mutant, err error) {
	var stale []string
	for _, m := range all {
		if _, err := m.broken(root); err != nil {
			stale = append(stale, err.Error())
			continue
		}
		fit = append(fit, m)
	}
	if len(stale) > 0 {
		err = fmt.Errorf("%d mutants do not fit the tree any more; write the same break for the code as it is now:\n%s", len(stale), strings.Join(stale, "\n"))
	}
	return fit, err
}

// parse reads a file of mutants:
//
//	# remarks
//	tests <steps for all that follow that name none>
//
//	mutant <name>
//	file   <path>
//	like   <the real bug>
//	tests  <steps>
//	-a line that goes
//	+a line that comes
//	 a line that stays
func parse(file, text string) ([]mutant, error) {
	area := strings.TrimSuffix(file, filepath.Ext(file))
	var all []mutant
	var usual []string
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d", file, i+1)
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		var m *mutant
		if len(all) > 0 {
			m = &all[len(all)-1]
		}
		switch {
		case word == "mutant":
			all = append(all, mutant{name: area + "/" + rest, tests: usual, at: at})
		case word == "tests" && m == nil:
			usual = strings.Fields(rest)
		case m == nil:
			return nil, fmt.Errorf("%s: %q comes before the first mutant", at, line)
		case strings.ContainsRune(" -+", rune(line[0])):
			m.hunk = append(m.hunk, line)
		case len(m.hunk) > 0:
			return nil, fmt.Errorf("%s: %q comes after the hunk of mutant %s, where it would change that mutant; write it before the hunk, or before the first mutant of the file", at, line, m.name)
		case word == "file":
			m.file = rest
		case word == "like":
			m.like = rest
		case word == "tests":
			m.tests = strings.Fields(rest)
		default:
			return nil, fmt.Errorf("%s: %q is neither mutant, file, like, tests nor part of a hunk", at, word)
		}
	}
	for _, m := range all {
		if m.file == "" || m.like == "" || len(m.tests) == 0 || m.before() == m.after() {
			return nil, fmt.Errorf("%s: mutant %s needs a file, what it is like, tests, and a hunk that changes something", m.at, m.name)
		}
	}
	return all, nil
}

// before is the text that the mutant replaces.
func (m mutant) before() string { return m.lines(" -") }

// after is the replacement.
func (m mutant) after() string { return m.lines(" +") }

func (m mutant) lines(of string) string {
	var b strings.Builder
	for _, line := range m.hunk {
		if strings.IndexByte(of, line[0]) >= 0 {
			b.WriteString(line[1:] + "\n")
		}
	}
	return b.String()
}

// broken is the content of the file with the break in it.
//
// Errors: the text to replace does not occur exactly once.
func (m mutant) broken(root string) ([]byte, error) {
	whole, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return nil, fmt.Errorf("%s: mutant %s: %w", m.at, m.name, err)
	}
	// Whole lines only: the end of a longer line is no match.
	text, old := slices.Concat([]byte("\n"), whole), []byte("\n"+m.before())
	if n := bytes.Count(text, old); n != 1 {
		return nil, fmt.Errorf("%s: mutant %s: the text to replace is in %s %d times, not once:\n%s", m.at, m.name, m.file, n, m.before())
	}
	return bytes.Replace(text, old, []byte("\n"+m.after()), 1)[1:], nil
}
