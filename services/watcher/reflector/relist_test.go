package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// beside is a watch of pods of which three are on record, beside a server at version 20 that has
// the first as it is on record, the second in a later version, and a fourth, but not the third.
func beside(t *testing.T) (*Reflector, *bustest.Bus, *watchertest.Server) {
	t.Helper()
	k, a := recorded(t, 3, 0)
	return k, a, served(t, k)
}

// served gives a watch of pods the server that [beside] tells of.
func served(t *testing.T, k *Reflector) *watchertest.Server {
	t.Helper()
	s := watchertest.Offline(t)
	from, err := s.Source(t).Kind(kinds.Pods.Kind)
	if err != nil {
		t.Fatal(err)
	}
	k.source, k.epoch, k.cursor = from, storageepoch.New(), translate.Cursor{}
	s.Load(20, existing(7))
	return s
}

// existing are the pods of [beside], with the first in a version.
func existing(first int) map[string]any {
	pods := map[string]any{}
	for i, version := range map[int]int{0: first, 1: 15, 3: 16} {
		name := fmt.Sprint("p", i)
		pod := watchertest.AVersion(name, version, watchertest.ByWriter("kubectl"))
		pod.UID = types.UID(fmt.Sprint("u", i))
		pods[watchertest.PodPath(name)] = pod
	}
	return pods
}

// A relist records changed, new and missing objects, and a gap, since changes may be missing before
// it. Then the census is known, and a watch continues from there.
func TestWhatARelistSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, s := beside(t)
		k.nextGap, k.damaged = events.Hole{Reason: "of a test"}, true
		k.latest, k.limits = watchertest.ADelta("p0", 7), [2]int{}
		k.authors.Note("pods", events.Is, "x", translate.WritersOf(nil))
		k.bounds.Bound = versions.Bound{Burst: 1, PerSecond: 1}
		for _, first := range []bool{true, false} {
			k.bounds.Admits(events.Delta{UID: "x", Body: []byte("xx")}, translate.Writers{}, first, time.Now())
		}
		before := len(watchertest.LogOf(t, k.bus))
		w, err := k.relist(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Open(); got != 1 {
			t.Errorf("%d requests are open, want the watch", got)
		}
		defer w.Stop()
		log := watchertest.LogOf(t, k.bus)[before:]
		got := watchertest.Ops(log)
		if slices.Sort(got[:2]); fmt.Sprint(got) != "[is p1 is p3 gone p2 gap mark]" {
			t.Fatalf("the relist records %v, want \"is p1 is p3 gone p2 gap mark\"", got)
		}
		for _, d := range log[:4] {
			if d.Sync != (d.Op != events.Gap) || d.Census.Known {
				t.Errorf("%s %v is said with sync %t and the census %+v", d.Op, d.Ref, d.Sync, d.Census)
			}
		}
		mark := log[4]
		if mark.Census.Objects != 3 || mark.ResourceVersion != "20" || mark.Since != 1 || log[3].ResourceVersion != "20" {
			t.Errorf("the mark is %+v", mark)
		}
		for _, d := range log[:3] {
			if want := (events.Place{Known: true, Sequence: map[string]uint64{"p1": 2, "p2": 3}[d.Ref.Name]}); d.Before != want {
				t.Errorf("before the finding of %s is %+v, want %+v", d.Ref.Name, d.Before, want)
			}
		}
		if h := watchertest.Hole(t, log[3]); h.Reason != "of a test" {
			t.Errorf("the gap has %+v, want the reason of the test", h)
		}
		if k.cursor.Version != "20" || k.latest.UID != "" || k.nextGap.Reason != "" || k.damaged || k.repairedAt != k.appender.Last() || !k.counted {
			t.Errorf("the reflector goes on from %+v with %+v, %+v, damaged %t, repaired at %d", k.cursor, k.latest, k.nextGap, k.damaged, k.repairedAt)
		}
		if k.authors.Len() != 3 || k.bounds.Waits() != 0 {
			t.Errorf("%d are remembered, and %d wait", k.authors.Len(), k.bounds.Waits())
		}
		for what, c := range map[string]float64{"relists": testutil.ToFloat64(k.metrics.relists.WithLabelValues("pods")), "gaps": testutil.ToFloat64(k.metrics.gaps.WithLabelValues("pods"))} {
			if c != 1 {
				t.Errorf("%v %s are counted", c, what)
			}
		}
	})
}

