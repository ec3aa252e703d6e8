package shell

import (
	"fmt"
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

	mu   sync.Mutex
	owed map[events.Ref]*debt
}

// debt is what the changes of one object made: keys, and changes whose mapping
// panicked.
type debt struct {
	keySet
	failed []change
}

// A replica gets only some of the tickets, so debts of the others' tickets stay
// with it. These bounds keep them small; what goes beyond is covered by the
// replica that has the ticket.
const (
	owedKeys   = 64
	owedFailed = 8
)

func newReader(d reconcile.Description) *reader {
	r := &reader{inputs: map[kinds.Name][]reconcile.Input{}, owed: map[events.Ref]*debt{}}
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

// owe maps changes to keys and remembers them until a ticket takes them.
func (r *reader) owe(s scene, changes []change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if !r.reads(c.ref.Kind) {
			return // a batch is of one kind
		}
		keys, err := r.keys(s, c)
		if len(keys) == 0 && err == nil {
			continue
		}
		d, ok := r.owed[c.ref]
		if !ok {
			d = &debt{}
			r.owed[c.ref] = d
		}
		d.add(keys...)
		if len(d.keys) > owedKeys {
			d.keySet = keySet{}
			d.add(keys...)
		}
		if err != nil && len(d.failed) < owedFailed {
			d.failed = append(d.failed, c)
		}
	}
}

// take gives what an object owes and forgets it.
func (r *reader) take(ref events.Ref) *debt {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.owed[ref]
	delete(r.owed, ref)
	return d
}

func (r *reader) dropOwed(kind kinds.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ref := range r.owed {
		if ref.Kind == kind {
			delete(r.owed, ref)
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

// keySet is a list of keys without repetition, in the order of arrival.
type keySet struct {
	keys []events.Key
	have map[events.Key]bool
}

func (s *keySet) add(keys ...events.Key) {
	for _, k := range keys {
		if s.have[k] {
			continue
		}
		if s.have == nil {
			s.have = map[events.Key]bool{}
		}
		s.have[k] = true
		s.keys = append(s.keys, k)
	}
}
