package shell

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// reader is a controller as the memory knows it: the kinds that it reads, and the keys that the
// changes folded so far concern.
type reader struct {
	inputs map[kinds.Name][]reconcile.Input
	every  []reconcile.Input

	mu      sync.Mutex
	changes mapped // news since the engine last took them
}

// mapped is the result of mapping changes: keys that need a turn, and changes that cannot be
// mapped.
type mapped struct {
	keys     []events.Key // in the order in which they were first asked for
	causes   map[events.Key]*causes
	unmapped []unmapped
}

// causes are the changes that ask for a turn of a key.
type causes struct {
	triggers []events.Trigger // the newest changes, MaxTriggers at most
	oldest   []Backlog        // the oldest change of each kind
}

// Backlog is the oldest change of a kind that has not had its turn.
type Backlog struct {
	Kind     kinds.Name
	Sequence uint64
	Stored   time.Time // when the bus stored it
}

// unmapped is a change that cannot be decoded or mapped to keys.
type unmapped struct {
	ref             events.Ref
	version, reason string
}

func newReader(d reconcile.Description) *reader {
	r := &reader{inputs: map[kinds.Name][]reconcile.Input{}}
	for _, in := range d.Inputs {
		if in.Every {
			r.every = append(r.every, in)
			continue
		}
		r.inputs[in.Kind.Name] = append(r.inputs[in.Kind.Name], in)
	}
	return r
}

func (r *reader) reads(kind kinds.Name) bool {
	return len(r.every) > 0 || len(r.inputs[kind]) > 0
}

// maps reports whether changes of a kind ask for turns.
func (r *reader) maps(kind kinds.Name) bool {
	some := func(in reconcile.Input) bool { return in.Keys != nil }
	return slices.ContainsFunc(r.every, some) || slices.ContainsFunc(r.inputs[kind], some)
}

// mapChanges maps changes of a kind to keys, for the engine to take.
func (r *reader) mapChanges(s snapshot, kind kinds.Name, changes []change) {
	if len(changes) == 0 || !r.maps(kind) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		reason := c.damage
		if reason == "" {
			keys, err := r.keys(s, c)
			for _, k := range keys {
				r.changes.addKey(k, c)
			}
			if err == nil {
				continue
			}
			reason = err.Error()
		}
		r.changes.unmapped = append(r.changes.unmapped, unmapped{c.ref, c.version, reason})
		if len(r.changes.unmapped) > mostUnmapped {
			r.changes.unmapped = r.changes.unmapped[1:]
		}
	}
}

// mostUnmapped bounds the unmapped changes while an engine takes no news.
const mostUnmapped = 1024

func (n *mapped) addKey(k events.Key, c change) {
	if n.causes == nil {
		n.causes = map[events.Key]*causes{}
	}
	all := n.causes[k]
	if all == nil {
		all = &causes{}
		n.causes[k], n.keys = all, append(n.keys, k)
	}
	all.add(events.Trigger{Stream: subject.LogStream(c.ref.Kind), Sequence: c.sequence, Ref: c.ref, Trace: c.trace}, c.stored)
}

func (c *causes) add(t events.Trigger, stored time.Time) {
	if c.triggers = append(c.triggers, t); len(c.triggers) > events.MaxTriggers {
		c.triggers = c.triggers[1:]
	}
	c.addOldest(Backlog{t.Ref.Kind, t.Sequence, stored})
}

// addOldest records a change that waits for its turn.
func (c *causes) addOldest(b Backlog) {
	for i := range c.oldest {
		if have := &c.oldest[i]; have.Kind == b.Kind {
			if b.Sequence < have.Sequence {
				*have = b
			}
			return
		}
	}
	c.oldest = append(c.oldest, b)
}

// takeChanges returns the news since the last call.
func (r *reader) takeChanges() mapped {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.changes
	r.changes = mapped{}
	return taken
}

// keys maps one change to keys. It returns a panic of the mapping as an error, so that the fold
// goes on.
func (r *reader) keys(s snapshot, c change) (keys []events.Key, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("map %v to keys: panic: %v", c.ref, p)
		}
	}()
	var set keySet
	for _, in := range r.inputs[c.ref.Kind] {
		if in.Keys != nil {
			set.add(in.Keys(s, c.was, c.now)...)
		}
	}
	for _, in := range r.every {
		if in.Keys != nil {
			set.add(in.Keys(s, c.was, c.now)...)
		}
	}
	return set.keys, nil
}

// few is the number of keys up to which has searches the list linearly.
const few = 8

// keySet is a list of distinct keys, in the order of arrival.
type keySet struct {
	keys []events.Key
	have map[events.Key]bool // nil while the keys are few, as they mostly are
}

func (s *keySet) add(keys ...events.Key) {
	for _, k := range keys {
		if s.has(k) {
			continue
		}
		if s.keys = append(s.keys, k); s.have != nil {
			s.have[k] = true
		} else if len(s.keys) > few {
			s.have = make(map[events.Key]bool, 2*few)
			for _, known := range s.keys {
				s.have[known] = true
			}
		}
	}
}

func (s *keySet) has(k events.Key) bool {
	if s.have != nil {
		return s.have[k]
	}
	return slices.Contains(s.keys, k)
}
