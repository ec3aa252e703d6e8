package template_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestPod(t *testing.T) {
	set := reconciletest.ReplicaSet("web", 1)
	set.Spec.Template.Annotations = map[string]string{"note": "well"}
	set.Spec.Template.Finalizers = []string{"example.com/wait"}
	set.Spec.Template.Name = "ignored"
	var got corev1.Pod
	if err := json.Unmarshal(template.Pod(&set.Spec.Template, kinds.ReplicaSets.Kind, set), &got); err != nil {
		t.Fatal(err)
	}
	want := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "web-", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "well"},
			Finalizers:      []string{"example.com/wait"},
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.ReplicaSets.Kind, set)},
		},
		Spec: set.Spec.Template.Spec,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pod of a template (-want +got):\n%s", diff)
	}
}

// A promise to create pods of a template leaves open what each controller adds, and nothing
// else of the pod.
func TestThePromiseToCreateOfATemplate(t *testing.T) {
	w := template.Creates([]string{".spec.nodeName", ".metadata.labels.hash"}, []string{"tracking"})
	open := map[string]string{}
	for _, c := range w.Copies {
		open[c.To] = strings.Join(append(c.But, c.Plus...), " ")
	}
	want := map[string]string{".metadata.labels": ".hash", ".metadata.annotations": "", ".spec": ".nodeName", ".metadata.finalizers": "tracking"}
	if diff := cmp.Diff(want, open); diff != "" {
		t.Errorf("left open are other parts (-want +got):\n%s", diff)
	}
}
