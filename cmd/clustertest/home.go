package clustertest

import (
	"fmt"
	"os"
	"testing"
)

// Run runs the tests of a package, and gives the code to end with. What the programs that
// they start leave for their user, such as passwords of a bus, is in a directory of its own,
// which is removed. For TestMain: each package that starts a control plane runs its tests so.
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
