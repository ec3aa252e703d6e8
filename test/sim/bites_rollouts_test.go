package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/clusterroleaggregation"
	"github.com/millrace/millrace/services/reconcilers/controllers/cronjob"
	"github.com/millrace/millrace/services/reconcilers/controllers/daemonset"
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/disruption"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpoints"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/horizontalpodautoscaler"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgc"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvcprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/pvprotection"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccounttoken"
	"github.com/millrace/millrace/services/reconcilers/controllers/statefulset"
	"github.com/millrace/millrace/services/reconcilers/controllers/ttl"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

var allOfThem = intstr.FromString("100%")

// greedy deletes one pod more than the surplus.
func greedy(v *replicas.View, _ time.Time) {
	live := 0
	for _, p := range v.Pods {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
			live++
		}
	}
	if n := *v.Set.Spec.Replicas; live > int(n) && n > 0 {
		v.Set = v.Set.DeepCopy()
		*v.Set.Spec.Replicas--
	}
}

// generous creates one pod more than are missing.
func generous(v *replicas.View, _ time.Time) {
	if len(v.Pods) > 0 && len(v.Pods) < int(*v.Set.Spec.Replicas) {
		v.Set = v.Set.DeepCopy()
		*v.Set.Spec.Replicas++
	}
}

func keepsNone(v *deployment.View, _ time.Time) {
	v.Deployment = v.Deployment.DeepCopy()
	v.Deployment.Spec.RevisionHistoryLimit = new(int32(0))
}

func forgetsRuns(v *cronjob.View, _ time.Time) {
	if v.CronJob != nil {
		v.CronJob = v.CronJob.DeepCopy()
		v.CronJob.Spec.SuccessfulJobsHistoryLimit = new(int32(0))
	}
}

// allowsAll allows the eviction of every healthy pod of a budget.
func allowsAll(v *disruption.View, _ time.Time) {
	if v.Budget != nil {
		none := intstr.FromInt32(0)
		v.Budget = v.Budget.DeepCopy()
		v.Budget.Spec.MaxUnavailable, v.Budget.Spec.MinAvailable = nil, &none
	}
}

// rollsAtOnce rolls a Deployment regardless of available pods.
func rollsAtOnce(v *deployment.View, _ time.Time) {
	if r := v.Deployment.Spec.Strategy.RollingUpdate; r != nil {
		v.Deployment = v.Deployment.DeepCopy()
		v.Deployment.Spec.Strategy.RollingUpdate.MaxUnavailable = &allOfThem
	}
}

func keepsAll(v *deployment.View, _ time.Time) {
	v.Deployment = v.Deployment.DeepCopy()
	v.Deployment.Spec.RevisionHistoryLimit = new(int32(math.MaxInt32))
}

func replacesAll(v *daemonset.View, _ time.Time) {
	if r := v.Set.Spec.UpdateStrategy.RollingUpdate; r.MaxSurge.IntVal == 0 {
		v.Set = v.Set.DeepCopy()
		v.Set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &allOfThem
	}
}

// rollsAll rolls every pod of a StatefulSet without order at once.
func rollsAll(v *statefulset.View, _ time.Time) {
	if v.Set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		v.Set, v.Gates = v.Set.DeepCopy(), gate.Set{gate.MaxUnavailableStatefulSet: true}
		v.Set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &allOfThem
	}
}

// clearsNodes is a pod garbage collector that deletes every pod of a node that is out of
// service, even those that are not being deleted.
func clearsNodes() reconcile.Any {
	c := podgc.New(podgc.Config{Threshold: 2})
	c.Inputs = slices.Clone(c.Inputs)
	for i := range c.Inputs {
		keys := c.Inputs[i].Keys
		c.Inputs[i].Keys = func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
			all := keys(s, was, now)
			for _, p := range reconcile.List(s, kinds.Pods, "") {
				all = append(all, events.Key{Namespace: p.Namespace, Name: p.Name})
			}
			return all
		}
	}
	return mistaken(c, func(v *podgc.View, now time.Time) {
		if v.Pod == nil || v.Node == nil || v.Pod.DeletionTimestamp != nil {
			return
		}
		for _, taint := range v.Node.Spec.Taints {
			if taint.Key == corev1.TaintNodeOutOfService {
				at := metav1.NewTime(now)
				v.Pod = v.Pod.DeepCopy()
				v.Pod.DeletionTimestamp = &at
			}
		}
	})
}

