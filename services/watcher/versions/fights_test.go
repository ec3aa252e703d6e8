package versions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
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
			var f Fights
			at, told := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), 0
			for i, w := range c.changes {
				d := events.Delta{UID: "u", Generation: int64(i + 2), At: at.Add(time.Duration(i) * c.every), By: events.Manager{Name: w.by}, Proven: !c.guessed}
				found, ok := f.Observe(d, func() []byte { return []byte(w.spec) })
				if _, again := f.Observe(d, func() []byte { t.Error("a report of the status is looked at"); return nil }); again {
					t.Error("a report of the status makes a fight")
				}
				if !ok {
					continue
				}
				told++
				if !slices.Equal(found.Managers, []string{events.FieldManager, "pipeline"}) || !slices.Equal(found.Fields, []string{".spec.replicas"}) || found.Times != fightReturns {
					t.Errorf("the fight is %+v", found)
				}
			}
			if told != c.told {
				t.Errorf("%d fights are reported, want %d", told, c.told)
			}
		})
	}
}

// TestWishes: SpecOf reads the specification of an object of any type.
func TestWishes(t *testing.T) {
	t.Parallel()
	custom := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
	if got := string(SpecOf(custom)); got != `{"size":3}` {
		t.Errorf("a custom object is to be %s", got)
	}
	if got := string(SpecOf(&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}})); got != `{"unschedulable":true}` {
		t.Errorf("a node is to be %s", got)
	}
	if got := SpecOf(&corev1.ConfigMap{Data: map[string]string{"a": "b"}}); got != nil {
		t.Errorf("a ConfigMap is to be %s", got)
	}
	if got := SpecOf(&metav1.PartialObjectMetadata{}); got != nil {
		t.Errorf("metadata is to be %s", got)
	}
}

// The watcher reports a fight after ten returns, and again after ten more, each time with its
// start.
func TestWhenAFightIsToldAgain(t *testing.T) {
	t.Parallel()
	began := time.Unix(1e9, 0)
	told := func(every time.Duration) (at []int, since []time.Duration) {
		f := Fights{}
		for i := range 40 {
			d := events.Delta{UID: "u", Generation: int64(i + 2), At: began.Add(time.Duration(i) * every), Proven: true, By: events.Manager{Name: fmt.Sprint("m", i%2)}}
			if found, ok := f.Observe(d, func() []byte { return fmt.Appendf(nil, `{"x":%d}`, i%2) }); ok {
				at, since = append(at, i), append(since, found.Since.Sub(began))
			}
		}
		return at, since
	}
	at, since := told(time.Second)
	if !slices.Equal(at, []int{11, 21, 31}) {
		t.Errorf("the fight is reported at the changes %v, want 11, 21, 31", at)
	}
	if want := []time.Duration{time.Second, 11 * time.Second, 21 * time.Second}; !slices.Equal(since, want) {
		t.Errorf("the fight goes on since %v, want %v", since, want)
	}
	if at, _ := told(time.Minute); !slices.Equal(at, []int{11, 21, 31}) {
		t.Errorf("within ten minutes it is told at %v", at)
	}
	if at, _ := told(time.Minute + 1); !slices.Equal(at, []int{20, 39}) { // the tenth return comes too late, and is the first again
		t.Errorf("in more than ten minutes it is told at %v", at)
	}
}

// Fights remembers objects from their second generation on, and a bounded number of them.
func TestWhatIsRememberedOfFights(t *testing.T) {
	t.Parallel()
	f := Fights{}
	see := func(uid types.UID, generation int64) {
		f.Observe(events.Delta{UID: uid, Generation: generation, At: time.Now()}, func() []byte { return []byte(`{"x":1}`) })
	}
	for generation, want := range map[int64]bool{0: false, 1: false, 2: true} {
		uid := types.UID(fmt.Sprint("g", generation))
		see(uid, generation)
		if _, known := f.specs.Get(uid); known != want {
			t.Errorf("an object of generation %d is remembered: %t", generation, known)
		}
	}
	for i := range 511 {
		see(types.UID(fmt.Sprint(i)), 2)
	}
	if _, known := f.specs.Get("g2"); !known {
		t.Error("an object is forgotten behind 511 others")
	}
	for i := range 1024 {
		see(types.UID(fmt.Sprint("more", i)), 2)
	}
	if _, known := f.specs.Get("g2"); known || len(f.specs.young)+len(f.specs.old) > 1024 {
		t.Errorf("%d objects are remembered, the first: %t", len(f.specs.young)+len(f.specs.old), known)
	}
}

// A fight is found when two managers write back and forth ten times in a row, within ten minutes.
func TestWhenAFightIsOne(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for what, c := range map[string]struct {
		managers []string
		proven   bool
		texts    []string
		each     time.Duration
		found    int
	}{
		"two":             {[]string{"a", "b"}, true, []string{`{"x":1}`, `{"x":2}`}, time.Second, 1},
		"one":             {[]string{"a"}, true, []string{`{"x":1}`, `{"x":2}`}, time.Second, 0},
		"not proven":      {[]string{"a", "b"}, false, []string{`{"x":1}`, `{"x":2}`}, time.Second, 0},
		"never the same":  {[]string{"a", "b"}, true, []string{`{"x":1}`, `{"x":2}`, `{"x":3}`}, time.Second, 0},
		"too slowly":      {[]string{"a", "b"}, true, []string{`{"x":1}`, `{"x":2}`}, fightWindow, 0},
		"always the same": {[]string{"a", "b"}, true, []string{`{"x":1}`}, time.Second, 0},
	} {
		f, found := Fights{}, 0
		for i := range fightReturns + 2 {
			d := events.Delta{UID: "u", Generation: int64(i + 2), At: now.Add(time.Duration(i) * c.each), Proven: c.proven, By: events.Manager{Name: c.managers[i%len(c.managers)]}}
			if one, ok := f.Observe(d, func() []byte { return []byte(c.texts[i%len(c.texts)]) }); ok {
				if found++; one.Times != fightReturns || strings.Join(one.Managers, "") != "ab" || strings.Join(one.Fields, "") != ".spec.x" {
					t.Errorf("%s: the fight is %+v, want between a and b about .spec.x", what, one)
				}
			}
		}
		if found != c.found {
			t.Errorf("%s: %d are found", what, found)
		}
	}
	f := Fights{}
	for what, d := range map[string]events.Delta{"the first generation": {UID: "u", Generation: 1}, "no spec": {UID: "v", Generation: 3}} {
		if _, ok := f.Observe(d, func() []byte { return nil }); ok {
			t.Errorf("%s is a fight", what)
		}
		if _, known := f.specs.Get(d.UID); known {
			t.Errorf("%s is remembered", what)
		}
	}
	if got := strings.Join(changedFields([]byte(`{"a":1,"b":{"c":1},"d":1,"e":1}`), []byte(`{"a":2,"b":{"c":2},"d":2,"e":2}`)), " "); got != ".spec.a .spec.b.c .spec.d" {
		t.Errorf("the changed fields are %s, want .spec.a .spec.b.c .spec.d", got)
	}
	if changedFields([]byte("{"), []byte("{}")) != nil || changedFields([]byte("{}"), []byte("{")) != nil {
		t.Error("specs that cannot be read differ")
	}
}
