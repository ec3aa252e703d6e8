// Package attachdetach has volumes of CSI drivers attached to the nodes of the pods that use
// them, and detached when no pod there uses them any more. It makes and deletes
// VolumeAttachments; the attacher of the driver attaches and detaches, and says how that went.
//
//	a volume                                a node
//	  it is attached where pods want it       its status lists what is attached
//	  the pods are told how that went         what no pod wants is detached, once its kubelet
//	                                          does not use it any more
//
// Attachments of one volume are made in its own turns, one after the other. So a volume that
// may be attached to one node at a time is never asked for on two.
//
// A kubelet mounts what the status of its node lists as attached. So a volume is taken off
// that list first, in the version in which the kubelet said that it does not use it, and
// detached once that was seen. Both are done in the turns of the node, and no report of a turn
// goes out while an effect of an earlier one is under way: a volume is not listed again by a
// turn that has not seen what became of its detachment.
//
// A node that is not ready may never say that it has let go of a volume. After six minutes it
// is detached all the same, and at once where an administrator says that the node is out of
// service. When the six minutes began is on record, so a restart does not begin them anew.
package attachdetach

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The reasons of Events.
const (
	attached = "SuccessfulAttachVolume"
	refused  = "FailedAttachVolume"
)

// Config is what the controller needs to know.
type Config struct {
	// Patient is true where no volume is detached because its node was not ready for long.
	Patient bool `json:"patient,omitempty"`
}

// Settings are a configuration as turns record it.
type Settings struct {
	Attaching Config `json:"attaching"`
}

// Controller has the default configuration.
var Controller = New(Config{})

// New makes the controller. A key is a PersistentVolume or a node.
func New(config Config) reconcile.Controller[View] {
	return reconcile.Controller[View]{
		Name:     "persistentvolume-attach-detach-controller",
		Aliases:  []string{"attachdetach"},
		Identity: "attachdetach-controller",
		Source:   "attachdetach-controller",
		Queue:    "pvcs",
		Owns:     &kinds.PersistentVolumes.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.PersistentVolumes.Kind, Keys: keysOfVolume},
			{Kind: kinds.PersistentVolumeClaims.Kind, Keys: keysOfClaim},
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
			{Kind: kinds.Nodes.Kind, Keys: keysOfNode},
			{Kind: kinds.VolumeAttachments.Kind, Keys: keysOfAttachment},
			{Kind: kinds.CSIDrivers.Kind, Keys: keysOfDriver},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.VolumeAttachments.Name, Fields: []string{".spec.attacher", ".spec.nodeName", ".spec.source.persistentVolumeName"},
				Copies: []reconcile.Copy{{To: ".spec.source.persistentVolumeName", From: ".metadata.name"}}},
			{Verb: events.VerbPatch, Kind: kinds.Nodes.Name, Subresource: "status", On: reconcile.Itself, Unchanged: true, Fields: []string{".status.volumesAttached"}},
			{Verb: events.VerbDelete, Kind: kinds.VolumeAttachments.Name},
		},
		Tells: reconcile.Tells{
			{Kind: kinds.Pods.Kind, Reasons: []string{attached, refused}},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  reconcile.Body(Settings{config}),
		Observe:   observe,
		Decide:    config.decide,
	}
}

// View is what the turn of one volume or node can see.
type View struct {
	// Volume is the one whose turn it is; nil in the turn of a node.
	Volume *corev1.PersistentVolume `json:"volume,omitempty"`
	// Pods are those on whose nodes it is to be attached.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Attachments are its own, and what there is under the names that those would have.
	Attachments []*storagev1.VolumeAttachment `json:"attachments,omitempty"`
	// Busy are the nodes of attachments that are waited for, since they may use the volume.
	Busy []string `json:"busy,omitempty"`
	// Told is what those pods were told.
	Told []string `json:"told,omitempty"`
	// Asked is when the attachments of the last turn that made any were asked for, by their uid.
	Asked map[types.UID]time.Time `json:"asked,omitempty"`

	// Node is the one whose turn it is, Name its name where it is gone.
	Node *corev1.Node `json:"node,omitempty"`
	Name string       `json:"name,omitempty"`
	// Held are the volumes that are attached to it, or are to be.
	Held []Held `json:"held,omitempty"`
	// Since is since when it is waited for the node to let go of volumes, by the uid of the
	// attachment.
	Since map[types.UID]time.Time `json:"since,omitempty"`
	// Leaving are the uids of the attachments that were to leave the node by the last report.
	Leaving []types.UID `json:"leaving,omitempty"`
}

// Held is a volume on a node.
type Held struct {
	Attachment storagev1.VolumeAttachment `json:"attachment"`
	// Volume is what the node calls it.
	Volume corev1.UniqueVolumeName `json:"volume"`
	// Wanted is true where a pod on the node wants it, and for what a pod names without a
	// claim, of which that is not known.
	Wanted bool `json:"wanted,omitempty"`
}

// note is what comes back with the last report.
type note struct {
	Told    []string                `json:"told,omitempty"`
	Since   map[types.UID]time.Time `json:"since,omitempty"`
	Leaving []types.UID             `json:"leaving,omitempty"`
}

func (c Config) decide(v View, now time.Time) reconcile.Decision {
	if v.Volume != nil {
		return v.attach(now)
	}
	return v.detach(c, now)
}
