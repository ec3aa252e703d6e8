// Package selinuxwarning warns about pods that cannot use a volume together on a node with
// SELinux. Such a node may mount a volume with a label. Then all its pods there need the same
// label, and none of them may have the volume relabelled file by file instead.
//
//	a volume                                 a pod
//	  its pods are compared in pairs           it is told of volumes that its own containers
//	  both of a conflicting pair are told      mount with two labels
//
// The controller writes nothing but Events. A metric shows the present conflicts.
//
// The key of a volume is its unique name, as nodes use it, because two PersistentVolumes may
// be the same volume, and a pod may name one without a claim. So one replica judges all pods
// that use a volume in one turn, and it alone counts their conflicts. The controller does not
// check whether the pods are on one node, because they may be later.
//
// A conflict is reported once, to both pods. The outcome of the turn records what was
// reported, so that a restart reports nothing again.
package selinuxwarning

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The reasons of Events.
const (
	labels   = "SELinuxLabelConflict"
	policies = "SELinuxChangePolicyConflict"
	multiple = "MultipleSELinuxLabels"
)

// Controller reports conflicts. A key is a pod, or the name of a volume without a namespace.
var Controller = reconcile.Controller[View]{
	Name:   "selinux-warning-controller",
	Source: "selinux_warning",
	Queue:  "selinux_warning",
	Owns:   &kinds.Pods.Kind,
	Inputs: []reconcile.Input{
		{Kind: kinds.Pods.Kind, Keys: keysOfPod},
		{Kind: kinds.PersistentVolumeClaims.Kind, Keys: keysOfClaim},
		{Kind: kinds.PersistentVolumes.Kind, Keys: keysOfVolume},
		{Kind: kinds.CSIDrivers.Kind, Keys: keysOfDriver},
	},
	Events: reconcile.EventPromises{
		{Kind: kinds.Pods.Kind, Reasons: []string{labels, policies}},
		{Kind: kinds.Pods.Kind, On: reconcile.Itself, Reasons: []string{multiple}},
	},
	Remembers: true,
	Metrics:   metrics,
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one pod or volume can see.
type View struct {
	// Pod is the pod whose turn it is; nil in the turn of a volume.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Found are the pod's volumes whose backing volume is known.
	Found []string `json:"found,omitempty"`
	// Told are the volumes about which the pod was told that they are mounted with two
	// labels.
	Told []string `json:"told,omitempty"`

	// Name is the name of the volume whose turn it is.
	Name string `json:"name,omitempty"`
	// Mounts is true if nodes may mount the volume with a label.
	Mounts bool `json:"mounts,omitempty"`
	// Uses are the pods that use the volume and have not ended.
	Uses []Use `json:"uses,omitempty"`
	// Known are the pods that were told of all their conflicts, by uid, with the digest of
	// what they wanted then.
	Known map[types.UID]string `json:"known,omitempty"`
}

// Use is a pod that uses the volume.
type Use struct {
	Pod *corev1.Pod `json:"pod"`
	// Volumes are the pod's names for the volume, by which its containers mount it.
	Volumes []string `json:"volumes"`
}

// note is what the last report recorded.
type note struct {
	Volumes []string             `json:"volumes,omitempty"`
	Known   map[types.UID]string `json:"known,omitempty"`
}

func decide(v View, now time.Time) reconcile.Decision {
	if v.Pod != nil {
		return v.within()
	}
	return v.compare(now)
}
