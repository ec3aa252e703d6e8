package frozen

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
)

// Ours shows a world to one of our controllers and returns the effects of one decision, if every command
// succeeds.
//
// Of the conditions of commands only those of upstream's deletes are compared ([effect.WithoutExtraConditions]), and no others (uid,
// resourceVersion, a living adopter): upstream has few, and asks the API server instead. A law of every
// controller demands ours.
func Ours(c reconcile.Any, key events.Key, world []runtime.Object, now time.Time) ([]effect.Effect, error) {
	seen, err := Snapshot(world)
	if err != nil {
		return nil, err
	}
	decision, ok := c.Ask(seen, key, now)
	if !ok {
		return nil, nil
	}
	if err := Promised(c.Describe(), key, seen, decision); err != nil {
		return nil, err
	}
	for _, command := range decision.Commands {
		if err := current(command, world); err != nil {
			return nil, err
		}
	}
	return EffectsOf(decision)
}

// ErrBeyondPromise is the error for a decision that exceeds the promise of its controller.
var ErrBeyondPromise = errors.New("it is beyond the promise")

// Promised returns an error if a decision exceeds the controller's promise.
func Promised(d reconcile.Description, key events.Key, seen reconcile.Snapshot, decision reconcile.Decision) error {
	t := events.Turn{Controller: d.Name, Key: key}
	kind := key.Kind
	if kind == "" && d.Owns != nil {
		kind = d.Owns.Name
	}
	own, there := seen.Get(kind, key.Namespace, key.Name)
	if there {
		t.Kind, t.UID, t.ResourceVersion = kind, own.GetUID(), own.GetResourceVersion()
	}
	fits := d.Fits(t, func() metav1.Object { return own }, func(ref events.Ref) metav1.Object {
		obj, _ := seen.Get(ref.Kind, ref.Namespace, ref.Name)
		return obj
	})
	for _, command := range decision.Commands {
		if err := fits(command); err != nil {
			return fmt.Errorf("%s of %v: %w: %w", command.Verb, command.Ref(), ErrBeyondPromise, err)
		}
	}
	return nil
}

// EffectsOf are the effects of a decision, if every command succeeds.
//
// Errors: the verb of a command is unknown.
func EffectsOf(decision reconcile.Decision) ([]effect.Effect, error) {
	var effects []effect.Effect
	for _, command := range decision.Commands {
		if command.Verb != events.VerbRecord {
			e, err := effectOf(command)
			if err != nil {
				return nil, err
			}
			effects = append(effects, e)
		}
		if n := command.OnApplied; n != nil {
			message := strings.ReplaceAll(n.Message, "{name}", command.Name)
			effects = append(effects, effect.Told(n.About.Name, n.Type, n.Reason, message))
		}
	}
	return effects, nil
}

// current returns an error if a command changes or deletes an object, or a version of it, that does not
// exist.
func current(c events.Command, world []runtime.Object) error {
	if c.Verb != events.VerbUpdate && c.Verb != events.VerbPatch && c.Verb != events.VerbDelete {
		return nil
	}
	depends := c.If
	if depends == nil {
		depends = &events.If{}
	}
	uid, version := depends.UID, depends.ResourceVersion
	if c.Verb == events.VerbUpdate {
		var next metav1.PartialObjectMetadata
		if err := json.Unmarshal(c.Body, &next); err != nil {
			return fmt.Errorf("read what it updates: %w", err)
		}
		uid, version = next.UID, next.ResourceVersion
	}
	for _, obj := range world {
		was, ok := obj.(metav1.Object)
		if ok && was.GetName() == c.Name && was.GetUID() == uid && (version == was.GetResourceVersion() || version == "" && c.Verb != events.VerbUpdate) {
			return nil
		}
	}
	return fmt.Errorf("it is about uid %q and version %q of %v, which is not there", uid, version, c.Ref())
}

func effectOf(c events.Command) (effect.Effect, error) {
	resource := c.Kind.Resource()
	if c.Subresource != "" {
		resource += "/" + c.Subresource
	}
	switch c.Verb {
	case events.VerbCreate:
		return effect.Created(resource, c.Namespace, c.Name, c.Body), nil
	case events.VerbUpdate:
		return effect.Updated(resource, c.Name, c.Body), nil
	case events.VerbPatch:
		return effect.Patched(resource, c.Name, c.PatchType, c.Body), nil
	case events.VerbDelete:
		return effect.Removed(resource, c.Name, OptionsOf(c)), nil
	}
	return effect.Effect{}, fmt.Errorf("a command has the unknown verb %q", c.Verb)
}

