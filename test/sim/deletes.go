package sim

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/writer/plan"
)

// deletes checks a delete by the rules of its controller; false for the garbage collector,
// which deletes objects without owners.
func (g *guard) deletes(c *carrying, r plan.Request, obj metav1.Object) bool {
	switch c.turn.Controller {
	case "job-controller":
		g.dismisses(obj.(*corev1.Pod))
		g.spareWork(c, obj.(*corev1.Pod))
	case "statefulset-controller":
		if pod, ok := obj.(*corev1.Pod); ok {
			g.replaced(c, pod)
		}
	case "replicaset-controller", "replicationcontroller-controller":
		g.unasked(c, obj.(*corev1.Pod))
	case "garbage-collector-controller":
		return false
	case "pod-garbage-collector-controller", "ttl-after-finished-controller":
		g.tends(c, obj)
	case "namespace-controller":
		g.clears(obj, r.Kind)
	case "persistentvolume-attach-detach-controller":
		g.detaches(c, obj.(*storagev1.VolumeAttachment))
	case "resourceclaim-controller":
		g.deletesClaim(obj.(*resourcev1.ResourceClaim))
	case "device-taint-eviction-controller":
		g.leavesDevice(c, obj.(*corev1.Pod))
	case "resourcepoolstatusrequest-controller":
		g.poolRequestGoes(c, obj.(*resourcev1alpha3.ResourcePoolStatusRequest))
	case "token-cleaner-controller":
		g.expiresNow(c, obj.(*corev1.Secret))
	default:
		if _, judged := judgements[c.turn.Controller]; !judged && judgedByEffect[c.turn.Controller] == "" {
			g.breaks("I4", "%s deletes %s %s, and no rule says when it may", c.turn.Controller, r.Kind, r.Name)
		}
	}
	return true
}
