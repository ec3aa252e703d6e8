// Package notary makes a record tamper-evident: every change, removal, insertion or
// reordering of messages of a log, of turns, of outcomes or of a shadow is found by any reader
// that has the notary's public key, also offline, over an exported file.
//
// A notary follows each of these streams and builds the tree over its messages
// that certificate logs have (RFC 6962, golang.org/x/mod/sumdb/tlog): a leaf is
// the hash of a message with its stream, subject, sequence, time, headers and
// body. From time to time it stores a [Page] in a stream of its own: the leaves
// since the last one, the hashes of the tree up to there, and a signed note of what
// the tree comes to with them ([Checkpoint]). So each page stands for itself, however
// much of the stream, or of the notary's own, has expired; and they lead to each
// other, so that none can be left out between two.
//
// Any number of notaries may run with the same key: a page is stored behind the
// one that it goes on from, or not at all. A stream that was made anew, or lost its
// end, begins a new tree, whose first page says so.
//
// [Verify] holds a record against its pages, and against itself.
package notary
