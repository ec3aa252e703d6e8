// Package ttlafterfinished deletes finished Jobs, well or badly ended, when
// their ttlSecondsAfterFinished has passed. The pods of a Job go first.
package ttlafterfinished

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller deletes expired Jobs.
var Controller = reconcile.Controller[View]{
	Name:    "ttl-after-finished-controller",
	Aliases: []string{"ttl-after-finished"},
	Queue:   "ttl_jobs_to_delete",
	Owns:    &kinds.Jobs.Kind,
	Inputs:  []reconcile.Input{reconcile.Own(kinds.Jobs.Kind)},
	Writes: reconcile.Writes{
		{Verb: events.VerbDelete, Kind: kinds.Jobs.Name, On: reconcile.Itself, Unchanged: true, Propagation: []metav1.DeletionPropagation{metav1.DeletePropagationForeground}, Where: ".spec.ttlSecondsAfterFinished"},
	},
	Metrics: []reconcile.Metric{delay},
	Observe: observe,
	Decide:  decide,
}

// View is what one turn can see.
type View struct {
	Job *batchv1.Job `json:"job"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	job, ok := reconcile.Get(s, kinds.Jobs, k.Namespace, k.Name)
	return View{Job: job}, ok
}
