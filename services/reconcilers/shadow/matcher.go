// Package shadow compares what a controller wants with what kube-controller-manager
// (KCM) does, while the one only looks on and the other acts. It is pure: the loop
// around it is package beside.
//
// A [Matcher] is told three things, in the order of the API server's versions: what
// a controller answers about a key on the present view ([Matcher.Decided]), what has
// been done to an object ([Matcher.Happened]), and that time passes
// ([Matcher.Advance]). It gives a finding for each write that was wanted and for each
// that KCM made.
//
// There is no fence. A shadow's turns have no outcomes: what the world becomes is
// KCM's doing, so a key is asked again at each change, and each answer takes the
// place of the one before. What was wanted and is not any more has been done, or has
// lost its cause.
//
// # When do two writes agree
//
// Changes agree field by field, by what the fields become; what the API server sets
// and the times in a status do not count. Creates agree when the same owner gets an
// object that has everything that was wanted, whatever an admission plug-in adds; a
// name that the API server made up does not count. Deletions agree when the same object
// goes, or one that is as good by the controller's own word ([reconcile.Chooser]).
//
// # What is only time
//
// KCM decides on caches, each of which may be a little behind. So before a write of
// KCM's counts as unexplained, the controller is asked once more: on views in which
// one kind or another is as it was some changes before, a moment later, and as if
// the API server had refused it for the reason that KCM reports. If it then wants
// what KCM did, they agree.
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
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Settings of a matcher. The zero value means the defaults.
type Settings struct {
	// Patience is how long something may be wanted, and not be done by KCM, before
	// that is a difference; 0 means a minute. KCM waits longer and longer between
	// attempts that fail, and may be held back by its limit on requests.
	Patience time.Duration
	// Recall is how long ago KCM may have seen what it acts on; 0 means a minute.
	Recall time.Duration
}

// Answer is what a controller wants of a key, on the present view. No Wants: nothing.
type Answer struct {
	Key events.Key
	// Acts and Tells are where the turns of either lane are recorded that say so, 0
	// for none, and Because is their reason.
	Acts, Tells uint64
	Because     string
	Wants       []Want
	// By is the change behind which it was asked; the zero value where it was time.
	By events.Trigger
	At time.Time
}

// Found is a finding with an ID, which every replica gives it that looks on.
type Found struct {
	events.Finding
	ID string
}

func (a Answer) turn(w Want) uint64 {
	if w.Status {
		return a.Tells
	}
	return a.Acts
}

// View says on which view a controller is to be asked. The zero value is the present
// one.
type View struct {
	// Back is how many changes each kind is behind.
	Back map[kinds.Name]int
	// Ahead is how much later it is.
	Ahead time.Duration
	// Last is what became of the key's last turn that acted; nil: nothing is known.
	Last *events.Outcome
}

// Asker asks the controller.
type Asker interface {
	// Ask gives what it wants of a key; ok is false where there is no such view.
	Ask(key events.Key, view View) (wants []Want, ok bool)
	// AsGood tells whether it is chance, on a view, which of two objects goes.
	AsGood(key events.Key, view View, chosen, other events.Ref) bool
	// Object is the key's own object on the present view, nil when it is not there.
	Object(key events.Key) metav1.Object
}

// Matcher compares one controller with KCM.
type Matcher struct {
	described reconcile.Description
	settings  Settings
	books     map[events.Key]*book
	// wanted are the names that a controller without objects of its own has wanted
	// something of, by which its operations are told from those of others.
	wanted map[events.Ref]events.Key
}

// book is what is known of a key.
type book struct {
	key      events.Key
	standing []*open
	past     []page // newest last
	created  map[kinds.Name]int
	told     *events.Outcome // what KCM says that the API server has answered it
}

// page is an earlier answer.
type page struct {
	at      time.Time
	wants   []*open
	created map[kinds.Name]int // at that time
}

// open is something that is wanted.
type open struct {
	Want
	key      string
	turn     uint64
	because  string
	by       events.Trigger // since when
	since    time.Time
	touched  bool // KCM has done some of it
	reported bool
}

// pages bounds how many earlier answers are kept of a key.
const pages = 200

// New makes the matcher of a controller.
func New(d reconcile.Description, s Settings) *Matcher {
	if s.Patience == 0 {
		s.Patience = time.Minute
	}
	if s.Recall == 0 {
		s.Recall = time.Minute
	}
	return &Matcher{described: d, settings: s, books: map[events.Key]*book{}, wanted: map[events.Ref]events.Key{}}
}

// Standing is how many writes are wanted at the moment.
func (m *Matcher) Standing() (count int) {
	for _, b := range m.books {
		count += len(b.standing)
	}
	return count
}

