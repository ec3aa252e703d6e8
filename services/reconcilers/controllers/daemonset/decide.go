package daemonset

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide adopts and releases objects, creates the revision of the template, brings the
// pods on each node to it, and updates the status.
//
// Upstream: pkg/controller/daemon, syncDaemonSet. Of a set on its way out nothing is
// reported either: its revisions may be gone already.
func decide(v View, now time.Time) reconcile.Decision {
	selector, ok := label.Selector(v.Set.Spec.Selector)
	switch {
	case !ok:
		return v.selectsAll()
	case v.Set.DeletionTimestamp != nil:
		return reconcile.Nothing("the set is being deleted")
	}
	claimant := owner.Claimant{Kind: kinds.DaemonSets.Kind, Owner: v.Set, Selector: selector}
	pods := owner.Claims(claimant, kinds.Pods, v.Pods)
	revisions := owner.Claims(claimant, kinds.ControllerRevisions, v.Revisions)
	if changes := slices.Concat(revisions.Commands, pods.Commands); len(changes) > 0 {
		return reconcile.Do("pods or revisions are adopted or released", changes[:min(len(changes), Burst)]...)
	}
	h, change := v.history(pods.Mine)
	if len(change.Commands) > 0 {
		return change // the revision first, alone: a client that sees a pod can then look up its template
	}
	s := v.stage(pods.Mine, h, now)
	return reconcile.Join(s.act(), s.forget(), s.report(), s.nextAvailable())
}

// selectsAll sends one Event for each generation of a set whose selector is invalid or
// empty, and does nothing else. The API server admits no such set.
//
// Upstream: the Event is sent at every sync.
func (v View) selectsAll() reconcile.Decision {
	const because = "the selector is invalid or empty"
	if v.Set.Status.ObservedGeneration >= v.Set.Generation {
		return reconcile.Nothing(because)
	}
	seen := v.reported(v.Set.Status)
	seen.Status.ObservedGeneration = v.Set.Generation
	return reconcile.Do(because, reconcile.UpdateStatus(kinds.DaemonSets.Kind, seen, reconcile.WithEvents(
		v.notice(corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required."), nil)))
}

// stage is a set with its pods grouped by node.
type stage struct {
	View
	history
	now time.Time
	// pods are all pods of the set.
	pods []*corev1.Pod
	// places are the existing nodes, by name, then the nodes that only pods refer to.
	places []place
	// desired is how many nodes should have a pod.
	desired int
	// generation is the template generation of the older APIs; empty if the set has none.
	generation string
}

// place is a node with its pods.
type place struct {
	verdict
	name  string
	known bool // the node exists
	// pods are the pods that run on the node or are bound to it: first those with a
	// nodeName, then the oldest. Pods that have ended and are being deleted are left out;
	// their kubelet and their finalizers complete the deletion.
	pods []*corev1.Pod
}

func (v View) stage(mine []*corev1.Pod, h history, now time.Time) *stage {
	s := &stage{View: v, history: h, now: now, pods: mine, generation: generationOf(v.Set)}
	on := make(map[string][]*corev1.Pod, len(mine))
	for _, p := range mine {
		if node := nodeOf(p); node != "" && !(pod.Terminal(p) && p.DeletionTimestamp != nil) {
			on[node] = append(on[node], p)
		}
	}
	f := fits(&v.Set.Spec.Template.Spec, v.Gates)
	s.places = make([]place, 0, len(v.Nodes))
	for _, n := range v.Nodes {
		here := place{verdict: f.verdict(n), name: n.Name, known: true, pods: sorted(on[n.Name])}
		if here.run {
			s.desired++
		}
		s.places = append(s.places, here)
		delete(on, n.Name)
	}
	for name, pods := range on {
		s.places = append(s.places, place{name: name, pods: sorted(pods)})
	}
	slices.SortStableFunc(s.places, func(a, b place) int { return cmp.Or(falseFirst(!a.known, !b.known), cmp.Compare(a.name, b.name)) })
	return s
}

// sorted sorts the pods of a node; the first one counts if there are several.
//
// Upstream: podByCreationTimestampAndPhase.
func sorted(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			falseFirst(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return pods
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// act first gives every node the pods that it should have. When all nodes have them, it
// replaces pods of another revision.
func (s *stage) act() reconcile.Decision {
	d := s.staff()
	if len(d.Commands) > 0 {
		return d
	}
	return reconcile.Join(d, s.roll())
}

// work collects what a turn does to pods.
type work struct {
	creates   []create
	deletions []deletion
	wake      time.Time
}

// create is a pod to create on a node, and how many pods failed there in a row before it.
type create struct {
	node     string
	failures int
}

// deletion is a pod to delete, and an additional Event about it.
type deletion struct {
	pod  *corev1.Pod
	told *events.Notice
}

// end deletes a pod unless it is terminating already.
func (w *work) end(p *corev1.Pod, told *events.Notice) {
	if p.DeletionTimestamp == nil {
		w.deletions = append(w.deletions, deletion{p, told})
	}
}

// waits moves the wake forward to until, if that is earlier.
func (w *work) waits(until time.Time) {
	if w.wake.IsZero() || until.Before(w.wake) {
		w.wake = until
	}
}

// done turns the work into a decision, at most Burst of each kind; quiet is its reason if
// no command is left. The additional Event of a pod is recorded once, with its delete.
func (s *stage) done(w work, because, quiet string) reconcile.Decision {
	d := reconcile.Decision{Because: because, WakeAt: w.wake}
	d.Commands = s.creates(w.creates[:min(len(w.creates), Burst)])
	for _, end := range w.deletions[:min(len(w.deletions), Burst)] {
		d.Commands = append(d.Commands, s.delete(end.pod))
		if end.told != nil {
			d.Commands, d.Sure = append(d.Commands, reconcile.Record(*end.told)), true
		}
	}
	if len(d.Commands) == 0 {
		d.Because = quiet
	}
	return d
}

// nextAvailable requests a wake when the next ready pod becomes available that the status
// counts, or that an old pod waits for.
func (s *stage) nextAvailable() reconcile.Decision {
	var counts []*corev1.Pod
	for _, here := range s.places {
		if here.run && len(here.pods) > 0 {
			counts = append(counts, here.pods[0])
		}
		if young, old, _ := s.pair(here.pods); here.stay && young != nil && old != nil {
			counts = append(counts, young)
		}
	}
	next := pod.NextAvailable(counts, s.Set.Spec.MinReadySeconds, s.now)
	if next.IsZero() {
		return reconcile.Decision{}
	}
	return reconcile.Wake(next, "a ready pod is not available yet")
}

// asGood reports whether it is arbitrary which of two pods a turn deletes: both are old,
// and each is available and the only pod of its node.
//
// Upstream: the order is that of a map.
func asGood(v View, chosen, other types.UID, now time.Time) bool {
	selector, ok := label.Selector(v.Set.Spec.Selector)
	if !ok {
		return false
	}
	mine := owner.Claims(owner.Claimant{Kind: kinds.DaemonSets.Kind, Owner: v.Set, Selector: selector}, kinds.Pods, v.Pods).Mine
	h, _ := v.history(mine)
	s := v.stage(mine, h, now)
	alike := 0
	for _, here := range s.places {
		young, old, several := s.pair(here.pods)
		if !several && young == nil && old != nil && s.available(old) && (old.UID == chosen || old.UID == other) {
			alike++
		}
	}
	return alike == 2
}
