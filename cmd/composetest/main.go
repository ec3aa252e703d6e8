// Command composetest starts the whole system of docker-compose.yaml from the images that `make images`
// builds, uses it, breaks it, scales it, and takes it down again, even when a step fails.
//
// It needs a Docker engine and docker-compose. Where no engine answers, it installs
// Debian's and starts one for as long as it runs, which takes root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millrace/millrace/cmd/internal/engine"
	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

type options struct {
	compose string
	images  bool
	keep    bool
}

func main() {
	var o options
	flag.StringVar(&o.compose, "compose", "", "the docker-compose `program`, 1.29 or later; \"v2\" is the Compose v2 that this project builds (default: docker-compose, else docker's own compose)")
	flag.BoolVar(&o.images, "images", true, "build the images first")
	flag.BoolVar(&o.keep, "keep", false, "leave everything running that was started")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	begun := time.Now()
	checkout, err := binaries.Checkout()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "millrace-compose-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	running, err := engine.Open(ctx, filepath.Join(dir, "engine"), os.Stdout)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s := &stage{engine: running, checkout: checkout, dir: dir}
	defer func() {
		if o.keep {
			fmt.Printf("left running: %s\n", s)
			return
		}
		err = errors.Join(err, s.clear(context.WithoutCancel(ctx)))
		if err == nil {
			fmt.Printf("the whole system started, worked, survived and went, in %v\n", time.Since(begun).Round(time.Second))
		}
	}()
	if running.Own {
		say("start a Docker engine", "there was none", time.Since(begun))
	}
	if o.images {
		if err := s.buildImages(ctx); err != nil {
			return err
		}
	}
	if err := s.setUp(ctx, o.compose); err != nil {
		return err
	}
	for _, step := range story() {
		if err := s.play(ctx, step); err != nil {
			s.confess(context.WithoutCancel(ctx))
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return nil
}

// buildImages runs make, because the Makefile alone knows how to build the images.
func (s *stage) buildImages(ctx context.Context) error {
	begun := time.Now()
	cmd := s.engine.Command(ctx, "make", "--no-print-directory", "images")
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.checkout, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	say("build the images", "", time.Since(begun))
	return nil
}

// findCompose returns the installed docker-compose, or the one that the flag names.
func (s *stage) findCompose(ctx context.Context, named string) ([]string, error) {
	switch named {
	case "":
	case "v2":
		path, err := buildCompose(ctx)
		return []string{path}, err
	default:
		return []string{named}, nil
	}
	if path, err := exec.LookPath("docker-compose"); err == nil {
		return []string{path}, nil
	}
	if err := s.engine.Command(ctx, "docker", "compose", "version").Run(); err != nil {
		return nil, errors.New("neither docker-compose nor docker's compose plugin is installed: install one, or name one with --compose")
	}
	return []string{"docker", "compose"}, nil
}

// buildCompose builds the Compose v2 that tools/compose pins, and returns its path.
func buildCompose(ctx context.Context) (path string, err error) {
	programs, err := binaries.Find(os.Stdout)
	if err != nil {
		return "", err
	}
	return programs.Path("compose"), programs.Build(ctx, "compose")
}

func say(title, happened string, took time.Duration) {
	fmt.Printf("%-40s %8s   %s\n", title, took.Round(10*time.Millisecond), happened)
}
