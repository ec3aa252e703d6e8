// Package integrity damages what the bus has on disk, and behind the backs of
// those who read it, while a watcher and reconcilers use it. What is damaged must
// never be decided on, must leave a gap in the record, and must be mended without
// anybody's help.
//
// The watcher, the bus with its files and the reconcilers are the real ones; the
// API server is as small as it can be, and one controller writes down all that it
// is shown.
package integrity
