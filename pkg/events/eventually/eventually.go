// Package eventually is for tests that wait for what another goroutine or process does: it asks again
// and again whether a condition holds, and fails the test when a bound is over. In a bubble of
// testing/synctest the time is virtual.
package eventually

import (
	"testing"
	"time"
)

// Long is the bound of a test that has no reason for another one. It is not reached even on a slow
// machine.
const Long = 5 * time.Minute

// pause is between two questions: a question may be a request to a server.
const pause = 20 * time.Millisecond

// Within waits until a condition holds, and reports whether it came to hold within the bound.
func Within(bound time.Duration, holds func() bool) bool {
	for end := time.Now().Add(bound); !holds(); {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// True waits until a condition holds, and ends the test if it does not within the bound.
func True(t testing.TB, bound time.Duration, what string, holds func() bool) {
	t.Helper()
	if !Within(bound, holds) {
		t.Fatalf("not within %v: %s", bound, what)
	}
}

// Complete waits until nothing is missing any more, and ends the test with what was missing last if
// the bound is over before.
func Complete(t testing.TB, bound time.Duration, what string, missing func() string) {
	t.Helper()
	var last string
	if !Within(bound, func() bool { last = missing(); return last == "" }) {
		t.Fatalf("not within %v: %s: %s", bound, what, last)
	}
}
