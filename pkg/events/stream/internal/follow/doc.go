// Package follow reads a stream in order, without gaps, and goes on for ever.
//
// A [Reader] reads in sessions, each with a consumer of its own: whenever there is any doubt, a new session begins
// at the next sequence. When a session has read everything, and the publishers are in this process, it takes the
// messages where they are published (package handover). A reader of a work queue acknowledges what was dealt with.
package follow
