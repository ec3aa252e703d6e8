package attachdetach

import (
	"github.com/millrace/millrace/services/reconcilers/kube/csi"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The metrics, with upstream's names.
//
// Upstream: pkg/controller/volume/attachdetach/metrics.
const (
	total  = "attachdetach_controller_total_volumes"
	inUse  = "storage_count_attachable_volumes_in_use"
	forced = "attach_detach_controller_attachdetach_controller_forced_detaches"
)

var metrics = []reconcile.Metric{
	{
		Name: total, Sort: reconcile.Gauge, Labels: []string{"plugin_name", "state"},
		Help: "Volumes that are to be attached to a node (desired_state_of_world), and that are or are being attached (actual_state_of_world).",
	},
	{
		Name: inUse, Sort: reconcile.Gauge, Labels: []string{"node", "volume_plugin"},
		Help: "Volumes that pods use on a node.",
	},
	{
		Name: forced, Sort: reconcile.Counter, Labels: []string{"reason"},
		Help: "Volumes that were detached although their node may use them. reason: timeout or out-of-service.",
	},
}

// pluginOf is what metrics call the plugin of a volume.
func pluginOf(v csi.Volume) string { return csi.Plugin + ":" + v.Driver }
