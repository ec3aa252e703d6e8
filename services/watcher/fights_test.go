package watcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/translate"
)

// written is one change of a specification.
type written struct{ by, spec string }

// TestAFightIsTold: the watcher finds two managers that write the same fields back and forth, and
// names them and the fields. It finds nothing in changes that only look like a fight.
func TestAFightIsTold(t *testing.T) {
	t.Parallel()
	two := func(a, b written) (all []written) {
		for range 12 {
			all = append(all, a, b)
		}
		return all
	}
	small, large := written{"pipeline", `{"replicas":3,"paused":false}`}, written{events.FieldManager, `{"replicas":7,"paused":false}`}
	onward := func() (all []written) {
		for i := range 24 {
			all = append(all, written{fmt.Sprint("m-", i%2), fmt.Sprintf(`{"replicas":%d}`, i)})
		}
		return all
	}
	for name, c := range map[string]struct {
		changes []written
		every   time.Duration
		told    int
		guessed bool
	}{
		"back and forth":                  {two(small, large), time.Second, 2, false},
		"by one manager":                  {two(small, written{small.by, large.spec}), time.Second, 0, false},
		"never the same again":            {onward(), time.Second, 0, false},
		"a few times":                     {two(small, large)[:fightReturns], time.Second, 0, false},
		"slowly":                          {two(small, large), 5 * time.Minute, 0, false},
		"the same by one after the other": {two(small, written{large.by, small.spec}), time.Second, 0, false},
		"by who is only guessed":          {two(small, large), time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var f fights
			at, told := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), 0
			for i, w := range c.changes {
				d := events.Delta{UID: "u", Generation: int64(i + 2), At: at.Add(time.Duration(i) * c.every), By: events.Manager{Name: w.by}, Proven: !c.guessed}
				found, ok := f.observe(d, func() []byte { return []byte(w.spec) })
				if _, again := f.observe(d, func() []byte { t.Error("a report of the status is looked at"); return nil }); again {
					t.Error("a report of the status makes a fight")
				}
				if !ok {
					continue
				}
				told++
				if !slices.Equal(found.managers, []string{events.FieldManager, "pipeline"}) || !slices.Equal(found.fields, []string{".spec.replicas"}) || found.times != fightReturns {
					t.Errorf("it is told as %+v", found)
				}
			}
			if told != c.told {
				t.Errorf("told %d times, want %d", told, c.told)
			}
		})
	}
}

// TestWishes: specOf reads the specification of an object of any type.
func TestWishes(t *testing.T) {
	t.Parallel()
	custom := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
	if got := string(specOf(custom)); got != `{"size":3}` {
		t.Errorf("a custom object is to be %s", got)
	}
	if got := string(specOf(&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}})); got != `{"unschedulable":true}` {
		t.Errorf("a node is to be %s", got)
	}
	if got := specOf(&corev1.ConfigMap{Data: map[string]string{"a": "b"}}); got != nil {
		t.Errorf("a ConfigMap is to be %s", got)
	}
	if got := specOf(&metav1.PartialObjectMetadata{}); got != nil {
		t.Errorf("metadata is to be %s", got)
	}
}

// TestTheWatcherTellsOfAFight: a watch looks for fights in the changes that it receives.
func TestTheWatcherTellsOfAFight(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one")
	watching(t, service)
	write := func(i int) {
		what := "MODIFIED"
		if i == 0 {
			what = "ADDED"
		}
		s.changeOf("pods", what, "web", func(p *corev1.Pod) {
			byWriter([]string{events.FieldManager, "pipeline"}[i%2])(p)
			p.Generation, p.Spec.HostNetwork = int64(i+1), i%2 == 0
		})
	}
	const enough = 3 + fightReturns // its create, the first change, and the second one, which is not a return yet
	for i := range 2*enough - 1 {
		write(i)
	}
	until(t, func() bool {
		return testutil.ToFloat64(service.metrics.fights.WithLabelValues(string(kinds.Pods.Name))) == 2
	})
}

