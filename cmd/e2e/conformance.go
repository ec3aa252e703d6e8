package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// conformance renders the page: every test, with the results of all runners side by side.
func conformance(root string) ([]byte, error) {
	l, err := readLists(root)
	if err != nil {
		return nil, err
	}
	by := map[string]results{}
	page := bytes.NewBufferString(conformanceHead)
	for _, r := range runners {
		if by[r.by], err = kept(filepath.Join(root, "test", "e2e", r.file)); err != nil {
			return nil, err
		}
		page.WriteString(headOf(r, by[r.by]))
	}
	groups := map[string][]string{}
	run := l.whole("millrace")
	for _, test := range run {
		group := groupOf(test)
		groups[group] = append(groups[group], test)
	}
	sum := func(title string, tests []string) {
		fmt.Fprintf(page, "| %s | %d", title, len(tests))
		for _, r := range runners {
			fmt.Fprintf(page, " | %s", passed(by[r.by], tests))
		}
		page.WriteString(" |\n")
	}
	page.WriteString(sumsHead)
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		sum(group, groups[group])
	}
	sum("**all**", run)
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(page, "\n## %s\n\n| test | kube-controller-manager | Millrace | no controllers |\n| --- | --- | --- | --- |\n", group)
		for _, test := range slices.Sorted(slices.Values(groups[group])) {
			fmt.Fprintf(page, "| %s", escaped(strings.TrimPrefix(test, group+" ")))
			for _, r := range runners {
				fmt.Fprintf(page, " | %s", by[r.by].result(test).state)
			}
			page.WriteString(" |\n")
		}
	}
	page.WriteString(elsewhereHead)
	for _, r := range elsewhere {
		there, err := kept(filepath.Join(root, "test", "e2e", r.file))
		if err != nil {
			return nil, err
		}
		page.WriteString(elsewhereOf(r, there, run))
	}
	page.WriteString(notYetHead)
	annotations(page, l.notYet, by["kcm"])
	page.WriteString(leftOutHead)
	annotations(page, l.left, by["kcm"])
	return page.Bytes(), nil
}

func annotations(page *bytes.Buffer, tests []test, baseline results) {
	for _, t := range tests {
		fmt.Fprintf(page, "| %s | %s | %s |\n", escaped(t.name), baseline.result(t.name).state, escaped(t.about))
	}
}

// elsewhereOf is the table row about a run on another version of Kubernetes.
func elsewhereOf(r runner, run results, tests []string) string {
	if len(run.rows) == 0 {
		return fmt.Sprintf("| %s | not run yet | | | | | |\n", r.kubernetes)
	}
	var absences int
	var others []string
	for _, test := range tests {
		switch r := run.result(test); r.state {
		case "passed":
			if strings.HasPrefix(r.failure, failedAtFirst) {
				others = append(others, escaped(test)+": passed when it was run again ("+escaped(r.failure)+")")
			}
		case absent:
			absences++
		default:
			others = append(others, escaped(test)+": "+r.state)
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %d | %s | [%s](../test/e2e/%s) |\n",
		r.kubernetes, run.of.version, run.of.begun, passed(run, tests), absences, cmp.Or(strings.Join(others, "; "), "none"), r.file, r.file)
}

// headOf is the table row about a run.
func headOf(r runner, run results) string {
	if len(run.rows) == 0 {
		return fmt.Sprintf("| %s | not run yet | | | | |\n", r.title)
	}
	notes := make([]string, len(run.notes))
	for i, note := range run.notes {
		notes[i] = strings.TrimPrefix(note, noteMark+"\t")
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | [%s](../test/e2e/%s) |\n",
		r.title, run.of.version, run.of.begun, escaped(strings.Join(notes, "; ")), run.of.machine, r.file, r.file)
}

// passed is the number of tests that passed, or "-" if they were not run.
func passed(r results, tests []string) string {
	if len(r.rows) == 0 {
		return "-"
	}
	n := 0
	for _, test := range tests {
		if r.result(test).state == "passed" {
			n++
		}
	}
	return strconv.Itoa(n)
}

// groupOf is the subject of a test: its special interest group, and the word after it.
func groupOf(test string) string {
	sig, rest, _ := strings.Cut(test, "] ")
	about, _, _ := strings.Cut(rest, " ")
	if about == "Garbage" {
		about = "Garbage collector"
	}
	return sig + "] " + about
}

// escaped is a text with its table separators escaped.
func escaped(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const conformanceHead = `# Conformance

Kubernetes' own end-to-end tests of the controllers that Millrace has, on one kind of cluster: simulated nodes, everything else real.
Written from ` + "`test/e2e`" + ` by ` + "`go run ./cmd/e2e --record`" + ` ([how](../test/e2e/README.md)); do not edit.

All results of a column are of one run of one build; "not run" is a test that is newer than the run.

| controllers by | version | run begun | | machine | results |
| --- | --- | --- | --- | --- | --- |
`

const sumsHead = `
"No controllers" is the negative control: all controllers that Millrace has are missing, except for serviceaccount-controller and
root-ca-certificate-publisher-controller, for whose work every test's namespace waits. A test that passes without the controllers
says little about them. There a test has its time with kube-controller-manager and a minute more.

| group | tests | passed with kube-controller-manager | passed with Millrace | passed with no controllers |
| --- | --- | --- | --- | --- |
`

const elsewhereHead = `
## On other versions of Kubernetes

The same tests by Millrace, with the API server, the scheduler and the test suite of an older minor version (` + "`MILLRACE_KUBERNETES=1.35`" + `).

| Kubernetes | Millrace | run begun | passed | not in its suite | any other | results |
| --- | --- | --- | --- | --- | --- | --- |
`

const notYetHead = `
## Not yet

Tests that pass here with kube-controller-manager, and are about a controller that Millrace does not have yet.

| test | kube-controller-manager | controller |
| --- | --- | --- |
`

const leftOutHead = `
## Left out

Tests that cannot pass here, with kube-controller-manager either.

| test | kube-controller-manager | why |
| --- | --- | --- |
`
