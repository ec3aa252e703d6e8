package workloads_test

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
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// TestTheOracleBitesInPlacesThatItMayChoose: the parts that the comparison leaves out hide no other fault.
func TestTheOracleBitesInPlacesThatItMayChoose(t *testing.T) {
	seeing := func(change func(*reconciletest.World, *reconcile.Decision)) oracletest.Mutant {
		var world *reconciletest.World
		return oracletest.Mutant{
			Mask:   func(w *reconciletest.World) { world = w },
			Garble: func(d *reconcile.Decision) { change(world, d) },
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
	for _, c := range []struct {
		name   string
		pair   frozen.Pair
		key    events.Key
		worlds func(*rapid.T) []runtime.Object
		mutant oracletest.Mutant
	}{
		{"a daemon set deletes new pods in place of old ones", workloads.DaemonSet, deploymentKey, daemonSetWorld, seeing(func(w *reconciletest.World, d *reconcile.Decision) {
			deletes(func(c *events.Command) { takeNew(w, c) })(d)
		})},
		{"a stateful set without order never shrinks", workloads.StatefulSet, deploymentKey, statefulSetWorld, seeing(neverShrink)},
		{"pods without a node have the time that they ask for", workloads.PodGC, oracletest.Key, lostPodWorld, oracletest.Mutant{Garble: deletes(func(c *events.Command) { c.GraceSeconds = nil })}},
		{"ended pods have the time that they ask for", workloads.EndedPods, events.Key{Name: "finished"}, endedPodsWorld, oracletest.Mutant{Garble: deletes(func(c *events.Command) { c.GraceSeconds = nil })}},
	} {
		t.Run(c.name, func(t *testing.T) { oracletest.Noticed(t, c.pair, c.mutant, c.key, c.worlds) })
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
