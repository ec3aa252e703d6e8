package reflector

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/translate"
	"github.com/millrace/millrace/services/watcher/versions"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// brings makes a watch hear an event.
func brings(t *testing.T, k *Reflector, what watch.EventType, p *corev1.Pod) {
	t.Helper()
	if err := k.handleEvent(t.Context(), watch.Event{Type: what, Object: p}); err != nil {
		t.Fatal(err)
	}
}

// A change goes into the log once, and moves the position. A bookmark moves it, too, and is stored
// as a mark when the last mark is five minutes old.
func TestWhatAWatchBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := recorded(t, 1, 0)
		changes := 0
		k.changed = func() { changes++ }
		at := func(what, version string, want ...string) {
			t.Helper()
			if got := watchertest.Ops(watchertest.LogOf(t, k.bus)[2:]); k.cursor.Version != version || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: the position is %s and the log has %v, want %s and %v", what, k.cursor.Version, got, version, want)
			}
		}
		brings(t, k, watch.Added, watchertest.AVersion("a", 9))
		at("what is known", "9")
		brings(t, k, watch.Added, watchertest.AVersion("a", 10))
		at("what is new", "10", "is a")
		brings(t, k, watch.Modified, watchertest.AVersion("a", 11))
		at("a change", "11", "is a", "is a")
		brings(t, k, watch.Deleted, watchertest.AVersion("a", 12))
		at("an end", "12", "is a", "is a", "gone a")
		if changes != 3 {
			t.Errorf("%d changes are told of, want 3", changes)
		}
		if k.latest.ResourceVersion != "11" {
			t.Errorf("the newest object is of version %s", k.latest.ResourceVersion)
		}
		k.marked = time.Now()
		time.Sleep(markEvery - 1) // virtual
		brings(t, k, watch.Bookmark, watchertest.AVersion("", 13))
		at("a bookmark", "13", "is a", "is a", "gone a")
		time.Sleep(1)
		brings(t, k, watch.Bookmark, watchertest.AVersion("", 14))
		at("a bookmark after five minutes", "14", "is a", "is a", "gone a", "mark")
		if !k.marked.Equal(time.Now()) || changes != 3 {
			t.Errorf("marked at %v, and %d changes were reported; want now and 3", k.marked, changes)
		}
		brings(t, k, watch.Bookmark, watchertest.AVersion("", 14))
		at("the same bookmark", "14", "is a", "is a", "gone a", "mark")
		if err := k.handleEvent(t.Context(), watch.Event{Type: watch.Added, Object: &metav1.Status{}}); err == nil {
			t.Error("handleEvent takes an event without an object")
		}
		if err := k.handleEvent(t.Context(), watch.Event{Type: watch.Error, Object: &metav1.Status{Reason: metav1.StatusReasonExpired, Code: 410}}); err == nil || strings.Contains(err.Error(), "read a watch event") {
			t.Errorf("a watch error is %v", err)
		}
		k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
		if err := k.handleEvent(t.Context(), watch.Event{Type: watch.Added, Object: watchertest.AVersion("b", 15)}); !errors.Is(err, bus.ErrOvertaken) || k.cursor.Version != "14" {
			t.Errorf("a change that cannot be stored moves the position to %s: %v", k.cursor.Version, err)
		}
		k.marked = time.Time{}
		if err := k.handleEvent(t.Context(), watch.Event{Type: watch.Bookmark, Object: watchertest.AVersion("", 16)}); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("a mark that is not stored: %v", err)
		}
	})
}

// Each event of a kind of heartbeats extends its sight.
func TestWhatIsHeardOfLeasesIsSeen(t *testing.T) {
	t.Parallel()
	k := &Reflector{kind: kinds.Leases.Kind}
	k.cursor.Version = "9"
	brings(t, k, watch.Bookmark, watchertest.AVersion("", 9))
	if k.sight.Until.IsZero() {
		t.Error("a bookmark of leases is not noted")
	}
}

