package record_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

func TestAGapIsWritten(t *testing.T) {
	at := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	for want, g := range map[string]record.Gap{
		"changes of pods between 2026-11-21T14:00:00Z and 2026-11-21T15:00:00Z may be missing: away": {Kind: "pods", Reason: "away", Since: at.Add(-time.Hour), Until: at},
		"changes of pods between an unknown time and 2026-11-21T15:00:00Z may be missing: away":      {Kind: "pods", Reason: "away", Until: at},
	} {
		if g.String() != want {
			t.Errorf("the gap is written as %s, want %s", g, want)
		}
	}
}

// A state belongs to the requested moment; the error for a deleted object says since when it is
// gone.
func TestTheMomentOfAState(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("a"), "x", nil)
		w.Is(pod("b"), "x", nil)
		w.Say(w.Delta(pod("a"), events.Gone, "x", nil))
		ended := time.Now()
		w.Wait(time.Minute)
		later := record.Moment{Time: ended.Add(10 * time.Second)}
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", later)
		w.Must(err)
		one, err := w.record.One(w.Context(), kinds.Pods.Kind, pod("b"), later)
		w.Must(err)
		if !s.Time.Equal(later.Time) || !one.Time.Equal(later.Time) {
			w.Errorf("the states are of %v and %v, want %v", s.Time, one.Time, later.Time)
		}
		for want, at := range map[string]record.Moment{"is gone since " + ended.Format(time.RFC3339): {}, "was gone at " + later.String() + ", since " + ended.Format(time.RFC3339): later} {
			if _, err := w.record.One(w.Context(), kinds.Pods.Kind, pod("a"), at); !errors.Is(err, record.ErrNotThere) || !strings.Contains(err.Error(), want) {
				w.Errorf("the state of an object that is gone: %v, want %q", err, want)
			}
		}
		if _, err := w.record.One(w.Context(), kinds.Pods.Kind, pod("never"), record.Moment{}); !errors.Is(err, record.ErrNotThere) || !strings.Contains(err.Error(), "no delta of it is kept") {
			w.Errorf("the state of an object that never was: %v, want ErrNotThere", err)
		}
	})
}

// Labels written by a manager change the desired state; labels that a controller of ours wrote
// do not.
func TestWhoseLabelsAreAWish(t *testing.T) {
	tell(t, func(w *world) {
		label := func(by, value string) string {
			d := w.Delta(web, events.Is, by, func(o metav1.Object) { o.SetLabels(map[string]string{"a": value}) })
			d.Proven = true
			w.Say(d)
			return d.ResourceVersion
		}
		w.Is(web, "kubectl-create", nil)
		wish := label("kubectl-label", "1")
		last := label(events.FieldManager, "2")
		c, err := w.record.Why(w.Context(), kinds.Deployments.Kind, web, record.Question{})
		w.Must(err)
		if c.Version.ResourceVersion != wish || c.Last == nil || c.Last.ResourceVersion != last {
			w.Errorf("explained is version %s with the last %+v, want %s and %s", c.Version.ResourceVersion, c.Last, wish, last)
		}
	})
}

// An outcome with a failed command is marked, with the API server's message; unreadable messages
// are left out.
func TestAFailureIsInTheChronicle(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		key := events.Key{Namespace: "shop", Name: "web-1"}
		o := events.Outcome{Controller: replicaSets, Key: key, Lane: events.LaneWrite, Turn: 1, At: time.Now(), Results: []events.Result{
			{Status: events.Applied, Ref: pod("a")}, {Command: 1, Status: events.Refused, Ref: pod("b"), Reason: "Forbidden", Message: "exceeded quota"},
		}}
		m, err := events.EncodeJSON(o, events.Trace{})
		w.Must(err)
		m.Subject = subject.Outcome(replicaSets, events.LaneWrite, key)
		_, err = w.Bus.Put(w.Context(), m, "refused")
		w.Must(err)
		for _, at := range []string{subject.Turn(replicaSets, events.LaneWrite, key), subject.Outcome(replicaSets, events.LaneWrite, key)} {
			_, err = w.Bus.Put(w.Context(), events.Message{Subject: at, Data: []byte("no JSON")}, at)
			w.Must(err)
		}
		c, err := w.record.Chronicle(w.Context(), record.Filter{Controllers: []string{replicaSets}}, record.Span{}, 100)
		w.Must(err)
		var got []string
		for _, h := range c.Items {
			got = append(got, fmt.Sprintf("%s %v %s", h.Noun, h.Failed, h.What))
		}
		want := "outcome true of turn 1: 1 applied 1 refused: exceeded quota|outcome false of turn 1: 1 applied|turn false write: too few Pods (1 × create)"
		if strings.Join(got, "|") != want {
			w.Errorf("the chronicle has\n%s\nwant\n%s", strings.Join(got, "|"), want)
		}
		s, err := w.standing.Running(w.Context())
		w.Must(err)
		if s.Replicas != 0 {
			w.Errorf("without reports Running is %+v, want no replica", s)
		}
		_, err = w.Bus.Put(w.Context(), events.Message{Subject: subject.StatusSubject, Data: []byte("no JSON")}, "report")
		w.Must(err)
		if s, err = w.standing.Running(w.Context()); err != nil || s.Replicas != 0 {
			w.Errorf("a report that cannot be read: %+v, %v", s, err)
		}
	})
}

