package selinuxwarning

import "github.com/millrace/millrace/services/reconcilers/reconcile"

// conflicting is the metric of conflicts, with upstream's name and labels.
//
// Upstream: pkg/controller/volume/selinuxwarning, metrics.
const conflicting = "selinux_warning_controller_selinux_volume_conflict"

var metrics = []reconcile.Metric{{
	Name: conflicting, Sort: reconcile.Mark,
	Labels: []string{"property", "pod1_namespace", "pod1_name", "pod1_value", "pod2_namespace", "pod2_name", "pod2_value"},
	Help:   "Pairs of pods with conflicting SELinux settings for one volume; each pair counts once for either pod. property: SELinuxLabel or SELinuxChangePolicy.",
}}
