package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// past makes a log of pods and sets of several lives, to compare a History with a memory that
// has folded the log up to one position.
func past(n int, random *rand.Rand) []events.Message {
	var log []events.Message
	var tally events.Tally
	for sequence := uint64(1); sequence <= uint64(n); sequence++ {
		p := aPod(fmt.Sprint("p", random.IntN(12)), []string{"set0", "set1", "set2", ""}[random.IntN(4)], int(sequence))
		op := events.Is
		if random.IntN(4) == 0 {
			op = events.Gone
		}
		m := delta(kinds.Pods.Kind, op, p, sequence)
		d, err := events.DecodeDelta(events.Ref{Kind: "pods", Namespace: p.Namespace, Name: p.Name}, m)
		if err != nil {
			panic(err)
		}
		tally.Fold(d)
		m.Header[events.HeaderCensus] = []string{tally.Census().String()}
		log = append(log, m)
	}
	return log
}

// shown prints the answers to all queries of a snapshot of pods.
func shown(s Snapshot) string {
	text := ""
	for _, o := range s.List("pods", "") {
		_, found := s.ByUID(o.GetUID())
		if _, pod := o.(*corev1.Pod); !pod {
			return fmt.Sprintf("%s is a %T", o.GetName(), o)
		}
		text += fmt.Sprintln(o.GetName(), o.GetUID(), o.GetResourceVersion(), len(o.GetOwnerReferences()), found)
	}
	for i := range 3 {
		uid := types.UID(fmt.Sprint("uid-set", i))
		text += fmt.Sprintln(uid, len(s.Dependents(uid)), len(s.ControlledBy("pods", uid)))
	}
	return text + fmt.Sprintln(len(s.Orphans("pods", "default")))
}

func read1(m events.Message) []Fact { return []Fact{Read(kinds.Pods.Kind, m)} }

// Whatever moves lead to a position, the History shows what a memory saw that had folded up to
// that position.
func TestHistoryShowsEveryPositionAsItWas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	log := past(300, random)
	plain := New()
	plain.Register(toy().Describe())
	plain.Follow(kinds.Pods.Kind)
	wants, digests := []string{""}, []uint64{0}
	take := func() {
		plain.View(toy().Describe().Name, nil, func(s Snapshot) {
			wants, digests = append(wants, shown(s)), append(digests, s.Digest(events.Position{"pods": 1}))
		})
	}
	take()
	wants, digests = wants[1:], digests[1:]
	for _, m := range log {
		plain.Fold("pods", []events.Message{m})
		take()
	}
	if slices.Equal(wants[:len(wants)-1], wants[1:]) {
		t.Fatal("nothing changes: the test shows nothing")
	}

	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	folded := 0
	for range 2000 {
		if folded < len(log) && random.IntN(3) == 0 {
			folded++
			h.Fold("pods", read1(log[folded-1]))
		}
		at := random.IntN(folded + 1)
		sight, err := h.ViewAt(events.Position{"pods": uint64(at)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := shown(sight.Snapshot.(Snapshot)); got != wants[at] || sight.Digest != digests[at] || len(sight.Incomplete) > 0 {
			t.Fatalf("at message %d of %d is seen\n%s(digest %x, lacking %v), want\n%s(digest %x)", at, folded, got, sight.Digest, sight.Incomplete, wants[at], digests[at])
		}
	}
	if folded < len(log) {
		t.Fatalf("only %d of %d messages were folded", folded, len(log))
	}
}

func TestHistoryKnowsWhatItLacks(t *testing.T) {
	log := past(40, rand.New(rand.NewPCG(2, 2)))
	lacks := func(h *History, at uint64) bool {
		sight, err := h.ViewAt(events.Position{"pods": at}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(sight.Incomplete) > 0
	}

	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 20, nil, false) // the state at 20 is not known
	for _, m := range log[20:] {
		h.Fold("pods", read1(m))
	}
	if !lacks(h, 20) || !lacks(h, 21) {
		t.Error("an object from before the beginning does not count as lacking")
	}
	if _, err := h.ViewAt(events.Position{"pods": 19}, nil); err == nil {
		t.Error("a position before the beginning can be viewed")
	}
	if _, err := h.ViewAt(events.Position{"replicasets.apps": 1}, nil); err == nil {
		t.Error("a kind that nothing began with was seen")
	}

	h = NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	for i, m := range log {
		if i == 10 {
			m.Header = map[string][]string{events.HeaderSum: {"0"}}
		}
		h.Fold("pods", read1(m))
	}
	if lacks(h, 10) || !lacks(h, 11) {
		t.Error("a damaged message is not noticed, or too early")
	}

	h = NewHistory(4)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	for _, m := range log {
		h.Fold("pods", read1(m))
	}
	if from, head, ok := h.Known("pods"); !ok || head != 40 || from < 20 || from > 36 {
		t.Errorf("of 40 messages %d to %d are remembered", from, head)
	}
}

// The last message decides for how long a kind was watched, in whatever order Begin gets the
// messages.
func TestHistoryBeginsWithTheLastSight(t *testing.T) {
	at := func(sequence uint64, until time.Time) Fact {
		d := events.Delta{
			Kind: kinds.Leases.Name, Ref: events.Ref{Kind: kinds.Leases.Name, Namespace: "kube-node-lease", Name: fmt.Sprint("node-", sequence)}, Op: events.Is,
			UID: types.UID(fmt.Sprint(sequence)), ResourceVersion: fmt.Sprint(sequence), At: until, Sight: events.Sight{Since: epoch, Until: until},
		}
		return ReadDelta(kinds.Leases.Kind, sequence, d)
	}
	early, late := at(7, epoch.Add(time.Minute)), at(9, epoch.Add(time.Minute+7*time.Second))
	for _, there := range [][]Fact{{early, late}, {late, early}} {
		h := NewHistory(0)
		h.Begin(kinds.Leases.Kind, 9, there, true)
		s, err := h.ViewAt(events.Position{kinds.Leases.Name: 9}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Sight(kinds.Leases.Name).Until; !got.Equal(epoch.Add(time.Minute + 7*time.Second)) {
			t.Errorf("the heartbeats were heard until %v", got)
		}
	}
}

// A change without a heartbeat leaves open when an object was last heard: a reader that began
// with that change took it for a heartbeat.
func TestHistoryTellsOfEarlierSignsOfLife(t *testing.T) {
	h := NewHistory(0)
	h.Begin(kinds.Leases.Kind, 0, nil, true)
	for i, renewed := range []int{1, 1, 2} {
		sequence := uint64(i + 1)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: "kube-node-lease", UID: "1", ResourceVersion: fmt.Sprint(sequence)}}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: epoch.Add(time.Duration(renewed) * time.Minute)}
		h.Fold(kinds.Leases.Name, []Fact{Read(kinds.Leases.Kind, delta(kinds.Leases.Kind, events.Is, lease, sequence))})
		s, err := h.ViewAt(events.Position{kinds.Leases.Name: sequence}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Heard(kinds.Leases.Name, "kube-node-lease", "worker"); *s.AskedUnheard != (sequence == 2) {
			t.Errorf("after version %d AskedUnheard is %v, want that it tells of an earlier heartbeat at 2 alone", sequence, *s.AskedUnheard)
		}
	}
}

