package sim

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// rest checks a world that has come to rest: it must be as its specs ask, the streams must
// agree with the API server, and for half an hour no client may write. If an exception leaves
// something to time, a client may, and rest checks the specs again after that.
func (w *World) rest() error {
	if err := w.asAsked(); err != nil {
		return fmt.Errorf("I1 (convergence) broken: %w", err)
	}
	if err := w.asSaid(); err != nil {
		return fmt.Errorf("I9 (watch contract) broken: %w", err)
	}
	silence := 30 * time.Minute
	if w.options.Quiet > 0 {
		silence = 0 // it has been silent already
		w.guard.spare(noSilence)
	}
	w.faults, w.changes = 0, 0 // the remaining ones have had their chance
	before, until := w.api.Writes, w.now.Add(silence)
	for w.horizon = silence; !w.now.After(until) && w.step(); {
		if w.broken != nil {
			return w.broken
		}
	}
	if w.api.Writes != before && !w.late {
		return fmt.Errorf("I1 (silence) broken: %d writes after the world had come to rest", w.api.Writes-before)
	}
	if w.late && silence > 0 {
		if err := w.asAsked(); err != nil {
			return fmt.Errorf("I1 (convergence) broken: half an hour later, %w", err)
		}
	}
	for _, r := range w.replicas {
		for _, d := range r.engines {
			if stall, stalled := d.Stall(); stalled {
				return fmt.Errorf("I1 (silence) broken: %s has nothing to do, and is said to stand still since %v: %v", stall.Controller, stall.Since, stall)
			}
		}
	}
	return nil
}

// meanwhile checks a world without faults at a moment at which nothing is in flight or due
// soon: every question has its answer. A later event could hide that it never got one.
func (w *World) meanwhile() {
	if w.options.Faults > 0 || !w.atRest() || w.soon() {
		return
	}
	for _, look := range []func() error{w.requestsAnswered, w.joinable, w.poolsAnswered, w.warnedOfConflicts} {
		if err := look(); err != nil {
			w.guard.breaks("I1", "while nothing is under way, %v", err)
		}
	}
}

// asSaid compares the streams with the API server.
func (w *World) asSaid() error {
	for _, c := range w.api.kinds {
		s, live := w.bus.kinds[c.kind.Name], 0
		for _, m := range s.log {
			if !s.current(m) || m.delta.Op != events.Is {
				continue
			}
			live++
			obj := c.objects[m.delta.Ref]
			if obj == nil || obj.GetUID() != m.delta.UID || obj.GetResourceVersion() != m.delta.ResourceVersion {
				return fmt.Errorf("the state of %s has %v in version %s, the API server does not", c.kind.Name, m.delta.Ref, m.delta.ResourceVersion)
			}
		}
		if live != len(c.sorted) {
			return fmt.Errorf("the state of %s has %d objects, the API server %d", c.kind.Name, live, len(c.sorted))
		}
	}
	return nil
}

func (w *World) asAsked() error {
	pods, sets := map[types.UID]int{}, map[types.UID][]*appsv1.ReplicaSet{}
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil {
			continue
		}
		if active(pod) {
			pods[owner.UID]++
		}
		if ref, known := w.api.ownerRef(owner, pod.Namespace); known && w.api.Get(ref) == nil {
			return fmt.Errorf("pod %s outlived its owner %s", pod.Name, owner.Name)
		}
	}
	for _, obj := range w.api.List(kinds.ReplicaSets.Name) {
		rs := obj.(*appsv1.ReplicaSet)
		if err := w.filled(rs, pods[rs.UID]); err != nil {
			return err
		}
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
			if w.api.Get(events.Ref{Kind: kinds.Deployments.Name, Namespace: rs.Namespace, Name: owner.Name}) == nil {
				return fmt.Errorf("%s outlived its owner %s", rs.Name, owner.Name)
			}
			sets[owner.UID] = append(sets[owner.UID], rs)
		}
	}
	for _, obj := range w.api.List(kinds.Deployments.Name) {
		if err := w.rolledOut(obj.(*appsv1.Deployment), sets[obj.GetUID()]); err != nil {
			return err
		}
	}
	if err := w.budgeted(); err != nil {
		return err
	}
	for _, look := range []func() error{
		func() error { return w.controllersFilled(pods) }, func() error { return w.statefulFilled(pods) }, w.daemonsFilled,
		func() error { return w.worksDone(pods) }, w.runsKept, w.runsMade, w.published, w.mirrored, w.tended, w.claimed, w.withinLimits, w.tokened, w.autoscaled, w.writtenDown, w.tokensGone, w.settledNodes,
		w.bound, w.inRanges, w.requestsAnswered, w.devicesSettled, w.joinable, w.grouped, w.migrationsOver, w.poolsAnswered, w.warnedOfConflicts,
	} {
		if err := look(); err != nil {
			return err
		}
	}
	return w.furnished()
}

