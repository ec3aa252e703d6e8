package oracle_test

import (
	"flag"
	"strconv"
	"testing"
)

// fewer makes a test run one part of the requested worlds only. The test must not run in parallel with
// others.
func fewer(t *testing.T, part int) {
	t.Helper()
	asked := flag.Lookup("rapid.checks").Value.String()
	n, err := strconv.Atoi(asked)
	if err != nil {
		t.Fatal(err)
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(max(n/part, 1))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set("rapid.checks", asked) }) // it was valid before
}
