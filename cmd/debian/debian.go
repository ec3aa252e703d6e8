// Package debian installs missing Debian packages that a test needs.
package debian

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Install checks that programs are installed, and installs packages if one is missing. It writes its progress
// to output.
//
// Errors: a program is missing and this is not Debian; apt-get fails (the error quotes its last lines); a
// program is missing even after the installation.
func Install(ctx context.Context, programs, packages []string, output io.Writer) error {
	if missing(programs) == nil {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w, and this is no Debian: install it yourself", missing(programs))
	}
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)} {
		fmt.Fprintf(output, "apt-get %s ...\n", args[0])
		// A second apt-get waits for the first instead of giving up.
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--quiet", "--option=DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, Tail(out))
		}
	}
	return missing(programs)
}

// missing returns an error that names the first program that is not installed.
func missing(programs []string) error {
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed", program)
		}
	}
	return nil
}

// Tail returns the last 15 lines, at most, of a program's output.
func Tail(text []byte) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}
