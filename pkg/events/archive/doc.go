// Package archive keeps a stretch of the record in one file, which answers what a
// bus answers about the past ([bus.Archive]) without any bus.
//
// A file is a row of zstd frames, so that `zstd -dc` shows all of it as text:
//
//	about      one line of JSON: what the file is, of when, and how to read it
//	blocks     messages of one stream each, in order, some 256 kB unpacked
//	subjects   of each stream: in which blocks a subject is, and its last message
//	index      JSON: where all of that is, with a sum of each, and the streams
//	trailer    a frame that zstd skips: where the index is, and its sum
//
// Any part is read without reading the rest: the index and the subjects lead to
// the block. A block that is not what was written is events.ErrDamaged, and the
// others can be read. A file without its end says what it still has.
//
// Sequences, times and headers are the bus's, to the byte. An export that begins
// in the middle of a stream first has what counted at its beginning: the last
// message of each object that was there, of each key's turns and of its outcomes.
// bus.State.Whole says from where on nothing is left out.
package archive
