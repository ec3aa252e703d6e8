//go:build !linux

package subprocess

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// attributes give a child its own process group. This system has no way to make a
// child die with its parent.
func attributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}

// runs is whether pid is a running process of that program. Process ids are reused, and
// another program's process must not be ended.
func runs(pid int, path string) bool {
	out, err := exec.Command("ps", "-o", "comm=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && filepath.Base(strings.TrimSpace(string(out))) == filepath.Base(path)
}
