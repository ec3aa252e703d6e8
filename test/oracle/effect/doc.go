// Package effect has the common form of what both sides write: each write is an [Effect], and [Diff] shows how
// two lists of them differ.
package effect
