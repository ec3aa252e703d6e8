package page

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// TestADirectoryBeginsWhereEverythingIsRecorded: it begins with the message that the newest mark
// names, and with the first one where no mark does. From then on it reads what is new, and another
// log from its own beginning.
func TestADirectoryBeginsWhereEverythingIsRecorded(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	defer b.Close()
	log, err := recordtest.New(t.Context(), b, []kinds.Kind{kinds.Pods.Kind}, nil)
	must(t, err)
	pod := func(name string, op events.Op) {
		t.Helper()
		d, err := log.Write(kinds.Pods.Kind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}, "x")
		must(t, err)
		d.Op = op
		_, err = log.Say(t.Context(), d)
		must(t, err)
	}
	mark := func(since uint64) {
		t.Helper()
		_, err := log.Say(t.Context(), events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "900", Since: since})
		must(t, err)
	}
	old := newDirectory(b)
	expect := func(what string, d *directory, want string) {
		t.Helper()
		got := map[string]bool{}
		must(t, d.each(t.Context(), kinds.Pods.Name, func(ref events.Ref, there bool) { got[ref.Name] = there }))
		names := slices.Sorted(maps.Keys(got))
		for i, name := range names {
			if !got[name] {
				names[i] = "-" + name
			}
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s: it has %v, want %s", what, names, want)
		}
	}
	pod("gone-for-long", events.Is)
	pod("gone-for-long", events.Gone)
	pod("stays", events.Is)
	mark(0)
	expect("no mark says since when", old, "-gone-for-long stays")
	pod("stays", events.Is) // a keyframe, message 5
	pod("comes", events.Is)
	pod("goes", events.Is)
	mark(5)
	pod("goes", events.Gone)
	expect("one that is open goes on", old, "comes -goes -gone-for-long stays")
	expect("one that begins", newDirectory(b), "comes -goes stays")

	must(t, log.Close())
	must(t, b.DeleteKind(t.Context(), kinds.Pods.Name))
	log, err = recordtest.New(t.Context(), b, []kinds.Kind{kinds.Pods.Kind}, nil)
	must(t, err)
	pod("another", events.Is)
	mark(1)
	expect("the log was made anew", old, "another")
}

// TestADirectoryThatForgets: one with many more deleted objects than it keeps begins again.
func TestADirectoryThatForgets(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	defer b.Close()
	log, err := recordtest.New(t.Context(), b, []kinds.Kind{kinds.Pods.Kind}, nil)
	must(t, err)
	d := newDirectory(b)
	must(t, d.each(t.Context(), kinds.Pods.Name, func(events.Ref, bool) {}))
	d.kinds[kinds.Pods.Name].gone = forgotten + 1
	d.kinds[kinds.Pods.Name].there[events.Ref{Name: "gone"}] = false
	_, err = log.Say(t.Context(), events.Delta{Kind: kinds.Pods.Name, Op: events.Mark, ResourceVersion: "900", Since: 1})
	must(t, err)
	must(t, d.each(t.Context(), kinds.Pods.Name, func(ref events.Ref, _ bool) { t.Errorf("%v is still there", ref) }))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
