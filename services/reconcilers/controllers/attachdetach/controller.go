// Package attachdetach attaches volumes of CSI drivers to the nodes of the pods that use them, and
// detaches them when no pod there uses them any more. It creates and deletes VolumeAttachments; the
// driver's attacher attaches and detaches the volume and reports the result.
//
//	the key of a volume                     the key of a node
//	  attach it where pods want it            list what is attached in the node's status
//	  send the result to the pods             detach what no pod wants, once the kubelet
//	                                          does not use it any more
//
// Attachments of one volume are created in its own turns, one after the other. So a volume that may
// be attached to one node at a time is never requested on two.
//
// A kubelet mounts what the status of its node lists as attached. So the controller first removes a
// volume from that list, on condition that the node is unchanged since the kubelet reported that it
// does not use the volume, and detaches the volume once that is seen. Both happen in turns of the
// node, and no report of a turn goes out while a command of an earlier one is in flight: no turn
// lists a volume again before it has seen the result of the detach.
//
// A node that is not ready may never report that it has released a volume. The controller detaches
// the volume anyway after six minutes, or at once if an administrator marks the node as out of
// service. The record has the start of the six minutes, so a restart does not begin them again.
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

// Config configures the controller.
type Config struct {
	// Patient is true if no volume is detached merely because its node has not been ready for long.
	Patient bool `json:"patient,omitempty"`
}

// Settings is the configuration in the form that turns record.
type Settings struct {
	Attaching Config `json:"attaching"`
}

// Controller is the controller with the default configuration.
var Controller = New(Config{})

// New returns the controller. A key is a PersistentVolume or a node.
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
		Events: reconcile.EventPromises{
			{Kind: kinds.Pods.Kind, Reasons: []string{attached, refused}},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  reconcile.Body(Settings{config}),
		Observe:   observe,
		Decide:    config.decide,
	}
}

// View is the input of the turn of a volume or a node.
type View struct {
	// Volume is the volume of the key; nil in the turn of a node.
	Volume *corev1.PersistentVolume `json:"volume,omitempty"`
	// Pods are the pods to whose nodes the volume must be attached.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Attachments are the volume's, and any other object under the names that those would have.
	Attachments []*storagev1.VolumeAttachment `json:"attachments,omitempty"`
	// Busy are the nodes of attachments that may still use the volume.
	Busy []string `json:"busy,omitempty"`
	// Told has the content of the Events that those pods received.
	Told []string `json:"told,omitempty"`
	// Asked has, by uid, the time at which the last turn created the attachments.
	Asked map[types.UID]time.Time `json:"asked,omitempty"`

	// Node is the node of the key, Name its name if it is deleted.
	Node *corev1.Node `json:"node,omitempty"`
	Name string       `json:"name,omitempty"`
	// Held are the volumes that are attached to the node, or must be.
	Held []Held `json:"held,omitempty"`
	// Since has, by the uid of the attachment, the time since which the controller waits for the
	// node to release a volume.
	Since map[types.UID]time.Time `json:"since,omitempty"`
	// Leaving has the uids of the attachments that the last report marked for detaching.
	Leaving []types.UID `json:"leaving,omitempty"`
}

// Held is a volume on a node.
type Held struct {
	Attachment storagev1.VolumeAttachment `json:"attachment"`
	// Volume is the name of the volume in the node's status.
	Volume corev1.UniqueVolumeName `json:"volume"`
	// Wanted is true if a pod on the node wants the volume, and for an inline volume, of which that
	// is not known.
	Wanted bool `json:"wanted,omitempty"`
}

// note is the note of the last report.
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
