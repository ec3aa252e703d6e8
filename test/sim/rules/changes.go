package rules

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/access"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/workloads"
)

// Changed checks a change of the API server's state.
func Changed(g *cluster.Guard, ref events.Ref, old, now metav1.Object) {
	g.Record.Changes++
	if old == nil {
		g.Record.MadeAt[now.GetUID()] = g.World.API.Version
	}
	switch ref.Kind {
	case kinds.Pods.Name:
		g.World.Dirty = true
		workloads.Worked(g, old, now)
		workloads.Daemon(g, old, now)
		nodes.Guest(g, old, now)
		workloads.Pod(g, old, now)
	case kinds.ReplicaSets.Name:
		workloads.Set(g, old, now)
	case kinds.Jobs.Name:
		workloads.Told(g, old, now)
		workloads.RunOf(g, old, now)
	case kinds.CronJobs.Name:
		workloads.Rescheduled(g, old, now)
	case kinds.EndpointSlices.Name:
		workloads.Sliced(g, now)
	case kinds.PersistentVolumeClaims.Name, kinds.PersistentVolumes.Name:
		g.World.Dirty = true // a pod may have waited for it
		storage.Unguarded(g, old, now)
		storage.Stored(g, old, now)
	case kinds.VolumeAttachments.Name:
		g.World.Dirty = true
		storage.Attaches(g, old, now)
	case kinds.ResourceClaims.Name:
		g.World.Dirty = true
		devices.ClaimedDevices(g, old, now)
	case kinds.CertificateSigningRequests.Name:
		access.Answered(g, old, now)
	case kinds.PodGroups.Name, kinds.ServiceCIDRs.Name:
		network.LetsGo(g, old, now)
	case kinds.ResourcePoolStatusRequests.Name:
		devices.PoolsTold(g, old, now)
	case kinds.StorageVersionMigrations.Name:
		metadata.Migrated(g, old, now)
	case kinds.Nodes.Name:
		g.World.Dirty = true
		nodes.Node(g, old, now)
		network.Ranged(g, old, now)
		storage.LeavesStorage(g, old, now)
	case kinds.Deployments.Name:
		if d, ok := now.(*appsv1.Deployment); ok {
			created(g, old, d)
		}
	case kinds.Secrets.Name:
		access.Cleaned(g, old, now)
	case kinds.Namespaces.Name:
		if now == nil {
			metadata.Emptied(g, old)
		}
	}
	recordsFor(g, ref.Kind)
}

// recordsFor records the consequences of a change for later checks.
func recordsFor(g *cluster.Guard, kind kinds.Name) {
	switch kind {
	case kinds.ResourceSlices.Name, kinds.DeviceTaintRules.Name, kinds.ResourceClaims.Name:
		g.World.Dirty = true
		devices.DrivenNow(g)
	case kinds.Pods.Name, kinds.PersistentVolumes.Name, kinds.PersistentVolumeClaims.Name, kinds.VolumeAttachments.Name:
		if g.World.Store != nil && !g.Record.Restoring {
			storage.Wants(g.World.Store)
		}
	}
}

// created checks a Deployment that takes the revision of a set that was created for it, and not
// found: by then the condition that starts its deadline must say so.
func created(g *cluster.Guard, old metav1.Object, d *appsv1.Deployment) {
	const revision, history = "deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"
	if old == nil || g.Record.Restoring || old.GetAnnotations()[revision] == d.Annotations[revision] {
		return
	}
	for _, c := range d.Status.Conditions {
		if c.Type != appsv1.DeploymentProgressing || c.Reason == "DeploymentPaused" || c.Reason == "DeploymentResumed" {
			continue
		}
		for _, obj := range g.World.API.List(kinds.ReplicaSets.Name) {
			notes := obj.GetAnnotations()
			_, found := notes[history]
			if cluster.ControllerOf(obj) == d.UID && notes[revision] == d.Annotations[revision] && !found && !strings.Contains(c.Message, strconv.Quote(obj.GetName())) {
				g.Breaks("O3", "%s was created for %s, which says %s: %s", obj.GetName(), d.Name, c.Reason, c.Message)
			}
		}
	}
}