// A kind outside the seen positions does not exist in the view, whatever the log has of it by
// now.
func TestHistoryShowsNoKindThatWasNotSeen(t *testing.T) {
	log := past(20, rand.New(rand.NewPCG(3, 3)))
	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	h.Begin(kinds.ReplicaSets.Kind, 0, nil, true)
	for _, m := range log {
		h.Fold("pods", read1(m))
	}
	for _, c := range []struct {
		seen events.Position
		pods bool
	}{
		{events.Position{"pods": 20, "replicasets.apps": 0}, true},
		{events.Position{"replicasets.apps": 0}, false},
		{events.Position{"pods": 20}, true},
	} {
		s, err := h.ViewAt(c.seen, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, known := s.KindOf("", "Pod")
		if (len(s.List("pods", "")) > 0) != c.pods || known != c.pods {
			t.Errorf("with %v seen there are %d pods, want some: %t; their kind is known: %v", c.seen, len(s.List("pods", "")), c.pods, known)
		}
	}
}

// linked links the messages of a log, each to the previous one.
func linked(log []events.Message) []events.Message {
	for i := range log {
		if i > 0 {
			before := log[i-1]
			log[i].Header[events.HeaderAfter] = []string{events.Link{Sequence: before.Sequence, Sum: before.Get(events.HeaderSum)}.String()}
		}
		log[i] = events.Seal(log[i])
	}
	return log
}

// If messages of a log are missing or were replaced, every view from the first of them on lacks
// something, until a census agrees, or for ever.
func TestHistoryKnowsWhereALogHasAHole(t *testing.T) {
	log := func() []events.Message {
		var all []events.Message
		for at := range uint64(6) {
			all = append(all, delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at+1), "", int(at+1)), at+1))
		}
		return all
	}
	other := linked(log())
	another := log()
	another[1].Header[events.HeaderRV] = []string{"22"}
	for what, c := range map[string]struct {
		log  []events.Message
		want []bool // by position
	}{
		"whole":            {linked(log()), []bool{false, false, false, false, false, false, false}},
		"two are missing":  {append(linked(log())[:2], other[4:]...), []bool{false, false, false, true, true, true, true}},
		"one was replaced": {append(linked(another)[:2], other[2:]...), []bool{false, false, true, true, true, true, true}},
	} {
		h := NewHistory(0)
		h.Begin(kinds.Pods.Kind, 0, nil, true)
		for _, m := range c.log {
			h.Fold("pods", read1(m))
		}
		for _, back := range []bool{false, true} {
			for i := range c.want {
				at := i
				if back {
					at = len(c.want) - 1 - i
				}
				s, err := h.ViewAt(events.Position{"pods": uint64(at)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				there := 0
				for _, m := range c.log {
					if m.Sequence <= uint64(at) {
						there++
					}
				}
				if lacks := len(s.Incomplete) > 0; lacks != c.want[at] || len(s.List("pods", "")) != there || (s.Digest != 0) != (there > 0) {
					t.Errorf("%s: at %d something is missing: %t, and there are %d pods, want %d", what, at, lacks, len(s.List("pods", "")), there)
				}
			}
		}
	}
}

// A message that is counted but changes nothing removes nothing when the History moves back and
// forth.
func TestHistoryGoesPastWhatChangesNothing(t *testing.T) {
	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	for i, version := range []int{5, 4, 6} {
		h.Fold("pods", read1(delta(kinds.Pods.Kind, events.Is, aPod("p", "web", version), uint64(i+1))))
	}
	for _, at := range []uint64{1, 2, 3, 2, 1, 3} {
		s, err := h.ViewAt(events.Position{"pods": at}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := names(s.List("pods", "")), map[uint64]string{1: "default/p 5", 2: "default/p 5", 3: "default/p 6"}[at]; got != want {
			t.Errorf("at %d there is %q, want %q", at, got, want)
		}
	}
}

// The state that a History begins with is visible at that sequence, and counts in the digest.
func TestHistoryBeginsWithWhatIsThere(t *testing.T) {
	pod := aPod("p", "web", 5)
	d := events.Delta{Kind: "pods", Ref: podOf("p"), Op: events.Is, UID: pod.UID, ResourceVersion: "5", ContentType: kinds.Protobuf, Form: kinds.Full, Body: bodyOf(t, pod)}
	f := ReadDelta(kinds.Pods.Kind, 7, d)
	m, k := pods()
	m.Fold("pods", []events.Message{ofPods(d, 7)})
	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 9, []Fact{f}, true)
	s, err := h.ViewAt(events.Position{"pods": 9}, nil)
	if err != nil || names(s.List("pods", "")) != "default/p 5" || s.Digest != k.tally.Census().Of("pods") || s.Digest == 0 || len(s.Incomplete) > 0 {
		t.Errorf("there is %q with a digest of %x, %v; want p at 5, with that of the census", names(s.List("pods", "")), s.Digest, err)
	}
	if from, head, ok := h.Known("pods"); from != 9 || head != 9 || !ok {
		t.Errorf("the kind is known from %d to %d, want 9", from, head)
	}
	if from, head, ok := h.Known("nodes"); from != 0 || head != 0 || ok {
		t.Errorf("a kind that never began is known from %d to %d", from, head)
	}
	if s, err := h.ViewAt(events.Position{"pods": 8}, nil); err == nil || s.Snapshot != nil {
		t.Error("a position before the only one can be viewed")
	}
}

// A History keeps neither the bodies of decoded messages, nor the decoded form of replaced
// versions.
func TestHistoryKeepsNoBodyTwice(t *testing.T) {
	m := delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 5), 1)
	read := Read(kinds.Pods.Kind, m)
	if read.message.Data != nil || read.delta.Body != nil || read.Sequence() != 1 || read.message.Sequence != 1 {
		t.Errorf("kept are %d and %d bytes of message %d", len(read.message.Data), len(read.delta.Body), read.Sequence())
	}
	if d := read.delta; ReadDelta(kinds.Pods.Kind, 1, events.Delta{Op: d.Op, Ref: d.Ref, UID: d.UID, ContentType: d.ContentType, Form: d.Form, Body: m.Data}).delta.Body != nil {
		t.Error("the body of a delta is kept")
	}
	h := NewHistory(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	h.Fold("pods", []Fact{read})
	if s, err := h.ViewAt(events.Position{"pods": 1}, nil); err != nil || len(s.List("pods", "")) != 1 {
		t.Fatalf("the object is not in the view: %v", err)
	}
	first := h.tracks["pods"].steps[0].now.object.Object.(*lazy)
	if first.Object == nil {
		t.Error("an object that was looked at is not decoded")
	}
	if h.Fold("pods", read1(delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 6), 2))); first.Object != nil {
		t.Error("the decoded object of an older version is kept")
	}
}
