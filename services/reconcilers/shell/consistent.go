package shell

// Inconsistent views. Every delta has the census at its sequence. If the memory's own census
// differs, the log has lost a message, and the follower is about to shut the engines. Until then
// the engine stores no turn that has seen the kind, reports included: the log could never tell
// which view they rested on.

// compareCensus compares a kind with the census of the delta that was folded last.
func (k *kindMemory) compareCensus() { k.inconsistent = k.told.Known && k.told != k.tally.Census() }

// inconsistent reports whether a kind that the controller reads is inconsistent.
func (s snapshot) inconsistent() bool {
	for at, k := range s.memory.kinds {
		if k.inconsistent && s.reader.reads(at) {
			return true
		}
	}
	return false
}

// requeueInconsistent looks again at the keys that wait for a consistent snapshot, if there is
// one now.
func (d *Engine) requeueInconsistent() {
	if len(d.inconsistent) == 0 {
		return
	}
	inconsistent := false
	d.memory.view(d.name, nil, func(s snapshot) { inconsistent = s.inconsistent() || d.skewed(s) })
	if inconsistent {
		return
	}
	waiting := d.inconsistent
	d.inconsistent, d.freedAt = nil, d.now
	for _, e := range waiting {
		d.requeue(e)
	}
}
