package oracle_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle"
)

// TestTheOracleBitesInPlacesThatItMayChoose: the parts that the comparison leaves out hide no other fault.
func TestTheOracleBitesInPlacesThatItMayChoose(t *testing.T) {
	seeing := func(change func(*reconciletest.World, *reconcile.Decision)) mutant {
		var world *reconciletest.World
		return mutant{
			mask:   func(w *reconciletest.World) { world = w },
			garble: func(d *reconcile.Decision) { change(world, d) },
		}
	}
	deletes := func(change func(*events.Command)) func(*reconcile.Decision) {
		return func(d *reconcile.Decision) {
			for i := range d.Commands {
				if d.Commands[i].Verb == events.VerbDelete {
					change(&d.Commands[i])
				}
			}
		}
	}
	written := func(old, with string) mutant { return mutant{garble: replace(old, with)} }
	for _, c := range []struct {
		name   string
		pair   oracle.Pair
		key    events.Key
		worlds func(*rapid.T) []runtime.Object
		mutant mutant
	}{
		{"a daemon set deletes new pods in place of old ones", oracle.DaemonSet, deploymentKey, daemonSetWorld, seeing(func(w *reconciletest.World, d *reconcile.Decision) {
			deletes(func(c *events.Command) { takeNew(w, c) })(d)
		})},
		{"a stateful set without order never shrinks", oracle.StatefulSet, deploymentKey, statefulSetWorld, seeing(neverShrink)},
		{"pods without a node have the time that they ask for", oracle.PodGC, ownerKey, lostPodWorld, mutant{garble: deletes(func(c *events.Command) { c.GraceSeconds = nil })}},
		{"ended pods have the time that they ask for", oracle.EndedPods, events.Key{Name: "finished"}, endedPodsWorld, mutant{garble: deletes(func(c *events.Command) { c.GraceSeconds = nil })}},
		{"slices have no times", oracle.EndpointSlice, ownerKey, slicesWorld, written(corev1.EndpointsLastChangeTriggerTime, "no-time")},
		{"endpoints have no times", oracle.Endpoints, ownerKey, endpointsWorld, written(corev1.EndpointsLastChangeTriggerTime, "no-time")},
		{"slices have no hints", oracle.EndpointSlice, ownerKey, slicesWorld, written(`"hints"`, `"h"`)},
	} {
		t.Run(c.name, func(t *testing.T) { noticed(t, c.pair, c.mutant, c.key, c.worlds) })
	}
}

// takeNew changes a delete of a pod to one of another revision that is available.
func takeNew(world *reconciletest.World, c *events.Command) {
	pods := reconcile.List(world, kinds.Pods, "")
	at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == c.Name && available(p) })
	if at < 0 {
		return
	}
	hash := pods[at].Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
	for _, p := range pods {
		if available(p) && len(p.OwnerReferences) > 0 && p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] != hash {
			if c.OnApplied != nil {
				c.OnApplied.Message = strings.ReplaceAll(c.OnApplied.Message, c.Name, p.Name)
			}
			c.Name, c.If.UID = p.Name, p.UID
			return
		}
	}
}

func available(p *corev1.Pod) bool { return len(p.Status.Conditions) > 0 && p.DeletionTimestamp == nil }

// neverShrink drops the deletes of running pods that are surplus in a set without order.
func neverShrink(world *reconciletest.World, d *reconcile.Decision) {
	set := reconcile.List(world, kinds.StatefulSets, "")[0]
	pods := reconcile.List(world, kinds.Pods, "")
	if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || !strings.Contains(d.Because, "there are too many pods") {
		return
	}
	d.Commands = slices.DeleteFunc(slices.Clone(d.Commands), func(c events.Command) bool {
		return c.Verb == events.VerbDelete && slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Name == c.Name })
	})
}
