package translate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/watcher/translate"
)

func refTo(name string) events.Ref {
	return events.Ref{Kind: "pods", Namespace: "default", Name: name}
}

// is is a delta of an object in epoch 3.
func is(op events.Op, name, uid, version string) events.Delta {
	return events.Delta{Op: op, Ref: refTo(name), UID: types.UID(uid), ResourceVersion: version, Epoch: 3}
}

// A storage has gone back when its position is older than the newest that was told of its
// epoch: whatever told it, in whatever order, and of no other epoch.
func TestTheNewestPositionCounts(t *testing.T) {
	const same, next = 3, 4
	for what, c := range map[string]struct {
		told     []events.Delta
		position string
		want     uint64
	}{
		"at the newest":               {[]events.Delta{is(events.Is, "a", "u", "7")}, "7", same},
		"before it":                   {[]events.Delta{is(events.Is, "a", "u", "7")}, "6", next},
		"behind it":                   {[]events.Delta{is(events.Is, "a", "u", "7")}, "8", same},
		"it is not the last one told": {[]events.Delta{is(events.Is, "a", "u", "9"), is(events.Is, "b", "u", "7")}, "8", next},
		"a mark told it":              {[]events.Delta{is(events.Is, "a", "u", "7"), {Op: events.Mark, ResourceVersion: "9", Epoch: 3}}, "8", next},
		"of an older epoch":           {[]events.Delta{is(events.Is, "a", "u", "7"), {Op: events.Is, Ref: refTo("b"), ResourceVersion: "9", Epoch: 2}}, "8", same},
		"the first of a later epoch":  {[]events.Delta{{Op: events.Is, Ref: refTo("b"), ResourceVersion: "9", Epoch: 2}, is(events.Is, "a", "u", "7")}, "8", same},
		"no position is known":        {[]events.Delta{is(events.Is, "a", "u", "7")}, "", same},
		"none was told":               {[]events.Delta{{Op: events.Mark, Epoch: 3}}, "1", same},
		"it has no order":             {[]events.Delta{is(events.Is, "a", "u", "x2")}, "x1", same},
	} {
		s := translate.NewState()
		for i, d := range c.told {
			s.Fold(d, uint64(i+1))
		}
		if got := s.Compare(c.position, 0).Epoch(); got != c.want {
			t.Errorf("%s: the epoch is %d, want %d", what, got, c.want)
		}
	}
}

func TestWhichVersionIsOlder(t *testing.T) {
	for _, c := range []struct {
		version, than string
		want          bool
	}{
		{"6", "7", true}, {"7", "7", false}, {"8", "7", false}, {"9", "10", true}, {"", "7", false}, {"7", "", false}, {"x1", "x2", false}, {"x2", "x1", false},
	} {
		if got := translate.Older(c.version, c.than); got != c.want {
			t.Errorf("%q is older than %q: %t", c.version, c.than, got)
		}
	}
}

// An object that goes while it is listed has an end that is to be said, once, and if it is
// the one that is known.
func TestWhatGoesWhileItIsListed(t *testing.T) {
	s := translate.NewState()
	s.Fold(is(events.Is, "there", "u", "5"), 1)
	s.Fold(is(events.Gone, "gone", "u", "6"), 2)
	s.Fold(is(events.Is, "other", "u", "7"), 3)
	s.Fold(is(events.Is, "silent", "u", "8"), 4)
	r := s.Compare("8", 0)
	r.See(refTo("there"), "u", "5")
	if !r.Seen(refTo("there")) || r.Seen(refTo("other")) {
		t.Error("seen is what the list has")
	}
	for name, want := range map[string]bool{"there": true, "gone": false, "unknown": false} {
		if r.Lose(refTo(name), "u") != want || r.Seen(refTo(name)) {
			t.Errorf("the end of %s is to be recorded: %t, want %t", name, !want, want)
		}
	}
	if r.Lose(refTo("there"), "u") {
		t.Error("an object is lost twice")
	}
	if r.Lose(refTo("other"), "v") {
		t.Error("an object that nothing is known of ends")
	}
	if got := r.Missing(); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("missing are those of messages %v, want 3 and 4", got)
	}
}

