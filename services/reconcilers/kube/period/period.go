// Package period says when it is an object's turn in what is done again and again.
package period

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Next is the first moment after now at which it is an object's turn, of one in each
// period. Each object has a moment of its own, so that not all of them come at once;
// it does not depend on when the object was looked at last. Zero when the period is none.
func Next(of types.UID, every time.Duration, now time.Time) time.Time {
	if every <= 0 {
		return time.Time{}
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(of))
	at := now.Truncate(every).Add(time.Duration(sum.Sum32()) * time.Second % every)
	if !at.After(now) {
		at = at.Add(every)
	}
	return at
}
