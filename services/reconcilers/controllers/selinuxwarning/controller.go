// Package selinuxwarning warns of pods that cannot use a volume together on a node with
// SELinux. Such a node may mount a volume with a label: then all its pods there need the same
// one, and none of them may have the volume relabelled file by file instead.
//
//	a volume                                 a pod
//	  its pods are compared, two by two,       it is told of volumes that its own containers
//	  and both are told where they conflict    mount with two labels
//
// Nothing is written but Events. Which pods conflict now is a metric as well.
//
// The key of a volume is its unique name, as nodes have it: two PersistentVolumes may be one
// volume, and a pod may name one without a claim. So all pods that use a volume are judged in
// one turn, by one replica, which alone counts their conflicts. Whether they are on one node
// is not asked: they may be tomorrow.
//
// A conflict is told once, to both pods. What was told comes back with the outcome of the
// turn, so that a restart tells nothing again.
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

// Controller warns. A key is a pod, or the name of a volume without a namespace.
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
	Tells: reconcile.Tells{
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
	// Pod is the one whose turn it is; nil in the turn of a volume.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Found are those of its volumes of which it is known what is behind them.
	Found []string `json:"found,omitempty"`
	// Told are those of which it was told that they are mounted with two labels.
	Told []string `json:"told,omitempty"`

	// Name is that of the volume whose turn it is.
	Name string `json:"name,omitempty"`
	// Mounts is true where nodes may mount the volume with a label.
	Mounts bool `json:"mounts,omitempty"`
	// Uses are the pods that use the volume and have not ended.
	Uses []Use `json:"uses,omitempty"`
	// Known are those that were told of all their conflicts, by uid, with the digest of what
	// they wanted then.
	Known map[types.UID]string `json:"known,omitempty"`
}

// Use is a pod that uses the volume.
type Use struct {
	Pod *corev1.Pod `json:"pod"`
	// Volumes are those of its volumes that are this one, by which its containers mount it.
	Volumes []string `json:"volumes"`
}

// note is what comes back with the last report.
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
