package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/nfs"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/persistentvolumebinder"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
)

// VolumeBinder binds claims to volumes.
var VolumeBinder = bindersWith(persistentvolumebinder.Config{})

// StaticVolumeBinder is the same controller without provisioners.
var StaticVolumeBinder = bindersWith(persistentvolumebinder.Config{Static: true})

// RefusedVolumeBinder is the same controller with some writes refused. Upstream resyncs all claims and
// volumes every 15 seconds. Upstream emits an Event for each request to a provisioner that could not be
// written, except for directories; ours emits none if the writer retries.
var RefusedVolumeBinder = func() stage.Life {
	l := bindersWith(persistentvolumebinder.Config{})
	l.Chapter = 45 * time.Second
	l.Fair = func(theirs, ours []string) ([]string, []string) {
		theirs, ours = podsInOrder(theirs, ours)
		return exemption.LetLines("provisioner-asked-again", theirs, func(line string) string {
				if _, why, failed := strings.Cut(line, "Error saving claim: "); failed && slices.ContainsFunc(stage.AllRefusals, func(r plan.Response) bool { return stage.Retried(r) && r.Message == why }) {
					return ""
				}
				return line
			}), exemption.LetLines("provisioner-asked-again", ours, func(line string) string {
				line = strings.Replace(line, stage.HasChanged, "it has been modified", 1)
				if strings.Contains(line, " events directory Warning ProvisioningFailed Error saving claim: ") {
					return ""
				}
				return line
			})
	}
	return l
}()

// bindersWith gives upstream's controller the plugins that kube-controller-manager gives it.
func bindersWith(config persistentvolumebinder.Config) stage.Life {
	return stage.Life{
		Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
			core := f.Core().V1()
			pv, err := persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
				KubeClient: c, SyncPeriod: 15 * time.Second, EnableDynamicProvisioning: !config.Static,
				VolumePlugins:  append(hostpath.ProbeVolumePlugins(volume.VolumeConfig{}), nfs.ProbeVolumePlugins(volume.VolumeConfig{})...),
				VolumeInformer: core.PersistentVolumes(), ClaimInformer: core.PersistentVolumeClaims(), ClassInformer: f.Storage().V1().StorageClasses(),
				PodInformer: core.Pods(), NodeInformer: core.Nodes(),
			})
			if err != nil {
				return nil, fmt.Errorf("make the binder: %w", err)
			}
			return func() { pv.Run(ctx) }, nil
		},
		Ours: persistentvolumebinder.New(config),
		Kinds: []kinds.Kind{
			kinds.PersistentVolumeClaims.Kind, kinds.PersistentVolumes.Kind, kinds.StorageClasses.Kind, kinds.Pods.Kind,
		}, Chapter: 20 * time.Second, // in longer chapters upstream's recorder drops repeated Events
		Line: bindingLine, Fair: podsInOrder,
	}
}

// podsInOrder sorts the names in the Events about pods that wait for a claim: upstream lists them in the order
// of its index.
func podsInOrder(theirs, ours []string) ([]string, []string) {
	const before, after = "waiting for pods ", " to be scheduled"
	return exemption.LetLines("order-of-pods", theirs, func(line string) string {
		head, rest, found := strings.Cut(line, before)
		names, tail, whole := strings.Cut(rest, after)
		if !found || !whole {
			return line
		}
		pods := strings.Split(names, ",")
		slices.Sort(pods)
		return head + before + strings.Join(pods, ",") + after + tail
	}), ours
}

// bindingLine is a claim or a volume, without the version of the claim in a volume.
func bindingLine(obj metav1.Object) string {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		class := "nil"
		if o.Spec.StorageClassName != nil {
			class = *o.Spec.StorageClassName
		}
		return fmt.Sprintf("claim %s has %q class %q %s %v %v attributes %v, %v", o.UID, o.Spec.VolumeName, class, o.Status.Phase, o.Status.AccessModes,
			sizeOf(o.Status.Capacity), o.Status.CurrentVolumeAttributesClassName != nil, o.Annotations)
	case *corev1.PersistentVolume:
		by := "free"
		if ref := o.Spec.ClaimRef; ref != nil {
			by = fmt.Sprintf("%s %s/%s %s", ref.Kind, ref.Namespace, ref.Name, ref.UID)
		}
		return fmt.Sprintf("volume %s %s %s %q %v %v", o.UID, by, o.Status.Phase, o.Status.Message, o.Annotations, o.Finalizers)
	}
	return ""
}

func sizeOf(capacity corev1.ResourceList) string {
	size := capacity[corev1.ResourceStorage]
	return size.String()
}
