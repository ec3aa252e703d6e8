package shell

import (
	"container/list"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// reader is a controller as the memory knows it: what it reads, and which keys
// the changes folded so far have made.
type reader struct {
	inputs map[kinds.Name][]reconcile.Input
	every  []reconcile.Input

	mu    sync.Mutex
	owed  map[events.Ref]*list.Element // of debts
	debts list.List                    // of *debt, the one that changed last at the back
	total int                          // keys in debts
	most  int                          // bounds total, and the number of debts

	touched keySet                        // keys of changes since the desk last asked
	news    map[events.Key]events.Trigger // the newest of those that is traced, by key; nil for none
}

// debt is what the changes of one object made: keys, and changes whose mapping
// panicked. One without either says that up to a sequence nobody is concerned,
// which spares a turn for each ticket of an object whose changes do not matter.
type debt struct {
	ref events.Ref
	keySet
	failed []change
	upTo   uint64
	cause  *cause // the newest traced change that made the object's own key
}

// nothing tells whether no change up to a sequence concerns anybody.
func (d *debt) nothing(sequence uint64) bool {
	return d != nil && len(d.keys) == 0 && len(d.failed) == 0 && d.upTo >= sequence
}

// A replica gets only some of the tickets, so debts of the others' tickets stay
// with it: any of them may come here yet, if the other dies before its answer.
// Beyond maxOwed debts, or keys of all objects together, the debt that has stood
// longest is dropped, whose ticket has most likely been answered; the newest one
// is kept whole, however many keys it has. What is dropped costs former keys
// only: a ticket without a debt is mapped from its object as it is.
const (
	maxOwed    = 1 << 18
	owedFailed = 8
)

func newReader(d reconcile.Description) *reader {
	r := &reader{inputs: map[kinds.Name][]reconcile.Input{}, owed: map[events.Ref]*list.Element{}, most: maxOwed}
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

// maps tells whether changes of a kind make turns, and so have tickets.
func (r *reader) maps(kind kinds.Name) bool {
	some := func(in reconcile.Input) bool { return in.Keys != nil }
	return slices.ContainsFunc(r.every, some) || slices.ContainsFunc(r.inputs[kind], some)
}

// owe maps changes to keys and remembers them until a ticket takes them.
func (r *reader) owe(s scene, changes []change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if !r.maps(c.ref.Kind) {
			return // a batch is of one kind
		}
		keys, err := r.keys(s, c)
		r.touched.add(keys...)
		r.tell(keys, c)
		d := r.debt(c.ref)
		r.total -= len(d.keys)
		d.add(keys...)
		r.total += len(d.keys)
		d.upTo = max(d.upTo, c.sequence)
		if c.trace.Parent != "" && slices.ContainsFunc(keys, c.own) {
			d.cause = &cause{c.sequence, c.trace}
		}
		if err != nil && len(d.failed) < owedFailed {
			d.failed = append(d.failed, c)
		}
		if c.now.None() && d.nothing(0) {
			r.remove(r.owed[c.ref]) // nothing will come after the end, and its ticket may be another replica's
		}
	}
	for max(r.total, r.debts.Len()) > r.most && r.debts.Len() > 1 {
		r.remove(r.debts.Front())
	}
}

// debt is the debt of an object, which becomes the newest.
func (r *reader) debt(ref events.Ref) *debt {
	if at, ok := r.owed[ref]; ok {
		r.debts.MoveToBack(at)
		return at.Value.(*debt)
	}
	d := &debt{ref: ref}
	r.owed[ref] = r.debts.PushBack(d)
	return d
}

func (r *reader) remove(at *list.Element) *debt {
	d := r.debts.Remove(at).(*debt)
	delete(r.owed, d.ref)
	r.total -= len(d.keys)
	return d
}

// touched gives the keys that changes have made since it was last asked, and the
// newest change of each that is traced.
func (m *Memory) touched(controller string) ([]events.Key, map[events.Key]events.Trigger) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.readers[controller]
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, news := r.touched.keys, r.news
	r.touched, r.news = keySet{}, nil
	return keys, news
}

// take gives what an object owes to its ticket of a sequence, and forgets it.
// That later changes, whose tickets are still to come, owe nothing beyond it is
// remembered.
func (r *reader) take(ref events.Ref, sequence uint64) *debt {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.owed[ref]
	if !ok {
		return nil
	}
	d := r.remove(at)
	if d.upTo > sequence {
		rest := r.debt(ref)
		rest.upTo = d.upTo
		if d.cause != nil && d.cause.sequence > sequence {
			rest.cause = d.cause
		}
	}
	return d
}

// causeOf is the newest traced change of an object that asked for a turn of the
// object's own, and whose ticket has not come here; nil for none. What a controller
// overlooks, as the garbage collector does a status, is no cause of its turns.
func (r *reader) causeOf(ref events.Ref) *cause {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.owed[ref]; ok {
		return at.Value.(*debt).cause
	}
	return nil
}

func (r *reader) dropOwed(kind kinds.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref, at := range r.owed {
		if ref.Kind == kind {
			r.remove(at)
		}
	}
}

// keys maps one change. A panic of the mapping is an error: the fold goes on,
// and the object's ticket tries again.
func (r *reader) keys(s scene, c change) (keys []events.Key, err error) {
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

// few is the number of keys up to which a list is searched from its start.
const few = 8

// keySet is a list of keys without repetition, in the order of arrival.
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
