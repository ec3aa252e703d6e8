package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
	"github.com/millrace/millrace/services/writer/plan"
)

// guard looks at the invariants whenever something happens that could break
// them. It counts along, so that a look costs the same in a large world.
type guard struct {
	world *World

	pods   map[types.UID]int // of a ReplicaSet: live
	asked  map[types.UID]int // of a ReplicaSet: the most that it ever asked for, or was given
	sum    map[types.UID]int // of a Deployment: what its ReplicaSets ask for
	total  map[types.UID]int // of a Deployment: the largest replicas + maxSurge
	owner  map[types.UID]types.UID
	brings map[types.UID]int // of a Deployment: what ReplicaSets brought along into its hands
	born   []time.Time       // when pods were, for the rate

	wasReady map[types.UID]map[string]bool // of a StatefulSet: the members that have been ready
	work     map[types.UID]*ledger         // of a Job: what became of its pods

	rounds  map[round]int32 // of an autoscaler: which number of replicas was judged
	written map[round]bool
	moves   map[asker][]move // of an autoscaler: what it wrote

	missed map[string]int64 // API servers: in which version of everything they were seen to have no lease

	act         map[actLane]uint64 // the last act turn of each key
	generations map[asker]int64    // the newest that a controller acted on
	wrong       bool               // the delete under way would hit another uid than was decided on

	logs   map[kinds.Name]*heard
	epochs map[uint64]time.Time // when each was first told of
	judge  int                  // decisions seen
	// restoring: what happens now is a restore's doing and nobody's fault.
	restoring bool
}

// asker is a controller that does something about an object. What two of them do
// about one has no order: a birth that may have happened is tried until that is
// known, and the garbage collector does not wait for it.
type asker struct {
	controller string
	object     types.UID
}

type actLane struct {
	controller string
	key        events.Key
}

// heard is what the guard knows of a kind's log.
type heard struct {
	epoch   uint64
	version string
	at      map[string]uint64 // the sequence of each version of the epoch
	// vague: versions may be missing, because of a relist or a loss.
	vague bool
}

func newGuard(w *World) *guard {
	g := &guard{
		world: w, pods: map[types.UID]int{}, asked: map[types.UID]int{}, sum: map[types.UID]int{}, total: map[types.UID]int{},
		owner: map[types.UID]types.UID{}, brings: map[types.UID]int{}, act: map[actLane]uint64{},
		wasReady: map[types.UID]map[string]bool{}, work: map[types.UID]*ledger{},
		missed: map[string]int64{}, rounds: map[round]int32{}, written: map[round]bool{}, moves: map[asker][]move{},
		generations: map[asker]int64{}, logs: map[kinds.Name]*heard{}, epochs: map[uint64]time.Time{},
	}
	for _, k := range w.served {
		g.logs[k.Name] = &heard{at: map[string]uint64{}}
	}
	return g
}

func (g *guard) breaks(rule string, format string, args ...any) {
	if g.world.broken == nil && rule != g.world.options.Ignore {
		g.world.broken = fmt.Errorf("%s (%s) broken: %s", rule, rules[rule], fmt.Sprintf(format, args...))
	}
}

var rules = map[string]string{
	"I2": "no over-creation", "I3": "order of a StatefulSet", "I6": "one effect", "I4": "no orphan deleted", "I5": "no eviction counts twice", "I8": "turns of a key never overlap or go back", "I9": "watch contract",
	"A1": "bounds of an autoscaler", "A2": "policies of an autoscaler", "A3": "an answer is judged once", "A4": "nobody is gone who was not asked for", "A5": "no token goes that is in use",
	"I12": "finalizers go by the rules", "I10": "no decision on a view older than the key's own writes", "I13": "same inputs, same bytes",
	"O1": "why comes before what is done", "O2": "a success stays one", "O3": "what was created is told", "F24": "nobody is silent who was heard",
}

