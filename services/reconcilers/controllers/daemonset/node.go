package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/taint"
)

// fit is what a template requires of a node. It is computed once for all nodes.
type fit struct {
	name        string // of the only eligible node; empty: any
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	numbers     bool // tolerations may compare numbers
}

// verdict reports whether a node should have a pod (run), and whether an existing pod may stay.
type verdict struct{ run, stay bool }

func fits(spec *corev1.PodSpec, gates gate.Set) fit {
	return fit{
		numbers:     gates.On(gate.TaintTolerationComparisonOperators),
		name:        spec.NodeName,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}),
		tolerations: tolerations(spec),
	}
}

// verdict judges a node. A NoSchedule taint keeps out new pods, but existing ones stay; a
// NoExecute taint removes them.
//
// Upstream: NodeShouldRunDaemonPod. A selector that cannot be read matches nothing.
func (f fit) verdict(n *corev1.Node) verdict {
	if f.name != "" && f.name != n.Name {
		return verdict{}
	}
	if matches, err := f.affinity.Match(n); err != nil || !matches {
		return verdict{}
	}
	expelled := taint.Repels(n.Spec.Taints, f.tolerations, f.numbers, corev1.TaintEffectNoExecute)
	repelled := expelled || taint.Repels(n.Spec.Taints, f.tolerations, f.numbers, corev1.TaintEffectNoSchedule)
	return verdict{run: !repelled, stay: !expelled}
}

// tolerations returns the template's tolerations and those of every daemon pod: for
// taints of unhealthy and of unschedulable nodes.
//
// Upstream: pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations. One of the
// template's with the same key, operator and effect, which may have an end, becomes one
// that has none.
func tolerations(spec *corev1.PodSpec) []corev1.Toleration {
	all := slices.Clone(spec.Tolerations)
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		had := false
		for i := range all {
			if all[i].MatchToleration(&t) {
				all[i], had = t, true
			}
		}
		if !had {
			all = append(all, t)
		}
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return all
}

// bound returns an affinity that binds a pod to one node. It replaces the template's
// required node affinity, which that node satisfies; preferences and pod affinities stay.
//
// Upstream: ReplaceDaemonSetPodNodeNameNodeAffinity.
func bound(a *corev1.Affinity, node string) *corev1.Affinity {
	var on corev1.Affinity
	if a != nil {
		on = *a // shallow: the parts are only read
	}
	var nodes corev1.NodeAffinity
	if on.NodeAffinity != nil {
		nodes = *on.NodeAffinity
	}
	nodes.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}
	on.NodeAffinity = &nodes
	return &on
}

// nodeOf returns the node that a pod runs on or is bound to; empty if there is none.
//
// Upstream: GetTargetNodeName.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			switch {
			case field.Key != metav1.ObjectNameField || field.Operator != corev1.NodeSelectorOpIn:
			case len(field.Values) == 1:
				return field.Values[0]
			default:
				return ""
			}
		}
	}
	return ""
}
