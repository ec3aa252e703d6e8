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
	"github.com/millrace/millrace/services/writer/claim"
	"github.com/millrace/millrace/services/writer/plan"
)

// guard checks the invariants whenever something happens that could break them. It keeps
// counts, so that a check costs the same in a large world.
type guard struct {
	world *World

	live    map[types.UID]map[types.UID]bool // the live pods of each owner
	sets    map[types.UID]map[types.UID]int  // of a Deployment: what each of its ReplicaSets asks for
	brought map[types.UID]bool               // pods that their owner has not created, or has lost once
	ended   map[types.UID]string             // by which controller a pod was deleted; "": none
	doing   *carrying                        // the turn whose request is being carried out
	pods    []time.Time                      // when pods were created, for the rate

	work map[types.UID]*ledger // of a Job: what became of its pods

	rounds  map[round]int32 // of an autoscaler: which number of replicas was judged
	written map[round]bool
	moves   map[asker][]move   // of an autoscaler: what it wrote
	advised map[asker][]advice // and what its readings asked for

	missed map[string]int64 // API servers: the version of the storage at which they were seen without a lease

	act         map[actLane]uint64    // the last write turn of each key
	ahead       map[actLane]time.Time // when each was last decided by a clock that is ahead
	generations map[asker]int64       // the newest generation that a controller acted on
	wrong       bool                  // the current delete would hit another uid than was decided on

	logs    map[kinds.Name]*heard
	epochs  map[uint64]time.Time // when each was first recorded
	decided int                  // decisions
	seen    map[turnOf]*look     // the view of each write turn
	// restoring: the current changes are those of a restore.
	restoring bool
	restored  bool // there has been one

	writes  map[events.Ref]int      // since something other than a controller acted
	begun   map[run]bool            // the times of CronJobs that have had their run
	names   map[string]bool         // of Jobs that were refused because another one had the name
	other   map[types.UID]time.Time // when a CronJob was given another schedule
	batches map[claim.Place]*batch  // the results of a turn's creates

	madeAt   map[types.UID]int64     // the version of the storage at which each object was created
	looked   map[claim.Place]int64   // when the writer of a turn last checked for obstacles
	rangedAt map[types.UID]int64     // the version of the storage at which each node got its ranges
	rangedBy map[types.UID]string    // by which controller; empty: by another program
	encoding map[types.UID]int       // of a migration: the encoding of objects when it began
	stayed   map[events.Ref]bool     // Jobs whose delete failed, as far as a writer was told
	driven   map[types.UID]time.Time // when pods last had to leave their devices
	cracked  map[string]time.Time    // when devices last evicted pods, if there were any
	changes  int                     // of objects
	warned   map[warning]warned      // when each warning was given last
	deleted  []deletion              // pods that a controller with a write limit deleted
}

// asker is a controller that acts on an object. Two controllers of one object have no order:
// the writer repeats a create whose result is unknown, and the garbage collector does not wait
// for that.
type asker struct {
	controller string
	object     types.UID
}

// turnOf identifies a turn.
type turnOf struct {
	controller string
	sequence   uint64
}

type actLane struct {
	controller string
	key        events.Key
}

// heard is what the guard knows about a kind's log.
type heard struct {
	epoch   uint64
	version string
	told    map[events.Ref][]telling // of the epoch, in order
	lost    map[events.Ref][]telling // what the log had told, and lost
	losses  []loss
	// vague: the log has lost deltas, and the watcher has not yet said all of them again.
	vague bool
}

// telling is a place in a log that reports an object: its version or, if a relist found it
// missing, the version of the storage.
type telling struct {
	sequence uint64
	version  string
}

// tells is the first place in a log whose readers know a version of an object; ok is false when
// no place does yet.
func (h *heard) tells(ref events.Ref, version string) (sequence uint64, ok bool) {
	return first(h.told[ref], version)
}

func first(told []telling, version string) (sequence uint64, ok bool) {
	for _, t := range told {
		if kinds.CompareVersions(t.version, version) >= 0 {
			return t.sequence, true
		}
	}
	return 0, false
}

func newGuard(w *World) *guard {
	g := &guard{
		world: w, live: map[types.UID]map[types.UID]bool{}, sets: map[types.UID]map[types.UID]int{},
		brought: map[types.UID]bool{}, ended: map[types.UID]string{}, act: map[actLane]uint64{}, ahead: map[actLane]time.Time{}, work: map[types.UID]*ledger{},
		missed: map[string]int64{}, rounds: map[round]int32{}, written: map[round]bool{}, moves: map[asker][]move{},
		generations: map[asker]int64{}, logs: map[kinds.Name]*heard{}, epochs: map[uint64]time.Time{},
		seen: map[turnOf]*look{}, advised: map[asker][]advice{},
		writes: map[events.Ref]int{}, batches: map[claim.Place]*batch{},
		begun: map[run]bool{}, other: map[types.UID]time.Time{}, names: map[string]bool{},
		madeAt: map[types.UID]int64{}, looked: map[claim.Place]int64{}, rangedAt: map[types.UID]int64{}, rangedBy: map[types.UID]string{}, stayed: map[events.Ref]bool{}, driven: map[types.UID]time.Time{}, cracked: map[string]time.Time{}, encoding: map[types.UID]int{},
		warned: map[warning]warned{},
	}
	for _, k := range w.served {
		g.logs[k.Name] = &heard{told: map[events.Ref][]telling{}, lost: map[events.Ref][]telling{}}
	}
	return g
}