// Last is what the controller may know of the key's last turn: nothing, or what KCM
// reports that became of its own.
func (m *Matcher) Last(key events.Key, lane events.Lane) (events.Outcome, bool) {
	if b := m.books[key]; b != nil && b.told != nil && lane == events.Act {
		return *b.told, true
	}
	return events.Outcome{}, false
}

// News tells whether an answer wants anything else than the one before.
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

// Decided takes in what is wanted of a key now. What was wanted before and is not any
// more has been overtaken.
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
		return m.finding(b, o, events.Coalesced, "something else was wanted there before KCM wrote", at)
	}
	return m.finding(b, o, events.Vanished, "it was not wanted any more before KCM did it", at)
}

// note remembers the names that a controller without objects of its own cares for.
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

// write keeps the present answer, and forgets those that are too old.
func (b *book) write(at time.Time, recall time.Duration) {
	b.past = append(b.past, page{at: at, wants: slices.Clone(b.standing), created: maps.Clone(b.created)})
	fresh := slices.IndexFunc(b.past, func(p page) bool { return at.Sub(p.at) <= recall })
	if surplus := max(fresh, len(b.past)-pages); surplus > 0 {
		b.past = slices.Delete(b.past, 0, surplus)
	}
}

// tidy lets go of a key of which there is nothing to know.
func (m *Matcher) tidy(b *book) {
	idle := len(b.standing) == 0 && b.told == nil
	if idle && !slices.ContainsFunc(b.past, func(p page) bool { return len(p.wants) > 0 }) {
		delete(m.books, b.key)
	}
}

// Advance says what time it is. What has been wanted for too long is a difference,
// unless KCM has tried it and was refused.
func (m *Matcher) Advance(now time.Time, ask Asker) (found []Found) {
	for _, key := range slices.SortedFunc(maps.Keys(m.books), func(a, b events.Key) int { return compare(a, b) }) {
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

// undone judges what has been wanted for too long.
func (m *Matcher) undone(b *book, o *open, now time.Time, ask Asker) Found {
	others := func(wants []Want) bool { return !contains(wants, o.key) }
	if !changes(o.Want) {
		// KCM tries again, as is wanted here, and reports meanwhile that it is refused.
		others = func(wants []Want) bool { return !slices.ContainsFunc(wants, changes) }
	}
	status := b.told == nil && slices.ContainsFunc(b.standing, func(o *open) bool { return changes(o.Want) })
	if status {
		b.told, _ = m.refusal(b, ask.Object(b.key), ask, others)
	}
	switch {
	case b.told != nil && (status || !changes(o.Want)):
		return m.finding(b, o, events.Unseen, "KCM reports that the API server refused it", now)
	default:
		return m.finding(b, o, events.WeOnly, fmt.Sprintf("it has been wanted for %v, and KCM has not done it", now.Sub(o.since).Round(time.Second)), now)
	}
}

func changes(w Want) bool { return w.Verb == events.VerbUpdate }

func contains(wants []Want, id string) bool {
	return slices.ContainsFunc(wants, func(w Want) bool { return w.id() == id })
}

// finding is what became of something wanted that KCM has not done.
func (m *Matcher) finding(b *book, o *open, is events.Agreement, note string, at time.Time) Found {
	f := events.Finding{
		Controller: m.described.Name, Key: b.key, Agreement: is, Note: note, At: at,
		What: o.String(), Ref: o.Ref, UID: o.UID, Turn: o.turn, Because: o.because,
	}
	if is == events.WeOnly {
		for _, c := range o.Fields {
			f.Differences = append(f.Differences, events.Difference{Path: c.Path, Before: c.Was, Ours: c.Is, Theirs: c.Was})
		}
	}
	return Found{f, fmt.Sprintf("%v/%s/%s", b.key, f.What, o.origin())}
}

// origin tells a want from others of its kind, by what is wanted and since when. The
// change is better than the time: clocks differ.
func (o *open) origin() string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(o.key)) // a hash never fails
	if o.by.Sequence > 0 {
		return fmt.Sprintf("%x/%s/%d", sum.Sum64(), o.by.Stream, o.by.Sequence)
	}
	return fmt.Sprintf("%x/%d", sum.Sum64(), o.since.UnixNano())
}

// keyOf is the key that an operation would be of: its object's own, or the one that
// controls it. A controller that has no objects of its own knows its operations by the
// names that it wanted something of.
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

// lives tells whether a key's own object is there and not on its way out. What
// happens around one that is leaving may be the garbage collector's.
func (m *Matcher) lives(key events.Key, uid types.UID, ask Asker) bool {
	if m.described.Owns == nil {
		return true
	}
	object := ask.Object(key)
	return object != nil && object.GetDeletionTimestamp() == nil && (uid == "" || object.GetUID() == uid)
}
