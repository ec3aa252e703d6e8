package daemonset

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// roll replaces pods of another revision, as fast as the limits of the rolling update
// allow. act calls it when every node has the pods that it should.
//
// Upstream: rollingUpdate. What it chooses is in the order of a map; here it is that of
// nodes' names.
func (s *stage) roll() reconcile.Decision {
	if s.Set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return reconcile.Nothing("pods are replaced when a user deletes them")
	}
	surge, unavailable, ok := s.limits()
	switch {
	case !ok:
		return reconcile.Nothing("the limits of the rolling update are invalid")
	case surge == 0:
		return s.replace(unavailable)
	default:
		return s.overlap(surge)
	}
}

// limits returns how many nodes may have two pods, and how many none. Percentages refer
// to the number of desired pods and are rounded up.
func (s *stage) limits() (surge, unavailable int, ok bool) {
	r := s.Set.Spec.UpdateStrategy.RollingUpdate
	if r == nil {
		return 0, min(s.desired, 1), true
	}
	surge, wrongSurge := scaled(r.MaxSurge, s.desired)
	unavailable, wrong := scaled(r.MaxUnavailable, s.desired)
	if wrongSurge != nil || wrong != nil {
		return 0, 0, false
	}
	if s.desired > 0 && surge == 0 && unavailable == 0 {
		unavailable = 1 // otherwise nothing would ever happen
	}
	return surge, unavailable, true
}

func scaled(n *intstr.IntOrString, of int) (int, error) {
	if n == nil {
		return 0, nil
	}
	return intstr.GetScaledValueFromIntOrPercent(n, of, true)
}

// surges reports whether a node may temporarily have two pods.
func (s *stage) surges() bool {
	r := s.Set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || s.Set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return false
	}
	n, err := scaled(r.MaxSurge, 1)
	return err == nil && n > 0
}

// replace deletes old pods: all unavailable ones, and as many others as maxUnavailable
// allows beyond the pods that are missing already.
func (s *stage) replace(unavailable int) reconcile.Decision {
	var w work
	var candidates, late []*corev1.Pod
	missing := 0
	for _, here := range s.places {
		if !here.run && len(here.pods) == 0 {
			continue
		}
		young, old, several := s.pair(here.pods)
		switch {
		case several, (young == nil) == (old == nil):
			missing++
		case young != nil && s.available(young):
		case young != nil:
			missing++
			late = append(late, young)
		case s.available(old):
			candidates = append(candidates, old)
		default:
			missing++
			w.end(old, nil)
		}
	}
	for _, p := range candidates[:min(max(unavailable-missing, 0), len(candidates))] {
		w.end(p, nil)
	}
	if len(candidates) == 0 {
		return s.done(w, outdated, "every pod is of the revision that it should be")
	}
	if unavailable-missing <= 0 && unavailable-missing+len(late) > 0 {
		s.awaits(&w, late)
	}
	return s.done(w, outdated, "as many pods are missing as may be")
}

// outdated is why pods are replaced.
const outdated = "pods have another revision"

// awaits requests a wake when the next of these pods becomes available.
func (s *stage) awaits(w *work, pods []*corev1.Pod) {
	if next := pod.NextAvailable(pods, s.Set.Spec.MinReadySeconds, s.now); !next.IsZero() {
		w.waits(next)
	}
}

// overlap creates new pods beside old ones, at once where the old one is unavailable, and
// deletes the old one once the new one is available. It deletes pods on nodes that should
// have none once enough others are available.
func (s *stage) overlap(surge int) reconcile.Decision {
	var w work
	var candidates []create
	var elsewhere, late []*corev1.Pod
	twice, available := 0, 0
	for _, here := range s.places {
		young, old, several := s.pair(here.pods)
		switch first := firstOf(old, young); {
		case several || first == nil:
		case s.available(first):
			available++
		default:
			late = append(late, first)
		}
		switch {
		case several:
			twice++
		case old == nil:
		case young != nil && s.available(young):
			w.end(old, nil)
		case young != nil:
			twice++
		case !here.known:
			// Deleting it is not this controller's task.
		case here.run && s.available(old):
			candidates = append(candidates, create{node: here.name})
		case here.run:
			w.creates = append(w.creates, create{node: here.name})
		case s.available(old):
			elsewhere = append(elsewhere, old)
		default:
			w.end(old, nil)
		}
	}
	w.creates = append(w.creates, candidates[:min(max(surge-twice, 0), len(candidates))]...)
	for _, p := range elsewhere[:min(max(available-s.desired, 0), len(elsewhere))] {
		w.end(p, nil)
	}
	if len(elsewhere) > 0 && available <= s.desired && available+len(late) > s.desired {
		s.awaits(&w, late)
	}
	if len(candidates) > 0 {
		return s.done(w, outdated, "as many nodes have two pods as may have")
	}
	return s.done(w, outdated, "no pod waits to be replaced")
}

func firstOf(a, b *corev1.Pod) *corev1.Pod {
	if a != nil {
		return a
	}
	return b
}

// pair returns the new and the old pod of a node, without terminating ones; several is
// true if there are two new or two old ones.
func (s *stage) pair(pods []*corev1.Pod) (young, old *corev1.Pod, several bool) {
	for _, p := range pods {
		switch {
		case p.DeletionTimestamp != nil:
		case s.updated(p) && young == nil:
			young = p
		case !s.updated(p) && old == nil:
			old = p
		default:
			return nil, nil, true
		}
	}
	return young, old, false
}

func (s *stage) available(p *corev1.Pod) bool {
	return pod.Available(p, s.Set.Spec.MinReadySeconds, s.now)
}

// updated reports whether a pod has the current revision. Pods older than
// ControllerRevisions carry the generation of their template instead.
func (s *stage) updated(p *corev1.Pod) bool {
	return s.hash != "" && hashIn(p) == s.hash ||
		s.generation != "" && p.Labels[extensionsv1beta1.DaemonSetTemplateGenerationKey] == s.generation
}

// generationOf returns the template generation that older APIs set; empty if it is
// missing or not a number.
func generationOf(set *appsv1.DaemonSet) string {
	n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// hashIn returns the hash of the revision that a pod was created from.
func hashIn(p *corev1.Pod) string { return p.Labels[hashLabel] }
