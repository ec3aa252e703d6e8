//go:build !linux

package localcluster

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// attributes give a child its own group. That a child dies with us cannot be
// asked for here.
func attributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}

// runs reports whether pid is a running process of that program: ids are used
// again, and no other program's process may be ended.
func runs(pid int, path string) bool {
	out, err := exec.Command("ps", "-o", "comm=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && filepath.Base(strings.TrimSpace(string(out))) == filepath.Base(path)
}
