package check

import (
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// cut removes from a history what is not judged: turns before Since with their outcomes and
// writes, even late ones, and entries of the logs from other storage epochs than the last. The
// changes of the storage stay complete, because the judged turns rest on earlier objects.
func (h *History) cut() *History {
	if h.Since.IsZero() {
		return h
	}
	short := *h
	past := map[place]bool{}
	short.earlier = map[events.Ref]bool{}
	short.Turns = slices.DeleteFunc(slices.Clone(h.Turns), func(t Turn) bool {
		past[t.place()] = past[t.place()] || t.At.Before(h.Since)
		left := past[t.place()] || t.Repeats != 0 && past[place{t.Controller, t.Repeats}]
		for _, c := range t.Commands {
			if left && c.Verb == events.VerbCreate {
				short.earlier[c.Ref()] = true
			}
		}
		return left
	})
	kept := map[place]bool{}
	for _, t := range short.Turns {
		kept[t.place()] = true
	}
	short.Outcomes = slices.DeleteFunc(slices.Clone(h.Outcomes), func(o Outcome) bool { return !kept[o.place()] })
	short.Writes = slices.DeleteFunc(slices.Clone(h.Writes), func(w Write) bool {
		c, ok := commandOf(w.ID)
		return w.At.Before(h.Since) || ok && past[c.place]
	})
	short.Logs = map[kinds.Name][]Entry{}
	for kind, log := range h.Logs {
		last := uint64(0)
		for _, e := range log {
			last = max(last, e.Epoch)
		}
		from := slices.IndexFunc(log, func(e Entry) bool { return e.Epoch == last })
		short.Logs[kind] = log[max(from, 0):]
	}
	return &short
}

// judged is whether a change of the storage was recorded in a log at or after Since.
func (b *books) judged(c *Change) bool {
	if b.Since.IsZero() {
		return true
	}
	at, known := b.toldAt(c)
	return known && !at.Before(b.Since)
}