// A relist records every listed object again where a part of the log cannot be read, or where a reader
// has reported damage twice. Then readers begin behind the damage.
func TestARelistThatSaysEverythingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			change func(*Reflector, *bustest.Bus)
			said   string
			reason string
			linked bool
		}{
			"a part cannot be read": {func(k *Reflector, a *bustest.Bus) { k.bus = watchertest.Cut(a, 1) }, "is p0 is p1 is p3 gap mark", "a part of the log cannot be read", false},
			"nothing can":           {func(k *Reflector, a *bustest.Bus) { k.bus = bustest.Wrap(a).Fail(bustest.Follow, events.ErrDamaged) }, "is p0 is p1 is p3 gap mark", "a part of the log cannot be read", false},
			"a second report": {func(k *Reflector, _ *bustest.Bus) {
				_ = k.reportedDamage(report.Damage{End: 9})
				_ = k.reportedDamage(report.Damage{End: 9})
				k.nextGap.Reason = "a reader said so"
			}, "is p0 is p1 is p3 gone p2 gap mark", "a reader said so", true},
		} {
			k, a, _ := beside(t)
			c.change(k, a)
			ctx, _ := watchertest.Logged(t)
			w, err := k.relist(ctx)
			if err != nil {
				t.Fatal(what, err)
			}
			w.Stop()
			log := watchertest.LogOf(t, a.Bus)[4:]
			got := watchertest.Ops(log)
			if slices.Sort(got[:3]); strings.Join(got, " ") != c.said {
				t.Fatalf("%s: the relist records %v, want %s", what, got, c.said)
			}
			for _, d := range log[:3] {
				if !d.Sync || d.Before.Known != c.linked {
					t.Errorf("%s: of %s it says sync %t, before it %+v", what, d.Ref.Name, d.Sync, d.Before)
				}
			}
			gap, mark := log[len(log)-2], log[len(log)-1]
			if h := watchertest.Hole(t, gap); h.Reason != c.reason {
				t.Errorf("%s: the gap says %+v", what, h)
			}
			if mark.Since != 5 || mark.Census.Objects != 3 || k.unlinked || k.recordAll || k.damaged {
				t.Errorf("%s: the mark says %d objects since %d, unlinked %t, all again %t", what, mark.Census.Objects, mark.Since, k.unlinked, k.recordAll)
			}
			if c, err := kindlog.ReadFrom(t.Context(), a.Bus, "pods", mark.Since, watchertest.StateOf(t, a.Bus, logPods)); err != nil || !c.Matches(mark.Census) {
				t.Errorf("%s: from there the log tells of %v, %v", what, c.Tally.Census(), err)
			}
		}
	})
}

// A log that has dropped an object that exists, since it was made smaller, gets it again.
func TestWhatALogHasDroppedIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := past(t, memory.New(memory.Options{LogBytes: 1000}), 3, 0)
		s := served(t, k)
		k.created = watchertest.Standing(t, k.bus, logPods).Created
		busy := watchertest.ADelta("p1", 15)
		busy.UID, busy.Body = "u1", []byte(strings.Repeat("x", 300))
		for range 4 {
			if err := k.append(t.Context(), busy); err != nil {
				t.Fatal(err)
			}
		}
		k.checkedAt = time.Now().Add(-checkStreamsIdle)
		if err := k.checkStreams(t.Context()); !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "the log has dropped objects") {
			t.Fatalf("a log that has dropped objects: %v, want ErrDamaged", err)
		}
		before := k.appender.Last()
		w, err := k.relist(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		synctest.Wait()
		said := watchertest.Ops(toldSince(t, k.bus, before))
		if slices.Sort(said[:2]); fmt.Sprint(said) != "[is p0 is p3 gap mark]" {
			t.Errorf("the relist records %v, want \"is p0 is p3 gap mark\"", said)
		}
		mark := watchertest.LastOf(t, k.bus, "pods")
		if first := watchertest.Standing(t, k.bus, logPods).First; mark.Since < first || mark.Census.Objects != 3 || s.Open() != 0 {
			t.Errorf("the mark says %d objects since %d, and the log begins with %d", mark.Census.Objects, mark.Since, first)
		}
	})
}

