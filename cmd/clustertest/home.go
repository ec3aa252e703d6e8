package clustertest

import (
	"fmt"
	"os"
	"testing"
)

// Run runs the tests of a package and returns the exit code. The programs that the tests start write files
// for their user, such as passwords of a bus, to a temporary home directory, which Run removes. Call it from
// TestMain in each package that starts a control plane.
func Run(m *testing.M) (code int) {
	home, err := os.MkdirTemp("", "millrace-home-")
	if err == nil {
		err = os.Setenv("XDG_DATA_HOME", home)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(home); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return m.Run()
}
