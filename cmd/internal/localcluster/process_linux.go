package localcluster

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// attributes give a child its own group, and let it die with us unless it is
// meant to stay.
func attributes(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// runs reports whether pid is a running process of that program: ids are used
// again, and no other program's process may be ended.
func runs(pid int, path string) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.TrimSuffix(exe, " (deleted)") == path
}
