package rules

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/access"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/workloads"
)

// deletes checks a delete by the rules of its controller; false for the garbage collector,
// which deletes objects without owners.
func deletes(g *cluster.Guard, c *cluster.Taken, r plan.Request, obj metav1.Object) bool {
	switch c.Turn.Controller {
	case "job-controller":
		workloads.Dismisses(g, obj.(*corev1.Pod))
		workloads.SpareWork(g, c, obj.(*corev1.Pod))
	case "statefulset-controller":
		if pod, ok := obj.(*corev1.Pod); ok {
			workloads.Replaced(g, c, pod)
		}
	case "replicaset-controller", "replicationcontroller-controller":
		workloads.Unasked(g, c, obj.(*corev1.Pod))
	case "garbage-collector-controller":
		return false
	case "pod-garbage-collector-controller", "ttl-after-finished-controller":
		workloads.Tends(g, c, obj)
	case "namespace-controller":
		metadata.Clears(g, obj, r.Kind)
	case "persistentvolume-attach-detach-controller":
		storage.Detaches(g, c, obj.(*storagev1.VolumeAttachment))
	case "resourceclaim-controller":
		devices.DeletesClaim(g, obj.(*resourcev1.ResourceClaim))
	case "device-taint-eviction-controller":
		devices.LeavesDevice(g, c, obj.(*corev1.Pod))
	case "resourcepoolstatusrequest-controller":
		devices.PoolRequestGoes(g, c, obj.(*resourcev1alpha3.ResourcePoolStatusRequest))
	case "token-cleaner-controller":
		access.ExpiresNow(g, c, obj.(*corev1.Secret))
	default:
		if _, judged := Judgements[c.Turn.Controller]; !judged && judgedByEffect[c.Turn.Controller] == "" {
			g.Breaks("I4", "%s deletes %s %s, and no rule says when it may", c.Turn.Controller, r.Kind, r.Name)
		}
	}
	return true
}
