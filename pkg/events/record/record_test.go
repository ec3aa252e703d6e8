package record_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

func TestWhyLeadsBackToWhoBegan(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{Field: "metadata"})
		w.Must(err)
		want := `pods:shop/a created by replicaset-controller: too few Pods
  asked by replicasets.apps:shop/web-1 changed by deployment-controller: as many as are wanted
    asked by deployments.apps:shop/web changed by kubectl-scale
`
		if got := draw(c, ""); got != want {
			w.Errorf("the cause of the pod is\n%swant\n%s", got, want)
		}
		if began := c.Began(); began.Version.Object != web || began.Version.By.Manager != "kubectl-scale" {
			w.Errorf("the chain of causes begins with %+v, want the scaling", began.Version)
		}
		c, err = w.record.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{Last: true})
		w.Must(err)
		if got := draw(c, ""); got != "pods:shop/a changed by kubelet\n" {
			w.Errorf("the pod changed\n%s", got)
		}
	})
}

func TestWhyADeletedPodIsReplaced(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		w.Is(pod("a"), "kubelet", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
		gone := w.Say(w.Delta(pod("a"), events.Gone, "kubelet", nil))
		created := w.Delta(pod("b"), events.Is, events.FieldManager, nil)
		w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, "too few Pods", []events.Command{create(pod("b"))}, trigger(pod("a"), gone)), created)
		w.Say(created)
		c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("b"), record.Question{})
		w.Must(err)
		want := `pods:shop/b created by replicaset-controller: too few Pods
  asked by pods:shop/a gone by unknown
    ordered by pods:shop/a deleting by unknown
  wanted since replicasets.apps:shop/web-1 changed by deployment-controller: as many as are wanted
    asked by deployments.apps:shop/web changed by kubectl-scale
`
		if got := draw(c, ""); got != want {
			w.Errorf("the cause of the pod is\n%swant\n%s", got, want)
		}
		if began := c.Began(); began.Version.Object != pod("a") || began.Version.Event != record.Leaving {
			w.Errorf("the chain of causes begins with %+v, want the deletion of the pod", began.Version)
		}
	})
}

// draw renders an explanation in lines.
func draw(c *record.Cause, indent string) string {
	line := indent
	if c.Role != "" {
		line += string(c.Role) + " "
	}
	line += fmt.Sprintf("%v %s by %v", c.Version.Object, c.Version.Event, c.Version.By)
	if c.Decision != nil {
		line += ": " + c.Decision.Because
	}
	var b strings.Builder
	b.WriteString(line + "\n")
	for _, behind := range c.Causes {
		b.WriteString(draw(behind, indent+"  "))
	}
	return b.String()
}

func TestHistoryTellsNamesakesApart(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(web, "alice", nil)
		w.Is(web, "bob", replicas(3))
		kept := w.Delta(web, events.Is, "bob", nil)
		kept.ResourceVersion, kept.Sync = fmt.Sprint(w.Version-1), true
		w.Say(kept)
		w.Say(w.Delta(web, events.Gone, "bob", nil))
		w.Is(web, "carol", nil)
		h, err := w.record.History(w.Context(), kinds.Deployments.Kind, web, 0)
		w.Must(err)
		var got []string
		for _, v := range h.Versions {
			text := fmt.Sprintf("%s %s %v", v.UID, v.Event, v.By)
			for _, c := range v.Changes {
				text += fmt.Sprintf(" %s=%v", c.Path, c.Is)
			}
			got = append(got, text)
		}
		want := "uid-101 created alice|uid-101 changed bob spec.replicas=3|uid-101 kept unknown|uid-101 gone unknown|uid-105 created carol"
		if !w.Linked { // it may have existed before the record begins
			want = strings.Replace(want, "created alice", "created unknown", 1)
		}
		if strings.Join(got, "|") != want {
			w.Errorf("the history is\n%s, want\n%s", strings.Join(got, "\n"), want)
		}
		h, err = w.record.History(w.Context(), kinds.Deployments.Kind, web, 4)
		w.Must(err)
		if len(h.Versions) != 4 || !h.More || len(h.Versions[0].Changes) != 1 {
			w.Errorf("the newest 4 versions are %+v, want 4 with more before them", h.Versions)
		}
		if _, err := w.record.History(w.Context(), kinds.Pods.Kind, pod("none"), 0); !errors.Is(err, record.ErrNotThere) {
			w.Errorf("the history of an absent pod: %v, want ErrNotThere", err)
		}
	})
}

