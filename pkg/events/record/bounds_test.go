package record_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
)

// byTurn reports whether the newest version of a pod is attributed to a turn of ours.
func (w *world) byTurn(name string) bool {
	w.Helper()
	h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod(name), 1)
	w.Must(err)
	return h.Versions[0].By.Controller == replicaSets
}

// late stores the outcome of a new turn of the set, without waiting before it.
func (w *world) late(made ...events.Delta) {
	w.Helper()
	w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, fmt.Sprint("turn of ", time.Now().UnixNano()), nil), made...)
}

// The outcome of a version may be stored up to five seconds before the version, because of clock
// skew, and up to ten minutes after it, for a large turn; outcomes outside of that are not
// considered.
func TestHowFarAnOutcomeIsFromItsVersion(t *testing.T) {
	tell(t, func(w *world) {
		for name, c := range map[string]struct {
			apart time.Duration // from the version to its outcome
			found bool
		}{
			"five seconds before":    {-5 * time.Second, true},
			"more than five seconds": {-5*time.Second - 1, false},
			"ten minutes behind":     {10 * time.Minute, true},
			"more than ten minutes":  {10*time.Minute + 1, false},
		} {
			d := w.Delta(pod(name), events.Is, "", nil)
			if c.apart < 0 {
				w.late(d)
				w.Wait(-c.apart - time.Second) // say waits for a second
				w.Say(d)
			} else {
				w.Say(d)
				w.Wait(c.apart - 100*time.Millisecond) // decide itself waits that long
				w.late(d)
				w.late() // otherwise its outcome is the last one, which is always read
			}
			if got := w.byTurn(name); got != c.found {
				w.Errorf("with its outcome %s the version is known to be the turn's: %t, want %t", name, got, c.found)
			}
			w.Wait(time.Hour)
		}
	})
}

// At most two hundred outcomes of a key are read for a version.
func TestHowManyOutcomesAreLookedAt(t *testing.T) {
	tell(t, func(w *world) {
		for _, c := range []struct {
			n     int
			found bool
		}{{200, false}, {199, true}} { // outcomes of an hour before do not count
			n, found := c.n, c.found
			w.Wait(time.Hour)
			name := fmt.Sprint("behind-", n)
			d := w.Delta(pod(name), events.Is, "", nil)
			w.Say(d)
			store := func(turn uint64, made ...events.Delta) { w.Done(replicaSets, webSet, turn, made...) }
			for i := range n {
				store(w.serial(i))
			}
			store(w.serial(n), d)
			store(w.serial(n + 1))
			if got := w.byTurn(name); got != found {
				w.Errorf("behind %d others its outcome is found: %t", n, got)
			}
		}
	})
}

// serial is the number of a turn that nothing else has.
func (w *world) serial(n int) uint64 { return uint64(w.Version)*1000 + uint64(n) }

// A fight needs versions that stay for ten minutes at most, and three returns to an earlier
// state.
func TestHowLongAFightMayPause(t *testing.T) {
	for name, c := range map[string]struct {
		pause    time.Duration
		changes  int
		isAFight bool
	}{
		"ten minutes":                       {10 * time.Minute, 5, true},
		"a little more":                     {10*time.Minute + time.Second, 5, false},
		"it has come back three times":      {time.Minute, 5, true},
		"it has come back no more than two": {time.Minute, 4, false},
	} {
		tell(t, func(w *world) {
			for n := range c.changes {
				w.Wait(c.pause - time.Second) // say waits for a second
				w.Is(web, []string{"pipeline", "scaler"}[n%2], replicas([]int32{3, 7}[n%2]))
			}
			cause, err := w.record.Why(w.Context(), kinds.Deployments.Kind, web, record.Question{})
			w.Must(err)
			if got := cause.Fight != nil; got != c.isAFight {
				w.Errorf("%s: the cause is a fight: %t, want %t", name, got, c.isAFight)
			}
		})
	}
}

