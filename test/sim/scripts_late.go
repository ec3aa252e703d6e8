package sim

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// LateScenarios are of volumes, ranges of nodes, devices, certificates, tokens and labels. In most
// of them something goes and comes again under its name, or from one hand into another: what a
// stale view and a cache that has not been filled took for gone was deleted, released or given
// away (Sieve, and F2 and F6 of the faults that are tested against).
func LateScenarios() []Scenario {
	background := metav1.DeletePropagationBackground
	claim := func(class string) Scene {
		return scene("claim storage of the class "+class, func(w *World) { w.claim(class, "") })
	}
	pod := func(name string) Scene {
		return scene("create the pod "+name, func(w *World) { w.usesClaims(name, "data0") })
	}
	dropPod, dropClaim := removeFirst(kinds.Pods.Name, background), removeFirst(kinds.PersistentVolumeClaims.Name, background)
	made := func(w *World, class string) {
		pv := volume("pv0", driver, "pv0", 1)
		pv.Spec.AccessModes, pv.Spec.PersistentVolumeReclaimPolicy = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, corev1.PersistentVolumeReclaimRetain
		pv.Spec.StorageClassName = class
		w.create(volumeRef("pv0"), pv)
	}
	static := scene("make a volume by hand", func(w *World) { made(w, "") })
	storage := []Scenario{
		{Name: "a volume is made, used and deleted", Script: []Scene{claim("fast"), pod("user0"), dropPod, dropClaim}},
		{Name: "a claim comes again under its name", Script: []Scene{claim("fast"), dropClaim, claim("fast").after(1)}},
		{Name: "a claim waits for its pod", Script: []Scene{claim("late"), pod("user0")}},
		{Name: "a volume goes from claim to claim", Script: []Scene{static, claim("none"), dropClaim, scene("free it", freeVolume), claim("none")}},
		{Name: "a pod moves", Script: []Scene{claim("fast"), pod("user0"), dropPod, scene("delete its node", func(w *World) {
			w.Delete(nodeRef("node-0"), background)
		}).after(20), pod("user1")}},
		{Name: "claims are heard of late", Script: []Scene{
			scene("make a volume by hand", func(w *World) { made(w, "late") }),
			scene("claim it", func(w *World) { w.Silence(kinds.PersistentVolumeClaims.Name, time.Minute); w.claim("late", "") }), pod("user0").after(1),
		}},
		{Name: "a claim comes again and is heard of late", Script: []Scene{
			claim("late"), scene("make a volume by hand", func(w *World) { made(w, "late") }),
			scene("it comes again", func(w *World) {
				w.Silence(kinds.PersistentVolumeClaims.Name, time.Minute)
				w.api.Change(claimRefOf("data0"), func(obj metav1.Object) { obj.SetFinalizers(nil) })
				w.Delete(claimRefOf("data0"), background)
				w.claim("late", "")
			}), pod("user0").after(1),
		}},
		{Name: "a pod comes again on its node", Script: []Scene{claim("fast"), pod("user0"), dropPod, pod("user1").after(30)}},
		{Name: "a kubelet is slow to unmount", Script: []Scene{claim("fast"), pod("user0"), scene("it is busy for a minute", func(w *World) {
			w.busy("node-0", time.Minute)
		}), dropPod}},
		{Name: "a volume grows", Script: []Scene{claim("old"), scene("ask for more", growClaim)}},
	}
	for i := range storage {
		storage[i].Cast, storage[i].Horizon = "storage", letGo+time.Minute
	}
	return append(storage, otherLateScenarios()...)
}

// otherLateScenarios are those of ranges, devices and certificates.
func otherLateScenarios() []Scenario {
	background := metav1.DeletePropagationBackground
	node := scene("a node", func(w *World) { w.comes(nodeRef("node-1")) })
	return []Scenario{
		{Name: "a node comes again with other ranges", Cast: "node ranges", Script: []Scene{
			node, scene("the other goes", leaveNode), scene("and comes again", plainNode).after(1), scene("a third", func(w *World) { w.comes(nodeRef("node-2")) }),
		}},
		{Name: "a device goes from pod to pod", Cast: "devices", Script: []Scene{
			scene("a claim", claimDevices), scene("a pod", devicePod), removeFirst(kinds.Pods.Name, background), scene("another", devicePod),
		}},
		{Name: "pods are heard of late", Cast: "devices", Script: []Scene{
			scene("a claim", claimDevices), scene("a pod", func(w *World) { w.Silence(kinds.Pods.Name, time.Minute); devicePod(w) }),
		}},
		{Name: "a pod leaves a device", Cast: "devices", Script: []Scene{
			scene("a claim", claimDevices), scene("a pod", devicePod), scene("the device cracks", taintDevice),
		}},
		{Name: "a certificate", Cast: "certificates", Clocks: true, Script: []Scene{
			scene("ask", askCertificate), scene("approve", func(w *World) { w.condition(requestRef(w), certificatesv1.CertificateApproved) }),
		}},
		{Name: "a token signs and expires", Cast: "joins", Script: []Scene{
			scene("say where the API server is", newClusterInfo), scene("a token for a minute", func(w *World) {
				ref, id := joinTokenRef(w)
				w.token(ref, id, true, []byte(w.now.Add(time.Minute).UTC().Format(time.RFC3339)))
			}),
		}},
		{Name: "a token goes while it signs", Cast: "joins", Script: []Scene{
			scene("say where the API server is", newClusterInfo), scene("a token", func(w *World) {
				ref, id := joinTokenRef(w)
				w.token(ref, id, true, nil)
			}), scene("it goes", dropJoinToken),
		}},
		{Name: "a pod comes again with another label", Cast: "labels", Script: []Scene{
			scene("mount with labels", mountsLabels), scene("share a volume", shareVolume), withLabel("user0", "s0:c1"), withLabel("user1", "s0:c2"),
			removeFirst(kinds.Pods.Name, background), withLabel("user0", "s0:c3"),
		}},
		{Name: "a pool grows while it is asked about", Cast: "pools", Clocks: true, Script: []Scene{
			publishPart(0, 2), scene("ask", askPools), publishPart(1, 1),
		}},
	}
}

// withLabel makes a pod that wants a shared volume with a label.
func withLabel(name, level string) Scene {
	return scene("create "+name+" with "+level, func(w *World) { w.wantsLabels(name, "shared0", false, level) })
}

// publishPart has a driver write down a slice of a pool.
func publishPart(part, devices int) Scene {
	return scene("publish a slice", func(w *World) { w.publishes(sliceRef(0, part), "pool0", "node-0", 1, devices) })
}
