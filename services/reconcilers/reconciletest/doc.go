// Package reconciletest is the test kit of controllers.
//
// [Stories] are readable test cases: what a controller sees, when, and what it
// decides. [Laws] hold for every controller and every view from a generator. A
// [World] is a handmade snapshot for tests of key mappings and Observe.
package reconciletest

import "time"

// Now is the moment of tests that do not set another one.
var Now = time.Date(2030, time.January, 1, 12, 0, 0, 0, time.UTC)