// The first list of a kind records no gap. The list of an empty log is not the first when a
// position or a hole is known.
func TestWhichListIsTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			change func(*Reflector)
			gap    bool
		}{
			"the first":           {func(*Reflector) {}, false},
			"a position is known": {func(k *Reflector) { k.cursor.Version = "3" }, true},
			"a reason is":         {func(k *Reflector) { k.nextGap.Reason = "of a test" }, true},
		} {
			k, _, _ := beside(t)
			k.bus = memory.New(memory.Options{})
			if err := k.bus.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
				t.Fatal(err)
			}
			log, err := k.bus.Append(t.Context(), "pods")
			if err != nil {
				t.Fatal(err)
			}
			k.appender, k.logState, k.dirty = log, logState{}, time.Time{}
			c.change(k)
			w, err := k.relist(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.Stop()
			if got := slices.Contains(watchertest.Ops(watchertest.LogOf(t, k.bus)), "gap"); got != c.gap {
				t.Errorf("%s: there is a gap: %t", what, got)
			}
		}
	})
}

// A storage that is before the watched position begins a new epoch, even where the log does not know
// the position.
func TestARelistOfAnEarlierStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, _ := beside(t)
		k.cursor = translate.Cursor{Version: "21", Epoch: 4}
		w, err := k.relist(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		if epoch, _ := k.epoch.Now(); k.cursor.Epoch != 5 || epoch != 5 || watchertest.LastOf(t, k.bus, "pods").Epoch != 5 {
			t.Errorf("the reflector goes on in epoch %d, and the storage is in %d; want 5", k.cursor.Epoch, epoch)
		}
	})
}

// A relist stays in the epoch of the log where that cannot be read through and this process has not
// learned of the epoch in another way: no epoch goes back, or is used twice.
func TestARelistStaysInTheEpochOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			append []events.Delta
			epoch  uint64
		}{
			"a mark of it":         {[]events.Delta{{Op: events.Mark, ResourceVersion: "20", Epoch: 4}}, 4},
			"a mark from later on": {[]events.Delta{{Op: events.Mark, ResourceVersion: "21", Epoch: 4}}, 5},
			"a relist that broke off": {[]events.Delta{
				{Op: events.Mark, ResourceVersion: "20", Epoch: 3},
				{Op: events.Is, Sync: true, Ref: watchertest.APod("p0"), UID: "u0", ResourceVersion: "7", Epoch: 4, Form: kinds.Full, ContentType: "application/json", Body: []byte("{}")},
			}, 4},
		} {
			k, a, _ := beside(t)
			for _, d := range c.append {
				if d.Kind, d.At = "pods", time.Now(); k.append(t.Context(), d) != nil {
					t.Fatal("append: the delta is refused")
				}
			}
			a.Fail(bustest.Follow, events.ErrDamaged)
			k.cursor, k.counted = translate.Cursor{}, false
			ctx, _ := watchertest.Logged(t)
			w, err := k.relist(ctx)
			if err != nil {
				t.Fatal(what, err)
			}
			w.Stop()
			if epoch, _ := k.epoch.Now(); k.cursor.Epoch != c.epoch || epoch != c.epoch || watchertest.LastOf(t, k.bus, "pods").Epoch != c.epoch {
				t.Errorf("%s: the reflector goes on in epoch %d, and the storage is in %d; want %d", what, k.cursor.Epoch, epoch, c.epoch)
			}
		}
	})
}

// An error of a relist ends it, and its watch.
func TestWhatIsInTheWayOfARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, c := range map[string]struct {
			change func(*Reflector, *bustest.Bus, *watchertest.Server)
			err    error
		}{
			"the log is away":     {func(_ *Reflector, a *bustest.Bus, _ *watchertest.Server) { a.Fail(bustest.StreamState, away, logPods) }, away},
			"its end is away":     {func(_ *Reflector, a *bustest.Bus, _ *watchertest.Server) { a.Fail(bustest.At, away, logPods) }, away},
			"the mark is away":    {func(_ *Reflector, a *bustest.Bus, _ *watchertest.Server) { a.Fail(bustest.Last, away, logPods) }, away},
			"the reading is away": {func(_ *Reflector, a *bustest.Bus, _ *watchertest.Server) { a.Fail(bustest.Follow, away) }, away},
			"what was sent is not stored": {func(k *Reflector, _ *bustest.Bus, _ *watchertest.Server) {
				k.appender, k.dirty = bustest.Unflushed(k.appender, away), time.Now()
			}, away},
			"the server refuses": {func(_ *Reflector, _ *bustest.Bus, s *watchertest.Server) {
				s.Refuse("pods", http.StatusForbidden)
			}, nil},
			"the log refuses": {func(k *Reflector, _ *bustest.Bus, _ *watchertest.Server) {
				k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
			}, bus.ErrOvertaken},
			"what is gone is not there": {func(_ *Reflector, a *bustest.Bus, _ *watchertest.Server) { watchertest.Lose(a, 3) }, bus.ErrOvertaken},
			"an earlier object": {func(_ *Reflector, _ *bustest.Bus, s *watchertest.Server) {
				s.Load(20, existing(6))
			}, errRewound},
		} {
			k, a, s := beside(t)
			c.change(k, a, s)
			before := len(watchertest.LogOf(t, a.Bus))
			w, err := k.relist(t.Context())
			if err == nil || c.err != nil && !errors.Is(err, c.err) || w != nil {
				t.Errorf("%s: the relist ends with %v, want %v", what, err, c.err)
			}
			if synctest.Wait(); s.Open() != 0 {
				t.Errorf("%s: a watch is still open", what)
			}
			if k.counted && len(watchertest.LogOf(t, a.Bus)) > before {
				t.Errorf("%s: what is not said to its end has been counted", what)
			}
		}
	})
}

