package binaries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func source(t *testing.T) *Cache {
	t.Helper()
	t.Setenv("MILLRACE_CACHE", t.TempDir())
	p, err := Find(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEveryProgramHasAPinnedVersion(t *testing.T) {
	p := source(t)
	for _, q := range programs {
		version, err := p.version(q)
		if err != nil {
			t.Errorf("%s: %v", q.name, err)
			continue
		}
		if q.module != "" && !strings.HasPrefix(version, "v") {
			t.Errorf("%s has version %q", q.name, version)
		}
		if flags := linkFlags(q, version); q.module == kubernetesModule && !strings.Contains(flags, "gitVersion="+version) {
			t.Errorf("%s is not told its version: %s", q.name, flags)
		}
	}
}

func TestOwnProgramIsNamedByItsSource(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "fakelet"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &Cache{Dir: dir, source: dir}
	write("go.mod", "module x\n")
	write("fakelet/main.go", "package main\n")
	first := p.Path("fakelet")
	if first != p.Path("fakelet") {
		t.Error("the same source has two names")
	}
	write("fakelet/main.go", "package main // changed\n")
	if p.Path("fakelet") == first {
		t.Error("a changed source keeps its name")
	}
}

func TestCurrentLooksIntoTheProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	q := program{name: "etcd", module: "go.etcd.io/etcd/server/v3"}
	if current(self, q, "v3.6.8") {
		t.Error("this test passes for etcd")
	}
	if current(filepath.Join(t.TempDir(), "absent"), q, "v3.6.8") {
		t.Error("a file that is not there is current")
	}
}

func TestUnknownProgram(t *testing.T) {
	err := source(t).Build(t.Context(), "kubelet")
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("error %v does not say what can be built", err)
	}
}

func TestBuildersTakeTurns(t *testing.T) {
	p := source(t)
	open := func() *os.File {
		f, err := os.OpenFile(filepath.Join(p.Dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	defer second.Close()
	if err := p.lock(t.Context(), int(first.Fd())); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.lock(impatient, int(second.Fd())); !errors.Is(err, context.Canceled) {
		t.Errorf("a second builder got the lock: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.lock(t.Context(), int(second.Fd())); err != nil {
		t.Errorf("the lock was not given back: %v", err)
	}
}
