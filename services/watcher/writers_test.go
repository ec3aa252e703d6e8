package watcher

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/translate"
)

// TestTheAuthorIsToldAcrossBrokenWatches: the watcher finds the author of a change from the version
// before it, also when the watch was interrupted. A watcher that has just started does not know
// that version, and does not guess.
func TestTheAuthorIsToldAcrossBrokenWatches(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	at := metav1.NewTime(time.Unix(1_900_000_000, 0))
	// All managers write in the same second; the API server sorts them by name.
	write := func(managers ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.ManagedFields = nil
			for _, m := range managers {
				p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
					Manager: m, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:` + m + `":{}}`)},
				})
			}
		}
	}
	newest := func(version int) (d events.Delta) {
		t.Helper()
		until(t, func() bool {
			var told []events.Delta
			for _, d := range logOf(t, b) {
				if d.Op == events.Is {
					told = append(told, d)
				}
			}
			if len(told) == version {
				d = told[version-1]
			}
			return len(told) == version
		})
		return d
	}
	is := func(version int, want string) {
		t.Helper()
		if d := newest(version); d.Proven != (want != "") || d.Proven && d.By.Name != want {
			t.Errorf("version %d is by %q, proven %v, want %q", version, d.By.Name, d.Proven, want)
		}
	}
	s.changeOf("pods", "ADDED", "a", write("run"))
	_, stop := start(t, s, b, "one")
	is(1, "") // a list has found it
	s.changeOf("pods", "MODIFIED", "a", write("label", "run"))
	is(2, "label")
	s.cut()
	s.changeOf("pods", "MODIFIED", "a", write("label", "note", "run"))
	is(3, "note")
	s.changeOf("pods", "MODIFIED", "a", write("label", "note", "run")) // a binding
	is(4, "")
	s.changeOf("pods", "ADDED", "b", write("create"))
	is(5, "create")
	stop()
	start(t, s, b, "two")
	s.changeOf("pods", "MODIFIED", "a", write("edit", "label", "note", "run"))
	is(6, "")
	s.changeOf("pods", "MODIFIED", "a", write("edit", "fix", "label", "note", "run"))
	is(7, "fix")
	s.changeOf("pods", "MODIFIED", "b", write("create", "patch"))
	is(8, "")
}

// TestWhatIsRememberedIsOfTheEndOfTheLog: where the log does not end with what this watcher
// appended, another watcher has continued it, or something was not stored.
func TestWhatIsRememberedIsOfTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	for last, kept := range map[uint64]bool{5: true, 3: false, 7: false} {
		w := writers{lastAppended: 5}
		w.note("pods", events.Is, "u1", translate.WritersOf(nil))
		w.note("leases.coordination.k8s.io", events.Is, "u2", translate.WritersOf(nil))
		w.note("pods", events.Is, "u3", translate.WritersOf(nil))
		w.note("pods", events.Gone, "u3", translate.WritersOf(nil))
		if w.resume(last); len(w.objects) != map[bool]int{true: 1, false: 0}[kept] {
			t.Errorf("where the log ends at %d of 5, %d objects are remembered", last, len(w.objects))
		}
	}
}
