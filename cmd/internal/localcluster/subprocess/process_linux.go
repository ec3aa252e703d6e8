package subprocess

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// attributes give a child its own process group, and make it die with its parent unless it is
// detached.
func attributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// runs is whether pid is a running process of that program. Process ids are reused, and
// another program's process must not be ended.
func runs(pid int, path string) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == path
}