// changed looks at a change of the API server's state.
func (g *guard) changed(ref events.Ref, old, now metav1.Object) {
	switch ref.Kind {
	case kinds.Pods.Name:
		g.world.dirty = true
		g.worked(old, now)
		g.member(old, now)
		g.daemon(old, now)
		g.guest(old, now)
		g.pod(old, now)
	case kinds.ReplicaSets.Name:
		g.set(old, now)
	case kinds.ReplicationControllers.Name, kinds.StatefulSets.Name, kinds.DaemonSets.Name:
		g.asks(now)
	case kinds.Jobs.Name:
		g.told(old, now)
		g.runOf(old, now)
	case kinds.PersistentVolumeClaims.Name, kinds.PersistentVolumes.Name:
		g.unguarded(old, now)
	case kinds.Nodes.Name:
		g.world.dirty = true
		g.node(old, now)
	case kinds.Deployments.Name:
		if d, ok := now.(*appsv1.Deployment); ok {
			g.total[d.UID] = max(g.total[d.UID], int(*d.Spec.Replicas)+surge(d))
			g.created(old, d)
		}
	case kinds.Secrets.Name:
		g.cleaned(old, now)
	case kinds.Namespaces.Name:
		if now == nil {
			g.emptied(old)
		}
	}
}

func (g *guard) pod(old, now metav1.Object) {
	if at := setOf(old); at != "" {
		g.pods[at]--
	}
	at := setOf(now)
	if at == "" {
		return
	}
	g.pods[at]++
	count := g.pods[at]
	switch {
	case old != nil || g.restoring:
		g.asked[at] = max(g.asked[at], count) // what is adopted is nobody's birth
	case count > g.asked[at]:
		g.breaks("I2", "%s is one of %d live pods of an owner that was never allowed more than %d", now.GetName(), count, g.asked[at])
	}
	if old == nil {
		g.born = append(g.born, g.world.now)
	}
}

// setOf is the controller of a live pod.
func setOf(obj metav1.Object) types.UID {
	pod, ok := obj.(*corev1.Pod)
	if !ok || !active(pod) {
		return ""
	}
	return controllerOf(pod)
}

func controllerOf(obj metav1.Object) types.UID {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return owner.UID
	}
	return ""
}

func (g *guard) set(old, now metav1.Object) {
	if rs, ok := old.(*appsv1.ReplicaSet); ok {
		g.sum[controllerOf(rs)] -= int(*rs.Spec.Replicas)
	}
	rs, ok := now.(*appsv1.ReplicaSet)
	if !ok {
		return
	}
	n, at := int(*rs.Spec.Replicas), controllerOf(rs)
	g.asked[rs.UID] = max(g.asked[rs.UID], n)
	g.sum[at] += n
	if at == "" {
		return
	}
	if g.owner[rs.UID] != at || g.restoring { // what it brings along is nobody's fault
		g.owner[rs.UID] = at
		g.brings[at] = max(g.brings[at]+n, g.sum[at])
	}
	if allowed, known := g.total[at]; known && g.sum[at] > allowed && g.sum[at] > g.brings[at] {
		g.breaks("I2", "the replica sets of %s ask for %d, more than replicas and surge ever were (%d)", at, g.sum[at], allowed)
	}
}

// created looks at a Deployment that takes the revision of a set: of one that was created for
// it, and not found, the condition that starts its deadline tells by then.
func (g *guard) created(old metav1.Object, d *appsv1.Deployment) {
	const revision, history = "deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"
	if old == nil || g.restoring || old.GetAnnotations()[revision] == d.Annotations[revision] {
		return
	}
	for _, c := range d.Status.Conditions {
		if c.Type != appsv1.DeploymentProgressing || c.Reason == "DeploymentPaused" || c.Reason == "DeploymentResumed" {
			continue
		}
		for _, obj := range g.world.api.List(kinds.ReplicaSets.Name) {
			notes := obj.GetAnnotations()
			_, found := notes[history]
			if controllerOf(obj) == d.UID && notes[revision] == d.Annotations[revision] && !found && !strings.Contains(c.Message, strconv.Quote(obj.GetName())) {
				g.breaks("O3", "%s was created for %s, which says %s: %s", obj.GetName(), d.Name, c.Reason, c.Message)
			}
		}
	}
}

