// Command dist builds what a release consists of, from a commit: an archive for each platform with the program,
// its licences, man pages and shell completions; its list of modules (CycloneDX); the Helm chart; release notes;
// and the checksums of all of them. The same commit, version and Go give the same bytes, wherever it is built.
//
//	go run ./cmd/dist --version=v0.2.0
//	go run ./cmd/dist --version=v0.2.0 --verify    # builds twice, the second time in a clone with an empty cache
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
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line flags.
type options struct {
	version   string
	out       string
	platforms string
	verify    bool
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "the `version` of the release (default: git describe)")
	flag.StringVar(&o.out, "out", "dist", "a `directory` for the files; it is emptied first")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "the `platforms`, as GOOS/GOARCH")
	flag.BoolVar(&o.verify, "verify", false, "build a second time, in a clone with an empty cache, and compare the bytes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "dist: %v\n", err)
		os.Exit(1)
	}
}

// release is one build of everything.
type release struct {
	root      string // the checkout
	out       string
	version   string
	committed time.Time // the time of all files in archives
	platforms []platform
	env       []string // beside the environment, for the builds
}

// platform is what a program is built for.
type platform struct{ system, architecture string }

func run(ctx context.Context, o options) error {
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if changes, err := output(ctx, root, "git", "status", "--porcelain"); err != nil || changes != "" {
		return errors.Join(err, errors.New("the checkout has changes that are not committed; a release is built from a commit"))
	}
	r := release{root: root, out: o.out, version: o.version}
	if r.platforms, err = parse(o.platforms); err != nil {
		return err
	}
	if r.version == "" {
		if r.version, err = output(ctx, root, "git", "describe", "--tags", "--always"); err != nil {
			return err
		}
	}
	if r.committed, err = commitTime(ctx, root); err != nil {
		return err
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	if !o.verify {
		return nil
	}
	return r.verify(ctx)
}

// parse reads the flag of the platforms.
func parse(text string) (all []platform, err error) {
	for _, one := range strings.Split(text, ",") {
		system, architecture, ok := strings.Cut(one, "/")
		if !ok || system == "" || architecture == "" {
			return nil, fmt.Errorf("read --platforms: %q is no GOOS/GOARCH, such as linux/arm64", one)
		}
		all = append(all, platform{system, architecture})
	}
	return all, nil
}

// verify builds the release again, in a clone with an empty build cache, and compares the bytes of all files.
func (r release) verify(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "millrace-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	again := r
	again.root, again.out, again.env = filepath.Join(dir, "clone"), filepath.Join(dir, "dist"), []string{"GOCACHE=" + filepath.Join(dir, "cache")}
	if _, err := output(ctx, "", "git", "clone", "--quiet", "--no-local", r.root, again.root); err != nil {
		return err
	}
	if err := again.build(ctx); err != nil {
		return fmt.Errorf("build again: %w", err)
	}
	first, err := os.ReadFile(filepath.Join(r.out, checksums))
	if err != nil {
		return err
	}
	second, err := os.ReadFile(filepath.Join(again.out, checksums))
	if err != nil {
		return err
	}
	if differ := differences(string(first), string(second)); len(differ) > 0 {
		return fmt.Errorf("two builds differ in %s", strings.Join(differ, ", "))
	}
	fmt.Println("a second build, in a clone with an empty cache, has the same bytes")
	return nil
}

// differences are the files whose lines in two lists of checksums differ.
func differences(a, b string) (files []string) {
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	for _, pair := range [][2][]string{{lines(a), lines(b)}, {lines(b), lines(a)}} {
		for _, line := range pair[0] {
			_, file, _ := strings.Cut(line, "  ")
			if !slices.Contains(pair[1], line) && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}

// commitTime is when the checked-out commit was made.
func commitTime(ctx context.Context, root string) (time.Time, error) {
	text, err := output(ctx, root, "git", "log", "-1", "--format=%cI")
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	return at.UTC(), err
}

// output runs a program and returns what it prints, without the last newline.
func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	return outputWith(ctx, dir, nil, program, args...)
}

// outputWith is output with more variables in the environment.
func outputWith(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
