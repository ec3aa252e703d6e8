package translate_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// managed is an entry of managedFields, dated by the second; 0: not dated.
func managed(manager, subresource string, second int64, fields string) metav1.ManagedFieldsEntry {
	e := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource, APIVersion: "v1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
	}
	if second > 0 {
		at := metav1.NewTime(time.Unix(second, 0))
		e.Time = &at
	}
	return e
}

const (
	a   = `{"f:a":{}}`
	b   = `{"f:b":{}}`
	ab  = `{"f:a":{},"f:b":{}}`
	abc = `{"f:a":{},"f:b":{},"f:c":{}}`
)

// TestTheAuthorIsWhoseEntryChanged: the API server dates entries by the second and sorts
// them by operation, second and name, so neither the newest nor the last one need be the
// author's.
func TestTheAuthorIsWhoseEntryChanged(t *testing.T) {
	fields := func(e ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return e }
	unknown := translate.Writers{}
	for name, c := range map[string]struct {
		before translate.Writers
		now    []metav1.ManagedFieldsEntry
		want   string // empty: not known
	}{
		"created":                 {translate.Unwritten(), fields(managed("kubectl-run", "", 9, a)), "kubectl-run"},
		"created with a past":     {translate.Unwritten(), fields(managed("kubectl-create", "", 9, a), managed("someone", "", 5, b)), ""},
		"created with no manager": {translate.Unwritten(), nil, ""},
		"a new entry of the same second, sorted first": {
			translate.WritersOf(fields(managed("kubectl-run", "", 9, a))),
			fields(managed("kube-scheduler", "status", 9, b), managed("kubectl-run", "", 9, a)), "kube-scheduler",
		},
		"a later second": {
			translate.WritersOf(fields(managed("a", "", 7, a), managed("b", "", 8, b))), fields(managed("a", "", 9, a), managed("b", "", 8, b)), "a",
		},
		"a later second, which takes a field of another": {
			translate.WritersOf(fields(managed("a", "", 7, a), managed("b", "", 8, abc))), fields(managed("a", "", 9, ab), managed("b", "", 8, `{"f:c":{}}`)), "a",
		},
		"the same second, which takes a field of another": {
			translate.WritersOf(fields(managed("a", "", 9, a), managed("b", "", 9, b+b))), fields(managed("a", "", 9, ab), managed("b", "", 9, b)), "a",
		},
		"the same second, which only loses a field": {
			translate.WritersOf(fields(managed("a", "", 9, ab), managed("b", "", 9, b))), fields(managed("a", "", 9, a), managed("b", "", 9, b)), "",
		},
		"who scales, not dated": {
			translate.WritersOf(fields(managed("kubectl-create", "", 9, ab))), fields(managed("kubectl", "scale", 0, b), managed("kubectl-create", "", 9, a)), "kubectl",
		},
		"nothing has changed, as with a binding": {
			translate.WritersOf(fields(managed("kubectl-run", "", 9, a))), fields(managed("kubectl-run", "", 9, a)), "",
		},
		"the bucket of old entries changes with it": {
			translate.WritersOf(fields(managed("ancient-changes", "", 1, a), managed("old", "", 2, b))),
			fields(managed("ancient-changes", "", 2, ab), managed("new", "", 9, a)), "new",
		},
		"entries written back by who had an old copy": {
			translate.WritersOf(fields(managed("a", "", 7, a), managed("b", "", 8, b))), fields(managed("a", "", 5, a), managed("b", "", 9, b)), "",
		},
		"not the version behind what is remembered": {
			translate.WritersOf(fields(managed("a", "", 9, a))), fields(managed("a", "", 7, a)), "",
		},
		"nothing is remembered": {unknown, fields(managed("a", "", 9, a)), ""},
		"another version of the API is another entry": {
			translate.WritersOf(fields(managed("a", "", 9, a))),
			fields(managed("a", "", 9, a), metav1.ManagedFieldsEntry{Manager: "a", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v2"}), "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			newest, beside := events.ManagersOf(c.now)
			d := written(t, c.before, c.now)
			if d.Proven != (c.want != "") || d.Proven && d.By.Name != c.want {
				t.Errorf("by %+v, proven %v, want %q", d.By, d.Proven, c.want)
			}
			all, got := append(beside, newest), append(d.Beside, d.By)
			if len(all) != len(got) && !(d.Proven && slices.Contains(got, newest)) {
				t.Errorf("%+v are told of %+v", got, all)
			}
		})
	}
}

func written(t *testing.T, before translate.Writers, fields []metav1.ManagedFieldsEntry) events.Delta {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1", ResourceVersion: "7", ManagedFields: fields}}
	d, err := translate.Object(kinds.Pods.Kind, events.Is, pod, translate.Stamp{At: now, Writers: before})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
