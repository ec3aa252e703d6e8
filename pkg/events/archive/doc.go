// Package archive stores a stretch of the record in one file, which implements [bus.Archive]: it
// answers questions about the past without a bus.
//
// A file is a sequence of zstd frames, so that `zstd -dc` shows all of it as text:
//
//	about      one line of JSON: what the file is, of when, and how to read it
//	blocks     messages of one stream each, in order, some 256 kB unpacked
//	subjects   of each stream: in which blocks a subject is, and its last message
//	index      JSON: where all of that is, with a sum of each, and the streams
//	trailer    a frame that zstd skips: where the index is, and its sum
//
// A reader reads any part without the rest: it finds a block through the index and the subjects.
// A damaged block gives events.ErrDamaged, and the others stay readable. The error for a file
// without its end lists what is still readable.
//
// Sequences, times and headers are those of the bus, byte for byte. An export that begins in the
// middle of a stream first has the messages that were current at its beginning: the last message
// of each existing object, of each key's turns and of its outcomes. bus.State.Whole is the
// sequence from which on the export is complete.
package archive
