package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine has no programs but these, which are shell scripts.
func machine(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("DOCKER_HOST", "")
}

// The engine of these machines is a process that has made its socket, a file.
const (
	daemon = `for a; do case $a in --host=unix://*) echo up > "${a#--host=unix://}";; esac; done
trap 'exit 0' TERM
while :; do read -t 0.05 <> <(:); done`
	client = `[ -e "${DOCKER_HOST#unix://}" ] && echo 20.10`
)

func TestAnEngineThatAnswersIsTaken(t *testing.T) {
	machine(t, map[string]string{"docker": "echo 20.10"})
	e, err := Open(t.Context(), filepath.Join(t.TempDir(), "engine"), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if e.Own || e.host != "" {
		t.Errorf("an engine was started beside the one that answers: %+v", e)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnEngineIsStartedAndStopped(t *testing.T) {
	machine(t, map[string]string{"docker": client, "dockerd": daemon})
	dir := filepath.Join(t.TempDir(), "engine")
	e, err := start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if !e.Own || e.answers(t.Context()) != nil {
		t.Errorf("%+v does not answer", e)
	}
	if env := e.Command(t.Context(), "docker").Env; env[len(env)-1] != "DOCKER_HOST=unix://"+filepath.Join(dir, "docker.sock") {
		t.Errorf("commands are sent elsewhere: %s", env[len(env)-1])
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-e.ended:
	default:
		t.Error("it runs on after Close")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its files are left (%v)", err)
	}
}

func TestAnEngineThatEndsIsQuoted(t *testing.T) {
	machine(t, map[string]string{"docker": client, "dockerd": "echo no room on device; exit 1"})
	_, err := start(t.Context(), filepath.Join(t.TempDir(), "engine"))
	if err == nil || !strings.Contains(err.Error(), "no room on device") {
		t.Errorf("of an engine that ends: %v", err)
	}
}

func TestWhatIsMissingIsInstalled(t *testing.T) {
	dir := t.TempDir()
	bring := `for p in dockerd docker docker-compose; do printf '#!/bin/bash\n' > "$TARGET/$p"; done; echo "$@" >> "$TARGET/asked"`
	machine(t, map[string]string{"apt-get": bring})
	t.Setenv("TARGET", dir)
	if err := install(t.Context(), t.Output()); err == nil {
		t.Error("nothing can be found, and nothing is said to be missing")
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil || !strings.Contains(string(asked), "install --yes --no-install-recommends docker.io docker-compose") {
		t.Errorf("apt-get was asked for %q (%v)", asked, err)
	}

	machine(t, map[string]string{})
	if err := install(context.Background(), t.Output()); err == nil || !strings.Contains(err.Error(), "no Debian") {
		t.Errorf("without apt-get: %v", err)
	}
}