// An explanation follows a chain of twenty decisions, and says where it ends.
func TestHowFarAnExplanationGoes(t *testing.T) {
	for length, whole := range map[int]bool{20: true, 21: false} {
		tell(t, func(w *world) {
			at := w.Is(pod("p0"), "kubectl-create", nil)
			for n := range length {
				made := w.Delta(pod(fmt.Sprint("p", n+1)), events.Is, events.FieldManager, nil)
				none := events.Ref{Kind: webSet.Kind, Namespace: "shop", Name: made.Ref.Name}
				w.Done(replicaSets, none, w.Decide(replicaSets, none, "it is wanted", []events.Command{create(made.Ref)}, trigger(pod(fmt.Sprint("p", n)), at)), made)
				at = w.Say(made)
			}
			c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod(fmt.Sprint("p", length)), record.Question{})
			w.Must(err)
			behind := 0
			for ; len(c.Causes) > 0; c = c.Causes[0] {
				behind++
			}
			if behind != 20 || (c.Note == "") != whole || whole != (c.Version.Object == pod("p0")) {
				w.Errorf("behind %d decisions it ends after %d, at %v: %q", length, behind, c.Version.Object, c.Note)
			}
		})
	}
}

// At most five hundred turns of a key since a moment are returned.
func TestHowManyTurnsOfAKeyAreTold(t *testing.T) {
	tell(t, func(w *world) {
		key := events.Key{Namespace: "shop", Name: "web-1"}
		m, err := events.EncodeJSON(events.Turn{Controller: replicaSets, Key: key, Lane: events.LaneWrite, Because: "again"}, events.Trace{})
		w.Must(err)
		m.Subject = subject.Turn(replicaSets, events.LaneWrite, key)
		for n := range 501 {
			_, err := w.Bus.Put(w.Context(), m, fmt.Sprint("again ", n))
			w.Must(err)
		}
		got, err := w.record.Decided(w.Context(), webSet, time.Time{})
		w.Must(err)
		if len(got) != 500 || got[len(got)-1].Sequence != 1 {
			w.Errorf("%d turns are told, to %d", len(got), got[len(got)-1].Sequence)
		}
	})
}

// busy is a bus that counts concurrent requests.
type busy struct {
	bus.Archive
	mu        sync.Mutex
	now, most int
}

func (b *busy) Last(ctx context.Context, stream, of string) (events.Message, bool, error) {
	b.count(1)
	defer b.count(-1)
	time.Sleep(time.Second) // of virtual time
	return b.Archive.Last(ctx, stream, of)
}

func (b *busy) count(more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now += more
	b.most = max(b.most, b.now)
}

// One question has at most sixteen concurrent requests, and starts none after an error.
func TestHowManyRequestsAreUnderWay(t *testing.T) {
	tell(t, func(w *world) {
		for i := range 8 {
			w.Must(w.Bus.EnsureController(w.Context(), fmt.Sprint("c", i)))
		}
		b := &busy{Archive: w.Bus}
		began := time.Now()
		_, err := record.New(b).Decided(w.Context(), web, time.Time{})
		w.Must(err)
		// Ten controllers, two keys, three lanes, a turn and an outcome.
		if asked := 10 * 2 * 3 * 2; b.most != 16 || time.Since(began) != time.Duration((asked+15)/16)*time.Second {
			w.Errorf("%d requests are under way at a time, for %v", b.most, time.Since(began))
		}
		ctx, stop := context.WithCancel(w.Context())
		stop()
		if _, err := record.New(b).Decided(ctx, web, time.Time{}); !errors.Is(err, context.Canceled) {
			w.Errorf("Decided with an ended context: %v, want Canceled", err)
		}
	})
}

