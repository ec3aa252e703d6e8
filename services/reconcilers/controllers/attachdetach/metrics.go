package attachdetach

import (
	"strconv"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The metrics, with upstream's names.
//
// Upstream: pkg/controller/volume/attachdetach/metrics, and pkg/volume/util.
const (
	total  = "attachdetach_controller_total_volumes"
	inUse  = "storage_count_attachable_volumes_in_use"
	forced = "attach_detach_controller_attachdetach_controller_forced_detaches"
	took   = "storage_operation_duration_seconds"
)

var metrics = []reconcile.Metric{
	{
		Name: total, Sort: reconcile.Gauge, Labels: []string{"plugin_name", "state"},
		Help: "Volumes that should be attached to a node (desired_state_of_world), and volumes that are attached or being attached (actual_state_of_world).",
	},
	{
		Name: inUse, Sort: reconcile.Gauge, Labels: []string{"node", "volume_plugin"},
		Help: "Attachable volumes that the pods of a node use.",
	},
	{
		Name: forced, Sort: reconcile.Counter, Labels: []string{"reason"},
		Help: "Volumes that were detached by force although their node may still use them. reason: timeout or out-of-service.",
	},
	{
		Name: took, Labels: []string{"volume_plugin", "operation_name", "status", "migrated"}, Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		Help: "Seconds between the request to attach a volume and the driver's answer. operation_name: volume_attach; status: success or fail-unknown.",
	},
}

// attaching returns the time from the create of the attachment until the driver reported success or
// failure; nothing if the time of the create is not known.
func (v View) attaching(a *storagev1.VolumeAttachment, status string, until time.Time) []reconcile.Figure {
	asked, known := v.Asked[a.UID]
	volume, ok := csi.VolumeOf(v.Volume)
	if !known || !ok {
		return nil
	}
	migrated := strconv.FormatBool(v.Volume.Spec.CSI == nil)
	return []reconcile.Figure{{Metric: took, Value: max(0, until.Sub(asked)).Seconds(), Labels: []string{pluginOf(volume), "volume_attach", status, migrated}}}
}

// pluginOf returns the name of a volume's plugin in metrics.
func pluginOf(v csi.Volume) string { return csi.Plugin + ":" + v.Driver }
