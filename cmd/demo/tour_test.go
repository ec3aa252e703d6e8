package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/arena"
)

// program is a script that stands for millrace.
func program(t *testing.T, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "millrace")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// A stop says what happened, shows the command with its answer, and names the next one. It asks again until the answer
// has what it must have. Only an optional command may fail.
func TestAStopOfTheTour(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	long := "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do echo line $i; done"
	for what, c := range map[string]struct {
		script string
		stop   stop
		want   []string
		fails  string
	}{
		"it answers":           {`echo "$@"`, stop{title: "A", says: "B."}, []string{"1. A\n   B.\n", "   $ millrace why pod/a --namespace=ns\n   why pod/a --namespace=ns\n", "   next: millrace lag\n"}, ""},
		"it answers later":     {`test -e ` + once + ` && echo quota; touch ` + once, stop{until: "quota"}, []string{"   quota\n"}, ""},
		"it never answers so":  {"echo no", stop{until: "quota"}, nil, "no"},
		"it fails":             {"echo broken >&2; exit 1", stop{}, nil, "broken"},
		"it fails, and may":    {"exit 1", stop{optional: "no Jaeger"}, []string{"   (no Jaeger)\n"}, ""},
		"it has a long answer": {long, stop{}, []string{"   line 14\n   ... and 2 lines more\n"}, ""},
		"what it does fails":   {"", stop{do: func(*tour, context.Context) error { return errors.New("no cluster") }}, nil, "no cluster"},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			v := &tour{Arena: &arena.Arena{Namespace: "ns"}, out: &out, millrace: program(t, c.script), deadline: 5 * time.Second}
			if c.fails != "" {
				v.deadline = time.Second
			}
			c.stop.shows, c.stop.next = func(*tour) []string { return []string{"why", "pod/a"} }, func(*tour) string { return "lag" }
			err := v.visit(t.Context(), 1, c.stop)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("the error is %v, want %q", err, c.fails)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("there is no %q in\n%s", want, out.String())
				}
			}
		})
	}
}