// filled reports whether a ReplicaSet has the pods that it asks for, and its status says so.
func (w *World) filled(rs *appsv1.ReplicaSet, pods int) error {
	switch {
	case rs.DeletionTimestamp != nil:
		return fmt.Errorf("%s is still on its way out", rs.Name)
	case pods != int(*rs.Spec.Replicas):
		return fmt.Errorf("%s has %d live pods and asks for %d", rs.Name, pods, *rs.Spec.Replicas)
	case rs.Status.Replicas != *rs.Spec.Replicas || rs.Status.ObservedGeneration != rs.Generation:
		return fmt.Errorf("%s says %d replicas at generation %d; it has %d at %d", rs.Name, rs.Status.Replicas, rs.Status.ObservedGeneration, *rs.Spec.Replicas, rs.Generation)
	default:
		return nil
	}
}

// rolledOut reports whether a Deployment is as its spec asks.
func (w *World) rolledOut(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) error {
	if d.DeletionTimestamp != nil {
		return fmt.Errorf("%s is still on its way out", d.Name)
	}
	if d.Status.ObservedGeneration != d.Generation {
		return fmt.Errorf("%s reports generation %d of %d", d.Name, d.Status.ObservedGeneration, d.Generation)
	}
	total, past := int32(0), 0 // of the past: sets without pods, since others cannot go
	for _, rs := range sets {
		total += *rs.Spec.Replicas
		current := rs.Spec.Template.Spec.Containers[0].Image == d.Spec.Template.Spec.Containers[0].Image
		if !current && *rs.Spec.Replicas == 0 {
			past++
		}
		if !d.Spec.Paused && !current && *rs.Spec.Replicas > 0 {
			return fmt.Errorf("%s still has %d replicas of an old template in %s", d.Name, *rs.Spec.Replicas, rs.Name)
		}
	}
	if past > int(*d.Spec.RevisionHistoryLimit) {
		return fmt.Errorf("%s has kept %d replica sets of the past, and is to keep %d", d.Name, past, *d.Spec.RevisionHistoryLimit)
	}
	if !d.Spec.Paused && (total != *d.Spec.Replicas || d.Status.AvailableReplicas != total || d.Status.UpdatedReplicas != total) {
		return fmt.Errorf("%s wants %d, its replica sets %d; it says %d available and %d updated", d.Name, *d.Spec.Replicas, total, d.Status.AvailableReplicas, d.Status.UpdatedReplicas)
	}
	return nil
}

// furnished reports whether every namespace has its account and its certificate.
func (w *World) furnished() error {
	for _, obj := range w.api.List(kinds.Namespaces.Name) {
		name := obj.GetName()
		if obj.GetDeletionTimestamp() != nil {
			return fmt.Errorf("namespace %s is still on its way out", name)
		}
		if w.api.Get(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: name, Name: "default"}) == nil {
			return fmt.Errorf("namespace %s has no default service account", name)
		}
		published, ok := w.api.Get(certificateOf(name)).(*corev1.ConfigMap)
		if !ok || published.Data["ca.crt"] != RootCA {
			return fmt.Errorf("namespace %s has no certificate, or a wrong one", name)
		}
	}
	return nil
}

// RootCA is the certificate that every namespace of a simulated cluster is to
// have.
const RootCA = "-----BEGIN CERTIFICATE-----\nsimulated\n-----END CERTIFICATE-----\n"

func certificateOf(namespace string) events.Ref {
	return events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: namespace, Name: "kube-root-ca.crt"}
}
