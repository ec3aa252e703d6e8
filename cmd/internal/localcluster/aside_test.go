package localcluster

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/pkg/events/sleep"
)

// fakeGo puts a program into PATH that runs in place of go.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// said is the output for the user. It may be read concurrently with writes.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func TestAClusterStartsWithoutJaegerThatComesLater(t *testing.T) {
	for later, want := range map[bool]bool{true: false, false: true} {
		o := Options{Nodes: 1, Tracing: Tracing{Jaeger: true, Later: later}}
		if slices.Contains(o.needed(), "jaeger") != want {
			t.Errorf("with Later = %t it needs %v", later, o.needed())
		}
		// Programs that send spans get the address nevertheless.
		c := &Cluster{Dir: t.TempDir(), options: o, ports: ports{OTLP: 9}}
		if !slices.Contains(c.etcdArgs(), "--distributed-tracing-address=127.0.0.1:9") {
			t.Errorf("with Later = %t etcd is started with %v", later, c.etcdArgs())
		}
	}
}

// cluster is a cluster with an empty cache of programs.
func cluster(t *testing.T, told *said) *Cluster {
	t.Helper()
	t.Setenv("MILLRACE_CACHE", t.TempDir())
	programs, err := binaries.Find(told)
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{Dir: t.TempDir(), Programs: programs, options: Options{Tracing: Tracing{Jaeger: true, Later: true}}}
}

func TestABuildOfJaegerThatFailsIsAnError(t *testing.T) {
	var told said
	c := cluster(t, &told)
	fakeGo(t, "echo no space left on device >&2; exit 1")
	err := c.BringJaeger(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("error %v does not say why", err)
	}
	if len(c.Processes()) > 0 {
		t.Errorf("it started %v", c.Processes())
	}
	if !strings.Contains(told.String(), "millrace: building jaeger") || !strings.Contains(told.String(), "did not work") {
		t.Errorf("a person is told %q", told.String())
	}
}

func TestABuildOfJaegerEndsWithMillrace(t *testing.T) {
	var told said
	c := cluster(t, &told)
	fakeGo(t, "exec sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.BringJaeger(ctx) }()
	for !strings.Contains(told.String(), "millrace: building jaeger") {
		sleep.For(t.Context(), time.Millisecond)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a build that was ended is no error")
	}
}
