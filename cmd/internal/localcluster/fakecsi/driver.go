package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"regexp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// driverName is the name of the CSIDriver, and the provisioner of its classes.
const driverName = "simulated.millrace.io"

// Annotations and finalizers of volumes.
const (
	provisioner          = "volume.kubernetes.io/storage-provisioner"
	betaProvisioner      = "volume.beta.kubernetes.io/storage-provisioner"
	selectedNode         = "volume.kubernetes.io/selected-node"
	provisionedBy        = "pv.kubernetes.io/provisioned-by"
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)

// attacherFinalizer is on attachments, and on volumes that were attached.
var attacherFinalizer = "external-attacher/" + regexp.MustCompile(`[^a-zA-Z0-9-]`).ReplaceAllString(driverName, "-")

// workers is how many keys are reconciled concurrently.
const workers = 8

// kind is the kind of a key's object.
type kind string

const (
	aClaim       kind = "claim"
	aVolume      kind = "volume"
	anAttachment kind = "attachment"
)

// key is the work queue key of an object.
type key struct {
	kind            kind
	namespace, name string
}

// driver reconciles objects, each on a live read from the API server. It uses its informers only
// to queue keys, and decides nothing on their caches.
type driver struct {
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[key]
}

func newDriver(client kubernetes.Interface) *driver {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[key](50*time.Millisecond, 5*time.Second)
	return &driver{client: client, queue: workqueue.NewTypedRateLimitingQueue(limiter)}
}

// watch starts informers for claims, volumes and attachments, and returns once they have synced.
func (d *driver) watch(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(d.client, 0)
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().PersistentVolumeClaims().Informer(),
		factory.Core().V1().PersistentVolumes().Informer(),
		factory.Storage().V1().VolumeAttachments().Informer(),
	} {
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: d.look, UpdateFunc: func(_, object any) { d.look(object) }, DeleteFunc: d.look,
		})
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

// look queues the keys that a changed object concerns.
func (d *driver) look(object any) {
	for _, k := range keysOf(object) {
		d.queue.Add(k)
	}
}

// keysOf are the keys to reconcile when an object has changed.
func keysOf(object any) []key {
	switch o := object.(type) {
	case cache.DeletedFinalStateUnknown:
		return keysOf(o.Obj)
	case *corev1.PersistentVolumeClaim:
		if asked(o) || o.Spec.VolumeName != "" {
			return []key{{aClaim, o.Namespace, o.Name}}
		}
	case *corev1.PersistentVolume:
		if ours(o) {
			return []key{{aVolume, "", o.Name}}
		}
	case *storagev1.VolumeAttachment:
		if o.Spec.Attacher != driverName {
			break
		}
		keys := []key{{anAttachment, "", o.Name}}
		if name := o.Spec.Source.PersistentVolumeName; name != nil { // the volume may have waited for it
			keys = append(keys, key{aVolume, "", *name})
		}
		return keys
	}
	return nil
}

// ours is whether a volume is the driver's.
func ours(v *corev1.PersistentVolume) bool {
	return v.Spec.CSI != nil && v.Spec.CSI.Driver == driverName
}

// work reconciles queued keys until the context ends.
func (d *driver) work(ctx context.Context) {
	context.AfterFunc(ctx, d.queue.ShutDown)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for d.next(ctx) {
			}
		})
	}
	all.Wait()
}

func (d *driver) next(ctx context.Context) bool {
	k, shut := d.queue.Get()
	if shut {
		return false
	}
	defer d.queue.Done(k)
	switch err := d.sync(ctx, k); {
	case err == nil:
		d.queue.Forget(k)
	case apierrors.IsConflict(err): // another program has written first
		d.queue.AddRateLimited(k)
	default:
		if ctx.Err() == nil {
			log.Printf("%s %s/%s: %v", k.kind, k.namespace, k.name, err)
		}
		d.queue.AddRateLimited(k)
	}
	return true
}

// sync takes the object of a key one step further, if it exists.
func (d *driver) sync(ctx context.Context, k key) (err error) {
	switch k.kind {
	case aClaim:
		var c *corev1.PersistentVolumeClaim
		if c, err = d.client.CoreV1().PersistentVolumeClaims(k.namespace).Get(ctx, k.name, metav1.GetOptions{}); err == nil {
			err = d.claim(ctx, c)
		}
	case aVolume:
		var v *corev1.PersistentVolume
		if v, err = d.client.CoreV1().PersistentVolumes().Get(ctx, k.name, metav1.GetOptions{}); err == nil {
			err = d.volume(ctx, v)
		}
	case anAttachment:
		var a *storagev1.VolumeAttachment
		if a, err = d.client.StorageV1().VolumeAttachments().Get(ctx, k.name, metav1.GetOptions{}); err == nil {
			err = d.attachment(ctx, a)
		}
	default:
		err = fmt.Errorf("there is no kind %q", k.kind)
	}
	if apierrors.IsNotFound(err) { // also if it was deleted during the step
		return nil
	}
	return err
}

// claim provisions a volume for a claim that has none, or expands that of a claim that requests it.
func (d *driver) claim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Spec.VolumeName == "" {
		return d.provision(ctx, c)
	}
	return d.resize(ctx, c)
}

// merge is a merge patch of an object, with the seen resourceVersion as a precondition.
func merge(seen metav1.Object, metadata, rest map[string]any) []byte {
	about := map[string]any{"resourceVersion": seen.GetResourceVersion()}
	for name, value := range metadata {
		about[name] = value
	}
	patch := map[string]any{"metadata": about}
	for name, value := range rest {
		patch[name] = value
	}
	body, err := json.Marshal(patch)
	if err != nil {
		panic(err) // cannot happen: the patch has only JSON values
	}
	return body
}
