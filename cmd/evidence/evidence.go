// Package evidence writes the figures of a long run to a file under docs/evidence, with
// the commit, date and machine that they were measured at.
package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Write writes figures, which must marshal to a JSON object, to a file. If the figures have no commit, Write
// adds the fields commit, date (RFC 3339) and machine; see [Commit].
//
// Errors: the figures are not an object; the directory is in no checkout; the file cannot be written.
func Write(ctx context.Context, file string, figures any) error {
	text, err := json.Marshal(figures)
	if err != nil {
		return fmt.Errorf("write evidence to %s: %w", file, err)
	}
	var fields map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&fields); err != nil {
		return fmt.Errorf("write evidence to %s: the figures are no object: %w", file, err)
	}
	all := map[string]any{
		"date":    time.Now().UTC().Format(time.RFC3339),
		"machine": Machine(),
	}
	if _, known := fields["commit"]; !known {
		if all["commit"], err = Commit(ctx); err != nil {
			return err
		}
	}
	maps.Copy(all, fields)
	if text, err = json.MarshalIndent(all, "", "  "); err != nil {
		return fmt.Errorf("write evidence to %s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write evidence to %s: %w", file, err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	return nil
}

// Machine describes the machine on which a figure was measured.
func Machine() string {
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// Commit is the commit of the checkout that the process runs in, with ", and changes" if a tracked file
// differs from it. A long run calls Commit before it begins.
//
// Errors: the working directory is in no checkout, or git is missing.
func Commit(ctx context.Context) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(context.WithoutCancel(ctx), "git", args...).Output()
		if err != nil {
			return "", fmt.Errorf("ask git for the commit: git %s: %w", args[0], err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := git("status", "--porcelain", "--untracked-files=no")
	if err == nil && changed != "" {
		commit += ", and changes"
	}
	return commit, err
}