// A flush confirms everything that was sent, and does nothing where nothing was.
func TestAFlushKnowsWhatIsStored(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 1, 0)
	k.stored = 0
	k.appender = bustest.Unflushed(k.appender, away)
	if err := k.flush(t.Context()); err != nil || k.stored != 0 {
		t.Errorf("flush of nothing: %v, stored up to %d", err, k.stored)
	}
	k.dirty = time.Now()
	if err := k.flush(t.Context()); !errors.Is(err, away) || k.stored != 0 || k.dirty.IsZero() {
		t.Errorf("flush on a bus that is away: %v, stored up to %d; want its error, and 0", err, k.stored)
	}
	for what, do := range map[string]func() error{
		"a mark":    func() error { return k.mark(t.Context()) },
		"keyframes": func() error { k.dirty = time.Now(); _, err := k.keyframes(t.Context()); return err },
		"a look": func() error {
			k.dirty, k.checkedAt = time.Now(), time.Now().Add(-checkStreamsIdle)
			return k.checkStreams(t.Context())
		},
		"a list": func() error { k.dirty = time.Now(); _, err := k.relist(t.Context()); return err },
	} {
		if err := do(); !errors.Is(err, away) {
			t.Errorf("%s goes on without: %v", what, err)
		}
	}
	k.appender = k.appender.(*bustest.Appender).Appender
	if err := k.flush(t.Context()); err != nil || k.stored != k.appender.Last() || !k.dirty.IsZero() {
		t.Errorf("stored up to %d of %d: %v", k.stored, k.appender.Last(), err)
	}
}

// say records as much of an object as fits: first in full, then its metadata, then only its
// identity.
func TestHowMuchOfAnObjectIsSaid(t *testing.T) {
	t.Parallel()
	large := func(p *corev1.Pod) {
		p.UID, p.Labels, p.Spec.NodeName = "u", map[string]string{"kept": strings.Repeat("l", 200)}, strings.Repeat("n", 500)
		watchertest.ByWriter("kubectl")(p)
	}
	size := func(size translate.Size) int {
		d, err := translate.Object(kinds.Pods.Kind, events.Is, watchertest.AVersion("a", 10, large), translate.Stamp{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Body)
	}
	whole, brief := size(translate.Whole), size(translate.Brief)
	for what, c := range map[string]struct {
		limits [translate.Bare]int
		form   kinds.Form
		label  bool
	}{
		"no limit":                  {[2]int{0, 0}, kinds.Full, true},
		"below the limit":           {[2]int{whole + 1, 1}, kinds.Full, true},
		"at the limit":              {[2]int{whole, 0}, kinds.Metadata, true},
		"metadata below the limit":  {[2]int{1, brief + 1}, kinds.Metadata, true},
		"metadata at the limit too": {[2]int{whole, brief}, kinds.Metadata, false},
		"far above both":            {[2]int{1, 1}, kinds.Metadata, false},
	} {
		k, _ := recorded(t, 0, 0)
		k.limits = c.limits
		s := k.stamp(false)
		s.Writers = translate.Unwritten()
		if err := k.appendObject(t.Context(), events.Is, watchertest.AVersion("a", 10, large), s); err != nil {
			t.Fatal(err)
		}
		d := watchertest.LastOf(t, k.bus, "pods")
		if d.Form != c.form || strings.Contains(string(d.Body), "llll") != c.label || d.By.Name != "kubectl" || !d.Proven || d.UID != "u" {
			t.Errorf("%s: the object is recorded in form %s, by %q (%t), as %q", what, d.Form, d.By.Name, d.Proven, d.Body)
		}
	}
	k, _ := recorded(t, 0, 0)
	k.appender = bustest.Refusing(k.appender, bus.ErrTooLarge)
	for i, want := range [][translate.Bare]int{{whole, 0}, {whole, brief}, {whole, brief}} {
		if err := k.appendObject(t.Context(), events.Is, watchertest.AVersion("a", 10, large), k.stamp(false)); !errors.Is(err, bus.ErrTooLarge) || k.limits != want {
			t.Errorf("the object that does not fit the %d. time makes the limits %v, want %v: %v", i+1, k.limits, want, err)
		}
	}
	if k.latest.UID != "" || k.authors.Len() != 0 {
		t.Errorf("a refused object is remembered: %+v, %d authors", k.latest, k.authors.Len())
	}
	if err := k.appendObject(t.Context(), events.Is, &metav1.Status{}, k.stamp(false)); err == nil {
		t.Error("appendObject takes a value that is no object")
	}
}

// What Authors remembers of an object, and what proves the history, are versions that a watch
// delivered.
func TestWhatIsSaidIsRemembered(t *testing.T) {
	t.Parallel()
	k, _ := recorded(t, 0, 0)
	say := func(op events.Op, version int, sync bool) {
		t.Helper()
		if err := k.appendObject(t.Context(), op, watchertest.AVersion("a", version, func(p *corev1.Pod) { p.UID = "u" }), k.stamp(sync)); err != nil {
			t.Fatal(err)
		}
	}
	say(events.Is, 10, true)
	if k.latest.UID != "" || k.authors.Len() != 1 {
		t.Errorf("an object that a relist finds proves %+v, and %d authors are remembered; want none and 1", k.latest, k.authors.Len())
	}
	say(events.Is, 11, false)
	if k.latest.ResourceVersion != "11" || k.latest.UID != "u" || k.latest.Ref != watchertest.APod("a") || k.latest.Op != events.Is || k.authors.LastAppended != k.appender.Last() {
		t.Errorf("an object that a watch brings proves %+v, up to %d", k.latest, k.authors.LastAppended)
	}
	say(events.Gone, 12, false)
	if k.latest.ResourceVersion != "11" || k.authors.Len() != 0 {
		t.Errorf("an end proves %+v, and %d are remembered", k.latest, k.authors.Len())
	}
	d := watchertest.ADelta("b", 1)
	d.At = time.Now().Add(-time.Hour)
	if k.dirty = (time.Time{}); k.append(t.Context(), d) != nil || !k.dirty.Equal(d.At) {
		t.Errorf("the flush is due since %v, want since the change", k.dirty)
	}
	if later := watchertest.ADelta("b", 2); k.append(t.Context(), later) != nil || !k.dirty.Equal(d.At) {
		t.Errorf("the flush is due since %v after a second change, want since the first", k.dirty)
	}
	if k.unsure {
		t.Error("the log state is unsure after a successful append")
	}
	k.appender = bustest.Refusing(k.appender, bus.ErrOvertaken)
	if err := k.append(t.Context(), d); err == nil || !k.unsure {
		t.Errorf("append to a log that refuses: %v, unsure: %t; want the error, and unsure", err, k.unsure)
	}
}

// The watch checks a claim that the storage went back beside the watch, and ends only when the
// claim is true. A resumed watch also ends when the check gets no answer.
func TestAWatchIsProvedBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		from, err := s.Source(t).Kind(kinds.Pods.Kind)
		if err != nil {
			t.Fatal(err)
		}
		k := &Reflector{source: from}
		comes := func(proved chan error) (err error, came bool) {
			synctest.Wait()
			select {
			case err = <-proved:
				return err, true
			default:
				return nil, false
			}
		}
		ctx := t.Context()
		if _, came := comes(k.startProof(ctx, false, nil)); came {
			t.Error("a proof is started without a reason")
		}
		k.cursor.Version = "1"
		if err, came := comes(k.startProof(ctx, true, nil)); err != nil || !came {
			t.Errorf("the proof of an unchanged object: %t, %v; want success", came, err)
		}
		s.Refuse("pods", 403)
		if err, came := comes(k.startProof(ctx, true, nil)); err == nil || !came {
			t.Errorf("the proof of a refused object: %t, %v; want an error", came, err)
		}
		proved := make(chan error, 1)
		if _, came := comes(k.startProof(ctx, true, proved)); came {
			t.Error("a claim that cannot be looked into ends the watch")
		}
		s.Break(nil)
		if _, came := comes(k.startProof(ctx, true, proved)); came {
			t.Error("a wrong claim of a restore ends the watch")
		}
		k.cursor.Version = "99"
		if err, came := comes(k.startProof(ctx, true, proved)); !errors.Is(err, errRewound) || !came {
			t.Errorf("a right claim of a restore: %t, %v; want errRewound", came, err)
		}
	})
}