// What was not found is given in the order in which it was told, and what was found and
// has not changed keeps its message until something else has its name.
func TestWhatIsMissingIsInOrder(t *testing.T) {
	s := translate.NewState()
	names := strings.Split("k c a z m b y", " ")
	var want []uint64
	for i, name := range names {
		s.Fold(is(events.Is, name, "u", "5"), uint64(10+i))
		want = append(want, uint64(10+i))
	}
	r := s.Compare("9", 0)
	if got := r.Missing(); !slices.Equal(got, want) {
		t.Errorf("missing are %v, want %v", got, want)
	}
	if f := r.See(refTo("k"), "u", "5"); f.Changed {
		t.Errorf("unchanged, it is %+v", f)
	}
	if f := r.See(refTo("k"), "v", "9"); f != (translate.Finding{Changed: true, Replaced: 10}) {
		t.Errorf("another of that name is %+v", f)
	}
	if f := r.See(refTo("k"), "w", "9"); f != (translate.Finding{Changed: true}) {
		t.Errorf("the second of that name, which this list told of first, is %+v", f)
	}
	if f := r.See(refTo("new"), "u", "9"); f != (translate.Finding{Changed: true}) {
		t.Errorf("a new one is %+v", f)
	}
	if got := r.Missing(); !slices.Equal(got, want[1:]) {
		t.Errorf("missing are %v, want %v", got, want[1:])
	}
}

// What is about no object leaves no object behind, in whatever it is folded.
func TestMarksAreNoObjects(t *testing.T) {
	for what, d := range map[string]events.Delta{"a mark": {Op: events.Mark, ResourceVersion: "5", Epoch: 3}, "a gap": {Op: events.Gap, ResourceVersion: "5", Epoch: 3}} {
		s := translate.NewState()
		s.Fold(d, 7)
		if got := s.Compare("9", 0).Missing(); len(got) != 0 {
			t.Errorf("after %s the messages %v are missing, want none", what, got)
		}
	}
	if (translate.Cursor{}).Covers("") {
		t.Error("no position covers something")
	}
}

// A kind of another name is another one.
func TestAnotherKindIsMadeAnew(t *testing.T) {
	have := kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Namespaced: true, Form: kinds.Full}
	for what, edit := range map[string]func(*kinds.Kind){
		"another name": func(k *kinds.Kind) { k.Name = "gadgets.example.com" }, "objects of another name": func(k *kinds.Kind) { k.Kind = "Gadget" },
	} {
		want := have
		edit(&want)
		if use, remake := translate.Settle(have, want, func(string) bool { return true }); !remake || use != want {
			t.Errorf("%s: Settle goes on with %+v, want a remake with what is wanted", what, use)
		}
	}
}

// The author is no longer beside himself, wherever his entry was; one whose entry has other
// fields, as many as before, is the author.
func TestTheAuthorIsNotBesideHimself(t *testing.T) {
	fields := func(e ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return e }
	before := translate.WritersOf(fields(managed("a", "", 9, a), managed("b", "", 9, b)))
	for author, now := range map[string][]metav1.ManagedFieldsEntry{
		"a": fields(managed("a", "", 9, b), managed("b", "", 9, b)), "b": fields(managed("a", "", 9, a), managed("b", "", 9, a)),
	} {
		other := map[string]string{"a": "b", "b": "a"}[author]
		if d := written(t, before, now); !d.Proven || d.By.Name != author || len(d.Beside) != 1 || d.Beside[0].Name != other {
			t.Errorf("by %v, proven %t, beside %v, want %s beside %s", d.By, d.Proven, d.Beside, author, other)
		}
	}
}

