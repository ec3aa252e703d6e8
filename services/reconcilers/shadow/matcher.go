// Package shadow compares what a controller wants with what kube-controller-manager
// (KCM) does, while the controller only decides and KCM acts. It is pure: the loop
// around it is package beside.
//
// A [Matcher] receives three kinds of input, in the order of the API server's versions:
// what a controller answers about a key on the present view ([Matcher.Decided]), what a
// client has done to an object ([Matcher.Happened]), and the time ([Matcher.Advance]).
// It returns a finding for each write that was wanted and for each that KCM made.
//
// There is no fence. A shadow's turns have no outcomes, because KCM makes the changes.
// So the shadow asks about a key again at each change, and each answer replaces the one
// before. A write that is not wanted any more has been done, or has lost its cause.
//
// # When do two writes agree
//
// Updates agree field by field, by the new values of the fields; fields that the API
// server sets and times in a status do not count. Creates agree when the same owner
// gets an object that has everything that was wanted, whatever an admission plug-in
// adds; a generated name does not count. Deletes agree when the same object is deleted,
// or one that is as good by the controller's own word ([reconcile.Chooser]).
//
// # What is only time
//
// KCM decides on caches, each of which may be a little behind. So before a write of KCM
// counts as unexplained, the matcher asks the controller again: on views in which one
// kind or another is some changes behind, a moment later, and as if the API server had
// refused the write for the reason that KCM reports. If the controller then wants what
// KCM did, they agree.
package shadow

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Settings of a matcher. The zero value selects the defaults.
type Settings struct {
	// Patience is how long a write may be wanted without KCM doing it before that is a
	// difference; 0 means a minute. KCM backs off between failed attempts, and its rate
	// limit may delay it.
	Patience time.Duration
	// Recall is how old KCM's view may be; 0 means a minute.
	Recall time.Duration
}

// Answer is what a controller wants for a key on the present view. Without Wants it
// wants nothing.
type Answer struct {
	Key events.Key
	// Writes and Reports are the sequences of the recorded turns of each lane, 0 for none.
	// Because is their reason.
	Writes, Reports uint64
	Because         string
	Wants           []Want
	// By is the change that caused the question; the zero value if it was a wake.
	By events.Trigger
	At time.Time
}

// Found is a finding with an ID, which is the same at every replica.
type Found struct {
	report.Finding
	ID string
}

func (a Answer) turn(w Want) uint64 {
	if w.Status {
		return a.Reports
	}
	return a.Writes
}

// View selects the view on which to ask a controller. The zero value is the present
// one.
type View struct {
	// Back is how many changes each kind is behind.
	Back map[kinds.Name]int
	// Ahead is how much later it is.
	Ahead time.Duration
	// Last is the outcome of the key's last turn that acted; nil if none is known.
	Last *events.Outcome
}

// Asker asks the controller.
type Asker interface {
	// Ask returns what the controller wants for a key; ok is false if there is no such
	// view.
	Ask(key events.Key, view View) (wants []Want, ok bool)
	// AsGood reports whether, on a view, the controller might as well have deleted other
	// as chosen.
	AsGood(key events.Key, view View, chosen, other events.Ref) bool
	// Object is the key's own object on the present view, nil if it does not exist.
	Object(key events.Key) metav1.Object
}

// Matcher compares one controller with KCM.
type Matcher struct {
	described reconcile.Description
	settings  Settings
	books     map[events.Key]*book
	// wanted maps objects to the key that wanted a write to them, for a controller
	// without objects of its own. The matcher tells that controller's operations by it.
	wanted map[events.Ref]events.Key
}

// book is the matcher's state of a key.
type book struct {
	key      events.Key
	standing []*open
	past     []page // newest last
	created  map[kinds.Name]int
	told     *events.Outcome // the API server's answer to KCM, as KCM reports it
}

// page is an earlier answer.
type page struct {
	at      time.Time
	wants   []*open
	created map[kinds.Name]int // at that time
}

// open is a wanted write.
type open struct {
	Want
	key      string
	turn     uint64
	because  string
	by       events.Trigger // since when
	since    time.Time
	touched  bool // KCM has done a part of it
	reported bool
}

// pages bounds how many earlier answers are kept for a key.
const pages = 200