// The watcher looks for fights in the changes of a watch, in whatever form they arrive. It reports
// names and fields, and no values.
func TestWhichChangesMakeAFight(t *testing.T) {
	t.Parallel()
	raw := func(p *corev1.Pod) runtime.Object {
		sent, err := kinds.Encode(kinds.Pods.Kind, p)
		if err != nil {
			t.Fatal(err)
		}
		r, err := kinds.ReadRaw(kinds.Pods.Kind, sent)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for what, c := range map[string]struct {
		op     events.Op
		sync   bool
		form   func(*corev1.Pod) runtime.Object
		fights float64
	}{
		"as they are":      {events.Is, false, func(p *corev1.Pod) runtime.Object { return p }, 1},
		"as they are sent": {events.Is, false, raw, 1},
		"in a list":        {events.Is, true, raw, 0},
		"when it is gone":  {events.Gone, false, raw, 0},
	} {
		k, _ := recorded(t, 0, 0)
		ctx, log := watchertest.Logged(t)
		for i := range 13 {
			p := watchertest.AVersion("web", 10+i, func(p *corev1.Pod) { p.Generation, p.Spec.NodeName = int64(i+2), fmt.Sprint("secret-", i%2) })
			d, err := translate.Object(kinds.Pods.Kind, c.op, p.DeepCopy(), translate.Stamp{At: time.Now(), Sync: c.sync})
			if err != nil {
				t.Fatal(err)
			}
			d.By, d.Proven = events.Manager{Name: fmt.Sprint("m", i%2)}, true
			k.logFight(ctx, d, c.form(p))
		}
		if got := testutil.ToFloat64(k.metrics.fights.WithLabelValues("pods")); got != c.fights {
			t.Errorf("%s: %v fights are counted, want %v", what, got, c.fights)
		}
		if told := strings.Contains(log(), "Managers write an object back and forth"); told != (c.fights == 1) || strings.Contains(log(), "secret-") || told && !(strings.Contains(log(), ".spec.nodeName") && strings.Contains(log(), "10 since")) {
			t.Errorf("%s: the log says\n%s", what, log())
		}
	}
}

// told reads an object in the form in which the log has it.
func TestWhatWasToldIsRead(t *testing.T) {
	t.Parallel()
	k := &Reflector{kind: kinds.Pods.Kind}
	for _, size := range []translate.Size{translate.Whole, translate.Brief} {
		d, err := translate.Object(kinds.Pods.Kind, events.Is, watchertest.AVersion("a", 1), translate.Stamp{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		_, whole := k.decodeRecorded(d).(*corev1.Pod)
		_, brief := k.decodeRecorded(d).(*metav1.PartialObjectMetadata)
		if whole != (size == translate.Whole) || brief == whole {
			t.Errorf("the object of size %d is decoded as %T", size, k.decodeRecorded(d))
		}
	}
	if got := k.decodeRecorded(events.Delta{Form: kinds.Full, ContentType: kinds.Protobuf, Body: []byte("torn")}); got != nil {
		t.Errorf("a torn body is decoded as %v", got)
	}
	if got := versions.SpecOf(&unstructured.Unstructured{Object: map[string]any{"spec": make(chan int)}}); got != nil {
		t.Errorf("a spec that JSON cannot have is %s", got)
	}
	if got := versions.SpecOf(nil); got != nil {
		t.Errorf("the spec of nothing is %s", got)
	}
}

// The watch flushes a delta 25 ms after sending it, and then its position counts.
func TestWhatIsSentIsFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		b := memory.New(memory.Options{})
		k, _ := runs(t, s.Source(t), b)
		time.Sleep(5 * time.Second) // virtual
		lag := func() float64 { return testutil.ToFloat64(k.metrics.lag.WithLabelValues("pods")) }
		if got := lag(); got != 0 {
			t.Errorf("the mark of the list took %v s", got)
		}
		for range 2 {
			s.PutPod("a", 0)
			time.Sleep(10 * time.Millisecond)
			s.PutPod("a", 0)
			time.Sleep(14 * time.Millisecond)
			if got := lag(); got != 0 {
				t.Errorf("before 25 ms are over the lag is %v s, want 0", got)
			}
			time.Sleep(2 * time.Millisecond)
			if got := lag(); got != flushAfter.Seconds() {
				t.Errorf("the lag is %v s, want the time until the flush", got)
			}
			k.metrics.lag.WithLabelValues("pods").Set(0)
			time.Sleep(time.Second)
		}
	})
}

func TestBookmarksAreStoredButNotEach(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	watch, stop := runs(t, s.Source(t), b)
	watchertest.Until(t, func() bool { return fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b))) == "[is a mark]" })
	for range 10 {
		s.Bookmark()
	}
	s.PutPod("b", 0)
	watchertest.Eventually(t, b, "is a", "is b")
	if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b))); got != "[is a mark is b]" {
		t.Errorf("ten bookmarks in a moment made the log %s", got)
	}
	stop()
	watch.marked = watch.marked.Add(-markEvery)
	appender, err := b.Append(t.Context(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	watch.appender = appender
	reader, err := watch.source.Watch(t.Context(), watch.cursor.Version)
	if err != nil {
		t.Fatal(err)
	}
	s.Bookmark()
	if err := watch.handleEvent(t.Context(), <-reader.ResultChan()); err != nil {
		t.Fatal(err)
	}
	log := watchertest.LogOf(t, b)
	if newest := log[len(log)-1]; newest.Op != events.Mark || newest.ResourceVersion != s.Version() {
		t.Errorf("after %v a bookmark of %s is stored as %s of %s, want a mark", markEvery, s.Version(), newest.Op, newest.ResourceVersion)
	}
}