// hurried is an autoscaler that scales down as soon as the load is lower.
var hurried = horizontalpodautoscaler.New(horizontalpodautoscaler.Config{Stabilization: time.Nanosecond})

// Each of these mistakes deletes pods that users rely on, or keeps pods that must go, and
// leaves no trace once the world is at rest: only a rule that checks each step can detect it.
func TestItBitesRollouts(t *testing.T) {
	others := []reconcile.Any{replicaset.Controller, garbagecollector.Controller}
	for name, tc := range map[string]struct {
		shape, rule string
		controllers []reconcile.Any
	}{
		"a Deployment ignores maxUnavailable":  {"settled", "I5", append(others[:2:2], mistaken(deployment.Controller, rollsAtOnce))},
		"a Deployment never trims its history": {"settled", "I1", append(others[:2:2], mistaken(deployment.Controller, keepsAll))},
		"a ReplicaSet deletes one pod too many": {"settled", "I4", []reconcile.Any{
			deployment.Controller, garbagecollector.Controller, mistaken(replicaset.Controller, greedy),
		}},
		"a ReplicationController deletes one pod too many": {"sets, settled", "I4", []reconcile.Any{
			statefulset.Controller, garbagecollector.Controller, pvcprotection.Controller, mistaken(replicationcontroller.Controller, greedy),
		}},
		"a DaemonSet ignores maxUnavailable": {"daemons, settled", "I5", []reconcile.Any{
			garbagecollector.Controller, podgc.New(podgc.Config{}), mistaken(daemonset.Controller, replacesAll),
		}},
		"a StatefulSet without order rolls all pods at once": {"sets, settled", "I5", []reconcile.Any{
			replicationcontroller.Controller, garbagecollector.Controller, pvcprotection.Controller, mistaken(statefulset.Controller, rollsAll),
		}},
		"an autoscaler goes down at once": {"autoscalers, calm", "A6", append(workloadsControllers(), hurried)},
		"live pods of a node that is out of service end": {"cluster, calm", "I4", []reconcile.Any{
			ttl.Controller, clearsNodes(), pvcprotection.Controller, pvprotection.Controller, clusterroleaggregation.Controller,
		}},
		"a ReplicaSet creates one pod too many": {"settled", "I2", []reconcile.Any{
			deployment.Controller, garbagecollector.Controller, mistaken(replicaset.Controller, generous),
		}},
		"a Deployment deletes the past that it is to keep": {"settled", "I4", append(others[:2:2], mistaken(deployment.Controller, keepsNone))},
		"a CronJob deletes the runs that it is to keep":    {"jobs", "I4", append(slices.Delete(jobs(), 1, 2), mistaken(cronjob.Controller, forgetsRuns))},
		"Endpoints go while their Service is there": {"network", "I4", append(networkControllers()[1:], mistaken(endpoints.Controller, func(v *endpoints.View, _ time.Time) {
			if v.Endpoints != nil {
				v.Service = nil
			}
		}))},
		"a token goes while its account is there": {"tokens, calm", "I4", []reconcile.Any{
			mistaken(serviceaccounttoken.New(serviceaccounttoken.Config{Tokens: true}), func(v *serviceaccounttoken.View, _ time.Time) { v.Account = "" }),
		}},
		"a budget allows what it must not": {"budgets", "I5", append(workloadsControllers(), mistaken(disruption.Controller, allowsAll))},
	} {
		t.Run(name, func(t *testing.T) { notices(t, tc.shape, tc.rule, tc.controllers...) })
	}
}