// New returns the matcher of a controller.
func New(d reconcile.Description, s Settings) *Matcher {
	if s.Patience == 0 {
		s.Patience = time.Minute
	}
	if s.Recall == 0 {
		s.Recall = time.Minute
	}
	return &Matcher{described: d, settings: s, books: map[events.Key]*book{}, wanted: map[events.Ref]events.Key{}}
}

// Standing is how many writes are wanted now.
func (m *Matcher) Standing() (count int) {
	for _, b := range m.books {
		count += len(b.standing)
	}
	return count
}

// Last is what the controller may know of the key's last turn: nothing, or the result
// of KCM's own attempt as KCM reports it.
func (m *Matcher) Last(key events.Key, lane events.Lane) (events.Outcome, bool) {
	if b := m.books[key]; b != nil && b.told != nil && lane == events.LaneWrite {
		return *b.told, true
	}
	return events.Outcome{}, false
}

// News reports whether an answer differs from the one before.
func (m *Matcher) News(key events.Key, wants []Want) bool {
	b := m.books[key]
	if b == nil {
		return len(wants) > 0
	}
	count := map[string]int{}
	for _, o := range b.standing {
		count[o.key]++
	}
	for _, w := range wants {
		count[w.id()]--
	}
	for _, n := range count {
		if n != 0 {
			return true
		}
	}
	return false
}

// Decided stores what is wanted for a key now. Earlier wants that are not among them
// have been overtaken.
func (m *Matcher) Decided(a Answer) []Found {
	b := m.book(a.Key)
	old := map[string][]*open{}
	for _, o := range b.standing {
		old[o.key] = append(old[o.key], o)
	}
	standing := make([]*open, 0, len(a.Wants))
	for _, w := range a.Wants {
		id := w.id()
		if same := old[id]; len(same) > 0 {
			old[id] = same[1:]
			standing = append(standing, same[0])
			continue
		}
		standing = append(standing, &open{Want: w, key: id, turn: a.turn(w), because: a.Because, by: a.By, since: a.At})
		m.note(w.Ref, a.Key)
	}
	var found []Found
	for _, id := range slices.Sorted(maps.Keys(old)) {
		for _, o := range old[id] {
			if o.touched || o.reported {
				continue
			}
			found = append(found, m.overtaken(b, o, standing, a.At))
		}
	}
	b.standing = standing
	b.write(a.At, m.settings.Recall)
	m.tidy(b)
	return found
}

func (m *Matcher) overtaken(b *book, o *open, standing []*open, at time.Time) Found {
	meets := slices.ContainsFunc(standing, func(other *open) bool {
		return other.about(Operation{Verb: o.Verb, Ref: o.Ref, Status: o.Status})
	})
	if meets {
		return m.finding(b, o, report.Coalesced, "something else was wanted there before KCM wrote", at)
	}
	return m.finding(b, o, report.Vanished, "it was not wanted any more before KCM did it", at)
}

// note remembers the objects that a controller without objects of its own wants to
// write.
func (m *Matcher) note(ref events.Ref, key events.Key) {
	if m.described.Owns == nil {
		m.wanted[ref] = key
	}
}

func (m *Matcher) book(key events.Key) *book {
	b := m.books[key]
	if b == nil {
		b = &book{key: key, created: map[kinds.Name]int{}}
		m.books[key] = b
	}
	return b
}

// write stores the present answer, and drops those that are too old.
func (b *book) write(at time.Time, recall time.Duration) {
	b.past = append(b.past, page{at: at, wants: slices.Clone(b.standing), created: maps.Clone(b.created)})
	fresh := slices.IndexFunc(b.past, func(p page) bool { return at.Sub(p.at) <= recall })
	if surplus := max(fresh, len(b.past)-pages); surplus > 0 {
		b.past = slices.Delete(b.past, 0, surplus)
	}
}

// tidy drops a key without any state.
func (m *Matcher) tidy(b *book) {
	idle := len(b.standing) == 0 && b.told == nil
	if idle && !slices.ContainsFunc(b.past, func(p page) bool { return len(p.wants) > 0 }) {
		delete(m.books, b.key)
	}
}

