package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// If the author of a version is unknown, Hand says what is known.
func TestWhatIsKnownOfAnUnknownAuthor(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("a"), "kubectl-create", func(o metav1.Object) { o.(*corev1.Pod).Spec.SchedulerName = "own" })
		w.Is(pod("a"), "", func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n1" })
		w.Is(pod("b"), "kubectl-create", nil)
		w.Is(pod("b"), "", func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n2" })
		mark := []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		w.Is(pod("b"), "", func(o metav1.Object) { o.(*corev1.Pod).Status.Conditions = mark })
		d := w.Delta(pod("b"), events.Is, "kubectl-label", func(o metav1.Object) { o.SetLabels(map[string]string{"a": "b"}) })
		d.By.Time = time.Now().Add(-time.Hour)
		d.Beside = []events.Manager{{Name: "kubelet", Subresource: "status", Time: d.By.Time.Add(-time.Minute)}}
		w.Say(d)
		d = w.Delta(pod("b"), events.Is, "kubectl-label", func(o metav1.Object) { o.SetLabels(map[string]string{"a": "c"}) })
		d.By.Time = time.Now().Add(-time.Hour)
		d.Beside = []events.Manager{{Name: "late", Time: d.By.Time.Add(time.Minute)}}
		w.Say(d)
		found := w.Delta(pod("b"), events.Is, "lister", nil)
		found.Sync = true
		w.Say(found)
		w.Say(w.Delta(pod("b"), events.Gone, "kubelet", nil))
		newest := func(names string, at time.Time) string {
			return "the newest is of " + names + ", at " + at.UTC().Format(time.RFC3339)
		}
		for name, want := range map[string][]string{
			"a": {"", "bound to n1: a binding leaves no field manager; its schedulerName is own"},
			"b": {
				"", "its schedulerName is default-scheduler", "an eviction leaves no field manager",
				newest("kubectl-label, kubelet (status)", d.By.Time.Add(-time.Second)), newest("kubectl-label, late", d.By.Time.Add(time.Minute)),
				"a list found it so", "a deletion does not say whose it is",
			},
		} {
			h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod(name), 0)
			w.Must(err)
			for i, v := range h.Versions {
				if i > 0 && !strings.Contains(v.By.Unknown, want[i]) {
					w.Errorf("version %d of %s is unknown because of %q, want %q", i, name, v.By.Unknown, want[i])
				}
			}
		}
	})
}

// A version by our field manager without a turn on record gets a note; a version by another
// manager does not.
func TestAWriteWithoutItsTurnIsRemarkedUpon(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("a"), "kubectl-create", nil)
		for _, by := range []string{events.FieldManager, "kubelet"} {
			d := w.Delta(pod("a"), events.Is, by, nil)
			d.Proven = true
			w.Say(d)
		}
		h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod("a"), 2)
		w.Must(err)
		if ours, other := h.Versions[0].By, h.Versions[1].By; !strings.Contains(ours.Note, "no turn on record made it") || other.Note != "" || other.Manager != "kubelet" {
			w.Errorf("the authors are %+v and %+v, want a note that no turn made the first alone", ours, other)
		}
	})
}

