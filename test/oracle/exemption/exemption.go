package exemption

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// Exemption is a difference that the comparison leaves out, or that no world has.
type Exemption struct {
	ID string
	// Who is the controller.
	Who string
	// None is the reason why a user sees no difference. If it is empty, a row of docs/differences.md names
	// the exemption.
	None string

	used *atomic.Int64
}

// Used is on how many effects or worlds the exemption was used.
func (e Exemption) Used() int64 { return e.used.Load() }

func exempt(id, who, none string) Exemption {
	return Exemption{ID: id, Who: who, None: none, used: &atomic.Int64{}}
}

// Reasons why no user sees a difference, for several exemptions.
const (
	nextTurn = "ours does the rest in its next turn, and that is compared"
	chance   = "upstream goes by the order of a map: any of its answers would do"
	sameEnd  = "what is there in the end is the same"
)

// Exemptions are all exemptions.
var Exemptions = []Exemption{
	exempt("one-update", "all", sameEnd),
	exempt("delete-conditions", "all", "the object that was seen is deleted alike; another of its name is spared"),
	exempt("change-of-hands", "all", nextTurn),
	exempt("any-name", "all", ""),

	exempt("scaled-in-one-event", "Deployment", ""),
	exempt("new-set-first", "Deployment", nextTurn),
	exempt("resumed-and-rolled-back", "Deployment", sameEnd),
	exempt("rolled-back-first", "Deployment", nextTurn),
	exempt("kept-while-it-grows", "Deployment", nextTurn),
	exempt("numbered-first", "Deployment", nextTurn),
	exempt("note-of-size", "Deployment", ""),
	exempt("told-of-new-set", "Deployment", ""),
	exempt("low-max-replicas", "Deployment", ""),
	exempt("rollback-and-recreate", "Deployment", ""),
	exempt("recreates-given-sets", "Deployment", ""),
	exempt("words-of-the-last-set", "Deployment", ""),
	exempt("revision-is-no-number", "Deployment", ""),
	exempt("refused-second-write", "Deployment", "an API server refuses upstream's second write of one version, and it looks again"),
	exempt("taken-is-told", "Deployment, StatefulSet", ""),
	exempt("reported-all-the-same", "Deployment", ""),
	exempt("event-again", "Deployment", "equal Events are one, which counts"),

	exempt("range-without-its-pair", "node IPAM", ""),
	exempt("one-block-of-two", "node IPAM", ""),
	exempt("node-outside", "node IPAM", ""),
	exempt("second-range-alone", "node IPAM", ""),
	exempt("next-range-after-a-failure", "node IPAM", ""),
	exempt("refused-range-told-at-once", "node IPAM", ""),

	exempt("answered-and-deleted", "requests about pools", sameEnd),
	exempt("slices-disagree", "requests about pools", ""),

	exempt("twins-among-pods", "ReplicaSet, ReplicationController", chance),

	exempt("revision-first", "StatefulSet", nextTurn),
	exempt("no-report-in-between", "StatefulSet", "of a set that is being deleted, once its revision is lost"),
	exempt("claims-first", "StatefulSet", nextTurn),
	exempt("one-step", "StatefulSet", nextTurn),
	exempt("pod-updated-without-effect", "StatefulSet", ""),
	exempt("owner-at-once", "StatefulSet", ""),
	exempt("current-until-gone", "StatefulSet", ""),
	exempt("claim-that-leaves", "StatefulSet", ""),
	exempt("name-is-taken", "StatefulSet", ""),
	exempt("orphan-of-a-set-that-goes", "StatefulSet", ""),
	exempt("claim-told-twice", "StatefulSet", ""),
	exempt("owner-refused", "StatefulSet", ""),
	exempt("first-failure", "StatefulSet", ""),
	exempt("history-lost", "StatefulSet", ""),
	exempt("available-by-the-clock", "DaemonSet, StatefulSet", ""),

	exempt("conflict-after-claims", "ephemeral volume", nextTurn),

	exempt("any-of-the-nodes", "attaching volumes", chance),
	exempt("each-pod-told-of-the-other-node", "attaching volumes", ""),
	exempt("pods-told-of-refused-attachments", "attaching volumes", ""),

	exempt("conflict-on-the-way", "SELinux warning", ""),

	exempt("version-in-patch", "volume expander", "it is a condition of ours, and the writer puts it there"),
	exempt("empty-patch", "volume expander", "it changes nothing"),

	exempt("report-again", "DaemonSet", sameEnd),
	exempt("daemon-revision-first", "DaemonSet", nextTurn),
	exempt("revisions-in-order-first", "DaemonSet", nextTurn),
	exempt("successor-at-once", "DaemonSet", ""),
	exempt("any-old-daemon", "DaemonSet", chance),
	exempt("twin-revision", "DaemonSet", ""),
	exempt("failed-one-by-one", "DaemonSet", nextTurn),
	exempt("old-revisions-go", "DaemonSet", ""),
	exempt("pods-claimed-first", "DaemonSet, StatefulSet", ""),

	exempt("held-pod", "pod garbage collector", "it has been deleted with no time left, and what holds it is not the controller's"),
	exempt("failed-first", "pod garbage collector", nextTurn),
	exempt("conditions-of-lost-pods", "pod garbage collector", "stories and laws of the controller are about it"),

	exempt("remembered-times", "Endpoints, EndpointSlice", ""),
	exempt("sync-of-pods", "Endpoints, EndpointSlice", "the second sync of a world that stands still would do the same again"),
	exempt("left-empty", "EndpointSlice", ""),
	exempt("any-place", "EndpointSlice", chance),
	exempt("hints-by-chance", "EndpointSlice", chance),
	exempt("update-without-change", "EndpointSlice", "ours sends no update that changes nothing, so none is refused"),
	exempt("node-not-there", "EndpointSlice", ""),

	exempt("any-slice-refused", "EndpointSlice", chance),
	exempt("other-slices-all-the-same", "EndpointSlice, EndpointSlice mirroring", ""),

	exempt("any-mirror", "EndpointSlice mirroring", chance),
	exempt("left-out-again", "EndpointSlice mirroring", ""),
	exempt("mirrors-that-leave", "EndpointSlice mirroring", "the collector takes them away"),
	exempt("mirror-taken-twice", "EndpointSlice mirroring", "the API server refuses it, and upstream tries again"),
	exempt("twins-among-mirrors", "EndpointSlice mirroring", chance),

	exempt("taint-tried-again", "node lifecycle", ""),
	exempt("silence-that-cannot-be-said", "node lifecycle", ""),
	exempt("migration-after-the-last", "storage version migrator", nextTurn),
	exempt("stored-versions-after-a-failure", "storage version migrator", ""),
	exempt("range-that-stays", "ServiceCIDR", ""),
	exempt("ready-though-unprotected", "ServiceCIDR", ""),

	exempt("role-as-it-is", "ClusterRole aggregation", ""),

	exempt("which-pod-is-blamed", "Job", chance),
	exempt("pods-that-leave-ended-jobs", "Job", "upstream lets them go in the sync that says so, and leaves none"),
	exempt("twins-among-job-pods", "Job", chance),
	exempt("adopted-with-finalizer", "Job", chance),
	exempt("given-up-while-it-ends", "Job", "one that is being deleted gives no pod up; the garbage collector ends it"),
	exempt("failed-and-gone", "Job", ""),
	exempt("why-it-ends-first", "Job", ""),
	exempt("told-when-written", "Job", ""),
	exempt("ready-until-deleted", "Job", ""),
	exempt("deadline-where-none-is-created", "Job", "its namespace is being terminated; upstream waits five minutes for what cannot be created, and does not say why it ends"),
	exempt("let-go-when-counted", "Job", ""),

	exempt("irregular-schedule", "CronJob", ""),
	exempt("every-with-deadline", "CronJob", ""),
	exempt("run-unknown-to-status", "CronJob", ""),
	exempt("cleared-before-it-is-seen", "CronJob", ""),
	exempt("told-of-taken-name", "CronJob", ""),
	exempt("cleared-at-the-next-look", "CronJob", ""),

	exempt("several-autoscalers", "HorizontalPodAutoscaler", "upstream notices when it has looked at both, in any order"),
	exempt("scaled-meanwhile", "HorizontalPodAutoscaler", "upstream's clock goes on between its attempts; ours has one moment"),
	exempt("average-of-none", "HorizontalPodAutoscaler", chance),
	exempt("windows-of-policies", "HorizontalPodAutoscaler", ""),
	exempt("many-events", "HorizontalPodAutoscaler", "upstream's client drops what is told too fast"),
	exempt("which-pod-says-nothing", "HorizontalPodAutoscaler", chance),

	exempt("why-no-size", "PodDisruptionBudget", chance),
	exempt("which-budget", "PodDisruptionBudget", ""),
	exempt("budget-told-again", "PodDisruptionBudget", ""),
	exempt("allowed-since", "PodDisruptionBudget", ""),
	exempt("not-deleted", "PodDisruptionBudget", ""),

	exempt("remains-with-pods", "Namespace", ""),
	exempt("refused-and-goes-on", "Namespace", ""),

	exempt("evictions-called-off", "taint eviction", ""),
	exempt("called-off-when-deleted", "device taint eviction", ""),
	exempt("refused-claims-told", "ResourceClaim", ""),
	exempt("finalizer-of-an-unused-claim", "ResourceClaim", ""),
	exempt("device-classes-of-one-name", "ResourceQuota", chance),
	exempt("to-the-second", "legacy tokens", "upstream's clock and ours stand still at another fraction of a second"),
	exempt("deleted-again", "requests for certificates", ""),
	exempt("token-deleted-again", "bootstrap tokens", ""),
	exempt("token-tried-again", "bootstrap tokens", ""),
	exempt("serial-numbers", "requests for certificates", "serial numbers of certificates, and so their signatures, are drawn at random; all else of them is compared"),
	exempt("choice-of-volumes", "PersistentVolume binder", chance),
	exempt("order-of-pods", "PersistentVolume binder", chance),
	exempt("volumes-of-nodes", "PersistentVolume binder", ""),
	exempt("provisioner-asked-again", "PersistentVolume binder", ""),
	exempt("type-of-secret", "legacy tokens", "what is written says what was so already"),
}

// Uses counts one use of an exemption.
func Uses(id string) {
	Exemptions[indexOf(id)].used.Add(1)
}

func indexOf(id string) int {
	i := slices.IndexFunc(Exemptions, func(e Exemption) bool { return e.ID == id })
	if i < 0 {
		panic(fmt.Sprintf("there is no exemption %q", id))
	}
	return i
}

// Lets counts a use of an exemption if the effects, or the lines, have changed.
func Lets[T comparable](id string, before, after []T) []T {
	if !slices.Equal(before, after) {
		Uses(id)
	}
	return after
}
