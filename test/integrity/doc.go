// Package integrity damages the data of the bus, on disk and through its API, while a watcher
// and reconcilers use it. No decision may rest on damaged data. The damage must leave a gap in
// the record, and the system must repair it without help.
//
// The watcher, the bus with its files and the reconcilers are the real ones. The API server is
// minimal, and the only controller records its views.
package integrity
