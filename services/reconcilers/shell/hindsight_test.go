package shell

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

// past is a log of pods and sets of several lives, with what a memory shows that
// folds it just so far.
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

// shown is everything that a snapshot of pods can be asked.
func shown(s scene) string {
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

// Whatever way leads to a position, what is seen there is what a memory saw that had
// folded just so far.
func TestHindsightShowsEveryPositionAsItWas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	log := past(300, random)
	plain := NewMemory()
	plain.Register(toy().Describe())
	plain.Follow(kinds.Pods.Kind)
	wants, digests := []string{""}, []uint64{0}
	take := func() {
		plain.look(toy().Describe().Name, nil, func(s scene) {
			wants, digests = append(wants, shown(s)), append(digests, s.digest(events.Position{"pods": 1}))
		})
	}
	take()
	wants, digests = wants[1:], digests[1:]
	for _, m := range log {
		plain.Fold("pods", []events.Message{m})
		take()
	}
	if slices.Equal(wants[:len(wants)-1], wants[1:]) {
		t.Fatal("nothing changes: the test has lost its point")
	}

	h := NewHindsight(0)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	folded := 0
	for range 2000 {
		if folded < len(log) && random.IntN(3) == 0 {
			folded++
			h.Fold("pods", read1(log[folded-1]))
		}
		at := random.IntN(folded + 1)
		sight, err := h.See(events.Position{"pods": uint64(at)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := shown(sight.Snapshot.(scene)); got != wants[at] || sight.Digest != digests[at] || len(sight.Lacking) > 0 {
			t.Fatalf("at message %d of %d is seen\n%s(digest %x, lacking %v), want\n%s(digest %x)", at, folded, got, sight.Digest, sight.Lacking, wants[at], digests[at])
		}
	}
	if folded < len(log) {
		t.Fatalf("only %d of %d messages were folded", folded, len(log))
	}
}

func TestHindsightKnowsWhatItLacks(t *testing.T) {
	log := past(40, rand.New(rand.NewPCG(2, 2)))
	lacks := func(h *Hindsight, at uint64) bool {
		sight, err := h.See(events.Position{"pods": at}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(sight.Lacking) > 0
	}

	h := NewHindsight(0)
	h.Begin(kinds.Pods.Kind, 20, nil, false) // what was there is not known
	for _, m := range log[20:] {
		h.Fold("pods", read1(m))
	}
	if !lacks(h, 20) || !lacks(h, 21) {
		t.Error("what was there before the begin does not lack")
	}
	if _, err := h.See(events.Position{"pods": 19}, nil); err == nil {
		t.Error("what is before the begin was seen")
	}
	if _, err := h.See(events.Position{"replicasets.apps": 1}, nil); err == nil {
		t.Error("a kind that nothing began with was seen")
	}

	h = NewHindsight(0)
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

	h = NewHindsight(4)
	h.Begin(kinds.Pods.Kind, 0, nil, true)
	for _, m := range log {
		h.Fold("pods", read1(m))
	}
	if from, head, ok := h.Known("pods"); !ok || head != 40 || from < 20 || from > 36 {
		t.Errorf("of 40 messages %d to %d are remembered", from, head)
	}
}

// For how long a kind was heard is as its last message says, in whatever order what was there
// is told.
func TestHindsightBeginsWithTheLastSight(t *testing.T) {
	at := func(sequence uint64, until time.Time) Fact {
		d := events.Delta{
			Kind: kinds.Leases.Name, Ref: events.Ref{Kind: kinds.Leases.Name, Namespace: "kube-node-lease", Name: fmt.Sprint("node-", sequence)}, Op: events.Is,
			UID: types.UID(fmt.Sprint(sequence)), ResourceVersion: fmt.Sprint(sequence), At: until, Sight: events.Sight{Since: epoch, Until: until},
		}
		return ReadDelta(kinds.Leases.Kind, sequence, d)
	}
	early, late := at(7, epoch.Add(time.Minute)), at(9, epoch.Add(time.Minute+7*time.Second))
	for _, there := range [][]Fact{{early, late}, {late, early}} {
		h := NewHindsight(0)
		h.Begin(kinds.Leases.Kind, 9, there, true)
		s, err := h.See(events.Position{kinds.Leases.Name: 9}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Sight(kinds.Leases.Name).Until; !got.Equal(epoch.Add(time.Minute + 7*time.Second)) {
			t.Errorf("it was heard until %v", got)
		}
	}
}

// A change without a sign of life leaves open when an object was last heard: a reader that
// began with it took it for one.
func TestHindsightTellsOfEarlierSignsOfLife(t *testing.T) {
	h := NewHindsight(0)
	h.Begin(kinds.Leases.Kind, 0, nil, true)
	for i, renewed := range []int{1, 1, 2} {
		sequence := uint64(i + 1)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: "kube-node-lease", UID: "1", ResourceVersion: fmt.Sprint(sequence)}}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: epoch.Add(time.Duration(renewed) * time.Minute)}
		h.Fold(kinds.Leases.Name, []Fact{Read(kinds.Leases.Kind, delta(kinds.Leases.Kind, events.Is, lease, sequence))})
		s, err := h.See(events.Position{kinds.Leases.Name: sequence}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Heard(kinds.Leases.Name, "kube-node-lease", "worker"); *s.Earlier != (sequence == 2) {
			t.Errorf("after version %d an earlier sign of life is told: %v", sequence, *s.Earlier)
		}
	}
}

// A kind that was not followed was not there, whatever the log has of it by now.
func TestHindsightShowsNoKindThatWasNotSeen(t *testing.T) {
	log := past(20, rand.New(rand.NewPCG(3, 3)))
	h := NewHindsight(0)
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
		s, err := h.See(c.seen, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, known := s.KindOf("", "Pod")
		if (len(s.List("pods", "")) > 0) != c.pods || known != c.pods {
			t.Errorf("with %v seen there are %d pods, and their kind is known: %v", c.seen, len(s.List("pods", "")), known)
		}
	}
}
