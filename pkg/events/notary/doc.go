// Package notary makes a record tamper-evident: any reader with the notary's public key detects
// every change, removal, insertion or reordering of messages of a log, of turns, of outcomes or
// of a shadow, also offline in an exported file.
//
// A notary follows each of these streams and builds the Merkle tree over its messages that
// certificate logs use (RFC 6962, golang.org/x/mod/sumdb/tlog): a leaf is the hash of a message
// with its stream, subject, sequence, time, headers and body. From time to time the notary
// stores a [Page] in a stream of its own: the leaves since the last page, the hashes of the tree
// up to there, and a signed note with the size and root of the tree after them ([Checkpoint]).
// So each page can be verified on its own, however much of the stream, or of the notary's own,
// has expired; and each page continues the one before it, so that a missing page shows.
//
// Any number of notaries may run with the same key: the bus stores a page only directly behind
// the page that it continues. If a stream was re-created, or lost its end, a new tree begins,
// and its first page says so.
//
// [Verify] checks a record against its pages, and for internal consistency.
package notary
