package subprocess

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sleeper is a program that ends only on a signal.
func sleeper(t *testing.T, args ...string) Spec {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return Spec{Name: "sleeper", Path: path, Args: args, Log: filepath.Join(t.TempDir(), "log")}
}

func TestProcessEndsWhenStopped(t *testing.T) {
	p, err := Start(sleeper(t, "-c", "while true; do sleep 0.05; done"))
	if err != nil {
		t.Fatal(err)
	}
	if !p.Running() || !Find(p.State()).Running() {
		t.Error("it does not run")
	}
	other := p.State()
	other.Path = "/another/program"
	if Find(other).Running() {
		t.Error("a process of another program counts as ours")
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if p.Running() || Find(p.State()).Running() {
		t.Error("it still runs")
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stopping again: %v", err)
	}
}

func TestReadyTellsWhyAProgramEnded(t *testing.T) {
	p, err := Start(sleeper(t, "-c", "echo first; echo the reason >&2; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	err = p.Ready(t.Context(), "http://127.0.0.1:1/healthz")
	if err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("error is %v", err)
	}
}
