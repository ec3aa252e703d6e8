package rules

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/access"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/workloads"
)

// Whole demands that the view of a turn has one history: all kinds in one epoch, except kinds
// that have not followed for so long that reconcilers do not wait for them.
func Whole(g *cluster.Guard, t events.Turn, sequence uint64) {
	newest := uint64(0)
	for _, epoch := range t.Epochs {
		newest = max(newest, epoch)
	}
	const patience = 30 * time.Second // for a kind that does not follow
	if g.World.Now.Sub(g.Record.Epochs[newest]) >= patience {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(t.Seen)) {
		if at := t.Epochs[kind]; at < newest {
			g.Breaks("I9", "turn %d of %s %v has seen %s in epoch %d, and others in epoch %d", sequence, t.Controller, t.Key, kind, at, newest)
		}
	}
}

// Judgements are the judgement of each controller that deletes something, and the kinds that it
// reads. A controller without one may delete nothing ([Before]).
var Judgements = map[string]struct {
	judge cluster.Judgement
	Kinds []kinds.Name
}{
	"replicaset-controller":            {workloads.ReplicasJudged, []kinds.Name{kinds.Pods.Name}},
	"replicationcontroller-controller": {workloads.ReplicasJudged, []kinds.Name{kinds.Pods.Name}},
	"deployment-controller":            {workloads.DeploymentJudged, []kinds.Name{kinds.ReplicaSets.Name}},
	"statefulset-controller":           {workloads.StatefulSetJudged, []kinds.Name{kinds.Pods.Name}},
	"daemonset-controller":             {workloads.DaemonSetJudged, []kinds.Name{kinds.Pods.Name, kinds.Nodes.Name}},
	"job-controller":                   {workloads.JobJudged, []kinds.Name{kinds.Pods.Name}},
	"cronjob-controller":               {workloads.CronJobJudged, []kinds.Name{kinds.Jobs.Name}},
	"endpoints-controller":             {network.EndpointsJudged, []kinds.Name{kinds.Services.Name, kinds.Pods.Name}},
	"endpointslice-controller": {
		network.ServedJudged, []kinds.Name{kinds.EndpointSlices.Name, kinds.Pods.Name},
	},
	"endpointslice-mirroring-controller": {
		network.SlicesJudged("endpointslicemirroring-controller.k8s.io"), []kinds.Name{kinds.EndpointSlices.Name},
	},
	"serviceaccount-token-controller":  {access.TokenJudged, []kinds.Name{kinds.Secrets.Name, kinds.ServiceAccounts.Name}},
	"pod-garbage-collector-controller": {nodes.PodJudged, []kinds.Name{kinds.Pods.Name, kinds.Nodes.Name}},
	"persistentvolume-attach-detach-controller": {
		storage.AttachingJudged, []kinds.Name{kinds.Pods.Name, kinds.PersistentVolumeClaims.Name},
	},
	"selinux-warning-controller": {
		storage.WarningsJudged, []kinds.Name{kinds.Pods.Name, kinds.PersistentVolumeClaims.Name, kinds.PersistentVolumes.Name, kinds.CSIDrivers.Name},
	},
	"resourcepoolstatusrequest-controller": {devices.PoolsJudged, []kinds.Name{kinds.ResourceSlices.Name, kinds.ResourceClaims.Name}},
	"disruption-controller": {
		workloads.BudgetJudged, []kinds.Name{kinds.Pods.Name, kinds.ReplicaSets.Name, kinds.Deployments.Name},
	},
}

// judgedByEffect are the controllers whose deletes the guard judges just before they happen, by
// the real state, and the rules that judge them.
var judgedByEffect = map[string]string{
	"garbage-collector-controller":                   "I4, Before",
	"namespace-controller":                           "I4, metadata.Clears",
	"ttl-after-finished-controller":                  "I4, workloads.Tends",
	"taint-eviction-controller":                      "F24, nodes.Guest",
	"storageversion-garbage-collector-controller":    "A4, metadata.Forgets",
	"legacy-serviceaccount-token-cleaner-controller": "A5, access.Cleaned",
	"certificatesigningrequest-cleaner-controller":   "C2, access.Answered",
}

// Judge judges a turn of the write lane by the view that it was decided on.
func Judge(g *cluster.Guard, t events.Turn, sequence uint64, l *cluster.Look) {
	rule, judged := Judgements[t.Controller]
	if !judged {
		return
	}
	if l == nil {
		g.Spare(cluster.UnknownLook)
		return
	}
	g.World.Counts.Judged++
	rule.judge(l.In(t.Lane), cluster.Findings{Guard: g, Turn: fmt.Sprintf("turn %d of %s %v (%s)", sequence, t.Controller, t.Key, t.Because)})
}
