// Package reconciletest is the test kit of controllers.
//
// [Stories] are cases that people can read: what a controller sees, when, and
// what it wants. [Laws] hold for every controller and every view that a
// generator can think of. A [World] is a snapshot made by hand, for what comes
// before the decision: which keys a change concerns, and what a view collects.
package reconciletest

import "time"

// Now is the moment at which tests play unless they say otherwise.
var Now = time.Date(2030, time.January, 1, 12, 0, 0, 0, time.UTC)