// Only the mark of a kind that is not served says that it is not.
func TestTheMarkOfAKindThatIsNotServed(t *testing.T) {
	unserved := translate.Unserved("widgets.example.com", "7", translate.Stamp{At: now})
	if !translate.Ended(unserved) || unserved.Op != events.Mark || unserved.ResourceVersion != "7" {
		t.Errorf("the mark does not say that the kind is not served: %+v", unserved)
	}
	if served := translate.Mark("pods", "7", translate.Stamp{At: now}); len(served.Body) != 0 || served.ContentType != "" {
		t.Errorf("the mark of one that is served has a body: %+v", served)
	}
	served := translate.Mark("pods", "7", translate.Stamp{At: now})
	damaged, gap := unserved, unserved
	damaged.Body, gap.Op = []byte(`{"unserved":true`), events.Gap
	for what, d := range map[string]events.Delta{"the mark of one that is served": served, "a damaged one": damaged, "a gap": gap} {
		if translate.Ended(d) {
			t.Errorf("%s says that the kind is not served", what)
		}
	}
}

// A mark and a gap say whether there are rules about their kind.
func TestMarksSayWhetherSomethingIsHidden(t *testing.T) {
	one, err := redact.Parse("pods:.spec.nodeName")
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[kinds.Name]events.Redaction{"pods": events.Redacted, "services": events.Unredacted} {
		s := translate.Stamp{At: now, Hide: redact.Policy{Rules: redact.Rules{one}}}
		if a, b := translate.Mark(kind, "7", s).Redaction, translate.Gap(kind, "7", s).Redaction; a != want || b != want {
			t.Errorf("of %s mark and gap have the redactions %v and %v, want %v", kind, a, b, want)
		}
	}
}

// What is said again has nothing of the place where it was said at first.
func TestWhatIsSaidAgainHasNoOldPlace(t *testing.T) {
	d := is(events.Is, "a", "u", "7")
	d.Census, d.After, d.Left, d.Waits = events.Census{Objects: 7}, events.Link{Sequence: 3}, events.Left{Versions: 2}, 9
	if again := translate.Again(d, translate.Stamp{At: now}); again.Census != (events.Census{}) || again.After != (events.Link{}) || again.Left != (events.Left{}) || again.Waits != 0 {
		t.Errorf("the repeated delta is %+v, want none of its old places", again)
	}
}

// An object that is to go is told so; one without metadata, or that cannot be encoded, is
// refused.
func TestWhatCannotBeTold(t *testing.T) {
	at := metav1.NewTime(now)
	for deleted, want := range map[*metav1.Time]bool{nil: false, &at: true} {
		d, err := translate.Object(kinds.Pods.Kind, events.Is, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: deleted}}, translate.Stamp{At: now})
		if err != nil || d.Deleting != want {
			t.Errorf("to go is %t, %v", d.Deleting, err)
		}
	}
	for what, object := range map[string]runtime.Object{
		"a status":                &metav1.Status{Reason: "x"},
		"what JSON does not have": &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}, "f": func() {}}},
	} {
		if d, err := translate.Object(kinds.Pods.Kind, events.Is, object, translate.Stamp{At: now}); err == nil || len(d.Body) > 0 || !strings.HasPrefix(err.Error(), "translate ") {
			t.Errorf("%s is told as %+v, %v", what, d, err)
		}
	}
	custom := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"x": int64(1)}}}
	d, err := translate.Object(kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Form: kinds.Full}, events.Is, custom, translate.Stamp{At: now})
	if err != nil || d.ContentType != kinds.JSON || !strings.Contains(string(d.Body), `"x":1`) {
		t.Errorf("one without a type is told as %q in %s, %v", d.Body, d.ContentType, err)
	}
}

// Brief metadata has the labels, bare metadata only what names and dates the object.
func TestHowMuchMetadataSays(t *testing.T) {
	for _, size := range []translate.Size{translate.Brief, translate.Bare} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now.Truncate(time.Second)), Labels: map[string]string{"c": "d"}}}
		d, err := translate.Object(kinds.Pods.Kind, events.Is, pod, translate.Stamp{At: now, Size: size})
		if err != nil || d.Form != kinds.Metadata {
			t.Fatalf("the delta is %v, %v; want metadata", d, err)
		}
		kind := kinds.Pods.Kind
		kind.Form = d.Form
		m, err := kinds.Decode(kind, d.ContentType, d.Body)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := m.(*metav1.PartialObjectMetadata)
		if !ok || p.UID != "u" || p.Namespace != "b" || (len(p.Labels) == 1) != (size == translate.Brief) {
			t.Errorf("in size %d it is %+v", size, m)
		}
	}
}
