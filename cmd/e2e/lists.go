package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// test is a test with the remark that its list has about it.
type test struct{ name, about string }

// lists are the tests that test/e2e lists, by their full names.
type lists struct {
	tests  []string // of the controllers that Millrace has
	left   []test   // the tests among them that cannot pass on this cluster, with the reason
	notYet []test   // tests of controllers that Millrace does not have yet, with the controller
	newer  []test   // tests that are newer than a recorded run, with the runner of that run
}

// readLists reads the lists from a checkout.
//
// Errors: a list is missing; a test is left out without a reason, or is in two lists.
func readLists(root string) (lists, error) {
	var l lists
	var err error
	dir := filepath.Join(root, "test", "e2e")
	if l.tests, err = lines(filepath.Join(dir, "tests.txt")); err != nil {
		return l, err
	}
	for name, list := range map[string]*[]test{"left-out.tsv": &l.left, "not-yet.tsv": &l.notYet, "newer.tsv": &l.newer} {
		if *list, err = annotated(filepath.Join(dir, name)); err != nil {
			return l, err
		}
	}
	for _, t := range l.left {
		if !slices.Contains(l.tests, t.name) {
			return l, fmt.Errorf("read left-out.tsv: %s is not in tests.txt", t.name)
		}
	}
	names := append(slices.Clone(l.tests), namesOf(l.notYet)...)
	slices.Sort(names)
	for i, name := range names[1:] {
		if name == names[i] {
			return l, fmt.Errorf("read lists of tests: %s is named twice", name)
		}
	}
	return l, nil
}

// annotated reads a list of tests; after a tab, each has a remark.
func annotated(file string) ([]test, error) {
	all, err := lines(file)
	if err != nil {
		return nil, err
	}
	tests := make([]test, 0, len(all))
	for _, line := range all {
		name, about, _ := strings.Cut(line, "\t")
		if strings.TrimSpace(about) == "" {
			return nil, fmt.Errorf("read %s: %q says nothing after its name and a tab", file, name)
		}
		tests = append(tests, test{name, about})
	}
	return tests, nil
}

// lines returns the lines of a file without blank and comment lines; '#' begins a comment line.
func lines(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read list of tests: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n ")
		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all, nil
}

// whole is the whole run of a runner. The baseline runs the tests of all lists, because it proves the reasons
// in left-out.tsv and the tests of not-yet.tsv; every other run has the tests that can pass.
func (l lists) whole(by string) []string {
	if by == "kcm" {
		return append(slices.Clone(l.tests), namesOf(l.notYet)...)
	}
	left := namesOf(l.left)
	return slices.DeleteFunc(slices.Clone(l.tests), func(name string) bool { return slices.Contains(left, name) })
}

// selection is the tests that a run with these options plays.
//
// Errors: nothing is selected.
func (l lists) selection(o options) ([]string, error) {
	from := l.whole(o.by)
	if o.all {
		from = l.whole("kcm")
	}
	if o.list != "" {
		var err error
		if from, err = lines(o.list); err != nil {
			return nil, err
		}
	}
	tests := slices.DeleteFunc(from, func(name string) bool { return !strings.Contains(name, o.focus) })
	if len(tests) == 0 {
		return nil, fmt.Errorf("select tests: none is named like %q", o.focus)
	}
	return tests, nil
}

func namesOf(tests []test) []string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.name
	}
	return names
}
