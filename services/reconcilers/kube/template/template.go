// Package template makes pods of templates.
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

// Weight bounds the bodies of the creates in one turn, in bytes, where each has its own:
// a turn is one message.
const Weight = 1 << 20

// Pod is the body that all pods of one template and owner are created with. It has
// no name: that is the command's. Make it once for a burst.
//
// Upstream: pkg/controller/controller_utils.go, GetPodFromTemplate.
func Pod(t *corev1.PodTemplateSpec, kind kinds.Kind, parent metav1.Object) json.RawMessage {
	return PodUnder(names.Prefix(parent.GetName()), t, kind, parent)
}

// PodUnder is such a body with a generateName of the caller's own.
func PodUnder(generateName string, t *corev1.PodTemplateSpec, kind kinds.Kind, parent metav1.Object) json.RawMessage {
	return reconcile.Body(under(generateName, t, kind, parent))
}

// Object is the pod of which that is the body, for an owner that makes each of its
// pods another one. It shares its parts with the template.
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
