package localcluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func source(t *testing.T) *Programs {
	t.Helper()
	t.Setenv("MILLRACE_CACHE", t.TempDir())
	p, err := FindPrograms(nil)
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
	p := &Programs{Dir: dir, source: dir}
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

func TestWithout(t *testing.T) {
	if got, want := Without("a", "b"), AllControllers+",-a,-b"; got != want {
		t.Errorf("Without = %q, want %q", got, want)
	}
	// The first mention of a controller counts.
	if got, want := Without("ttl-controller", "token-cleaner-controller"), "*,bootstrap-signer-controller,selinux-warning-controller,-ttl-controller,-token-cleaner-controller"; got != want {
		t.Errorf("Without = %q, want %q", got, want)
	}
}

// AllControllers names all that kube-controller-manager has and "*" does not include.
func TestAllControllers(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("..", "command", "testdata", "upstream-controllers.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"*"}
	for line := range strings.Lines(string(table)) {
		if columns := strings.Split(line, "\t"); columns[2] == "true" {
			want = append(want, columns[0])
		}
	}
	got := strings.Split(AllControllers, ",")
	slices.Sort(got)
	slices.Sort(want)
	if len(want) < 4 || !slices.Equal(got, want) {
		t.Errorf("all are %q, want %q", got, want)
	}
}

func TestConcurrencyFlags(t *testing.T) {
	help := "  --concurrent-gc-syncs int32   x\n --mirroring-concurrent-service-endpoint-syncs int32\n --kube-api-qps float\n"
	got := concurrency.FindAllString(help, -1)
	if len(got) != 2 || got[0] != "--concurrent-gc-syncs" || got[1] != "--mirroring-concurrent-service-endpoint-syncs" {
		t.Errorf("flags are %v", got)
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