// Advance sets the time. A want that has lasted too long is a difference, unless KCM
// has tried it and was refused.
func (m *Matcher) Advance(now time.Time, ask Asker) (found []Found) {
	for _, key := range slices.SortedFunc(maps.Keys(m.books), func(a, b events.Key) int { return events.Ref(a).Compare(events.Ref(b)) }) {
		b := m.books[key]
		for _, o := range b.standing {
			if !o.reported && now.Sub(o.since) >= m.settings.Patience {
				o.reported = true
				found = append(found, m.undone(b, o, now, ask))
			}
		}
		if len(b.standing) == 0 && len(b.past) > 0 && now.Sub(b.past[len(b.past)-1].at) > m.settings.Recall {
			b.past = nil
			m.tidy(b)
		}
	}
	return found
}

// undone judges a want that has lasted too long.
func (m *Matcher) undone(b *book, o *open, now time.Time, ask Asker) Found {
	others := func(wants []Want) bool { return !contains(wants, o.key) }
	if !changes(o.Want) {
		// KCM retries, as is wanted here, and meanwhile reports the refusal
		others = func(wants []Want) bool { return !slices.ContainsFunc(wants, changes) }
	}
	status := b.told == nil && slices.ContainsFunc(b.standing, func(o *open) bool { return changes(o.Want) })
	if status {
		b.told, _ = m.refusal(b, ask.Object(b.key), nil, ask, others)
	}
	switch {
	case b.told != nil && (status || !changes(o.Want)):
		return m.finding(b, o, report.Unseen, "KCM reports that the API server refused it", now)
	default:
		return m.finding(b, o, report.WeOnly, fmt.Sprintf("it has been wanted for %v, and KCM has not done it", now.Sub(o.since).Round(time.Second)), now)
	}
}

func changes(w Want) bool { return w.Verb == events.VerbUpdate }

func contains(wants []Want, id string) bool {
	return slices.ContainsFunc(wants, func(w Want) bool { return w.id() == id })
}

// finding is the finding about a want that KCM has not done.
func (m *Matcher) finding(b *book, o *open, is report.Agreement, note string, at time.Time) Found {
	f := report.Finding{
		Controller: m.described.Name, Key: b.key, Agreement: is, Note: note, At: at,
		What: o.String(), Ref: o.Ref, UID: o.UID, Turn: o.turn, Because: o.because,
	}
	if is == report.WeOnly {
		for _, c := range o.Fields {
			f.Differences = append(f.Differences, report.Difference{Path: c.Path, Before: c.Was, Ours: c.Is, Theirs: c.Was})
		}
	}
	return Found{f, fmt.Sprintf("%v/%s/%s", b.key, f.What, o.origin())}
}

// origin tells a want from others of its kind, by what is wanted and since when. It
// uses the change rather than the time if it can, because clocks differ.
func (o *open) origin() string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(o.key)) // a hash never fails
	if o.by.Sequence > 0 {
		return fmt.Sprintf("%x/%s/%d", sum.Sum64(), o.by.Stream, o.by.Sequence)
	}
	return fmt.Sprintf("%x/%d", sum.Sum64(), o.since.UnixNano())
}

// keyOf is the key to which an operation belongs: the key of its object, or of the
// object that controls it. For a controller without objects of its own it is the key
// that wanted a write to the object.
func (m *Matcher) keyOf(d Operation) (events.Key, bool) {
	if m.described.Owns == nil {
		key, ok := m.wanted[d.Ref]
		return key, ok
	}
	if d.Ref.Kind == m.described.Owns.Name {
		return events.Key{Namespace: d.Ref.Namespace, Name: d.Ref.Name}, true
	}
	for _, object := range []reconcile.Object{d.Now, d.Was} {
		if object.None() {
			continue
		}
		ref, ok := owner.Of(object)
		if ok && ref.Kind == m.described.Owns.Kind && group(ref) == m.described.Owns.Name.Group() {
			return events.Key{Namespace: object.GetNamespace(), Name: ref.Name}, true
		}
	}
	return events.Key{}, false
}

// lives reports whether a key's own object exists and is not being deleted. Operations
// around one that is being deleted may come from the garbage collector.
func (m *Matcher) lives(key events.Key, uid types.UID, ask Asker) bool {
	if m.described.Owns == nil {
		return true
	}
	object := ask.Object(key)
	return object != nil && object.GetDeletionTimestamp() == nil && (uid == "" || object.GetUID() == uid)
}
