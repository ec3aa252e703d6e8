// Package period computes when periodic work for an object is due.
package period

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Next is the first moment after now at which periodic work for an object is due. Each
// object has its own offset in the period, so that they are not all due at once. The
// moment does not depend on earlier turns. It is zero if the period is not positive.
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