// The relist records a listed object that the log does not have so, and the end of an object that
// existed and is deleted meanwhile. Another object of the same name ends first.
func TestWhatAListFinds(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 3, 0)
	h, _, err := kindlog.Read(t.Context(), k.bus, "pods")
	if err != nil {
		t.Fatal(err)
	}
	r := h.State.Compare("9", 0)
	find := func(name, uid string, version int, gone bool, want ...string) {
		t.Helper()
		before := len(watchertest.LogOf(t, k.bus))
		err := k.recordListed(t.Context(), r, watchertest.AVersion(name, version, func(p *corev1.Pod) { p.UID = types.UID(uid); watchertest.ByWriter("kubectl")(p) }), gone)
		if got := watchertest.Ops(watchertest.LogOf(t, k.bus)[before:]); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("of %s %s the relist records %v, %v; want %v", name, uid, got, err, want)
		}
	}
	find("p0", "u0", 7, false)
	if k.authors.Len() != 1 {
		t.Errorf("%d are remembered, want that which is as it was", k.authors.Len())
	}
	find("p1", "u1", 8, false, "is p1")
	find("p2", "other", 8, false, "gone p2", "is p2")
	find("p0", "u0", 10, true, "gone p0")
	find("p0", "u0", 10, true)
	find("p9", "u9", 10, true)
	if d := watchertest.LastOf(t, k.bus, "pods"); !d.Sync || d.Op != events.Gone {
		t.Errorf("the last delta is %+v, want a deletion by sync", d)
	}
	if err := k.recordListed(t.Context(), r, watchertest.AVersion("p1", 3, func(p *corev1.Pod) { p.UID = "u1" }), false); !errors.Is(err, errRewound) || !strings.Contains(err.Error(), "is at 3") {
		t.Errorf("an earlier version in the list: %v, want errRewound", err)
	}
	k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
	if err := k.recordListed(t.Context(), r, watchertest.AVersion("p2", 11, func(p *corev1.Pod) { p.UID = "third" }), false); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("a list in a log that refuses: %v, want ErrOvertaken", err)
	}
}

// The relist records the end of an object whose last message is damaged, unless the object was listed,
// and without hidden values.
func TestWhatIsDamagedIsEnded(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 3, 0)
	k.bus = watchertest.Worn(a, logPods, []uint64{1, 2})
	h, _, err := kindlog.Read(t.Context(), k.bus, "pods")
	if err != nil || len(h.Broken) != 2 || h.Broken[watchertest.APod("p0")].UID != "u0" {
		t.Fatalf("the broken objects are %+v, %v; want p0 and p1", h, err)
	}
	k.countFrom(h)
	r := h.State.Compare("9", 0)
	for i, version := range map[int]int{0: 7, 2: 7} {
		if err := k.recordListed(t.Context(), r, watchertest.AVersion(fmt.Sprint("p", i), version, func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint("u", i)) }), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.finishRelist(t.Context(), r, h.Broken, "12", true); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, a)[4:])); got != "[is p0 gone p1 mark]" {
		t.Errorf("the relist records %s, want \"is p0 gone p1 mark\"", got)
	}
	if mark := watchertest.LastOf(t, a, "pods"); mark.Census.Objects != 2 || mark.Since != 3 {
		t.Errorf("the mark has %d objects since %d", mark.Census.Objects, mark.Since)
	}
	lease := &Reflector{kind: kinds.Leases.Kind, bus: a, metrics: NewMetrics(), appender: k.appender}
	if err := lease.finishRelist(t.Context(), translate.NewState().Compare("", 0), nil, "1", true); err != nil || lease.sight.Until.IsZero() {
		t.Errorf("after a list leases have been seen until %v, %v; want a time", lease.sight.Until, err)
	}
	k.damaged, k.recordAll, k.counted = true, true, false
	k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
	if err := k.finishRelist(t.Context(), translate.NewState().Compare("", 0), nil, "12", true); !errors.Is(err, bus.ErrOvertaken) || !k.damaged || !k.recordAll {
		t.Errorf("a relist whose mark is refused: %v, damaged %t, all again %t; want ErrOvertaken, and both still", err, k.damaged, k.recordAll)
	}
}

