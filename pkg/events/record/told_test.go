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
		w.is(pod("a"), "kubectl-create", func(o metav1.Object) { o.(*corev1.Pod).Spec.SchedulerName = "own" })
		w.is(pod("a"), "", func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n1" })
		w.is(pod("b"), "kubectl-create", nil)
		w.is(pod("b"), "", func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "n2" })
		mark := []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		w.is(pod("b"), "", func(o metav1.Object) { o.(*corev1.Pod).Status.Conditions = mark })
		d := w.delta(pod("b"), events.Is, "kubectl-label", func(o metav1.Object) { o.SetLabels(map[string]string{"a": "b"}) })
		d.By.Time = time.Now().Add(-time.Hour)
		d.Beside = []events.Manager{{Name: "kubelet", Subresource: "status", Time: d.By.Time.Add(-time.Minute)}}
		w.say(d)
		d = w.delta(pod("b"), events.Is, "kubectl-label", func(o metav1.Object) { o.SetLabels(map[string]string{"a": "c"}) })
		d.By.Time = time.Now().Add(-time.Hour)
		d.Beside = []events.Manager{{Name: "late", Time: d.By.Time.Add(time.Minute)}}
		w.say(d)
		found := w.delta(pod("b"), events.Is, "lister", nil)
		found.Sync = true
		w.say(found)
		w.say(w.delta(pod("b"), events.Gone, "kubelet", nil))
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
			w.must(err)
			for i, v := range h.Versions {
				if i > 0 && !strings.Contains(v.By.Unknown, want[i]) {
					w.Errorf("of version %d of %s: %q, want %q", i, name, v.By.Unknown, want[i])
				}
			}
		}
	})
}

// A version by our field manager without a turn on record gets a note; a version by another
// manager does not.
func TestAWriteWithoutItsTurnIsRemarkedUpon(t *testing.T) {
	tell(t, func(w *world) {
		w.is(pod("a"), "kubectl-create", nil)
		for _, by := range []string{events.FieldManager, "kubelet"} {
			d := w.delta(pod("a"), events.Is, by, nil)
			d.Proven = true
			w.say(d)
		}
		h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod("a"), 2)
		w.must(err)
		if ours, other := h.Versions[0].By, h.Versions[1].By; !strings.Contains(ours.Note, "no turn on record made it") || other.Note != "" || other.Manager != "kubelet" {
			w.Errorf("said is %+v and %+v", ours, other)
		}
	})
}

