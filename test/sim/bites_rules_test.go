package sim_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/cronjob"
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpoints"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslice"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/controllers/job"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicationcontroller"
	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/sim/workloads"
	"github.com/millrace/millrace/test/sim/world"
)

// ghost makes a deleted pod still count as an endpoint.
func ghost(like *corev1.Pod) *corev1.Pod {
	gone := like.DeepCopy()
	gone.UID, gone.Name, gone.Status.PodIP = "uid-ghost", "ghost", "10.9.9.9"
	gone.Status.PodIPs = []corev1.PodIP{{IP: gone.Status.PodIP}}
	return gone
}

// restless is a ReplicaSet controller that reports something else each time.
func restless() reconcile.Any {
	c, n := replicaset.Controller, int64(0)
	decide := c.Decide
	c.Decide = func(v replicas.View, now time.Time) reconcile.Decision {
		d := decide(v, now)
		if v.Set == nil || len(d.Commands) > 0 {
			return d
		}
		n++
		set := v.Set.DeepCopy()
		told := &appsv1.ReplicaSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
			ObjectMeta: set.ObjectMeta, Status: appsv1.ReplicaSetStatus{Replicas: set.Status.Replicas, ObservedGeneration: n},
		}
		return reconcile.Do("again", reconcile.UpdateStatus(kinds.ReplicaSets.Kind, told))
	}
	return c
}

// early is a CronJob controller whose runs begin before their times.
func early() reconcile.Any {
	c := cronjob.Controller
	decide := c.Decide
	c.Decide = func(v cronjob.View, now time.Time) reconcile.Decision { return decide(v, now.Add(90*time.Second)) }
	return c
}

// Rules about the times and rates of actions, and about the reported pods.
func TestItBitesRules(t *testing.T) {
	others := []reconcile.Any{job.Controller, garbagecollector.Controller}
	pods := []reconcile.Any{replicationcontroller.Controller, garbagecollector.Controller}
	for name, tc := range map[string]struct {
		shape, ignore, rule string
		controllers         []reconcile.Any
	}{
		"a ReplicaSet is written again and again": {"settled", "I13", "I11", []reconcile.Any{deployment.Controller, garbagecollector.Controller, restless()}},
		"a run begins before its moment":          {"crons, calm", "", "C1", append(others[:2:2], early())},
		"a run begins for no moment": {"crons, calm", "", "C1", append(others[:2:2], mistaken(cronjob.Controller, func(v *cronjob.View, _ time.Time) {
			if v.CronJob != nil {
				v.CronJob = v.CronJob.DeepCopy()
				v.CronJob.Spec.Schedule = "* * * * *"
			}
		}))},
		"a run never begins": {"crons, calm", "", "I1", append(others[:2:2], mistaken(cronjob.Controller, func(v *cronjob.View, now time.Time) {
			if at := metav1.NewTime(now); v.CronJob != nil {
				v.CronJob = v.CronJob.DeepCopy()
				v.CronJob.Status.LastScheduleTime = &at
			}
		}))},
		"a slice names a pod that is gone": {"network", "", "S1", append(pods[:2:2], endpoints.Controller, mistaken(endpointslice.New(endpointslice.Config{Max: workloads.SliceMax}), func(v *endpointslice.View, _ time.Time) {
			if len(v.Pods) > 0 {
				v.Pods = append(v.Pods[:len(v.Pods):len(v.Pods)], ghost(v.Pods[0]))
			}
		}))},
		"a slice is too large": {"network", "", "S1", append(pods[:2:2], endpoints.Controller, mistaken(endpointslice.New(endpointslice.Config{Max: workloads.SliceMax}), func(v *endpointslice.View, _ time.Time) {
			v.Max = 100
		}))},
	} {
		t.Run(name, func(t *testing.T) { noticesBut(t, tc.shape, tc.ignore, tc.rule, tc.controllers...) })
	}
	for name, tc := range map[string]struct {
		shape string
		cheat world.Cheat
		rule  string
	}{
		"a message is lost before it is looked at": {"calm", world.Deaf, "I7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := uint64(1); s <= 300; s++ {
				options := shapes[tc.shape].options
				options.Seed, options.Cheat, options.Mute = s, tc.cheat, true
				if err := world.New(options, shapes[tc.shape].controllers()).Run(); err != nil && strings.Contains(err.Error(), tc.rule) {
					return
				}
			}
			t.Error("300 worlds noticed nothing")
		})
	}
}