// OptionsOf are the options with which the writer carries out a delete.
func OptionsOf(c events.Command) metav1.DeleteOptions {
	how := metav1.DeleteOptions{GracePeriodSeconds: c.GraceSeconds}
	if c.Propagation != "" {
		how.PropagationPolicy = &c.Propagation
	}
	if c.If == nil {
		return how
	}
	how.Preconditions = &metav1.Preconditions{}
	if c.If.UID != "" {
		how.Preconditions.UID = &c.If.UID
	}
	if c.If.ResourceVersion != "" {
		how.Preconditions.ResourceVersion = &c.If.ResourceVersion
	}
	return how
}

// Snapshot is the view of a world that our controllers have.
//
// Errors: the world has an object of an unknown kind.
func Snapshot(world []runtime.Object) (*reconciletest.World, error) {
	seen := reconciletest.NewWorld(kinds.Deployments.Kind, kinds.ReplicaSets.Kind, kinds.Pods.Kind)
	for _, obj := range world {
		switch obj := obj.(type) {
		case *appsv1.Deployment:
			seen.Put(kinds.Deployments.Kind, obj)
		case *appsv1.ReplicaSet:
			seen.Put(kinds.ReplicaSets.Kind, obj)
		case *appsv1.DaemonSet:
			seen.Put(kinds.DaemonSets.Kind, obj)
		case *corev1.Node:
			seen.Put(kinds.Nodes.Kind, obj)
		case *appsv1.StatefulSet:
			seen.Put(kinds.StatefulSets.Kind, obj)
		case *appsv1.ControllerRevision:
			seen.Put(kinds.ControllerRevisions.Kind, obj)
		case *corev1.ReplicationController:
			seen.Put(kinds.ReplicationControllers.Kind, obj)
		case *corev1.Pod:
			seen.Put(kinds.Pods.Kind, obj)
		case *corev1.Secret: // only its metadata is seen
			seen.Put(kinds.Secrets.Kind, &metav1.PartialObjectMetadata{ObjectMeta: obj.ObjectMeta})
		default:
			if err := rarer(seen, obj); err != nil {
				return nil, err
			}
		}
	}
	return seen, nil
}

// rarer adds an object of another kind than workloads to the view.
func rarer(seen *reconciletest.World, obj runtime.Object) error {
	switch obj := obj.(type) {
	case *corev1.Service:
		seen.Put(kinds.Services.Kind, obj)
	case *corev1.Endpoints:
		seen.Put(kinds.Endpoints.Kind, obj)
	case *discoveryv1.EndpointSlice:
		seen.Put(kinds.EndpointSlices.Kind, obj)
	case *corev1.PersistentVolume:
		seen.Put(kinds.PersistentVolumes.Kind, obj)
	case *corev1.PersistentVolumeClaim:
		seen.Put(kinds.PersistentVolumeClaims.Kind, obj)
	case *storagev1.CSIDriver:
		seen.Put(kinds.CSIDrivers.Kind, obj)
	case *storagev1.VolumeAttachment:
		seen.Put(kinds.VolumeAttachments.Kind, obj)
	case *storagev1.VolumeAttributesClass:
		seen.Put(kinds.VolumeAttributesClasses.Kind, obj)
	case *certificatesv1.CertificateSigningRequest:
		seen.Put(kinds.CertificateSigningRequests.Kind, obj)
	case *certificatesv1beta1.PodCertificateRequest:
		seen.Put(kinds.PodCertificateRequests.Kind, obj)
	case *certificatesv1beta1.ClusterTrustBundle:
		seen.Put(kinds.ClusterTrustBundles.Kind, obj)
	case *apiserverinternalv1alpha1.StorageVersion:
		seen.Put(kinds.StorageVersions.Kind, obj)
	case *coordinationv1.Lease:
		seen.Put(kinds.Leases.Kind, obj)
	case *schedulingv1alpha2.PodGroup:
		seen.Put(kinds.PodGroups.Kind, obj)
	case *storagemigrationv1beta1.StorageVersionMigration:
		seen.Put(kinds.StorageVersionMigrations.Kind, obj)
	case *networkingv1.ServiceCIDR:
		seen.Put(kinds.ServiceCIDRs.Kind, obj)
	case *networkingv1.IPAddress:
		seen.Put(kinds.IPAddresses.Kind, obj)
	case *resourcev1alpha3.ResourcePoolStatusRequest:
		seen.Put(kinds.ResourcePoolStatusRequests.Kind, obj)
	case *resourcev1.ResourceSlice:
		seen.Put(kinds.ResourceSlices.Kind, obj)
	case *resourcev1.ResourceClaim:
		seen.Put(kinds.ResourceClaims.Kind, obj)
	case *rbacv1.ClusterRole:
		seen.Put(kinds.ClusterRoles.Kind, obj)
	default:
		return fmt.Errorf("the world holds a %T", obj)
	}
	return nil
}