// A chronicle describes each delta in a few words.
func TestWhatAChronicleSaysOfADelta(t *testing.T) {
	tell(t, func(w *world) {
		w.is(web, "kubectl", replicas(3))
		again := w.delta(web, events.Is, "kubectl", nil)
		again.Sync = true
		w.say(again)
		status := w.delta(web, events.Is, "deployer", nil)
		status.Proven, status.By.Subresource = true, "status"
		w.say(status)
		loose := w.delta(web, events.Is, "deployer", nil)
		loose.By.Subresource = "status"
		w.say(loose)
		w.is(web, "kubectl", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
		w.say(w.delta(web, events.Gone, "kubectl", nil))
		w.is(pod("a"), "x", nil)
		c, err := w.record.Chronicle(w.Context(), record.Filter{Kinds: []kinds.Name{web.Kind, "pods"}}, record.Span{}, 100)
		w.must(err)
		var got []string
		for _, h := range slices.Backward(c.Items) {
			got = append(got, fmt.Sprintf("%s: %s (%s)", h.Event, h.What, h.Who))
		}
		created := "created"
		if !w.linked {
			created = "changed" // it may have existed before the record begins
		}
		want := []string{
			created + ": generation 2 @101 ()", "kept: said again @102 ()", "changed: generation 2 status @103 (deployer)", "changed: generation 2 @104 ()",
			"deleting: is being deleted @105 ()", "gone: gone @106 ()", created + ":  @107 ()",
		}
		if !slices.Equal(got, want) {
			w.Errorf("it says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// An object that has not changed for long is found, however many messages follow it, and a state
// that goes back as far is complete.
func TestTheRecordIsReadAsFarBackAsItGoes(t *testing.T) {
	tell(t, func(w *world) {
		first := w.is(pod("still"), "kubectl-create", nil)
		w.is(pod("ended"), "kubectl-create", nil)
		w.say(w.delta(pod("ended"), events.Gone, "kubectl-delete", nil))
		for range 15_000 {
			w.is(pod("busy"), "kubelet", nil)
		}
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{})
		w.must(err)
		var names []string
		for _, e := range s.Entries {
			names = append(names, e.Ref.Name)
		}
		if strings.Join(names, " ") != "busy still" || !s.Whole {
			w.Errorf("there are %v, whole %v: %v", names, s.Whole, s.Doubts)
		}
		// There is no census while a list is compared, which takes long here.
		for i := range 150 {
			d := w.delta(pod(fmt.Sprint("found", i)), events.Is, "x", nil)
			d.Sync = true
			w.sayUncounted(d)
		}
		if s, err = w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{}); err != nil || len(s.Entries) != 152 || !s.Whole {
			w.Errorf("with what a list finds: %+v, %v", s, err)
		}
		w.is(pod("still"), "kubelet", nil)
		h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod("still"), 0)
		w.must(err)
		if len(h.Versions) != 2 || h.Versions[0].Sequence != first {
			w.Errorf("its history is %+v", h.Versions)
		}
	})
}

// A gap that ended before a moment does not count for it; the gaps that do are sorted, oldest
// first.
func TestGapsSinceAMoment(t *testing.T) {
	tell(t, func(w *world) {
		var ends []time.Time
		for i := range 3 {
			w.is(pod("a"), "x", nil)
			w.say(events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: fmt.Appendf(nil, `{"reason":"gap %d"}`, i)})
			ends = append(ends, time.Now())
			w.say(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: fmt.Sprint(w.version)})
		}
		for i, after := range append(ends, time.Now()) {
			gaps, err := w.record.Gaps(w.Context(), "pods", after)
			w.must(err)
			var got []string
			for _, g := range gaps {
				got = append(got, g.Reason)
			}
			if want := []string{"gap 0", "gap 1", "gap 2"}[i:]; !slices.Equal(got, want) {
				w.Errorf("after the moment %d: %v, want %v", i, got, want)
			}
		}
		if gaps, err := w.record.Gaps(w.Context(), web.Kind, time.Time{}); err != nil || len(gaps) > 0 {
			w.Errorf("of a kind without: %v, %v", gaps, err)
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
		w.scaled()
		r := record.New(forgetful{w.bus, subject.TurnStream(replicaSets)})
		c, err := r.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{})
		w.must(err)
		if !strings.Contains(c.Note, "of "+replicaSets+" is not kept any more") || c.Decision != nil || len(c.Causes) > 0 || c.Version.By.Controller != replicaSets {
			w.Errorf("of a turn that is not kept: %q, %+v", c.Note, c)
		}
		found := w.delta(pod("found"), events.Is, "x", nil)
		found.Sync = true
		w.say(found)
		if c, err = w.record.Why(w.Context(), kinds.Pods.Kind, pod("found"), record.Question{}); err != nil || !strings.Contains(c.Note, "a list found it") {
			w.Errorf("of what was found: %+v, %v", c, err)
		}
		for field, want := range map[string]string{"spec.nodename": "no version that is kept has that field", "metadata.name": "has not changed in any version on record"} {
			if _, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("found"), record.Question{Field: field}); !errors.Is(err, record.ErrNotThere) || !strings.Contains(err.Error(), want) {
				w.Errorf("of %s: %v, want %q", field, err, want)
			}
		}
	})
}

// Triggers beyond those that are explained for one decision are counted.
func TestWhyCountsFurtherObjectsThatAsked(t *testing.T) {
	tell(t, func(w *world) {
		w.scaled()
		var asked []events.Trigger
		for _, name := range []string{"u", "v", "x", "y", "z", "zz"} {
			asked = append(asked, trigger(pod(name), w.is(pod(name), "manager-"+name, nil)))
		}
		made := w.delta(pod("b"), events.Is, events.FieldManager, nil)
		w.done(replicaSets, webSet, w.decide(replicaSets, webSet, "too few Pods", []events.Command{create(pod("b"))}, asked...), made)
		w.say(made)
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("b"), record.Question{})
		w.must(err)
		var got []string
		for _, asking := range c.Causes {
			got = append(got, fmt.Sprintf("%s %d", asking.Version.Object.Name, asking.Like))
		}
		if want := "zz 0, z 0, y 0, x 2, web-1 0"; strings.Join(got, ", ") != want {
			w.Errorf("asked have %v, want %s", got, want)
		}
	})
}

