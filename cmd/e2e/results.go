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

// results is what a results.tsv holds: which run it is of, notes about that run, and a
// line for each test: state, seconds, test, failure.
type results struct {
	of    provenance
	notes []string          // that it was interrupted, that it came to its end
	rows  map[string]string // lines, by test
}

// noteMark begins a line that tells about the run; ended and broken begin notes about its
// end: that it has results of all its tests, or that what it ran on did not last.
const (
	noteMark = "# note"
	ended    = "ended"
	broken   = "broken"
)

// noted is true where a note begins with a word.
func (r results) noted(word string) bool {
	return slices.ContainsFunc(r.notes, func(note string) bool { return strings.HasPrefix(note, noteMark+"\t"+word) })
}

// readResults reads a results.tsv.
//
// Errors: it does not say which run it is of; a line is none of results.
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

// result is what became of a test.
func (r results) result(test string) result {
	fields := strings.SplitN(r.rows[test]+"\t\t\t", "\t", 4)
	if fields[0] == "" {
		return result{state: "not run"}
	}
	took, _ := strconv.ParseFloat(fields[1], 64) // what is no number counts as not known
	return result{state: fields[0], took: time.Duration(took * float64(time.Second)), failure: strings.TrimSpace(fields[3])}
}

// resultsFile is a results.tsv that is being written: what is known is in it at any time.
type resultsFile struct {
	file *os.File
	err  error
}

// begin begins a run's results.tsv or, where a run is resumed, goes on with it, and says
// what is known of its tests. The results of the run before are left beside it.
//
// Errors: what is to be resumed is no run of the same build on the same machine.
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

// resumable says why a run cannot go on as what is asked for now.
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

// add adds what became of a test. What did not come to its end is no result.
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

// Name is where the results are.
func (f *resultsFile) Name() string { return f.file.Name() }

func (f *resultsFile) close() error {
	return errors.Join(f.err, f.file.Close())
}

// kept reads the results that test/e2e keeps of a runner: none, before the first are recorded.
func kept(file string) (results, error) {
	r, err := readResults(file)
	if errors.Is(err, fs.ErrNotExist) {
		return results{}, nil
	}
	return r, err
}
