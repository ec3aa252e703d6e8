package sim

import (
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/workloads"
)

// Refusals is what users do with large Deployments, while the API server refuses pods beyond a
// number that changes.
var Refusals = []cluster.Operation{refuseSome, refuseSome, growSome, growSome, workloads.ImageSome, workloads.ScaleSome, cluster.DeletePod}

// growSome scales a Deployment up by so many that one turn creates several batches.
func growSome(w *cluster.Cluster) {
	if ref, there := workloads.Some(w); there {
		workloads.Scale(w, ref.Name, int32(6+w.Roll(8)))
	}
}

// refuseSome has the API server refuse pods beyond a number.
func refuseSome(w *cluster.Cluster) { refuseBeyond(w, w.Roll(12)) }

// Admit has the API server refuse nothing any more.
func Admit(w *cluster.Cluster) { refuseBeyond(w, -1) }