func (g *guard) breaks(rule string, format string, args ...any) {
	if g.world.broken == nil && !slices.Contains(strings.Fields(g.world.options.Ignore), rule) {
		g.world.broken = fmt.Errorf("%s (%s) broken: %s", rule, rules[rule], fmt.Sprintf(format, args...))
	}
}

var rules = map[string]string{
	"I1": "convergence", "I2": "no over-creation", "I3": "order of a StatefulSet", "I6": "one effect", "I4": "nothing is deleted that was not to be", "I5": "as many stay available as must", "I8": "turns of a key never overlap or go back", "I9": "watch contract",
	"A1": "bounds of an autoscaler", "A2": "policies of an autoscaler", "A3": "an answer is judged once", "A6": "an autoscaler does not fall at once", "A4": "no API server is gone that was not asked for", "A5": "no token goes that is in use",
	"I7": "no lost trigger", "I11": "bounded writes", "I16": "what fails costs little", "C1": "a run for each moment", "S1": "slices say who answers",
	"I12": "finalizers go by the rules", "I10": "no decision on a view older than the key's own writes", "I13": "same inputs, same bytes",
	"O1": "why comes before what is done", "O2": "a success stays one", "O3": "what was created is told", "F24": "no node is silent that was heard",
	"V1": "one claim, one volume", "V2": "no data go that are claimed", "V3": "nothing is detached that is in use", "V4": "attached where it may be", "V5": "nothing is detached that its node lists",
	"N1": "no address is of two nodes", "C2": "signed once, what was approved", "D1": "devices are of those who claim them", "D2": "nothing is driven from a device without a reason",
	"L1": "no more writes than a limit allows", "A7": "no token goes before its time", "M1": "a migration that has succeeded leaves nothing out",
	"P1": "a request about pools is answered once", "P2": "the answer is what is so", "P3": "no request about pools goes before its time",
	"W1": "pods are warned of conflicts that there are", "W2": "no pod is warned again of the same",
}

// changed checks a change of the API server's state.
func (g *guard) changed(ref events.Ref, old, now metav1.Object) {
	g.changes++
	if old == nil {
		g.madeAt[now.GetUID()] = g.world.api.version
	}
	switch ref.Kind {
	case kinds.Pods.Name:
		g.world.dirty = true
		g.worked(old, now)
		g.daemon(old, now)
		g.guest(old, now)
		g.pod(old, now)
	case kinds.ReplicaSets.Name:
		g.set(old, now)
	case kinds.Jobs.Name:
		g.told(old, now)
		g.runOf(old, now)
	case kinds.CronJobs.Name:
		g.rescheduled(old, now)
	case kinds.EndpointSlices.Name:
		g.sliced(now)
	case kinds.PersistentVolumeClaims.Name, kinds.PersistentVolumes.Name:
		g.world.dirty = true // a pod may have waited for it
		g.unguarded(old, now)
		g.stored(old, now)
	case kinds.VolumeAttachments.Name:
		g.world.dirty = true
		g.attaches(old, now)
	case kinds.ResourceClaims.Name:
		g.world.dirty = true
		g.claimedDevices(old, now)
	case kinds.CertificateSigningRequests.Name:
		g.answered(old, now)
	case kinds.PodGroups.Name, kinds.ServiceCIDRs.Name:
		g.letsGo(old, now)
	case kinds.ResourcePoolStatusRequests.Name:
		g.poolsTold(old, now)
	case kinds.StorageVersionMigrations.Name:
		g.migrated(old, now)
	case kinds.Nodes.Name:
		g.world.dirty = true
		g.node(old, now)
		g.ranged(old, now)
		g.leavesStorage(old, now)
	case kinds.Deployments.Name:
		if d, ok := now.(*appsv1.Deployment); ok {
			g.created(old, d)
		}
	case kinds.Secrets.Name:
		g.cleaned(old, now)
	case kinds.Namespaces.Name:
		if now == nil {
			g.emptied(old)
		}
	}
	g.noted(ref.Kind)
}