func surge(d *appsv1.Deployment) int {
	if d.Spec.Strategy.RollingUpdate == nil {
		return 0
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, int(*d.Spec.Replicas), true)
	return n
}

// stored looks at a turn as it is stored: no act turn may overlap another, nor
// rest on a view that lacks what the last one did.
func (w *World) stored(d *desk, t events.Turn, sequence uint64) {
	w.tally.Turns++
	w.note("turn %d of %s %v (%s): %s, %d commands", sequence, t.Controller, t.Key, t.Lane, t.Because, len(t.Commands))
	w.guard.whole(t, sequence)
	if t.Lane != events.Act {
		return
	}
	w.guard.rescales(t, sequence)
	g, at := w.guard, actLane{t.Controller, t.Key}
	before := g.act[at]
	g.act[at] = sequence
	if before == 0 || t.Repeats == before { // a repetition is the turn before itself
		return
	}
	if !d.book.decided(before) {
		g.breaks("I8", "turn %d of %s %v was stored while turn %d had no outcome", sequence, t.Controller, t.Key, before)
	}
	_, _, last := d.book.last(lane{t.Key, t.Lane})
	if last == nil || last.Turn != before {
		return
	}
	for _, r := range last.Results {
		log, followed := g.logs[r.Ref.Kind]
		seen, reads := t.Seen[r.Ref.Kind]
		if r.Status != events.Applied || r.Version == "" || !followed || !reads || last.Epochs[r.Ref.Kind] != log.epoch {
			continue // in an epoch that has ended versions were other ones
		}
		if said, known := log.at[r.Version]; known && said > seen || !known && !log.vague {
			g.breaks("I10", "turn %d of %s %v has seen %s up to %d, and not version %s that turn %d made", sequence, t.Controller, t.Key, r.Ref.Kind, seen, r.Version, before)
		}
	}
}

// whole demands that what a turn rests on is of one history: all kinds in one epoch,
// unless one of them has not followed for so long that it is not waited for.
func (g *guard) whole(t events.Turn, sequence uint64) {
	newest := uint64(0)
	for _, epoch := range t.Epochs {
		newest = max(newest, epoch)
	}
	if g.world.now.Sub(g.epochs[newest]) >= shell.Reunion {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(t.Seen)) {
		if at := t.Epochs[kind]; at < newest {
			g.breaks("I9", "turn %d of %s %v has seen %s in epoch %d, and others in epoch %d", sequence, t.Controller, t.Key, kind, at, newest)
		}
	}
}

// said looks at what a watcher appended.
func (w *World) said(s *stream, d events.Delta) {
	log := w.guard.logs[d.Kind]
	if _, known := w.guard.epochs[d.Epoch]; !known {
		w.guard.epochs[d.Epoch] = w.now
	}
	if d.Epoch > log.epoch {
		*log = heard{epoch: d.Epoch, at: map[string]uint64{}, vague: true}
	}
	switch {
	case d.Op == events.Gap:
		log.vague = true
	case d.Ref.Name == "":
	case d.Sync && d.Op == events.Gone:
		log.vague = true // it bears the last version that was known, and was said before
	case d.Sync:
		log.vague, log.at[d.ResourceVersion] = true, uint64(len(s.log))
	case d.Epoch < log.epoch || log.version != "" && kinds.CompareVersions(d.ResourceVersion, log.version) <= 0:
		w.guard.breaks("I9", "the log of %s goes from version %s to %s", d.Kind, log.version, d.ResourceVersion)
	default:
		log.version, log.at[d.ResourceVersion] = d.ResourceVersion, uint64(len(s.log))
	}
}

// lost forgets what the log of a kind, or all of it, may say again.
func (g *guard) lost(kind kinds.Name) {
	log := g.logs[kind]
	*log = heard{epoch: log.epoch, at: map[string]uint64{}, vague: true}
}

