// Package template creates pods from templates.
package template

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Weight bounds the total size in bytes of a turn's create bodies, where each has its
// own, because a turn is one message.
const Weight = 1 << 20

// Pod is the body of the creates of all pods of one template and owner. It has no name,
// because the command has it. Callers build it once for a burst.
//
// Upstream: pkg/controller/controller_utils.go, GetPodFromTemplate.
func Pod(t *corev1.PodTemplateSpec, kind kinds.Kind, parent metav1.Object) json.RawMessage {
	return PodUnder(names.Prefix(parent.GetName()), t, kind, parent)
}

// PodUnder is such a body with another generateName.
func PodUnder(generateName string, t *corev1.PodTemplateSpec, kind kinds.Kind, parent metav1.Object) json.RawMessage {
	return reconcile.Body(under(generateName, t, kind, parent))
}

// Object is the pod behind that body, for an owner that changes each of its pods. It
// shares its parts with the template.
func Object(t *corev1.PodTemplateSpec, kind kinds.Kind, parent metav1.Object) *corev1.Pod {
	return under(names.Prefix(parent.GetName()), t, kind, parent)
}

func under(generateName string, t *corev1.PodTemplateSpec, kind kinds.Kind, parent metav1.Object) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: kinds.Pods.APIVersion(), Kind: kinds.Pods.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    generateName,
			Labels:          t.Labels,
			Annotations:     t.Annotations,
			Finalizers:      t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kind, parent)},
		},
		Spec: t.Spec,
	}
}
