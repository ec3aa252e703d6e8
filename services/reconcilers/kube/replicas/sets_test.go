package replicas

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// What holds for sets holds for ReplicaSets.
var sets = Sets[*appsv1.ReplicaSet]{
	Kind:       kinds.ReplicaSets,
	ReplicaSet: func(set *appsv1.ReplicaSet) *appsv1.ReplicaSet { return set },
	With: func(set *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) metav1.Object {
		with := *set
		with.Status = status
		return &with
	},
	CountsLeaving: true,
	Siblings:      true,
}

var controller = reconcile.Controller[View]{
	Name: "sets", Owns: &kinds.ReplicaSets.Kind, Inputs: sets.Inputs(), Writes: sets.Writes(), Events: sets.Events(), StatusBlind: true, Metrics: Metrics(),
	Observe: sets.Observe, Decide: sets.Decide,
}

func decide(v View, now time.Time) reconcile.Decision { return sets.Decide(v, now) }

func observe(s reconcile.Snapshot, k events.Key) (View, bool) { return sets.Observe(s, k) }
