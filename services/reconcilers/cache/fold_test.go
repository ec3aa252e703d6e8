package cache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache/cachetest"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// ofPods is a message of the pods' log.
func ofPods(d events.Delta, at uint64) events.Message {
	d.Kind = kinds.Pods.Name
	m := subject.Message(d)
	m.Sequence = at
	return m
}

// pods is a memory of pods alone.
func pods() (*Cache, *kindCache) {
	m := New()
	m.Register(toy().Describe())
	m.Follow(kinds.Pods.Kind)
	return m, m.kinds[kinds.Pods.Name]
}

// While a list is being reported, an object that is missing may only not have been reported
// yet.
func TestWhenAKindIsBeingListed(t *testing.T) {
	counted := events.Census{Known: true, Objects: 3}
	for what, c := range map[string]struct {
		delta events.Delta
		want  bool
	}{
		"a change":                    {events.Delta{Op: events.Is, Ref: podOf("p"), UID: "u", ResourceVersion: "5"}, false},
		"an object said again":        {events.Delta{Op: events.Is, Ref: podOf("p"), UID: "u", ResourceVersion: "5", Sync: true}, true},
		"the last one said again":     {events.Delta{Op: events.Is, Ref: podOf("p"), UID: "u", ResourceVersion: "5", Sync: true, Census: counted}, false},
		"a change that is counted":    {events.Delta{Op: events.Is, Ref: podOf("p"), UID: "u", ResourceVersion: "5", Census: counted}, false},
		"a gap":                       {events.Delta{Op: events.Gap}, true},
		"a gap behind which is a sum": {events.Delta{Op: events.Gap, Census: counted}, false},
		"a mark":                      {events.Delta{Op: events.Mark, ResourceVersion: "5"}, false},
	} {
		m, k := pods()
		m.fold(k, fact{sequence: 1, delta: c.delta, object: reconcile.Object{Object: aPod("p", "", 5)}})
		if k.listing != c.want || k.told != c.delta.Census {
			t.Errorf("%s: the kind is being listed: %t, want %t; the census is %+v", what, k.listing, c.want, k.told)
		}
	}
}

// The epoch, mark and other facts of a kind advance with each message, and do not go back.
func TestWhatIsKnownOfAKindGoesOn(t *testing.T) {
	m, k := pods()
	sight := events.Sight{Since: epoch, Until: epoch.Add(time.Minute)}
	m.fold(k, fact{sequence: 1, delta: events.Delta{Op: events.Mark, ResourceVersion: "7", Epoch: 3, At: epoch.Add(time.Hour), Sight: sight}})
	m.fold(k, fact{sequence: 2, delta: events.Delta{Op: events.Is, Ref: podOf("p"), UID: "u", ResourceVersion: "5", Epoch: 2, At: epoch}, object: reconcile.Object{Object: aPod("p", "", 5)}})
	if !k.newest.Equal(epoch.Add(time.Hour)) || k.sight != sight || k.epoch != 3 || k.mark != "7" || k.marked != 3 || k.markAt != 1 || k.moved.count != 2 || k.reached != (moment{3, "7"}) {
		t.Errorf("the state of the kind is %+v", k)
	}
	torn := errors.New("torn")
	m.fold(k, fact{sequence: 3, broken: torn, delta: events.Delta{Op: events.Mark, ResourceVersion: "9", Epoch: 4}})
	if !errors.Is(k.broken, torn) || k.epoch != 3 || k.mark != "7" || k.moved.count != 2 {
		t.Errorf("a damaged message changes the state: %+v", k)
	}
}

