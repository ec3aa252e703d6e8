package oracle_test

import (
	"flag"
	"strconv"
	"testing"
)

// fewer has a test look at a part only of the worlds that are asked for. The test must not
// run beside others.
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