// noted records the consequences of a change for later checks.
func (g *guard) noted(kind kinds.Name) {
	switch kind {
	case kinds.ResourceSlices.Name, kinds.DeviceTaintRules.Name, kinds.ResourceClaims.Name:
		g.world.dirty = true
		g.drivenNow()
	case kinds.Pods.Name, kinds.PersistentVolumes.Name, kinds.PersistentVolumeClaims.Name, kinds.VolumeAttachments.Name:
		if g.world.store != nil && !g.restoring {
			g.world.store.wants()
		}
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

// created checks a Deployment that takes the revision of a set that was created for it, and not
// found: by then the condition that starts its deadline must say so.
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

// stored checks a turn when it is stored: no write turn may overlap another, nor rest on a view
// that lacks the effects of the previous one.
func (w *World) stored(d *replicaEngine, t events.Turn, sequence uint64, seen *look) {
	w.tally.Turns++
	w.note("turn %d of %s %v (%s): %s, %d commands", sequence, t.Controller, t.Key, t.Lane, t.Because, len(t.Commands))
	w.guard.whole(t, sequence)
	if d.replica.skew > w.options.Skew {
		w.guard.ahead[actLane{t.Controller, t.Key}] = w.now
	}
	if t.Lane != events.LaneWrite {
		if t.Repeats == 0 {
			w.guard.judge(t, sequence, seen)
		}
		return
	}
	w.guard.rescales(t, sequence)
	g, at := w.guard, actLane{t.Controller, t.Key}
	before := g.act[at]
	g.act[at] = sequence
	if t.Repeats == before && before > 0 { // a repetition is the same turn again
		g.seen[turnOf{t.Controller, sequence}] = g.seen[turnOf{t.Controller, before}]
		return
	}
	g.seen[turnOf{t.Controller, sequence}] = seen
	g.judge(t, sequence, seen)
	if before == 0 {
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
		if r.Status != events.Applied && r.Status != events.Unchanged || r.Version == "" || !followed || !reads || last.Epochs[r.Ref.Kind] != log.epoch {
			continue // versions of an earlier epoch are not comparable
		}
		said, known := log.tells(r.Ref, r.Version)
		was, had := first(log.lost[r.Ref], r.Version)
		obj := g.world.api.Get(r.Ref)
		switch {
		case known && said <= seen:
		case had && was <= seen:
			g.spare(unnoticed)
		case !known && log.vague:
			g.spare(forgotten)
		case !known && (obj == nil || kinds.CompareVersions(obj.GetResourceVersion(), r.Version) < 0):
			g.spare(goneUnsaid)
		default:
			g.breaks("I10", "turn %d of %s %v has seen %s up to %d, and not version %s that turn %d made", sequence, t.Controller, t.Key, r.Ref.Kind, seen, r.Version, before)
		}
	}
}

// passed reports whether a clock that is ahead, for which more time has passed, decided about a
// key within the given time.
func (g *guard) passed(t events.Turn, within time.Duration) bool {
	at, ever := g.ahead[actLane{t.Controller, t.Key}]
	return ever && g.world.now.Sub(at) <= within
}

// whole demands that the view of a turn has one history: all kinds in one epoch, except kinds
// that have not followed for so long that reconcilers do not wait for them.
func (g *guard) whole(t events.Turn, sequence uint64) {
	newest := uint64(0)
	for _, epoch := range t.Epochs {
		newest = max(newest, epoch)
	}
	const patience = 30 * time.Second // for a kind that does not follow
	if g.world.now.Sub(g.epochs[newest]) >= patience {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(t.Seen)) {
		if at := t.Epochs[kind]; at < newest {
			g.breaks("I9", "turn %d of %s %v has seen %s in epoch %d, and others in epoch %d", sequence, t.Controller, t.Key, kind, at, newest)
		}
	}
}

// said checks a delta that a watcher appended.
func (w *World) said(s *stream, d events.Delta) {
	log := w.guard.logs[d.Kind]
	if _, known := w.guard.epochs[d.Epoch]; !known {
		w.guard.epochs[d.Epoch] = w.now
	}
	if d.Epoch > log.epoch { // the watcher does not repeat unchanged objects
		log.epoch, log.version, log.vague = d.Epoch, "", true
	}
	said := telling{uint64(len(s.log)), d.ResourceVersion}
	if d.Sync && d.Op == events.Gone { // it has the last known version
		said.version = strconv.FormatInt(w.api.version, 10)
	}
	if d.Ref.Name != "" {
		log.told[d.Ref] = append(log.told[d.Ref], said)
	}
	switch {
	case d.Op == events.Mark:
		log.vague = false
	case d.Ref.Name == "", d.Sync:
	case d.Epoch < log.epoch || log.version != "" && kinds.CompareVersions(d.ResourceVersion, log.version) <= 0:
		w.guard.breaks("I9", "the log of %s goes from version %s to %s", d.Kind, log.version, d.ResourceVersion)
	default:
		log.version = d.ResourceVersion
	}
}

// lost forgets what the log of a kind, or its whole content, may say again: everything after
// the last place that readers still find.
func (g *guard) lost(kind kinds.Name, last uint64) {
	log := g.logs[kind]
	log.losses = append(log.losses, loss{g.world.now, last})
	for ref, told := range log.told {
		log.told[ref] = slices.DeleteFunc(told, func(t telling) bool {
			if t.sequence > last {
				log.lost[ref] = append(log.lost[ref], t)
			}
			return t.sequence > last
		})
	}
	log.version, log.vague = "", true
}

// loss is a loss of all messages of a log after the last one that is left.
type loss struct {
	at   time.Time
	last uint64
}

// lostSince reports whether a log has lost something that a turn has seen.
func (g *guard) lostSince(t events.Turn, kind kinds.Name) bool {
	return slices.ContainsFunc(g.logs[kind].losses, func(l loss) bool { return !l.at.Before(t.Now) && l.last < t.Seen[kind] })
}

// before checks a request just before it happens: the garbage collector deletes nothing with a
// live owner. An owner that is being deleted is not live: a user who turns a foreground
// deletion into an orphaning one races the collector, between its read of the owner and its
// delete, here as upstream.
func (g *guard) before(c *carrying, r plan.Request) {
	g.spends(c, r)
	g.forgets(c, r)
	g.looks(c, r)
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
	if g.deletes(c, r, obj) {
		return
	}
	for _, ref := range obj.GetOwnerReferences() {
		at, known := g.world.api.ownerRef(&ref, obj.GetNamespace())
		switch owner := g.world.api.Get(at); {
		case !known || owner == nil || owner.GetUID() != ref.UID:
		case owner.GetDeletionTimestamp() != nil && !waits(owner):
			g.spare(leavingOwner)
		case owner.GetDeletionTimestamp() == nil:
			g.breaks("I4", "%s %s is collected although its owner %s %s lives", r.Kind, r.Name, ref.Kind, ref.Name)
		}
	}
}

// after checks the effect of a request.
func (g *guard) after(c *carrying, r plan.Request, effect bool) {
	wrong := g.wrong
	g.wrong = false
	t := c.turn
	if !effect || t.Lane != events.LaneWrite {
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

// waits reports whether an owner is being deleted in the foreground.
func waits(owner metav1.Object) bool {
	for _, f := range owner.GetFinalizers() {
		if f == metav1.FinalizerDeleteDependents && owner.GetDeletionTimestamp() != nil {
			return true
		}
	}
	return false
}

// watched is a controller that decides some keys twice: once normally, and once on a copy of
// its view that was encoded and decoded.
func (w *World) watched(c reconcile.Any, d *replicaEngine) twice {
	return twice{c, w.guard, newLooks(c.Describe()), d}
}

type twice struct {
	reconcile.Any
	guard  *guard
	looks  *looks
	engine *replicaEngine
}

// Describe implements [reconcile.Any]. The engine gets every key that a change asks for.
func (t twice) Describe() reconcile.Description {
	described := t.Any.Describe()
	described.Inputs = slices.Clone(described.Inputs)
	for i, in := range described.Inputs {
		if in.Keys != nil {
			described.Inputs[i].Keys = func(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
				return t.engine.maps(in.Keys(s, was, now))
			}
		}
	}
	return described
}

// sample is the number of decisions for each one that is repeated.
const sample = 64

// Ask implements [reconcile.Any].
func (t twice) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	delete(t.engine.wanted, k)
	decision, ok := t.Any.Ask(s, k, now)
	if len(decision.Commands) == 0 {
		return decision, ok
	}
	t.looks.take(s, k, now, decision)
	if t.guard.decided++; t.guard.decided%sample != 0 {
		t.guard.spare(sampled)
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

// restore brings the API server back to a version, and attributes the changes to no turn. The
// logs may say versions again that they had said before, for other states.
func (g *guard) restore(version int64, back func()) {
	g.restoring, g.restored = true, true
	back()
	g.restoring = false
	clear(g.generations)
	clear(g.rounds) // what was judged and written in what is gone now
	clear(g.written)
	clear(g.moves)
	clear(g.advised)
	for server, asked := range g.missed { // who had no lease then either has none still
		if g.missed[server] = min(asked, version); g.world.leased(server) {
			delete(g.missed, server)
		}
	}
	clear(g.begun)
	for _, l := range g.work {
		l.led = false
	}
	g.stirred()
	at := strconv.FormatInt(version, 10)
	for _, log := range g.logs {
		for ref, told := range log.told {
			log.told[ref] = slices.DeleteFunc(told, func(t telling) bool { return kinds.CompareVersions(t.version, at) > 0 })
		}
		log.version, log.vague = "", true
	}
}