// Whether a version changes the desired state depends only on the version and its author: a new
// generation or, for a kind without generations, any change outside of the status; a binding
// does not.
func TestWhichVersionSaysWhatIsWanted(t *testing.T) {
	tell(t, func(w *world) {
		for name, c := range map[string]struct {
			change func(metav1.Object)
			wish   bool
		}{
			"a status":     {func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodRunning }, false},
			"a binding":    {func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n" }, false},
			"a finalizer":  {func(o metav1.Object) { o.SetFinalizers([]string{"x"}) }, true},
			"a label":      {func(o metav1.Object) { o.SetLabels(map[string]string{"a": "b"}) }, true},
			"an image":     {func(o metav1.Object) { o.(*corev1.Pod).Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}} }, true},
			"nothing":      {nil, false},
			"a generation": {func(o metav1.Object) { o.SetGeneration(7) }, true},
		} {
			w.Is(pod(name), "kubectl-create", nil)
			created := fmt.Sprint(w.Version)
			w.Is(pod(name), "kubelet", c.change)
			changed := fmt.Sprint(w.Version)
			cause, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod(name), record.Question{})
			w.Must(err)
			want := created
			if c.wish {
				want = changed
			}
			if got := cause.Version.ResourceVersion; got != want || !cause.Wish || (cause.Last != nil) != (got != changed) {
				w.Errorf("%s: explained is version %s (a wish: %t, with the last: %t), want %s", name, got, cause.Wish, cause.Last != nil, want)
			}
		}
	})
}

// The search for a version that changes the desired state reads a thousand versions at most.
func TestHowFarBackAWishIsLookedFor(t *testing.T) {
	for changes, found := range map[int]bool{999: true, 1000: false} {
		tell(t, func(w *world) {
			if !w.Linked { // unlinked, it would take long; it ends the same way
				return
			}
			w.Is(pod("a"), "kubectl-create", nil)
			created := fmt.Sprint(w.Version)
			for n := range changes {
				w.Is(pod("a"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Message = fmt.Sprint(n) })
			}
			c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{})
			w.Must(err)
			if got := c.Version.ResourceVersion; (got == created) != found || !found && got != fmt.Sprint(w.Version) {
				w.Errorf("behind %d changes of a status explained is version %s, created as %s", changes, got, created)
			}
		})
	}
}

// If the record has no census, the state has a doubt; the objects on record are returned.
func TestNothingWasCounted(t *testing.T) {
	tell(t, func(w *world) {
		for i := range 3 {
			w.SayUncounted(w.Delta(pod(fmt.Sprint("gone", i)), events.Is, "x", nil))
		}
		w.Wait(25 * time.Hour) // earlier messages are no longer stored
		for _, name := range []string{"a", "b"} {
			w.SayUncounted(w.Delta(pod(name), events.Is, "x", nil))
		}
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{})
		w.Must(err)
		if len(s.Entries) != 2 || s.Whole || s.Counted != 0 || len(s.Doubts) != 1 || !strings.Contains(s.Doubts[0], "no count of the objects was taken") {
			w.Errorf("there are %d, whole %t, counted by %d: %v", len(s.Entries), s.Whole, s.Counted, s.Doubts)
		}
	})
}

// A foreign message in a log is no delta: it becomes a doubt, and everything else is returned.
func TestAMessageOfAStranger(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("a"), "x", nil)
		_, err := w.Bus.Put(w.Context(), events.Message{Subject: "ev.pods.stranger", Header: map[string][]string{"A": {"b"}}}, "stranger")
		w.Must(err)
		w.SayUncounted(w.Delta(pod("b"), events.Is, "x", nil))
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{})
		w.Must(err)
		if len(s.Entries) != 2 || len(s.Doubts) != 1 || !strings.Contains(s.Doubts[0], "message 2 cannot be read") {
			w.Errorf("there are %d: %v", len(s.Entries), s.Doubts)
		}
		c, err := w.record.Chronicle(w.Context(), record.Filter{}, record.Span{}, 10)
		w.Must(err)
		if len(c.Items) != 2 || !c.Whole {
			w.Errorf("the chronicle has %s", lines(c.Items))
		}
	})
}

// Gaps point to each other, or are searched for if they do not; the gap may also be the last
// message.
func TestGapsOneBehindTheOther(t *testing.T) {
	tell(t, func(w *world) {
		for i := range 2 {
			w.Is(pod("a"), "x", nil)
			w.Say(events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: fmt.Appendf(nil, `{"reason":"gap %d"}`, i)})
		}
		gaps, err := w.record.Gaps(w.Context(), "pods", time.Time{})
		w.Must(err)
		if len(gaps) != 2 || gaps[0].Reason != "gap 0" || gaps[1].Reason != "gap 1" {
			w.Errorf("the gaps are %v, want gap 0 and gap 1", gaps)
		}
	})
}
