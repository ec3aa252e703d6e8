package cache

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

// reader is a controller as the cache knows it: the kinds that it reads, and the keys that the
// changes folded so far concern.
type reader struct {
	inputs map[kinds.Name][]reconcile.Input
	every  []reconcile.Input

	mu      sync.Mutex
	changes Changes // since the engine last took them
}

// Changes are what a controller has to look at since it last asked: the keys that folded changes
// concern, and the changes that cannot be mapped to keys.
type Changes struct {
	Keys     []events.Key // in the order in which they were first asked for
	Causes   map[events.Key]*Causes
	Unmapped []Unmapped
}

// Causes are the changes that ask for a turn of a key.
type Causes struct {
	Triggers []events.Trigger // the newest changes, [events.MaxTriggers] at most
	Oldest   []Backlog        // the oldest change of each kind
}

// Backlog is the oldest change of a kind that has not had its turn.
type Backlog struct {
	Kind     kinds.Name
	Sequence uint64
	Stored   time.Time // when the bus stored it
}

// Unmapped is an object whose present version cannot be decoded or mapped to keys.
type Unmapped struct {
	Ref             events.Ref
	Version, Reason string
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

// mapChanges maps changes of a kind to keys, for the controller to take.
func (r *reader) mapChanges(s Snapshot, kind kinds.Name, changes []change) {
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
		r.changes.Unmapped = append(r.changes.Unmapped, Unmapped{c.ref, c.version, reason})
		if len(r.changes.Unmapped) > mostUnmapped {
			r.changes.Unmapped = r.changes.Unmapped[1:]
		}
	}
}

// mostUnmapped bounds the unmapped changes while the controller takes none.
const mostUnmapped = 1024

func (n *Changes) addKey(k events.Key, c change) {
	if n.Causes == nil {
		n.Causes = map[events.Key]*Causes{}
	}
	all := n.Causes[k]
	if all == nil {
		all = &Causes{}
		n.Causes[k], n.Keys = all, append(n.Keys, k)
	}
	all.add(events.Trigger{Stream: subject.LogStream(c.ref.Kind), Sequence: c.sequence, Ref: c.ref, Trace: c.trace}, c.stored)
}

func (c *Causes) add(t events.Trigger, stored time.Time) {
	if c.Triggers = append(c.Triggers, t); len(c.Triggers) > events.MaxTriggers {
		c.Triggers = c.Triggers[1:]
	}
	c.AddOldest(Backlog{t.Ref.Kind, t.Sequence, stored})
}

// AddOldest records a change that waits for its turn.
func (c *Causes) AddOldest(b Backlog) {
	for i := range c.Oldest {
		if have := &c.Oldest[i]; have.Kind == b.Kind {
			if b.Sequence < have.Sequence {
				*have = b
			}
			return
		}
	}
	c.Oldest = append(c.Oldest, b)
}

// takeChanges returns the news since the last call.
func (r *reader) take() Changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.changes
	r.changes = Changes{}
	return taken
}

// keys maps one change to keys. It returns a panic of the mapping as an error, so that the fold
// goes on.
func (r *reader) keys(s Snapshot, c change) (keys []events.Key, err error) {
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