// A deletion removes the object held under its name, unless that is newer. If a relist found
// the deletion in a new epoch, its version is of the old one.
func TestHowAnEndIsTakenIn(t *testing.T) {
	namesake := reconcile.Object{Object: aPod("p", "db", 9)}
	for what, c := range map[string]struct {
		held  uint64 // its epoch; 9: none is
		dead  types.UID
		end   events.Delta
		of    reconcile.Object
		there bool
		was   types.UID         // of what the change ends; "": there is no change
		ends  map[string]string // version and epoch, by uid
	}{
		"of it":                     {1, "", events.Delta{UID: "uid-p", ResourceVersion: "6", Epoch: 1}, reconcile.Object{}, false, "uid-p", map[string]string{"uid-p": "6 1"}},
		"of it, at its version":     {1, "", events.Delta{UID: "uid-p", ResourceVersion: "5", Epoch: 1}, reconcile.Object{}, false, "uid-p", map[string]string{"uid-p": "5 1"}},
		"of it, and then it came":   {1, "", events.Delta{UID: "uid-p", ResourceVersion: "4", Epoch: 1}, namesake, true, "", nil},
		"of it, of an epoch before": {1, "", events.Delta{UID: "uid-p", ResourceVersion: "9", Epoch: 0}, namesake, true, "", nil},
		"of the one before":         {1, "", events.Delta{UID: "old", ResourceVersion: "4", Epoch: 1}, namesake, true, "uid-p", map[string]string{"old": "4 1"}},
		"of the one before, again":  {1, "old", events.Delta{UID: "old", ResourceVersion: "4", Epoch: 1}, namesake, true, "", map[string]string{"old": " 0"}},
		"of one before, no body":    {1, "", events.Delta{UID: "old", ResourceVersion: "4", Epoch: 1}, reconcile.Object{}, true, "", nil},
		"of the one after":          {1, "", events.Delta{UID: "new", ResourceVersion: "7", Epoch: 1}, namesake, false, "uid-p", map[string]string{"uid-p": "7 1", "new": "7 1"}},
		"of one after, no body":     {1, "", events.Delta{UID: "new", ResourceVersion: "7", Epoch: 1}, reconcile.Object{}, false, "uid-p", map[string]string{"uid-p": "7 1"}},
		"found":                     {1, "", events.Delta{UID: "uid-p", ResourceVersion: "6", Epoch: 1, Sync: true}, reconcile.Object{}, false, "uid-p", map[string]string{"uid-p": "6 1"}},
		"found in a new epoch":      {1, "", events.Delta{UID: "uid-p", ResourceVersion: "5", Epoch: 2, Sync: true}, reconcile.Object{}, false, "uid-p", map[string]string{"uid-p": " 2"}},
		"told in a new epoch":       {1, "", events.Delta{UID: "uid-p", ResourceVersion: "5", Epoch: 2}, reconcile.Object{}, false, "uid-p", map[string]string{"uid-p": "5 2"}},
		"found, and never held":     {9, "", events.Delta{UID: "uid-p", ResourceVersion: "5", Epoch: 1, Sync: true}, namesake, false, "uid-p", map[string]string{"uid-p": " 1"}},
		"found in the first epoch":  {9, "", events.Delta{UID: "uid-p", ResourceVersion: "5", Sync: true}, namesake, false, "uid-p", map[string]string{"uid-p": "5 0"}},
		"told, and never held":      {9, "", events.Delta{UID: "uid-p", ResourceVersion: "5", Epoch: 1}, namesake, false, "uid-p", map[string]string{"uid-p": "5 1"}},
		"never held, no body":       {9, "", events.Delta{UID: "uid-p", ResourceVersion: "5", Epoch: 1}, reconcile.Object{}, false, "", nil},
	} {
		m, k := pods()
		if c.held != 9 {
			m.fold(k, fact{sequence: 1, delta: events.Delta{Op: events.Is, Ref: podOf("p"), UID: "uid-p", ResourceVersion: "5", Epoch: c.held}, object: reconcile.Object{Object: aPod("p", "web", 5)}})
		}
		if c.dead != "" {
			k.addTombstone(tombstone{uid: c.dead, name: types.NamespacedName{Namespace: "default", Name: "other"}})
		}
		c.end.Op, c.end.Ref = events.Gone, podOf("p")
		made, changed := m.fold(k, fact{sequence: 2, delta: c.end, object: c.of})
		ends := map[string]string{}
		for uid, of := range k.gone {
			ends[string(uid)] = fmt.Sprint(of.version, " ", of.epoch)
		}
		if len(ends) != len(c.ends) || len(ends) > 0 && !cmp.Equal(ends, c.ends) {
			t.Errorf("%s: ended are %v, want %v", what, ends, c.ends)
		}
		if _, there := k.objects[types.NamespacedName{Namespace: "default", Name: "p"}]; there != c.there || changed != (c.was != "") {
			t.Errorf("%s: the object is there: %t, want %t; that is a change: %t", what, there, c.there, changed)
		}
		if changed && (made.was.GetUID() != c.was || made.ref != podOf("p") || !made.now.None()) {
			t.Errorf("%s: the change is %+v", what, made)
		}
	}
}