// A chronicle describes each delta in a few words.
func TestWhatAChronicleSaysOfADelta(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(web, "kubectl", replicas(3))
		again := w.Delta(web, events.Is, "kubectl", nil)
		again.Sync = true
		w.Say(again)
		status := w.Delta(web, events.Is, "deployer", nil)
		status.Proven, status.By.Subresource = true, "status"
		w.Say(status)
		loose := w.Delta(web, events.Is, "deployer", nil)
		loose.By.Subresource = "status"
		w.Say(loose)
		w.Is(web, "kubectl", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
		w.Say(w.Delta(web, events.Gone, "kubectl", nil))
		w.Is(pod("a"), "x", nil)
		c, err := w.record.Chronicle(w.Context(), record.Filter{Kinds: []kinds.Name{web.Kind, "pods"}}, record.Span{}, 100)
		w.Must(err)
		var got []string
		for _, h := range slices.Backward(c.Items) {
			got = append(got, fmt.Sprintf("%s: %s (%s)", h.Event, h.What, h.Who))
		}
		created := "created"
		if !w.Linked {
			created = "changed" // it may have existed before the record begins
		}
		want := []string{
			created + ": generation 2 @101 ()", "kept: said again @102 ()", "changed: generation 2 status @103 (deployer)", "changed: generation 2 @104 ()",
			"deleting: is being deleted @105 ()", "gone: gone @106 ()", created + ":  @107 ()",
		}
		if !slices.Equal(got, want) {
			w.Errorf("the history is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// An object that has not changed for long is found, however many messages follow it, and a state
// that goes back as far is complete.
func TestTheRecordIsReadAsFarBackAsItGoes(t *testing.T) {
	tell(t, func(w *world) {
		first := w.Is(pod("still"), "kubectl-create", nil)
		w.Is(pod("ended"), "kubectl-create", nil)
		w.Say(w.Delta(pod("ended"), events.Gone, "kubectl-delete", nil))
		for range 15_000 {
			w.Is(pod("busy"), "kubelet", nil)
		}
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{})
		w.Must(err)
		var names []string
		for _, e := range s.Entries {
			names = append(names, e.Ref.Name)
		}
		if strings.Join(names, " ") != "busy still" || !s.Whole {
			w.Errorf("there are %v, whole %v: %v", names, s.Whole, s.Doubts)
		}
		// There is no census while a list is compared, which takes long here.
		for i := range 150 {
			d := w.Delta(pod(fmt.Sprint("found", i)), events.Is, "x", nil)
			d.Sync = true
			w.SayUncounted(d)
		}
		if s, err = w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{}); err != nil || len(s.Entries) != 152 || !s.Whole {
			w.Errorf("the state with what a list found is %+v, %v; want 152 objects, whole", s, err)
		}
		w.Is(pod("still"), "kubelet", nil)
		h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod("still"), 0)
		w.Must(err)
		if len(h.Versions) != 2 || h.Versions[0].Sequence != first {
			w.Errorf("the history has the versions %+v, want 2", h.Versions)
		}
	})
}

// A gap that ended before a moment does not count for it; the gaps that do are sorted, oldest
// first.
func TestGapsSinceAMoment(t *testing.T) {
	tell(t, func(w *world) {
		var ends []time.Time
		for i := range 3 {
			w.Is(pod("a"), "x", nil)
			w.Say(events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: fmt.Appendf(nil, `{"reason":"gap %d"}`, i)})
			ends = append(ends, time.Now())
			w.Say(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: fmt.Sprint(w.Version)})
		}
		for i, after := range append(ends, time.Now()) {
			gaps, err := w.record.Gaps(w.Context(), "pods", after)
			w.Must(err)
			var got []string
			for _, g := range gaps {
				got = append(got, g.Reason)
			}
			if want := []string{"gap 0", "gap 1", "gap 2"}[i:]; !slices.Equal(got, want) {
				w.Errorf("after the moment %d: %v, want %v", i, got, want)
			}
		}
		if gaps, err := w.record.Gaps(w.Context(), web.Kind, time.Time{}); err != nil || len(gaps) > 0 {
			w.Errorf("the gaps of a kind without gaps: %v, %v", gaps, err)
		}
	})
}

// forgetful is a bus that no longer stores a stream's messages.
type forgetful struct {
	bus.Archive
	stream string
}

func (b forgetful) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if stream == b.stream {
		return events.Message{}, false, nil
	}
	return b.Archive.At(ctx, stream, sequence)
}

// An explanation says why it ends where it does.
func TestWhyAnExplanationEnds(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		r := record.New(forgetful{w.Bus, subject.TurnStream(replicaSets)})
		c, err := r.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{})
		w.Must(err)
		if !strings.Contains(c.Note, "of "+replicaSets+" is not kept any more") || c.Decision != nil || len(c.Causes) > 0 || c.Version.By.Controller != replicaSets {
			w.Errorf("the cause of a version whose turn is not kept: %q, %+v", c.Note, c)
		}
		found := w.Delta(pod("found"), events.Is, "x", nil)
		found.Sync = true
		w.Say(found)
		if c, err = w.record.Why(w.Context(), kinds.Pods.Kind, pod("found"), record.Question{}); err != nil || !strings.Contains(c.Note, "a list found it") {
			w.Errorf("the cause of a version that a list found: %+v, %v", c, err)
		}
		for field, want := range map[string]string{"spec.nodename": "no version that is kept has that field", "metadata.name": "has not changed in any version on record"} {
			if _, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("found"), record.Question{Field: field}); !errors.Is(err, record.ErrNotThere) || !strings.Contains(err.Error(), want) {
				w.Errorf("the cause of the field %s: %v, want %q", field, err, want)
			}
		}
	})
}

// Triggers beyond those that are explained for one decision are counted.
func TestWhyCountsFurtherObjectsThatAsked(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		var asked []events.Trigger
		for _, name := range []string{"u", "v", "x", "y", "z", "zz"} {
			asked = append(asked, trigger(pod(name), w.Is(pod(name), "manager-"+name, nil)))
		}
		made := w.Delta(pod("b"), events.Is, events.FieldManager, nil)
		w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, "too few Pods", []events.Command{create(pod("b"))}, asked...), made)
		w.Say(made)
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("b"), record.Question{})
		w.Must(err)
		var got []string
		for _, asking := range c.Causes {
			got = append(got, fmt.Sprintf("%s %d", asking.Version.Object.Name, asking.Like))
		}
		if want := "zz 0, z 0, y 0, x 2, web-1 0"; strings.Join(got, ", ") != want {
			w.Errorf("asked have %v, want %s", got, want)
		}
	})
}

func TestMomentsAreWritten(t *testing.T) {
	at := time.Date(2026, 11, 21, 15, 0, 0, 5, time.UTC)
	for want, m := range map[string]record.Moment{"now": {}, "version 7": {Version: "7"}, "2026-11-21T15:00:00Z": {Time: at}} {
		if m.String() != want {
			t.Errorf("%+v is written as %s", m, m)
		}
	}
}