// The watch recreates a log with another form or version, and then knows nothing about the kind.
func TestStreamsThatAreMadeAnew(t *testing.T) {
	t.Parallel()
	ctx, log := watchertest.Logged(t)
	k, a := recorded(t, 1, 0)
	k.latest, k.kind.Version = watchertest.ADelta("p0", 1), "v2"
	if err := k.settleSettings(ctx, bus.ErrSettings); err != nil || k.cursor.Version != "" || k.latest.UID != "" || k.kind.Version != "v2" {
		t.Errorf("the reflector goes on from %+v with %+v, %v; want from the start", k.cursor, k.latest, err)
	}
	if got := watchertest.StateOf(t, a.Bus, logPods); got.Last != 0 || !strings.Contains(log(), "Recreating the streams of a kind") {
		t.Errorf("the log ends at %d, and it tells\n%s", got.Last, log())
	}
	k, a = recorded(t, 1, 0)
	k.kind.Form = kinds.Metadata
	if err := k.settleSettings(ctx, bus.ErrSettings); err != nil || k.kind != kinds.Pods.Kind || k.cursor.Version != "9" || watchertest.StateOf(t, a.Bus, logPods).Last != 2 {
		t.Errorf("the stream is made anew, or not used: %+v, %v", k.kind, err)
	}
	k.kind = kinds.Nodes.Kind
	if err := k.settleSettings(ctx, bus.ErrSettings); !errors.Is(err, bus.ErrSettings) || !strings.Contains(err.Error(), "Start with the settings") {
		t.Errorf("settle the settings of a kind without a log: %v, want an error with advice", err)
	}
}

// The end of an object lacks its hidden values, too.
func TestWhatIsHiddenIsHiddenInTheEnd(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 0, 0)
	if err := k.appendObject(t.Context(), events.Is, watchertest.AVersion("a", 10, watchertest.Plants("one")), k.stamp(false)); err != nil {
		t.Fatal(err)
	}
	rule, err := redact.Parse("pods:.metadata.annotations['example.com/token']")
	if err != nil {
		t.Fatal(err)
	}
	k.redact = redact.Policy{Rules: redact.Rules{rule}}
	if err := k.recordDeleted(t.Context(), k.appender.Last()); err != nil {
		t.Fatal(err)
	}
	if d := watchertest.LastOf(t, k.bus, "pods"); d.Op != events.Gone || strings.Count(string(d.Body), watchertest.Canary) >= 2 || !strings.Contains(string(d.Body), "kept") {
		t.Errorf("the end says %q", d.Body)
	}
}

// bury finds an object in the log; if it is not there, another watcher has overtaken this one.
func TestWhatIsBuriedIsFound(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 2, 0)
	if err := k.recordDeleted(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if last, _, err := kindlog.At(t.Context(), k.bus, "pods", k.appender.Last()); err != nil || last.Op != events.Gone || last.Ref.Name != "p0" || !last.Sync {
		t.Errorf("the last delta is %+v, %v; want the deletion of p0", last, err)
	}
	if err := k.recordDeleted(t.Context(), 99); !errors.Is(err, bus.ErrOvertaken) || !strings.Contains(err.Error(), "read message 99 of the log of pods") {
		t.Errorf("record the deletion of a missing message: %v, want ErrOvertaken", err)
	}
	watchertest.Tear(a, 2)
	if err := k.recordDeleted(t.Context(), 2); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("record the deletion of a torn message: %v, want ErrDamaged", err)
	}
}