func TestTheStateOfEveryMoment(t *testing.T) {
	tell(t, func(w *world) {
		type known struct {
			time    time.Time
			version string
			names   string
		}
		var moments []known
		there := map[string]bool{}
		for i := range 60 {
			name := fmt.Sprintf("p%02d", i%7)
			if op := events.Is; i%5 == 4 && there[name] {
				w.Say(w.Delta(pod(name), events.Gone, "x", nil))
				delete(there, name)
			} else {
				w.Say(w.Delta(pod(name), op, "x", nil))
				there[name] = true
			}
			moments = append(moments, known{time.Now(), fmt.Sprint(w.Version), names(there)})
		}
		w.Wait(time.Second)
		for _, m := range moments {
			for _, at := range []record.Moment{{Time: m.time}, {Time: m.time.Add(900 * time.Millisecond)}, {Version: m.version}} {
				s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", at)
				w.Must(err)
				got := map[string]bool{}
				for _, e := range s.Entries {
					got[e.Ref.Name] = true
				}
				if names(got) != m.names || !s.Whole {
					w.Fatalf("at %v there is %s, %v, want %s", at, names(got), s.Doubts, m.names)
				}
			}
		}
		var early *record.BeforeRecord
		if _, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{Time: moments[0].time.Add(-time.Hour)}); !errors.As(err, &early) {
			w.Errorf("the state before the record: %v, want BeforeRecord", err)
		}
		if _, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{Version: "7"}); !errors.As(err, &early) {
			w.Errorf("the state at a version before the record: %v, want BeforeRecord", err)
		}
		if _, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{Time: time.Now().Add(time.Hour)}); err == nil {
			w.Error("the state of a time to come is no error")
		}
	})
}

func names(set map[string]bool) string {
	out := ""
	for i := range 7 {
		if name := fmt.Sprintf("p%02d", i); set[name] {
			out += name + " "
		}
	}
	return out
}

func TestAGapIsNeverPassedOver(t *testing.T) {
	tell(t, func(w *world) {
		w.Is(pod("a"), "x", nil)
		w.Say(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: fmt.Sprint(w.Version)})
		before := time.Now()
		w.Wait(time.Minute)
		within := time.Now()
		w.Wait(time.Minute)
		found := w.Delta(pod("a"), events.Is, "y", nil)
		found.Sync = true
		w.Say(found)
		w.Say(events.Delta{
			Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: fmt.Appendf(nil, `{"reason":"the watcher was away","since":%q}`, before.Format(time.RFC3339Nano)),
		})
		w.Say(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: fmt.Sprint(w.Version)})
		after := time.Now()
		for at, whole := range map[time.Time]bool{before.Add(-500 * time.Millisecond): true, within: false, after: true} {
			s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{Time: at})
			w.Must(err)
			one, err := w.record.One(w.Context(), kinds.Pods.Kind, pod("a"), record.Moment{Time: at})
			w.Must(err)
			if s.Whole != whole || one.Whole != whole || whole != (len(s.Doubts) == 0) {
				w.Errorf("%v after the last mark: whole %v and %v, %v", at.Sub(before), s.Whole, one.Whole, s.Doubts)
			}
		}
		h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod("a"), 0)
		w.Must(err)
		if len(h.Gaps) != 1 || h.Gaps[0].Reason != "the watcher was away" || !h.Gaps[0].Since.Equal(before) || h.Versions[1].Event != record.Found {
			w.Errorf("the history has %+v, %+v", h.Gaps, h.Versions[1])
		}
	})
}

