// Command images builds the images of deployments/compose/local.env except our own: one for each program that
// docker-compose.yaml starts. An image has the static binary that the project builds from that program's
// module, and nothing else.
package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

// places are the paths of the programs in the published images: the compose file starts ours and the
// published ones by the same path.
var places = []struct{ program, place string }{
	{"etcd", "/usr/local/bin/etcd"},
	{"kube-apiserver", "/usr/local/bin/kube-apiserver"},
	{"kube-scheduler", "/usr/local/bin/kube-scheduler"},
	{"kube-controller-manager", "/usr/local/bin/kube-controller-manager"},
	{"kwok", "/usr/local/bin/kwok"},
	{"jaeger", "/cmd/jaeger/jaeger-linux"},
	{"prometheus", "/bin/prometheus"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	checkout, err := binaries.Checkout()
	if err != nil {
		return err
	}
	programs, err := binaries.Find(os.Stderr)
	if err != nil {
		return err
	}
	names := make([]string, len(places))
	for i, p := range places {
		names[i] = p.program
	}
	if err := programs.Build(ctx, names...); err != nil {
		return err
	}
	for _, p := range places {
		begun := time.Now()
		image := "millrace-" + p.program + ":dev"
		if err := build(ctx, checkout, image, programs.Path(p.program), p.place); err != nil {
			return fmt.Errorf("build image %s: %w", image, err)
		}
		fmt.Printf("%s in %v\n", image, time.Since(begun).Round(100*time.Millisecond))
	}
	return nil
}

// build puts a program alone into a directory, which is the whole build context of docker.
func build(ctx context.Context, checkout, image, program, place string) error {
	if err := static(program); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "millrace-image-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := bring(program, filepath.Join(dir, "program")); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "docker", "build", "--quiet", "--tag="+image, "--build-arg=PLACE="+place,
		"--file="+filepath.Join(checkout, "deployments", "image", "program.Dockerfile"), dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("docker build: %w\n%s", err, out)
	}
	return nil
}

// bring links a file, or copies it if it is on another file system.
func bring(from, to string) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	return nil
}

// static returns an error for a program that needs a dynamic loader: in an image without a loader the only
// error would be "no such file or directory".
func static(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read %s: %w", program, err)
	}
	defer file.Close()
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			return errors.New(program + " is linked dynamically; build it with CGO_ENABLED=0")
		}
	}
	return nil
}