// A delta of an object is folded if it is newer than the held object, or than its tombstone. An
// object that takes over a name ends the previous object of that name.
func TestHowAnObjectIsTakenIn(t *testing.T) {
	for what, c := range map[string]struct {
		uid     types.UID
		version int
		want    string // held
		was     bool
		ends    types.UID
	}{
		"a newer version":        {"uid-p", 6, "uid-p 6", true, ""},
		"the same":               {"uid-p", 5, "uid-p 5", false, ""},
		"an older one":           {"uid-p", 4, "uid-p 5", false, ""},
		"another one":            {"new", 6, "new 6", true, "uid-p"},
		"another one before it":  {"new", 4, "uid-p 5", false, ""},
		"one that has ended":     {"dead", 7, "uid-p 5", false, ""},
		"one that ended earlier": {"dead", 8, "dead 8", true, "uid-p"},
	} {
		m, k := pods()
		told := func(uid types.UID, version int) (change, bool) {
			pod := aPod("p", "", version)
			pod.UID = uid
			return m.fold(k, fact{delta: events.Delta{Op: events.Is, Ref: podOf("p"), UID: uid, ResourceVersion: fmt.Sprint(version)}, object: reconcile.Object{Kind: kinds.Pods.Kind, Object: pod}})
		}
		told("uid-p", 5)
		k.addTombstone(tombstone{uid: "dead", version: "7", name: types.NamespacedName{Namespace: "default", Name: "other"}})
		made, changed := told(c.uid, c.version)
		h := k.objects[types.NamespacedName{Namespace: "default", Name: "p"}]
		if got := fmt.Sprint(h.uid, " ", h.version); got != c.want || changed != c.was || changed && (made.was.GetUID() != "uid-p" || made.now.GetUID() != c.uid) {
			t.Errorf("%s: held is %s, and it has changed: %t", what, got, changed)
		}
		if end, ended := k.gone["uid-p"]; ended != (c.ends != "") || ended && end.version != fmt.Sprint(c.version) {
			t.Errorf("%s: the previous object of the name has ended: %t, %+v", what, ended, end)
		}
	}
}

