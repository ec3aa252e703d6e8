package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// results is the content of a results.tsv: the run that it belongs to, notes about that run, and a line for
// each test: state, seconds, test, failure.
type results struct {
	of    provenance
	notes []string          // that it was interrupted, that it was completed
	rows  map[string]string // lines, by test
}

// noteMark begins a line about the run. ended and broken begin notes about its end: all its tests have
// results, or a process of its cluster ended.
const (
	noteMark = "# note"
	ended    = "ended"
	broken   = "broken"
)

// noted reports whether a note begins with a word.
func (r results) noted(word string) bool {
	return slices.ContainsFunc(r.notes, func(note string) bool { return strings.HasPrefix(note, noteMark+"\t"+word) })
}

// readResults reads a results.tsv.
//
// Errors: it does not identify its run; a line is not a result.
func readResults(file string) (results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return results{}, fmt.Errorf("read results: %w", err)
	}
	r := results{rows: map[string]string{}}
	if r.of, err = provenanceIn(file, string(text)); err != nil {
		return r, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n ")
		switch fields := strings.SplitN(line, "\t", 4); {
		case strings.HasPrefix(line, noteMark):
			r.notes = append(r.notes, line)
		case line == "" || strings.HasPrefix(line, "#"):
		case len(fields) < 3:
			return r, fmt.Errorf("read %s: %q has no state, seconds and test; it is to be a results.tsv", file, line)
		default:
			r.rows[fields[2]] = line
		}
	}
	return r, nil
}

// result is the result of a test.
func (r results) result(test string) result {
	fields := strings.SplitN(r.rows[test]+"\t\t\t", "\t", 4)
	if fields[0] == "" {
		return result{state: "not run"}
	}
	took, _ := strconv.ParseFloat(fields[1], 64) // no number means unknown
	return result{state: fields[0], took: time.Duration(took * float64(time.Second)), failure: strings.TrimSpace(fields[3])}
}

// resultsFile is a results.tsv that is being written: it has every result as soon as it is known.
type resultsFile struct {
	file *os.File
	err  error
}

// begin starts a run's results.tsv or, if resume is set, continues it, and returns the known results. It
// keeps the results of the previous run beside the new file.
//
// Errors: the run to resume is of another build or another machine.
func begin(name string, of provenance, resume bool) (*resultsFile, map[string]result, error) {
	outcome := map[string]result{}
	how := os.O_TRUNC
	if resume {
		before, err := readResults(name)
		if err != nil {
			return nil, nil, fmt.Errorf("resume a run: %w", err)
		}
		if err := before.resumable(of); err != nil {
			return nil, nil, fmt.Errorf("resume the run of %s: %w", name, err)
		}
		for test := range before.rows {
			outcome[test] = before.result(test)
		}
		how = os.O_APPEND
	} else if err := os.Rename(name, name+".before"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("keep the results of the run before: %w", err)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|how, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("write results: %w", err)
	}
	f := &resultsFile{file: file}
	if resume {
		f.note("resumed at " + now())
	} else {
		f.write(of.String())
	}
	return f, outcome, nil
}

// resumable returns an error if a run cannot continue as the requested one.
func (r results) resumable(now provenance) error {
	if r.of.by != now.by || r.of.version != now.version || r.of.machine != now.machine {
		return fmt.Errorf("it was by %s, %s, on %s; this would be another", r.of.by, r.of.version, r.of.machine)
	}
	if r.noted(broken) {
		return errors.New("what it ran on did not last; begin anew")
	}
	return nil
}

func (f *resultsFile) note(text string) { f.write(noteMark + "\t" + text) }

// add adds the result of a test. A test that did not end has no result.
func (f *resultsFile) add(test string, r result) error {
	if r.state != missing {
		f.write(fmt.Sprintf("%s\t%.1f\t%s\t%s", r.state, r.took.Seconds(), test, r.failure))
	}
	return f.err
}

func (f *resultsFile) write(line string) {
	if _, err := fmt.Fprintln(f.file, line); err != nil && f.err == nil {
		f.err = fmt.Errorf("write results: %w", err)
	}
}

// Name is the path of the results.
func (f *resultsFile) Name() string { return f.file.Name() }

func (f *resultsFile) close() error {
	return errors.Join(f.err, f.file.Close())
}

// kept reads the results that test/e2e keeps of a runner; there are none before the first are recorded.
func kept(file string) (results, error) {
	r, err := readResults(file)
	if errors.Is(err, fs.ErrNotExist) {
		return results{}, nil
	}
	return r, err
}
