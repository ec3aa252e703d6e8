// Package rules says which rule of which group of controllers is asked when: at a change of an object
// (changes.go), at a request of a writer (writes.go, deletes.go), at a turn, by the view that it rests on
// (turns.go), after a restore, and in a world at rest (settled.go).
//
// Rules that concern every controller are here: nothing is deleted whose owner lives, no turn acts on an
// older generation than an earlier one, an object is written a bounded number of times. A controller
// without a rule may delete nothing.
package rules
