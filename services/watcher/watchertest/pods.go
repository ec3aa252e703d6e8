package watchertest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// APod returns the reference of a pod in the namespace default.
func APod(name string) events.Ref {
	return events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name}
}

// AVersion is a version of a pod as a watch delivers it.
func AVersion(name string, version int, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID, p.ResourceVersion = "default", name, types.UID("u-"+name), fmt.Sprint(version)
	for _, e := range edit {
		e(p)
	}
	return p
}

// ADelta is a version of a pod as the log has it.
func ADelta(name string, version int) events.Delta {
	return events.Delta{Kind: "pods", Op: events.Is, Ref: APod(name), UID: "u", ResourceVersion: fmt.Sprint(version), At: time.Now()}
}

// ByWriter puts a writer's name on a change.
func ByWriter(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		now := metav1.Now()
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, Time: &now}}
	}
}

// Canary is a value that must not reach the bus.
const Canary = "canary-91c2e7-never-told"

// Plants is a change that puts the canary wherever it is to be hidden, and into a copy.
func Plants(image string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{
			"example.com/token": Canary, "example.com/kept": "kept",
			corev1.LastAppliedConfigAnnotation: `{"env":"` + Canary + `"}`,
		}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: image, Env: []corev1.EnvVar{{Name: "TOKEN", Value: Canary}}}}
	}
}

// Hides hides what Plants puts into pods.
func Hides(t *testing.T) redact.Policy {
	t.Helper()
	var rules redact.Rules
	for _, text := range []string{"pods:.spec.containers[*].env[*].value", "pods:.metadata.annotations['example.com/token']"} {
		r, err := redact.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	return redact.Policy{Rules: rules}
}
