package oracle_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle"
)

// mutant is one of our controllers with a wrong view or a wrong decision.
type mutant struct {
	reconcile.Any
	mask   func(*reconciletest.World) // of its view
	late   time.Duration              // offset of its clock
	garble func(*reconcile.Decision)  // of its decision
}

func (m mutant) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	if m.mask != nil {
		m.mask(s.(*reconciletest.World))
	}
	d, ok := m.Any.Ask(s, k, now.Add(m.late))
	if m.garble != nil {
		m.garble(&d)
	}
	return d, ok
}

// enough is how many worlds are tried to find one in which the comparison detects a mutant.
const enough = 4000

// TestTheOracleBites tests the comparison itself: it must detect a controller with one small fault.
func TestTheOracleBites(t *testing.T) {
	for name, m := range deploymentMutants() {
		t.Run("deployment "+name, func(t *testing.T) {
			noticed(t, oracle.Deployment, m, deploymentKey, deploymentWorld)
		})
	}
	for name, m := range replicaSetMutants() {
		t.Run("replica set "+name, func(t *testing.T) {
			noticed(t, oracle.ReplicaSet, m, replicaSetKey, replicaSetWorld)
		})
	}
}

func noticed(t *testing.T, p oracle.Pair, m mutant, key events.Key, worlds func(*rapid.T) []runtime.Object) {
	t.Parallel()
	m.Any, p.Ours = p.Ours, &m
	generator := rapid.Custom(worlds)
	for seed := range enough {
		diff, err := p.Compare(t, key, generator.Example(seed))
		if errors.Is(err, oracle.ErrBeyondPromise) {
			return // the writer would refuse it
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff != "" {
			return
		}
	}
	t.Errorf("nothing was noticed in %d worlds", enough)
}

func deploymentMutants() map[string]mutant {
	seeing := func(change func(*appsv1.Deployment)) mutant {
		return mutant{mask: func(w *reconciletest.World) { each(w, kinds.Deployments, change) }}
	}
	rolling := func(change func(*appsv1.RollingUpdateDeployment)) mutant {
		return seeing(func(d *appsv1.Deployment) {
			if r := d.Spec.Strategy.RollingUpdate; r != nil {
				change(r)
			}
		})
	}
	return map[string]mutant{
		"wants one more":       seeing(func(d *appsv1.Deployment) { *d.Spec.Replicas++ }),
		"has no surge":         rolling(func(r *appsv1.RollingUpdateDeployment) { r.MaxSurge = ptr(intstr.FromInt32(0)) }),
		"may miss one more":    rolling(func(r *appsv1.RollingUpdateDeployment) { r.MaxUnavailable = ptr(intstr.FromInt32(4)) }),
		"sees no pause":        seeing(func(d *appsv1.Deployment) { d.Spec.Paused = false }),
		"has a later deadline": seeing(func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr(int32(700)) }),
		"keeps one more":       seeing(func(d *appsv1.Deployment) { *d.Spec.RevisionHistoryLimit++ }),
		"sees no deletion":     seeing(func(d *appsv1.Deployment) { d.DeletionTimestamp = nil }),
		"sees no notes":        seeing(func(d *appsv1.Deployment) { d.Annotations = nil }),
		"sees no collisions":   seeing(func(d *appsv1.Deployment) { d.Status.CollisionCount = nil }),
		"waits for minutes":    seeing(func(d *appsv1.Deployment) { d.Spec.MinReadySeconds += 60 }),
		"sees no set fail": {mask: func(w *reconciletest.World) {
			each(w, kinds.ReplicaSets, func(rs *appsv1.ReplicaSet) { rs.Status.Conditions = nil })
		}},
		"sees every pod gone": {mask: func(w *reconciletest.World) {
			each(w, kinds.Pods, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}},
		"is a second late":       {late: time.Second},
		"forgets the last":       {garble: forgetLast},
		"tells no user":          {garble: tellNothing},
		"says it in other words": {garble: replace("minimum availability", "some availability")},
		"is no owner's":          {garble: replace(`"controller":true`, `"controller":false`)},
	}
}

func replicaSetMutants() map[string]mutant {
	seeing := func(change func(*appsv1.ReplicaSet)) mutant {
		return mutant{mask: func(w *reconciletest.World) { each(w, kinds.ReplicaSets, change) }}
	}
	pods := func(change func(*corev1.Pod)) mutant {
		return mutant{mask: func(w *reconciletest.World) { each(w, kinds.Pods, change) }}
	}
	return map[string]mutant{
		"wants one more":       seeing(func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas++ }),
		"waits a second more":  seeing(func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds++ }),
		"sees no deletion":     seeing(func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = nil }),
		"sees no cost":         pods(func(p *corev1.Pod) { p.Annotations = nil }),
		"sees no restarts":     pods(func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }),
		"sees no node":         pods(func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		"sees no age":          pods(func(p *corev1.Pod) { p.CreationTimestamp.Reset() }),
		"sees nothing leave":   pods(func(p *corev1.Pod) { p.DeletionTimestamp = nil }),
		"sees nothing ready":   pods(func(p *corev1.Pod) { p.Status.Conditions = nil }),
		"forgets the last":     {garble: forgetLast},
		"tells no user":        {garble: tellNothing},
		"has another template": {garble: replace("web:v", "web:x")},
	}
}

// thing is an object that can be copied.
type thing interface {
	metav1.Object
	runtime.Object
}

// each changes a copy of every object of a kind.
func each[T thing](w *reconciletest.World, kind kinds.Of[T], change func(T)) {
	for _, obj := range reconcile.List(w, kind, "") {
		next := obj.DeepCopyObject().(T)
		change(next)
		w.Put(kind.Kind, next)
	}
}

func forgetLast(d *reconcile.Decision) {
	if n := len(d.Commands); n > 1 {
		d.Commands = d.Commands[:n-1]
	}
}

func tellNothing(d *reconcile.Decision) {
	for i := range d.Commands {
		d.Commands[i].OnApplied = nil
	}
}

func replace(old, with string) func(*reconcile.Decision) {
	return func(d *reconcile.Decision) {
		for i := range d.Commands {
			d.Commands[i].Body = bytes.ReplaceAll(d.Commands[i].Body, []byte(old), []byte(with))
		}
	}
}
