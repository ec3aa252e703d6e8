package replicas

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
)

// AsGood reports whether [Sets.Decide] might as well have deleted the pod other
// as the pod chosen.
func AsGood(v View, chosen, other types.UID, now time.Time) bool {
	a, b := v.pod(chosen), v.pod(other)
	return a != nil && b != nil && pod.AsGood(a, b, v.Crowd, v.Gates.On(gate.PodDeletionCost), now)
}

func (v View) pod(uid types.UID) *corev1.Pod {
	for _, p := range v.Pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}
