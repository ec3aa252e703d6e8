// Package apiserver has the simulated API server. It keeps objects in memory and answers the requests
// of the writer: it checks versions, uids, generations and preconditions, and handles finalizers,
// graceful deletion and subresources, as far as controllers can tell the difference. It keeps every
// change of a kind, so that watchers can receive them, list, or find that the history is compacted. It
// can be restored to an earlier version, as from a backup.
//
// Two groups of answers are those of the writer and not of a real API server: questions (what a
// namespace holds, who uses a claim, what a user may do), and patches whose content no message may have
// (tokens, certificates, signatures). The writer of a simulated world passes its requests on as they
// are, so they are answered here.
//
// The package knows nothing of worlds: time comes from a function, and users, nodes and the restore are
// calls of the package above.
package apiserver