// The watcher reports a fight after ten returns, and again after ten more, each time with its
// start.
func TestWhenAFightIsToldAgain(t *testing.T) {
	t.Parallel()
	began := time.Unix(1e9, 0)
	told := func(every time.Duration) (at []int, since []time.Duration) {
		f := fights{}
		for i := range 40 {
			d := events.Delta{UID: "u", Generation: int64(i + 2), At: began.Add(time.Duration(i) * every), Proven: true, By: events.Manager{Name: fmt.Sprint("m", i%2)}}
			if found, ok := f.observe(d, func() []byte { return fmt.Appendf(nil, `{"x":%d}`, i%2) }); ok {
				at, since = append(at, i), append(since, found.since.Sub(began))
			}
		}
		return at, since
	}
	at, since := told(time.Second)
	if !slices.Equal(at, []int{11, 21, 31}) {
		t.Errorf("it is told at the changes %v", at)
	}
	inTime(t, "it goes on since", since, time.Second, 11*time.Second, 21*time.Second)
	if at, _ := told(time.Minute); !slices.Equal(at, []int{11, 21, 31}) {
		t.Errorf("within ten minutes it is told at %v", at)
	}
	if at, _ := told(time.Minute + 1); !slices.Equal(at, []int{20, 39}) { // the tenth return comes too late, and is the first again
		t.Errorf("in more than ten minutes it is told at %v", at)
	}
}

// fights remembers objects from their second generation on, and a bounded number of them.
func TestWhatIsRememberedOfFights(t *testing.T) {
	t.Parallel()
	f := fights{}
	see := func(uid types.UID, generation int64) {
		f.observe(events.Delta{UID: uid, Generation: generation, At: time.Now()}, func() []byte { return []byte(`{"x":1}`) })
	}
	for generation, want := range map[int64]bool{0: false, 1: false, 2: true} {
		uid := types.UID(fmt.Sprint("g", generation))
		see(uid, generation)
		if _, known := f.specs.get(uid); known != want {
			t.Errorf("an object of generation %d is remembered: %t", generation, known)
		}
	}
	for i := range 511 {
		see(types.UID(fmt.Sprint(i)), 2)
	}
	if _, known := f.specs.get("g2"); !known {
		t.Error("it is forgotten behind 511 others")
	}
	for i := range 1024 {
		see(types.UID(fmt.Sprint("more", i)), 2)
	}
	if _, known := f.specs.get("g2"); known || len(f.specs.young)+len(f.specs.old) > 1024 {
		t.Errorf("%d objects are remembered, the first: %t", len(f.specs.young)+len(f.specs.old), known)
	}
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
		ctx, log := logged(t)
		for i := range 13 {
			p := aVersion("web", 10+i, func(p *corev1.Pod) { p.Generation, p.Spec.NodeName = int64(i+2), fmt.Sprint("secret-", i%2) })
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
			t.Errorf("%s: it tells\n%s", what, log())
		}
	}
}

// told reads an object in the form in which the log has it.
func TestWhatWasToldIsRead(t *testing.T) {
	t.Parallel()
	k := &kindWatch{kind: kinds.Pods.Kind}
	for _, size := range []translate.Size{translate.Whole, translate.Brief} {
		d, err := translate.Object(kinds.Pods.Kind, events.Is, aVersion("a", 1), translate.Stamp{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		_, whole := k.decodeRecorded(d).(*corev1.Pod)
		_, brief := k.decodeRecorded(d).(*metav1.PartialObjectMetadata)
		if whole != (size == translate.Whole) || brief == whole {
			t.Errorf("in size %d it is read as %T", size, k.decodeRecorded(d))
		}
	}
	if got := k.decodeRecorded(events.Delta{Form: kinds.Full, ContentType: kinds.Protobuf, Body: []byte("torn")}); got != nil {
		t.Errorf("what is torn is read as %v", got)
	}
	if got := specOf(&unstructured.Unstructured{Object: map[string]any{"spec": make(chan int)}}); got != nil {
		t.Errorf("what cannot be written is wanted as %s", got)
	}
	if got := specOf(nil); got != nil {
		t.Errorf("of nothing is wanted %s", got)
	}
}
