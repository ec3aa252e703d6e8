// Package persistentvolumebinder binds PersistentVolumeClaims to PersistentVolumes, asks
// provisioners for missing volumes, and releases volumes whose claims are deleted.
//
//	a claim                             a volume
//	  finds a volume, or asks for one     is available while no claim has it
//	  the volume gets its name            is bound while its claim says so
//	  it gets the volume's name           is given back if its claim has another
//	  it says that it is bound            is released when its claim is deleted
//	  is lost when its volume is deleted  says why its storage is not deleted
//
// A binding is four writes to two objects, and it may stop after each: another replica goes on,
// or another program has written in between. So each turn looks at the current state and makes
// the first missing write. The order keeps two claims off one volume:
//
//  1. the claim's turn writes the claim into the volume, at the version that was seen free;
//  2. the claim's turn writes the volume into the claim, once the volume is seen to have it;
//  3. the volume's turn says that it is bound, once the claim is seen to have it;
//  4. the claim's turn says that it is bound, once the volume is seen to say so.
//
// A volume has room for one claim, so of two claims one gets a conflict at the first write. A
// claim that finds two volumes can have one name, which cannot be changed; the other volume is
// given back.
//
// The view of claims may be older than the view of volumes. The controller releases a volume,
// or calls a claim lost, only after it has asked the API server for the other object.
//
// Provisioners of storage drivers create and delete the volumes. They act on the annotations
// that this controller writes. The controller itself creates and deletes nothing.
package persistentvolumebinder

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is the configuration of the controller.
type Config struct {
	// Static is true if the controller asks no provisioner for volumes.
	Static bool `json:"staticVolumes,omitempty"`
}

// Controller is the binder with upstream's defaults. A key is a claim or a volume.
var Controller = New(Config{})

// New returns the controller.
func New(config Config) reconcile.Controller[View] {
	return reconcile.Controller[View]{
		Name:     "persistentvolume-binder-controller",
		Aliases:  []string{"persistentvolume-binder"},
		Identity: "persistent-volume-binder",
		Source:   "persistentvolume-controller",
		Queue:    "claims",
		Owns:     &kinds.PersistentVolumeClaims.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.PersistentVolumeClaims.Kind, Keys: keysOfClaim},
			{Kind: kinds.PersistentVolumes.Kind, Keys: keysOfVolume},
			{Kind: kinds.StorageClasses.Kind, Keys: keysOfClass},
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumeClaims.Name, On: reconcile.Itself, Changes: []string{
				".spec.volumeName", ".spec.storageClassName", note(completed), note(byController), note(provisioner), note(betaProvisioner), note(migratedTo),
			}},
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumeClaims.Name, Subresource: "status", On: reconcile.Itself},
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumes.Name, On: reconcile.Itself, Changes: []string{".spec.claimRef", ".metadata.finalizers", note(byController), note(migratedTo)}},
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumes.Name, Changes: []string{".spec.claimRef", note(byController)}, Copies: []reconcile.Copy{
				{To: ".spec.claimRef.uid", From: ".metadata.uid"}, {To: ".spec.claimRef.name", From: ".metadata.name"}, {To: ".spec.claimRef.namespace", From: ".metadata.namespace"},
			}},
			{Verb: events.VerbUpdate, Kind: kinds.PersistentVolumes.Name, Subresource: "status", On: reconcile.Itself},
			{Verb: events.VerbAsk, Kind: kinds.PersistentVolumes.Name},
			{Verb: events.VerbAsk, Kind: kinds.PersistentVolumeClaims.Name},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.PersistentVolumeClaims.Kind, On: reconcile.Itself, Reasons: []string{
				waitForConsumer, waitForPod, failedBinding, lost, misbound, provisioningFailed, externalProvisioning,
			}},
			{Kind: kinds.PersistentVolumeClaims.Kind, Reasons: []string{mismatch}}, // a volume's turn records them, too
			{Kind: kinds.PersistentVolumes.Kind, On: reconcile.Itself, Reasons: []string{mismatch, unknownPolicy, failedDelete, failedRecycle}},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  config.settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			v.Static = config.Static
			return v, ok
		},
		Decide: decide,
	}
}

func (c Config) settings() json.RawMessage {
	if c == (Config{}) {
		return nil
	}
	return reconcile.Body(c)
}

// note is the path of an annotation.
func note(name string) string { return ".metadata.annotations['" + name + "']" }

// The annotations and finalizers.
//
// Upstream: k8s.io/component-helpers/storage/volume.
const (
	completed       = "pv.kubernetes.io/bind-completed"
	byController    = "pv.kubernetes.io/bound-by-controller"
	provisionedBy   = "pv.kubernetes.io/provisioned-by"
	migratedTo      = "pv.kubernetes.io/migrated-to"
	resizedFrom     = "volume.alpha.kubernetes.io/pre-resize-capacity"
	selectedNode    = "volume.kubernetes.io/selected-node"
	provisioner     = "volume.kubernetes.io/storage-provisioner"
	betaProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	inTreeGuard     = "kubernetes.io/pv-controller"
	externalGuard   = "external-provisioner.volume.kubernetes.io/finalizer"
)

// View is what the turn of one claim or volume can see.
type View struct {
	// Claim is the claim whose turn it is; nil in the turn of a volume.
	Claim *corev1.PersistentVolumeClaim `json:"claim,omitempty"`
	// Named is the volume that the claim names; nil if it is not seen.
	Named *corev1.PersistentVolume `json:"named,omitempty"`
	// Volumes are the volumes that a claim which names none may have, by name.
	Volumes []*corev1.PersistentVolume `json:"volumes,omitempty"`
	// Class is the claim's StorageClass; nil if there is none.
	Class *storagev1.StorageClass `json:"class,omitempty"`
	// Asked is when the controller asked the provisioner for a volume; zero if that is not
	// known.
	Asked time.Time `json:"asked,omitzero"`
	// Default is the name of the default StorageClass, if the claim has none.
	Default string `json:"default,omitempty"`
	// Waiting are the pods of the claim that have no node yet, by name. They are collected only
	// if the claim waits for a pod.
	Waiting []string `json:"waiting,omitempty"`
	// Static is true if the controller asks no provisioner for volumes.
	Static bool `json:"static,omitempty"`

	// Volume is the volume whose turn it is; nil in the turn of a claim.
	Volume *corev1.PersistentVolume `json:"persistentVolume,omitempty"`
	// Holder is the claim that the volume names.
	Holder *corev1.PersistentVolumeClaim `json:"holder,omitempty"`

	// Live is what the API server said of the other object.
	Live *Live `json:"live,omitempty"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
	// Told are the Events of the last report, at ToldAt.
	Told   []string  `json:"told,omitempty"`
	ToldAt time.Time `json:"toldAt,omitzero"`
}

// Live is what the API server said of the claim that a volume names, or of the volume that a
// claim names. The question was decided on the key's object as it is seen now.
type Live struct {
	// There reports whether the object exists.
	There bool `json:"there,omitempty"`
	// Claim is the uid of the claim, or of the claim that the volume names.
	Claim types.UID `json:"claim,omitempty"`
	At    time.Time `json:"at"`
}

// lasting is for how long an answer is valid.
const lasting = 30 * time.Second

func decide(v View, now time.Time) reconcile.Decision {
	if v.Volume != nil {
		return v.decideVolume(now)
	}
	return v.decideClaim(now)
}
