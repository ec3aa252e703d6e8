package jaeger

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
)

// deep is a trace in which each of some requests leads to the next one, and the API server
// and etcd take some steps within each.
func deep(requests int) *Trace {
	begin := time.Unix(1_700_000_000, 0)
	id := 0
	span := func(service, name string, children ...*Span) *Span {
		id++
		return &Span{ID: fmt.Sprint(id), Name: name, Service: service, Start: begin.Add(time.Duration(id) * time.Millisecond), Duration: time.Millisecond, Children: children}
	}
	root := span("millrace-watcher", "send deployments.apps")
	for at := root; requests > 0; requests-- {
		next := span("millrace-reconcilers", "process deployments.apps with a name that is longer than its column")
		inside := span("apiserver", "authorize", span("etcd", "Txn", next))
		at.Children = append(at.Children, span("apiserver", "HTTP PATCH /apis/apps/v1/namespaces/default/deployments/web/status", inside, span("apiserver", "serialize")))
		at = next
	}
	return &Trace{ID: scale, Roots: []*Span{root}}
}

func drawn(t *testing.T, trace *Trace, v View) string {
	t.Helper()
	var out strings.Builder
	paper, err := printer.NewPaper(&out, "never")
	if err != nil {
		t.Fatal(err)
	}
	Draw(paper, trace, v)
	return out.String()
}

// TestADeepTraceIsReadable: no line is longer than the terminal, and the spans within a request are
// counted.
func TestADeepTraceIsReadable(t *testing.T) {
	trace := deep(30)
	for _, width := range []int{80, 100, 120, 200} {
		said := drawn(t, trace, View{Width: width})
		lines := strings.Split(strings.TrimSpace(said), "\n")
		for _, line := range lines[1:] {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("at %d columns a line has %d: %s", width, n, line)
			}
		}
		if strings.Contains(said, "Txn") || strings.Contains(said, "serialize") || !strings.Contains(said, "90 spans within requests of the API server and etcd are not shown: --all") {
			t.Errorf("what is hidden is\n%s", said)
		}
		if strings.Count(said, "process dep") != 30 {
			t.Errorf("what the requests led to is not all there:\n%s", said)
		}
	}
	if all := drawn(t, trace, View{All: true}); strings.Count(all, "Txn") != 30 || strings.Contains(all, "are not shown") {
		t.Errorf("all of it is\n%s", all)
	}
}
