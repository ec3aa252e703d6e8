package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/debian"
)

// Engine is a running Docker engine.
type Engine struct {
	// Own is true if this package started it.
	Own bool

	host  string // for DOCKER_HOST; "" is what docker finds by itself
	dir   string
	pid   int
	ended chan struct{}
}

// programs are the programs that an own engine needs, and the Debian packages that have
// them.
var (
	programs = []string{"dockerd", "docker", "docker-compose"}
	packages = []string{"docker.io", "docker-compose"}
)

// starts is how long an engine may take until it answers, and stops until it has
// ended, on a loaded machine.
const (
	starts = 2 * time.Minute
	stops  = 2 * time.Minute
)

// Open finds the engine that answers (docker's usual rules: DOCKER_HOST, the
// context, the socket). If there is none, it installs Debian's, if that is missing, and
// starts one with all files below dir, which Close removes. It logs the installation to
// output.
//
// Errors: there is no engine and the user is not root, the installation fails, or the
// engine ends or does not answer; the message quotes the end of its log.
func Open(ctx context.Context, dir string, output io.Writer) (*Engine, error) {
	if found := (&Engine{}); found.answers(ctx) == nil {
		return found, nil
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("no Docker engine answers: start one, or run this as root to have one installed and started")
	}
	if err := install(ctx, output); err != nil {
		return nil, fmt.Errorf("install Debian's Docker engine: %w", err)
	}
	if found := (&Engine{}); found.answers(ctx) == nil {
		return found, nil // the installation has started an engine
	}
	return start(ctx, dir)
}

// install installs missing packages, and prevents them from starting services if possible.
func install(ctx context.Context, output io.Writer) error {
	return debian.Install(ctx, programs, packages, output)
}

func start(ctx context.Context, dir string) (*Engine, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the engine's directory: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("open the engine's log: %w", err)
	}
	defer log.Close()
	e := &Engine{Own: true, host: "unix://" + filepath.Join(dir, "docker.sock"), dir: dir, ended: make(chan struct{})}
	cmd := exec.Command("dockerd", "--host="+e.host, "--data-root="+filepath.Join(dir, "data"),
		"--exec-root="+filepath.Join(dir, "exec"), "--pidfile="+filepath.Join(dir, "pid"),
		"--bridge=none", "--iptables=false", "--ip-forward=false")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal must not reach it: Close ends it in order
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the Docker engine: %w", err)
	}
	e.pid = cmd.Process.Pid
	go func() {
		_ = cmd.Wait()
		close(e.ended)
	}()
	if err := e.await(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// await waits until the engine answers.
func (e *Engine) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, starts)
	defer cancel()
	for {
		err := e.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-e.ended:
			return fmt.Errorf("start the Docker engine: it ended\n%s", e.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("wait for the Docker engine: %w\n%s", err, e.lastWords())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (e *Engine) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if out, err := e.Command(ctx, "docker", "version", "--format={{.Server.Version}}").CombinedOutput(); err != nil {
		return fmt.Errorf("ask for the engine's version: %w: %s", err, debian.Tail(out))
	}
	return nil
}

func (e *Engine) lastWords() string {
	text, err := os.ReadFile(filepath.Join(e.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return debian.Tail(text)
}

// Command is a command with the environment for this engine. When the context ends, it is
// interrupted, and killed half a minute later.
func (e *Engine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = os.Environ()
	if e.host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+e.host)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// String is the address of the engine.
func (e *Engine) String() string {
	if e.host == "" {
		return "docker's usual engine"
	}
	return "DOCKER_HOST=" + e.host
}

// Close stops the engine with all its containers and removes its files, if this package
// started it.
func (e *Engine) Close() error {
	if !e.Own {
		return nil
	}
	if err := syscall.Kill(e.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the Docker engine: %w", err)
	}
	select {
	case <-e.ended:
	case <-time.After(stops):
		return fmt.Errorf("stop the Docker engine (%d): it still runs after %v; its files stay in %s", e.pid, stops, e.dir)
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("remove what the Docker engine kept: %w", err)
	}
	return nil
}