// An object that cannot be decoded is reported, and leaves the held one; its deletion can be
// folded.
func TestWhatCannotBeReadOfAnObject(t *testing.T) {
	held := ofPods(events.Delta{Op: events.Is, Ref: podOf("p"), UID: "uid-p", ResourceVersion: "5", ContentType: kinds.Protobuf, Form: kinds.Full, Body: bodyOf(t, aPod("p", "web", 5))}, 1)
	torn := func(op events.Op) events.Message {
		return ofPods(events.Delta{Op: op, Ref: podOf("p"), UID: "uid-p", ResourceVersion: "6", ContentType: kinds.Protobuf, Form: kinds.Full, Body: []byte("torn")}, 2)
	}
	headless := torn(events.Is)
	headless.Header[events.HeaderEpoch] = []string{"x"}
	mark := ofPods(events.Delta{Op: events.Mark, ResourceVersion: "6"}, 2)
	mark.Header[events.HeaderEpoch] = []string{"x"}
	foreign := held
	foreign.Subject, foreign.Sequence = "x", 2
	for what, c := range map[string]struct {
		message events.Message
		told    []string // what is told of: names and versions
		asked   int
		there   bool
		damaged bool
	}{
		"a version":            {torn(events.Is), []string{"p 6"}, 0, true, true},
		"an end":               {torn(events.Gone), nil, 1, false, false},
		"one without an epoch": {headless, []string{"p "}, 0, true, true},
		"a mark":               {mark, nil, 0, true, false},
		"a foreign one":        {foreign, nil, 0, true, false},
	} {
		m, k := pods()
		m.Fold(kinds.Pods.Name, []events.Message{held})
		m.readers["toy"].take()
		if at := m.Fold(kinds.Pods.Name, []events.Message{c.message}); at != 2 {
			t.Errorf("%s: the log is folded up to %d, want 2", what, at)
		}
		news := m.readers["toy"].take()
		var told []string
		for _, u := range news.Unmapped {
			if told = append(told, u.Ref.Name+" "+u.Version); u.Reason == "" {
				t.Errorf("%s: the object that cannot be mapped has no reason", what)
			}
		}
		_, there := k.objects[types.NamespacedName{Namespace: "default", Name: "p"}]
		_, damaged := k.damaged[types.NamespacedName{Namespace: "default", Name: "p"}]
		if !cmp.Equal(told, c.told) || len(news.Keys) != c.asked || there != c.there || damaged != c.damaged || len(k.damaged) > 1 || k.broken != nil {
			t.Errorf("%s: told is %v, %d keys are asked about, there: %t, damaged: %v, broken: %v", what, told, len(news.Keys), there, k.damaged, k.broken)
		}
		for _, mended := range []events.Message{ofPods(events.Delta{Op: events.Is, Ref: podOf("p"), UID: "uid-p", ResourceVersion: "7", ContentType: kinds.Protobuf, Form: kinds.Full, Body: bodyOf(t, aPod("p", "web", 7))}, 3), ofPods(events.Delta{Op: events.Gone, Ref: podOf("p"), UID: "uid-p", ResourceVersion: "8", ContentType: kinds.Protobuf, Form: kinds.Full, Body: bodyOf(t, aPod("p", "web", 8))}, 4)} {
			k.damaged[types.NamespacedName{Namespace: "default", Name: "p"}] = damage{}
			if m.Fold(kinds.Pods.Name, []events.Message{mended}); len(k.damaged) > 0 {
				t.Errorf("%s: what has been told again is damaged", what)
			}
		}
	}
}

// A message that is no delta of the kind is verified like one that is: wrong checksums count as
// damage.
func TestADamagedMessageThatIsNoDelta(t *testing.T) {
	m := delta(kinds.Pods.Kind, events.Is, aPod("p", "", 5), 1)
	m.Subject = "x"
	m = events.Seal(m)
	if f := read(kinds.Pods.Kind, m); f.broken != nil {
		t.Errorf("a message of a foreign subject is broken: %v", f.broken)
	}
	m.Data = []byte("torn")
	if f := read(kinds.Pods.Kind, m); !errors.Is(f.broken, events.ErrDamaged) || f.delta.Op != "" {
		t.Errorf("a torn message is read as %+v, want ErrDamaged", f)
	}
}

// A body is decoded in the form that its message names, or else in that of its kind.
func TestInWhichFormABodyIsRead(t *testing.T) {
	partial := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "uid-p"}}
	for what, c := range map[string]struct {
		of, said kinds.Form
		body     []byte
		full     bool
	}{
		"the kind's":            {kinds.Full, "", bodyOf(t, aPod("p", "web", 5)), true},
		"metadata, as the kind": {kinds.Metadata, "", bodyOf(t, partial), false},
		"metadata":              {kinds.Full, kinds.Metadata, bodyOf(t, partial), false},
		"the whole":             {kinds.Metadata, kinds.Full, bodyOf(t, aPod("p", "web", 5)), true},
	} {
		kind := kinds.Pods.Kind
		kind.Form = c.of
		f := read(kind, ofPods(events.Delta{Op: events.Is, Ref: podOf("p"), UID: "uid-p", ResourceVersion: "5", ContentType: kinds.Protobuf, Form: c.said, Body: c.body}, 1))
		if _, full := f.object.Object.(*corev1.Pod); f.damage != "" || f.object.None() || full != c.full {
			t.Errorf("%s: the object is a %T (%s), want it in full: %t", what, f.object.Object, f.damage, c.full)
		}
	}
}

func bodyOf(t *testing.T, of cachetest.Object) []byte {
	t.Helper()
	body, err := kinds.Encode(kinds.Pods.Kind, of)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