// before looks at what is about to be done: nothing with a live owner is
// collected. An owner that is being deleted does not live: whoever turns a
// foreground deletion into one that orphans races the collector, between its look
// at the owner and its delete, here as upstream.
func (g *guard) before(c *carrying, r plan.Request) {
	g.spends(c, r)
	g.forgets(c, r)
	if r.Verb != plan.Delete {
		return
	}
	obj := g.world.api.Get(events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	if obj == nil {
		return
	}
	if p := r.Delete.Preconditions; p != nil &&
		(*p.UID != obj.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion()) {
		return // the API server will refuse it
	}
	g.wrong = c.turn.Commands[r.Command].If.UID != obj.GetUID()
	switch c.turn.Controller {
	case "job-controller":
		g.dismisses(obj.(*corev1.Pod))
		return
	case "garbage-collector-controller":
	case "statefulset-controller", "pod-garbage-collector-controller", "ttl-after-finished-controller":
		g.tends(c.turn.Controller, obj)
		return
	case "namespace-controller":
		g.clears(obj, r.Kind)
		return
	default:
		return
	}
	for _, ref := range obj.GetOwnerReferences() {
		at, known := g.world.api.ownerRef(&ref, obj.GetNamespace())
		if owner := g.world.api.Get(at); known && owner != nil && owner.GetUID() == ref.UID && owner.GetDeletionTimestamp() == nil {
			g.breaks("I4", "%s %s is collected although its owner %s %s lives", r.Kind, r.Name, ref.Kind, ref.Name)
		}
	}
}

// after looks at what a request did.
func (g *guard) after(c *carrying, r plan.Request, effect bool) {
	wrong := g.wrong
	g.wrong = false
	t := c.turn
	if !effect || t.Lane != events.Act {
		return
	}
	if wrong {
		g.breaks("I4", "%s %s is not the one that turn %d of %s wanted to delete", r.Kind, r.Name, c.sequence, t.Controller)
	}
	if t.UID == "" {
		return
	}
	at := asker{t.Controller, t.UID}
	if g.generations[at] > t.Generation {
		g.breaks("I8", "turn %d of %s %v does something on generation %d after %d", c.sequence, t.Controller, t.Key, t.Generation, g.generations[at])
	}
	g.generations[at] = t.Generation
}

// waits tells whether an owner is being deleted in the foreground.
func waits(owner metav1.Object) bool {
	for _, f := range owner.GetFinalizers() {
		if f == metav1.FinalizerDeleteDependents && owner.GetDeletionTimestamp() != nil {
			return true
		}
	}
	return false
}

// watched is a controller that is asked some of its questions twice: at once, and
// on what is left of its view when it has been written down.
func (w *World) watched(c reconcile.Any) reconcile.Any { return twice{c, w.guard} }

type twice struct {
	reconcile.Any
	guard *guard
}

// sample is how many decisions go by for each that is looked at again.
const sample = 64

// Ask implements [reconcile.Any].
func (t twice) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	decision, ok := t.Any.Ask(s, k, now)
	if len(decision.Commands) == 0 {
		return decision, ok
	}
	if t.guard.judge++; t.guard.judge%sample != 0 {
		return decision, ok
	}
	view, _, err := t.View(s, k)
	if err != nil {
		t.guard.breaks("I13", "the view of %s %v cannot be written down: %v", t.Describe().Name, k, err)
		return decision, ok
	}
	again, err := t.Judge(view, now)
	if first, second := text(decision), text(again); err != nil || !bytes.Equal(first, second) {
		t.guard.breaks("I13", "%s %v decided two things on one view (%v):\n%s\n%s", t.Describe().Name, k, err, first, second)
	}
	return decision, ok
}

func text(d reconcile.Decision) []byte {
	turn := events.Turn{Because: d.Because, Commands: append([]events.Command(nil), d.Commands...), WakeAt: &d.WakeAt}
	turn.Pack()
	out, err := json.Marshal(turn)
	if err != nil {
		panic(fmt.Sprintf("a decision cannot be written down: %v", err))
	}
	return out
}

// restore brings the API server back without taking what happens for anybody's
// doing.
func (g *guard) restore(back func()) {
	g.restoring = true
	back()
	g.restoring = false
	clear(g.generations)
	for kind := range g.logs {
		g.lost(kind)
	}
}
