package revision_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func holding(raw string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(raw)}}
}

func TestWhatIsHeld(t *testing.T) {
	mine := reconciletest.ReplicaSet("web", 1).Spec.Template
	other := *mine.DeepCopy()
	other.Spec.Containers[0].Image = "nginx:2"
	patch := string(revision.Patch(&mine))
	if want := `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"nginx:1","name":"c","resources":{}}]}}}}`; patch != want {
		t.Errorf("the patch is %s, and upstream's %s", patch, want)
	}
	for what, c := range map[string]struct {
		raw  string
		want bool
	}{
		"the same bytes":    {patch, true},
		"in other words":    {`{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"nginx:1"}]}}}}`, true},
		"another template":  {string(revision.Patch(&other)), false},
		"no template":       {`{"spec":{}}`, false},
		"no JSON":           {`{`, false},
		"nothing":           {``, false},
		"with an odd part":  {`{"spec":{"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"nginx:1"}],"priority":"high"}}}}`, false},
		"a template's text": {`{"spec":{"template":"nginx"}}`, false},
	} {
		if got := revision.Holds(holding(c.raw), &mine); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestTheOldestComesFirst(t *testing.T) {
	at := func(name string, number int64, age time.Duration) *appsv1.ControllerRevision {
		r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(reconciletest.Now.Add(-age))}, Revision: number}
		return r
	}
	given := []*appsv1.ControllerRevision{at("c", 2, time.Hour), at("b", 1, time.Minute), at("a", 1, time.Minute), at("d", 1, time.Hour)}
	var names string
	for _, r := range revision.Sorted(given) {
		names += r.Name
	}
	if names != "dabc" || given[0].Name != "c" {
		t.Errorf("sorted are %s, and what was given begins with %s", names, given[0].Name)
	}
}