// Triggers that are no longer stored are left out of an explanation; a turn about a key without
// an object has only its triggers as causes.
func TestWhyGoesByWhatIsKept(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		asked := w.Is(pod("x"), "kubectl-create", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
		made := w.Delta(pod("b"), events.Is, events.FieldManager, nil)
		none := events.Ref{Kind: webSet.Kind, Namespace: "shop", Name: "b"}
		w.Done(replicaSets, none, w.Decide(replicaSets, none, "it is wanted", []events.Command{create(pod("b"))}, trigger(pod("x"), asked), trigger(pod("x"), 10_000)), made)
		w.Say(made)
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("b"), record.Question{})
		w.Must(err)
		if got, want := draw(c, ""), "pods:shop/b created by replicaset-controller: it is wanted\n  asked by pods:shop/x created by "; !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 2 {
			w.Errorf("the pod was made\n%swant\n%s", got, want)
		}
	})
}

// For a controller whose keys span kinds, the key has the object's kind.
func TestAKeyWithItsKindStands(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(webSet, "x", nil)
		key := events.Key(webSet)
		m, err := events.EncodeJSON(events.Turn{Controller: replicaSets, Key: key, Lane: events.LaneWrite, Because: "its owner is gone"}, events.Trace{})
		w.Must(err)
		m.Subject = subject.Turn(replicaSets, events.LaneWrite, key)
		_, err = w.Bus.Put(w.Context(), m, "spanning")
		w.Must(err)
		s, err := w.standing.Standing(w.Context(), kinds.ReplicaSets.Kind, webSet, replicaSets)
		w.Must(err)
		if s.Key != key || len(s.Turns) != 1 || s.Turns[0].Because != "its owner is gone" {
			w.Errorf("the standing is %+v, want the turn because the owner is gone", s)
		}
		got, err := w.record.Decided(w.Context(), webSet, time.Time{})
		w.Must(err)
		if lines(got) != "turn web-1" {
			w.Errorf("decided about it was %s", lines(got))
		}
	})
}

// An error of a tail's handler ends the tail.
func TestAHandlerEndsATail(t *testing.T) {
	tell(t, func(w *world) {
		broken := errors.New("the pipe is closed")
		err := w.record.TailFrom(w.Context(), record.Filter{}, func() error { w.Is(pod("a"), "x", nil); return nil }, func(record.Happening) error { return broken })
		if !errors.Is(err, broken) {
			w.Errorf("the tail ends with %v, want the handler's error", err)
		}
		synctest.Wait()
	})
}

func TestAHandIsWritten(t *testing.T) {
	for want, h := range map[string]record.Hand{
		"c": {Controller: "c", Manager: "m", User: "u"}, "m (status)": {Manager: "m", Subresource: "status", User: "u"}, "m": {Manager: "m", User: "u"},
		"u": {User: "u"}, "unknown": {Unknown: "it does not say"},
	} {
		if got := h.String(); got != want {
			t.Errorf("%+v is written as %s", h, got)
		}
	}
}

// Authors names the same authors as the histories of the objects.
func TestAuthorsAreThoseOfTheHistories(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		for i := range 25 { // more than mostSought
			d := w.Delta(pod(fmt.Sprint("x", i)), events.Is, []string{"kubectl", events.FieldManager}[i%2], nil)
			d.Proven = true
			w.Say(d)
		}
		w.Is(pod("x1"), "", func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n1" })
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{})
		w.Must(err)
		hands, err := w.record.Authors(w.Context(), kinds.Pods.Kind, s.Entries)
		w.Must(err)
		for i, e := range s.Entries {
			h, err := w.record.History(w.Context(), kinds.Pods.Kind, e.Ref, 1)
			w.Must(err)
			if by := h.Versions[0].By; hands[i].String() != by.String() || hands[i].Turn != by.Turn || hands[i].Unknown != by.Unknown {
				w.Errorf("%v is of %+v, and its history says %+v", e.Ref, hands[i], by)
			}
		}
		if len(hands) != 26 {
			w.Errorf("%d authors are named", len(hands))
		}
		w.Wait(time.Second)
		if _, err := record.New(&memory.Cut{NotaryBus: w.Bus, Call: 1}).Authors(w.Context(), kinds.Pods.Kind, s.Entries); !errors.Is(err, memory.ErrCut) {
			w.Errorf("the authors with the connection cut: %v, want ErrCut", err)
		}
	})
}
