package persistentvolumebinder

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The metrics, with upstream's names.
//
// Upstream: pkg/controller/volume/persistentvolume/metrics, and pkg/volume/util.
const (
	volumes         = "pv_collector_total_pv_count"
	boundVolumes    = "pv_collector_bound_pv_count"
	unboundVolumes  = "pv_collector_unbound_pv_count"
	boundClaims     = "pv_collector_bound_pvc_count"
	unboundClaims   = "pv_collector_unbound_pvc_count"
	retroactive     = "retroactive_storageclass_total"
	notRetroactive  = "retroactive_storageclass_errors_total"
	operationErrors = "volume_operation_errors_total"
	errorsBefore136 = "volume_operation_total_errors"
	operationTook   = "volume_operation_total_seconds"
)

var (
	ofClaims     = []string{"namespace", "storage_class", "volume_attributes_class"}
	ofOperations = []string{"plugin_name", "operation_name"}
	ofVolumes    = []string{"storage_class"}
)

var metrics = []reconcile.Metric{
	{Name: volumes, Sort: reconcile.Gauge, Labels: []string{"plugin_name", "volume_mode"}, Help: "PersistentVolumes, by the in-tree plugin that would recycle or delete them (N/A: none)."},
	{Name: boundVolumes, Sort: reconcile.Gauge, Labels: ofVolumes, Help: "PersistentVolumes that are bound."},
	{Name: unboundVolumes, Sort: reconcile.Gauge, Labels: ofVolumes, Help: "PersistentVolumes that are not bound."},
	{Name: boundClaims, Sort: reconcile.Gauge, Labels: ofClaims, Help: "PersistentVolumeClaims that are bound."},
	{Name: unboundClaims, Sort: reconcile.Gauge, Labels: ofClaims, Help: "PersistentVolumeClaims that are not bound."},
	{Name: retroactive, Sort: reconcile.Counter, Help: "Claims that were given the default StorageClass after their creation, or should have been."},
	{Name: notRetroactive, Sort: reconcile.Counter, Help: "Claims that could not be given the default StorageClass after their creation."},
	{Name: operationErrors, Sort: reconcile.Counter, Labels: ofOperations, Help: "Provisioning requests that could not be written, and provisioned volumes that could not be bound. operation_name: provision."},
	{Name: errorsBefore136, Sort: reconcile.Counter, Labels: ofOperations, Help: "The same as volume_operation_errors_total, under its name before Kubernetes 1.36."},
	{
		Name: operationTook, Labels: ofOperations, Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		Help: "Seconds between the request to a provisioner and the binding of the volume. operation_name: provision.",
	},
}

// countedClaim counts the claim among all claims.
func (v View) countedClaim() reconcile.Figure {
	metric := unboundClaims
	if v.Claim.Status.Phase == corev1.ClaimBound {
		metric = boundClaims
	}
	return reconcile.Figure{Metric: metric, Value: 1, Labels: []string{v.Claim.Namespace, classOf(v.Claim), orNone(v.Claim.Spec.VolumeAttributesClassName)}}
}

// countedVolume counts the volume among all volumes.
func (v View) countedVolume() []reconcile.Figure {
	metric, plugin := unboundVolumes, "N/A"
	if v.Volume.Status.Phase == corev1.VolumeBound {
		metric = boundVolumes
	}
	switch {
	case v.Volume.Spec.HostPath != nil:
		plugin = hostPath
	case v.Volume.Spec.NFS != nil:
		plugin = nfs
	}
	return []reconcile.Figure{
		{Metric: volumes, Value: 1, Labels: []string{plugin, string(orFilesystem(v.Volume.Spec.VolumeMode))}},
		{Metric: metric, Value: 1, Labels: []string{v.Volume.Spec.StorageClassName}},
	}
}

// assigned counts the default classes that were assigned, and those that were not.
func (v View) assigned() []reconcile.Figure {
	return []reconcile.Figure{
		{Metric: retroactive, Value: 1, Of: v.ref()},
		{Metric: retroactive, Value: 1, Of: v.ref(), Failed: true},
		{Metric: notRetroactive, Value: 1, Of: v.ref(), Failed: true},
	}
}

// provisioned measures the time from the request to the provisioner until the claim had its volume.
// It is empty if the time of the request is not known.
func (v View) provisioned(now time.Time) []reconcile.Figure {
	if v.Asked.IsZero() {
		return nil
	}
	by := v.Claim.Annotations[provisioner]
	took := max(0, now.Sub(v.Asked))
	return append(v.refused(by), reconcile.Figure{Metric: operationTook, Value: took.Seconds(), Labels: []string{by, "provision"}, Of: v.ref()})
}

// refused counts the claims into which the controller could not write the provisioner or the
// volume.
func (v View) refused(by string) []reconcile.Figure {
	labels := []string{by, "provision"}
	return []reconcile.Figure{
		{Metric: operationErrors, Value: 1, Labels: labels, Of: v.ref(), Failed: true},
		{Metric: errorsBefore136, Value: 1, Labels: labels, Of: v.ref(), Failed: true},
	}
}

func (v View) ref() events.Ref {
	return events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: v.Claim.Namespace, Name: v.Claim.Name}
}
