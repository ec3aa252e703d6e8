// Package passage reads a bounded part of a stream: a passage.
//
// A [Reader] reads it through a consumer. If most of a long stream is wanted, and the user of the connection has the
// right, it reads from a backup of the stream, which costs less for each message.
package passage
