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

// roll replaces pods of another revision, as fast as the set may do without them. It is
// asked when every node has the pods that it should.
//
// Upstream: rollingUpdate. What it chooses is in the order of a map; here it is that of
// nodes' names.
func (s *stage) roll() reconcile.Decision {
	if s.Set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return reconcile.Nothing("pods are replaced when somebody deletes them")
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

// limits are how many nodes may have two pods and how many none. Percentages are of
// those that should have one, rounded up.
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
		unavailable = 1 // nothing would ever happen
	}
	return surge, unavailable, true
}

func scaled(n *intstr.IntOrString, of int) (int, error) {
	if n == nil {
		return 0, nil
	}
	return intstr.GetScaledValueFromIntOrPercent(n, of, true)
}

// surges tells whether a node may have two pods for a while.
func (s *stage) surges() bool {
	r := s.Set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || s.Set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return false
	}
	n, err := scaled(r.MaxSurge, 1)
	return err == nil && n > 0
}

// replace deletes old pods: at once those that are not available, and as many others as
// may be missing besides those that are.
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
const outdated = "pods are of another revision"

// awaits has the turn that is asked for come when the next of some pods is available.
func (s *stage) awaits(w *work, pods []*corev1.Pod) {
	if next := pod.NextAvailable(pods, s.Set.Spec.MinReadySeconds, s.now); !next.IsZero() {
		w.waits(next)
	}
}

// overlap has new pods created beside old ones, at once where the old one is not available,
// and deletes the old one when the new one is. Pods where none should be any more go
// when enough others are available.
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
			// Its end is not ours.
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

// pair is the new and the old pod of a node, but for those that are on their way out;
// several is true when there are two of one sort.
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

// updated tells whether a pod is of the revision that it should be. Pods of before
// there were revisions say which generation of the template they are of.
func (s *stage) updated(p *corev1.Pod) bool {
	return s.hash != "" && hashIn(p) == s.hash ||
		s.generation != "" && p.Labels[extensionsv1beta1.DaemonSetTemplateGenerationKey] == s.generation
}

// generationOf is that of a set's template, as sets of older APIs have it; empty where
// there is none, or none that can be read.
func generationOf(set *appsv1.DaemonSet) string {
	n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// hashIn is the hash of the revision that a pod was made of.
func hashIn(p *corev1.Pod) string { return p.Labels[hashLabel] }