// A turn from before the key was parked is not a later one, and the outcome of another turn is
// not that of the last.
func TestHowAKeyStands(t *testing.T) {
	tell(t, func(w *world) {
		set := func(name string) events.Ref { return events.Ref{Kind: webSet.Kind, Namespace: "shop", Name: name} }
		for _, c := range []string{replicaSets, deployments} {
			for _, name := range []string{"z", "a"} {
				w.decide(c, set(name), "before "+name, nil)
				m, err := events.EncodeJSON(events.Turn{Controller: c, Key: events.Key{Namespace: "shop", Name: name}, Lane: events.LanePark, Because: "panic"}, events.Trace{})
				w.must(err)
				m.Subject = subject.Turn(c, events.LanePark, events.Key{Namespace: "shop", Name: name})
				_, err = w.bus.Put(w.Context(), m, c+name)
				w.must(err)
			}
		}
		parked, err := w.record.Parked(w.Context())
		w.must(err)
		var got []string
		for _, p := range parked {
			got = append(got, fmt.Sprintf("%s %v %q", p.Controller, p.Key, p.Since))
		}
		want := []string{deployments + ` shop/a ""`, deployments + ` shop/z ""`, replicaSets + ` shop/a ""`, replicaSets + ` shop/z ""`}
		if !slices.Equal(got, want) {
			w.Errorf("set aside are %v, want %v", got, want)
		}
		made := w.delta(webSet, events.Is, "x", nil)
		w.say(made)
		w.done(replicaSets, webSet, w.decide(replicaSets, webSet, "first", nil), made)
		for _, c := range []struct {
			because string
			has     bool
		}{{"first", true}, {"second", false}} {
			if !c.has {
				w.decide(replicaSets, webSet, c.because, nil)
			}
			s, err := w.record.Standing(w.Context(), kinds.ReplicaSets.Kind, webSet, replicaSets)
			w.must(err)
			if len(s.Turns) != 1 || s.Turns[0].Because != c.because || (s.Turns[0].Outcome != nil) != c.has {
				w.Errorf("behind the %s turn: %+v", c.because, s.Turns)
			}
		}
		lags, err := w.record.Lags(w.Context())
		w.must(err)
		at := slices.IndexFunc(lags, func(l record.Lag) bool { return l.Stream == subject.TurnStream(replicaSets) })
		if at < 0 || lags[at].Messages != 6 || lags[at].Last != 6 || !lags[at].Stored.Equal(time.Now()) {
			w.Errorf("the turns stand at %+v", lags)
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

// Retention covers every stream: of each kind, then of each controller, then of the shadows.
func TestHowMuchIsKept(t *testing.T) {
	tell(t, func(w *world) {
		w.is(pod("a"), "x", nil)
		w.compared()
		kept, err := w.record.Retention(w.Context())
		w.must(err)
		var got []string
		for _, k := range kept {
			got = append(got, fmt.Sprintf("%s %s %d", k.Stream, k.Of, k.Messages))
		}
		var want []string
		for _, kind := range []kinds.Name{"deployments.apps", "pods", "replicasets.apps"} {
			n := map[kinds.Name]int{"pods": 1}[kind]
			want = append(want, fmt.Sprintf("%s %s %d", subject.LogStream(kind), kind, n))
		}
		for _, c := range []string{deployments, replicaSets} {
			want = append(want, fmt.Sprintf("%s %s 0", subject.TurnStream(c), c), fmt.Sprintf("%s %s 0", subject.OutcomeStream(c), c))
		}
		want = append(want, fmt.Sprintf("%s %s 4", subject.ShadowStream(replicaSets), replicaSets), subject.WakeStream+"  0")
		if !slices.Equal(got, want) {
			w.Errorf("kept is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
