package system

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/clustertest"
)

// step is a span that a trace must have, and the spans below it.
type step struct {
	service, name string // "" is any
	deep          bool   // somewhere below, not directly
	times         int    // at least so many
	below         []*step
}

// topology parses steps from a text in the way that people draw them: a line for each span, "service: name",
// two spaces deeper than its parent. A "*" stands for any name, ".." before a line allows other spans in
// between, and "x3" at its end demands three such spans, each with everything below it.
func topology(text string) *step {
	root := &step{}
	path := []*step{root}
	for line := range strings.Lines(text) {
		words := strings.TrimSpace(line)
		if words == "" {
			continue
		}
		depth := strings.Count(line[:strings.Index(line, words)], "  ")
		s := &step{times: 1}
		words, s.deep = strings.CutPrefix(words, ".. ")
		if at := strings.LastIndex(words, " x"); at >= 0 {
			if n, err := strconv.Atoi(words[at+2:]); err == nil {
				words, s.times = words[:at], n
			}
		}
		s.service, s.name, _ = strings.Cut(words, ": ")
		path = append(path[:depth+1], s)
		path[depth].below = append(path[depth].below, s)
	}
	return root
}

func (w *step) String() string {
	text := w.service + ": " + w.name
	if w.times > 1 {
		text += fmt.Sprintf(" x%d", w.times)
	}
	return text
}

// missing is the first step that the spans do not have; "" if they have all.
func (w *step) missing(among []*clustertest.Span) string {
	for _, below := range w.below {
		found, farthest := 0, ""
		for s := range below.candidates(among) {
			if !below.is(s) {
				continue
			}
			if lacks := below.missing(s.Children); lacks == "" {
				found++
			} else if len(lacks) > len(farthest) {
				farthest = lacks
			}
		}
		if found < below.times {
			return strings.TrimSuffix(fmt.Sprintf("%v (found %d) > %s", below, found, farthest), " > ")
		}
	}
	return ""
}

// candidates are the spans that a step may match.
func (w *step) candidates(among []*clustertest.Span) func(yield func(*clustertest.Span) bool) {
	return func(yield func(*clustertest.Span) bool) {
		for _, top := range among {
			if !w.deep {
				if !yield(top) {
					return
				}
				continue
			}
			for s := range top.Below() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

func (w *step) is(s *clustertest.Span) bool {
	return (w.service == s.Service) && (w.name == "*" || w.name == s.Name)
}

// TestTopologyIsStrict: the check of traces finds missing spans, and spans in the wrong place.
func TestTopologyIsStrict(t *testing.T) {
	span := func(service, name string, below ...*clustertest.Span) *clustertest.Span {
		return &clustertest.Span{Service: service, Name: name, Children: below}
	}
	roots := []*clustertest.Span{span("watcher", "send", span("reconcilers", "process", span("writer", "put"), span("writer", "post", span("etcd", "txn")), span("writer", "post")))}
	for text, want := range map[string]string{
		"watcher: send\n  reconcilers: process\n    writer: put": "",
		"watcher: send\n  .. etcd: txn":                          "",
		"watcher: send\n  .. writer: post x2":                    "",
		"watcher: send\n  .. writer: * x4":                       "x4",
		"watcher: send\n  .. writer: post x3":                    "(found 2)",
		"watcher: send\n  etcd: txn":                             "watcher: send (found 0) > etcd: txn",
		"watcher: send\n  .. writer: put\n    etcd: txn":         "etcd: txn",
		"reconcilers: process":                                   "reconcilers: process",
		"watcher: send\n  .. writer: post x2\n    etcd: txn":     "(found 1)",
	} {
		got := topology(text).missing(roots)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("of the spans\n%s\nthese are reported as missing: %q, want %q", text, got, want)
		}
	}
}
