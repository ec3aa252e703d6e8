// Package replay decides the past once more. It feeds the recorded deltas and
// outcomes through the code that is there now, asks the controllers what they were
// asked then, and holds what they decide against the recorded turns, byte for byte.
// The same code must decide the same (I13); with other code it shows which decisions
// change.
//
// A turn says what its decision rests on: how far each log had been read (Seen), the
// digest of what was there (Digest), the outcomes it knew (Heard), its settings and
// its moment. The logs are folded up to exactly there, by the shell's own memory
// ([shell.History]), and if the digest is the same, so is what was seen. Whatever
// cannot be rebuilt is no difference and no agreement: it is counted, with what
// is missing.
//
// All streams are read once, in the order of the bus's clock. Replicas have seen more
// and less by turns, so the memory goes back as well as forth; a turn that is further
// back than is remembered waits for a second pass.
//
//	one feed per stream    reads ahead   -> decodes on all processors -> in order
//	one goroutine          the memory: moves, asks, and gives away what was decided
//	judges of some turns   have them decided and compare, on all processors
//
// What a turn decided is most of its text, and mostly this code decides the same: then it
// writes the same bytes, and the turn's are held against them without being decoded. Only
// where they are others the turn is read as a whole, and compared as its reader sees it.
package replay
