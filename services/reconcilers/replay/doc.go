// Package replay decides the past again. It feeds the recorded deltas and outcomes
// through the present code, asks the controllers about the recorded turns, and compares
// their decisions with the recorded ones, byte for byte. The same code must decide the
// same (I13); other code shows which decisions change.
//
// A turn records what its decision depends on: how far each log had been read (Seen), the
// digest of the state (Digest), the outcomes it knew (Heard), its settings and its
// moment. The reconcilers' own cache ([cache.History]) folds the logs up to exactly there. If
// the digest is the same, the view is the same. A view that cannot be rebuilt counts
// neither as a difference nor as an agreement: the summary counts it, with what is
// missing.
//
// Replay reads all streams once, in the order of the bus's clock. Replicas have read the
// logs to different positions, so the memory moves backward as well as forward. A turn
// that is further back than the memory reaches waits for a second pass.
//
//	one feed per stream    reads ahead   -> decodes on all processors -> in order
//	one goroutine          the memory: moves, asks, and hands over pending decisions
//	judges of some turns   decide and compare, on all processors
//
// The decision is most of a turn's text, and mostly this code decides the same. Then it
// encodes the same bytes, and replay compares those without decoding the turn. Only if
// the bytes differ does replay decode the whole turn and compare it field by field.
package replay
