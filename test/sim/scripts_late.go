package sim

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/access"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/world"
)

// LateScenarios are of volumes, ranges of nodes, devices, certificates, tokens and labels. In most
// of them something goes and comes again under its name, or from one hand into another: what a
// stale view and a cache that has not been filled took for gone was deleted, released or given
// away (Sieve, and F2 and F6 of the faults that are tested against).
func LateScenarios() []Scenario {
	background := metav1.DeletePropagationBackground
	claim := func(class string) world.Scene {
		return scene("claim storage of the class "+class, func(w *world.World) { storage.ClaimClass(w.Cluster, class, "") })
	}
	pod := func(name string) world.Scene {
		return scene("create the pod "+name, func(w *world.World) { storage.UsesClaims(w.Cluster, name, "data0") })
	}
	dropPod, dropClaim := removeFirst(kinds.Pods.Name, background), removeFirst(kinds.PersistentVolumeClaims.Name, background)
	made := func(w *world.World, class string) {
		pv := storage.Volume("pv0", storage.Driver, "pv0", 1)
		pv.Spec.AccessModes, pv.Spec.PersistentVolumeReclaimPolicy = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, corev1.PersistentVolumeReclaimRetain
		pv.Spec.StorageClassName = class
		w.Create(storage.VolumeRef("pv0"), pv)
	}
	static := scene("make a volume by hand", func(w *world.World) { made(w, "") })
	ofStorage := []Scenario{
		{Name: "a volume is made, used and deleted", Script: []world.Scene{claim("fast"), pod("user0"), dropPod, dropClaim}},
		{Name: "a claim comes again under its name", Script: []world.Scene{claim("fast"), dropClaim, after(claim("fast"), 1)}},
		{Name: "a claim waits for its pod", Script: []world.Scene{claim("late"), pod("user0")}},
		{Name: "a volume goes from claim to claim", Script: []world.Scene{static, claim("none"), dropClaim, scene("free it", users(storage.FreeVolume)), claim("none")}},
		{Name: "a pod moves", Script: []world.Scene{claim("fast"), pod("user0"), dropPod, after(scene("delete its node", func(w *world.World) {
			w.Delete(cluster.NodeRef("node-0"), background)
		}), 20), pod("user1")}},
		{Name: "claims are heard of late", Script: []world.Scene{
			scene("make a volume by hand", func(w *world.World) { made(w, "late") }),
			scene("claim it", func(w *world.World) {
				w.Silence(kinds.PersistentVolumeClaims.Name, time.Minute)
				storage.ClaimClass(w.Cluster, "late", "")
			}), after(pod("user0"), 1),
		}},
		{Name: "a claim comes again and is heard of late", Script: []world.Scene{
			claim("late"), scene("make a volume by hand", func(w *world.World) { made(w, "late") }),
			scene("it comes again", func(w *world.World) {
				w.Silence(kinds.PersistentVolumeClaims.Name, time.Minute)
				w.API.Change(storage.ClaimRefOf("data0"), func(obj metav1.Object) { obj.SetFinalizers(nil) })
				w.Delete(storage.ClaimRefOf("data0"), background)
				storage.ClaimClass(w.Cluster, "late", "")
			}), after(pod("user0"), 1),
		}},
		{Name: "a pod comes again on its node", Script: []world.Scene{claim("fast"), pod("user0"), dropPod, after(pod("user1"), 30)}},
		{Name: "a kubelet is slow to unmount", Script: []world.Scene{claim("fast"), pod("user0"), scene("it is busy for a minute", func(w *world.World) {
			storage.Busy(w.Cluster, "node-0", time.Minute)
		}), dropPod}},
		{Name: "a volume grows", Script: []world.Scene{claim("old"), scene("ask for more", users(storage.GrowClaim))}},
	}
	for i := range ofStorage {
		ofStorage[i].Cast, ofStorage[i].Horizon = "storage", storage.LetGo+time.Minute
	}
	return append(ofStorage, otherLateScenarios()...)
}

// otherLateScenarios are those of ranges, devices and certificates.
func otherLateScenarios() []Scenario {
	background := metav1.DeletePropagationBackground
	node := scene("a node", func(w *world.World) { network.Comes(w.Cluster, cluster.NodeRef("node-1")) })
	return []Scenario{
		{Name: "a node comes again with other ranges", Cast: "node ranges", Script: []world.Scene{
			node, scene("the other goes", users(network.LeaveNode)), after(scene("and comes again", users(network.PlainNode)), 1), scene("a third", func(w *world.World) { network.Comes(w.Cluster, cluster.NodeRef("node-2")) }),
		}},
		{Name: "a device goes from pod to pod", Cast: "devices", Script: []world.Scene{
			scene("a claim", users(devices.ClaimDevices)), scene("a pod", users(devices.DevicePod)), removeFirst(kinds.Pods.Name, background), scene("another", users(devices.DevicePod)),
		}},
		{Name: "pods are heard of late", Cast: "devices", Script: []world.Scene{
			scene("a claim", users(devices.ClaimDevices)), scene("a pod", func(w *world.World) { w.Silence(kinds.Pods.Name, time.Minute); devices.DevicePod(w.Cluster) }),
		}},
		{Name: "a pod leaves a device", Cast: "devices", Script: []world.Scene{
			scene("a claim", users(devices.ClaimDevices)), scene("a pod", users(devices.DevicePod)), scene("the device cracks", users(devices.TaintDevice)),
		}},
		{Name: "a certificate", Cast: "certificates", Clocks: true, Script: []world.Scene{
			scene("ask", users(access.AskCertificate)), scene("approve", func(w *world.World) {
				access.Condition(w.Cluster, access.RequestRef(w.Cluster), certificatesv1.CertificateApproved)
			}),
		}},
		{Name: "a token signs and expires", Cast: "joins", Script: []world.Scene{
			scene("say where the API server is", users(access.NewClusterInfo)), scene("a token for a minute", func(w *world.World) {
				ref, id := access.JoinTokenRef(w.Cluster)
				access.Token(w.Cluster, ref, id, true, []byte(w.Now.Add(time.Minute).UTC().Format(time.RFC3339)))
			}),
		}},
		{Name: "a token goes while it signs", Cast: "joins", Script: []world.Scene{
			scene("say where the API server is", users(access.NewClusterInfo)), scene("a token", func(w *world.World) {
				ref, id := access.JoinTokenRef(w.Cluster)
				access.Token(w.Cluster, ref, id, true, nil)
			}), scene("it goes", users(access.DropJoinToken)),
		}},
		{Name: "a pod comes again with another label", Cast: "labels", Script: []world.Scene{
			scene("mount with labels", users(storage.MountsLabels)), scene("share a volume", users(storage.ShareVolume)), withLabel("user0", "s0:c1"), withLabel("user1", "s0:c2"),
			removeFirst(kinds.Pods.Name, background), withLabel("user0", "s0:c3"),
		}},
		{Name: "a pool grows while it is asked about", Cast: "pools", Clocks: true, Script: []world.Scene{
			publishPart(0, 2), scene("ask", users(devices.AskPools)), publishPart(1, 1),
		}},
	}
}

// withLabel makes a pod that wants a shared volume with a label.
func withLabel(name, level string) world.Scene {
	return scene("create "+name+" with "+level, func(w *world.World) { storage.WantsLabels(w.Cluster, name, "shared0", false, level) })
}

// publishPart has a driver write down a slice of a pool.
func publishPart(part, have int) world.Scene {
	return scene("publish a slice", func(w *world.World) {
		devices.Publishes(w.Cluster, devices.SliceRef(0, part), "pool0", "node-0", 1, have)
	})
}
