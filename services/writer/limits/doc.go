// Package limits bounds what controllers may write: at most so many writes of a kind within a time,
// and none without a person's approval where the bound is 0. A write beyond its limit is held, not
// lost: its key is decided again, and the write is made when there is room or a person has approved
// it.
//
// A [Set] is the configuration, read from a file ([Parse]). A [Window] counts the writes of one
// controller, from the outcomes in the record and from the turns in flight, and judges the commands
// of a turn. The package is pure: package writer reads the outcomes, and passes the time.
package limits