func TestWhatIsMissingIsCounted(t *testing.T) {
	tell(t, func(w *world) {
		w.Tally["pods"].Fold(events.Delta{Kind: "pods", Ref: pod("lost"), Op: events.Is, UID: "lost", ResourceVersion: "1"})
		w.Is(pod("a"), "x", nil)
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{})
		w.Must(err)
		if s.Whole || len(s.Doubts) != 1 || !strings.Contains(s.Doubts[0], "the record has 1 objects of this moment, where there were 2") {
			w.Errorf("whole %v, %v", s.Whole, s.Doubts)
		}
	})
}

// TestWhatARelistFindsIsCountedAfterwards: the watcher writes no census while it compares a
// list.
func TestWhatARelistFindsIsCountedAfterwards(t *testing.T) {
	tell(t, func(w *world) {
		for i := range 150 {
			w.Is(pod(fmt.Sprint("p", i)), "x", nil)
		}
		for i := range 130 {
			d := w.Delta(pod(fmt.Sprint("q", i)), events.Is, "x", nil)
			d.Sync = true
			w.SayUncounted(d)
		}
		s, err := w.record.At(w.Context(), kinds.Pods.Kind, "", record.Moment{})
		w.Must(err)
		if len(s.Entries) != 280 || !s.Whole {
			w.Errorf("there are %d, whole %v: %v", len(s.Entries), s.Whole, s.Doubts)
		}
	})
}

func TestMomentsAreRead(t *testing.T) {
	now := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string]record.Moment{
		"": {}, "now": {}, "81723": {Version: "81723"}, "10m": {Time: now.Add(-10 * time.Minute)}, "-1h30m": {Time: now.Add(-90 * time.Minute)},
		"10d": {Time: now.AddDate(0, 0, -10)}, "1w": {Time: now.AddDate(0, 0, -7)}, "1w2d3h": {Time: now.AddDate(0, 0, -9).Add(-3 * time.Hour)},
		"14:30": {Time: now.Add(-30 * time.Minute)}, "15:00:01": {Time: now.Add(time.Second).AddDate(0, 0, -1)},
		"2026-11-20 15:00": {Time: now.AddDate(0, 0, -1)}, "2026-11-20T15:00:00Z": {Time: now.AddDate(0, 0, -1)}, "2026-11-20": {Time: now.AddDate(0, 0, -1).Add(-15 * time.Hour)},
	} {
		if got, err := record.ParseMoment(text, now); err != nil || got.Version != want.Version || !got.Time.Equal(want.Time) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "25:00", "-", "1.5", "d", "1d2w", "-1d-", "99999999d"} {
		if got, err := record.ParseMoment(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// worn is a bus on which a disk has damaged a message.
type worn struct {
	bus.Archive
	sequence uint64
}

func (b worn) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	m, ok, err := b.Archive.At(ctx, stream, sequence)
	return b.wear(m), ok, err
}

func (b worn) Next(ctx context.Context, stream, subject string, from uint64) (events.Message, bool, error) {
	m, ok, err := b.Archive.Next(ctx, stream, subject, from)
	return b.wear(m), ok, err
}

func (b worn) wear(m events.Message) events.Message {
	if m.Sequence == b.sequence {
		m.Data = append([]byte("x"), m.Data...)
	}
	return m
}

func TestHistoryEndsWhereItCannotBeRead(t *testing.T) {
	tell(t, func(w *world) {
		for _, by := range []string{"alice", "bob", "carol", "dave"} {
			w.Is(web, by, replicas(1))
		}
		h, err := record.New(worn{w.Bus, 2}).History(w.Context(), kinds.Deployments.Kind, web, 0)
		w.Must(err)
		want, by := 2, "dave"
		if !w.Linked {
			want, by = 1, "" // the damaged message is on the way to the previous one
		}
		if len(h.Versions) != want || h.Versions[want-1].By.Manager != by || h.Versions[0].Event != record.Changed || len(h.Doubts) != 1 {
			w.Errorf("%v: %+v", h.Doubts, h.Versions)
		}
	})
}
