package settle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// Settled is a world in which a controller wants nothing more, the Events on the way there, sorted, and its
// deletes.
type Settled struct {
	World   []runtime.Object
	Told    []string
	Removed []effect.Effect
}

// Ground carries out writes like an API server whose nodes do nothing: a pod that is deleted stays as long as
// a node or a finalizer holds it.
type Ground struct {
	now     func() time.Time
	creates int
	removed []effect.Effect
}

// complete completes a new object.
func (g *Ground) complete(obj objects.Object, name string) {
	g.creates++
	if name == "" {
		name = fmt.Sprintf("%s%05d", obj.GetGenerateName(), g.creates)
	}
	obj.SetName(name)
	obj.SetUID(types.UID("uid-" + name))
	obj.SetResourceVersion("1")
	obj.SetCreationTimestamp(metav1.NewTime(g.now().Truncate(time.Second)))
	if p, ok := obj.(*corev1.Pod); ok {
		p.Status.Phase = corev1.PodPending
	}
}

// remove is an object after a delete; nil if it is deleted at once. Objects that were created since the start
// have no name that both know.
func (g *Ground) remove(resource string, was objects.Object, how metav1.DeleteOptions) objects.Object {
	name := was.GetName()
	if !was.GetCreationTimestamp().Time.Before(objects.Now.Truncate(time.Second)) {
		name = ""
	}
	g.removed = append(g.removed, effect.Removed(resource, name, how))
	return g.deleted(was)
}

// deleted is an object that is being deleted; nil if nothing holds it.
func (g *Ground) deleted(was objects.Object) objects.Object {
	p, isPod := was.(*corev1.Pod)
	if len(was.GetFinalizers()) == 0 && (!isPod || p.Spec.NodeName == "") {
		return nil
	}
	next := was.DeepCopyObject().(objects.Object)
	next.SetResourceVersion(objects.Newer(was.GetResourceVersion()))
	if next.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(g.now().Truncate(time.Second))
		next.SetDeletionTimestamp(&at)
	}
	return next
}

// Patched is an object after a strategic merge patch at a time; nil if nothing holds it any more.
func Patched(was objects.Object, patch []byte, now time.Time) (objects.Object, error) {
	g := Ground{now: func() time.Time { return now }}
	return g.patched(was, patch)
}

// patched is an object after a patch; nil when nothing holds it any more.
func (g *Ground) patched(was objects.Object, patch []byte) (objects.Object, error) {
	text, err := json.Marshal(was)
	if err != nil {
		return nil, fmt.Errorf("write the object: %w", err)
	}
	if text, err = strategicpatch.StrategicMergePatch(text, patch, was); err != nil {
		return nil, fmt.Errorf("merge the patch: %w", err)
	}
	next, err := objects.Decoded(objects.ResourceOf(was), string(text))
	if err != nil {
		return nil, err
	}
	next.SetResourceVersion(objects.Newer(was.GetResourceVersion()))
	if next.GetDeletionTimestamp() != nil && g.deleted(next) == nil {
		return nil, nil
	}
	return next, nil
}

// SettleTheirs runs upstream's controller undisturbed in a world for a duration. It must be called in a
// synctest bubble whose time is not after now.
func SettleTheirs(build kcm.Build, world []runtime.Object, now time.Time, long time.Duration) (Settled, error) {
	time.Sleep(time.Until(now))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset(world...)
	live := &live{tracker: client.Tracker(), Ground: Ground{now: time.Now}}
	client.PrependReactor("*", "*", live.react)
	factory := informers.NewSharedInformerFactory(client, 0)
	run, err := build(ctx, factory, client)
	if err != nil {
		return Settled{}, err
	}
	factory.Start(ctx.Done())
	synctest.Wait()
	var running sync.WaitGroup
	running.Go(run)
	time.Sleep(long)
	synctest.Wait()
	settled, err := live.settled(world)
	cancel()
	running.Wait()
	factory.Shutdown()
	return settled, err
}

// live makes a fake client answer like a [Ground].
type live struct {
	Ground
	tracker clienttesting.ObjectTracker
	mu      sync.Mutex
	told    []string
}

func (l *live) react(action clienttesting.Action) (bool, runtime.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch a := action.(type) {
	case clienttesting.PatchActionImpl:
		if a.GetResource().Resource == "events" {
			return true, &corev1.Event{}, nil
		}
		return l.changed(a, func(was objects.Object) (objects.Object, error) { return l.patched(was, a.GetPatch()) })
	case clienttesting.CreateActionImpl:
		if e, ok := a.GetObject().(*corev1.Event); ok {
			l.told = append(l.told, effect.Told(e.InvolvedObject.Name, e.Type, e.Reason, e.Message).String())
			return true, e, nil
		}
		next := a.GetObject().DeepCopyObject().(objects.Object)
		l.complete(next, next.GetName())
		next.SetNamespace(a.GetNamespace())
		return true, next, l.tracker.Create(a.GetResource(), next, a.GetNamespace())
	case clienttesting.DeleteActionImpl:
		return l.changed(a, func(was objects.Object) (objects.Object, error) {
			return l.remove(a.GetResource().Resource, was, a.GetDeleteOptions()), nil
		})
	case clienttesting.UpdateActionImpl:
		next := a.GetObject().DeepCopyObject().(objects.Object)
		return l.changed(renamed{a, next.GetName()}, func(was objects.Object) (objects.Object, error) {
			if next.GetResourceVersion() != was.GetResourceVersion() {
				return nil, apierrors.NewConflict(a.GetResource().GroupResource(), was.GetName(), errors.New("it has been modified"))
			}
			next.SetResourceVersion(objects.Newer(was.GetResourceVersion()))
			return next, nil
		})
	}
	return false, nil, nil
}

// renamed is an action with the name that its object got.
type renamed struct {
	clienttesting.Action
	name string
}

func (r renamed) GetName() string { return r.name }

// named is an action on one object.
type named interface {
	clienttesting.Action
	GetName() string
}

func (l *live) changed(a named, change func(objects.Object) (objects.Object, error)) (bool, runtime.Object, error) {
	was, err := l.tracker.Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return true, nil, err
	}
	next, err := change(was.(objects.Object))
	switch {
	case err != nil:
		return true, nil, err
	case next == nil:
		return true, was, l.tracker.Delete(a.GetResource(), a.GetNamespace(), a.GetName())
	default:
		return true, next, l.tracker.Update(a.GetResource(), next, a.GetNamespace())
	}
}

// settled are the remaining objects of the kinds of a world.
func (l *live) settled(world []runtime.Object) (Settled, error) {
	s := Settled{Told: slices.Sorted(slices.Values(l.told)), Removed: l.removed}
	for _, kind := range []kinds.Kind{kinds.CronJobs.Kind, kinds.Jobs.Kind, kinds.Pods.Kind} {
		list, err := l.tracker.List(kind.GVR(), kind.GVK(), NamespaceOf(world))
		if err != nil && !apierrors.IsNotFound(err) {
			return s, fmt.Errorf("list %s: %w", kind.Name, err)
		}
		if err != nil {
			continue
		}
		switch list := list.(type) {
		case *batchv1.CronJobList:
			for i := range list.Items {
				s.World = append(s.World, &list.Items[i])
			}
		case *batchv1.JobList:
			for i := range list.Items {
				s.World = append(s.World, &list.Items[i])
			}
		case *corev1.PodList:
			for i := range list.Items {
				s.World = append(s.World, &list.Items[i])
			}
		}
	}
	return s, nil
}

// NamespaceOf is the namespace of the first object of a world.
func NamespaceOf(world []runtime.Object) string { return world[0].(objects.Object).GetNamespace() }

// ErrRestless reports that a controller still wants something after many turns.
var ErrRestless = errors.New("it does not come to rest")

// SettleOurs runs our controller in a world and carries out its commands, repeatedly, at one moment.
func SettleOurs(c reconcile.Any, world []runtime.Object, now time.Time) (Settled, error) {
	return SettleAsking(c, world, now, nil)
}

// SettleAsking is [SettleOurs] for a controller that asks questions, which asked answers.
func SettleAsking(c reconcile.Any, world []runtime.Object, now time.Time, asked func(events.Command) events.Result) (Settled, error) {
	w := &turns{Ground: Ground{now: func() time.Time { return now }}, controller: c, objects: objects.Copied(world), asked: asked}
	for range 60 {
		moved, err := w.round(now)
		if err != nil {
			return Settled{}, err
		}
		if !moved {
			slices.Sort(w.told)
			return Settled{World: w.objects, Told: w.told, Removed: w.removed}, nil
		}
	}
	return Settled{}, ErrRestless
}

// turns is a world in which our controller runs.
type turns struct {
	Ground
	controller reconcile.Any
	objects    []runtime.Object
	told       []string
	asked      func(events.Command) events.Result // answers questions; nil if there must be none
	last       map[course]events.Outcome
	sequence   uint64
}

// course identifies a last outcome: a key and a lane.
type course struct {
	key  events.Key
	lane events.Lane
}

// round gives every key a turn.
func (w *turns) round(now time.Time) (moved bool, err error) {
	for _, key := range w.keys() {
		s := w.snapshot()
		for _, o := range w.last {
			if o.Key == key {
				s.Remember(o)
			}
		}
		d, ok := w.controller.Ask(s, key, now)
		if !ok || len(d.Commands) == 0 {
			continue
		}
		moved = true
		if err := w.carry(key, d, now); err != nil {
			return false, err
		}
	}
	return moved, nil
}

func (w *turns) snapshot() *reconciletest.World {
	s := reconciletest.NewWorld(kinds.Jobs.Kind, kinds.CronJobs.Kind, kinds.Pods.Kind)
	for _, obj := range w.objects {
		s.Put(kindOf(obj), obj.(objects.Object))
	}
	return s
}

// keys are all keys that may have a turn.
func (w *turns) keys() []events.Key {
	s := w.snapshot()
	var keys []events.Key
	for _, obj := range w.objects {
		for _, key := range s.Keys(w.controller, kindOf(obj), nil, obj.(objects.Object)) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, func(a, b events.Key) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}

// carry carries out a decision, and remembers the outcome.
func (w *turns) carry(key events.Key, d reconcile.Decision, now time.Time) error {
	w.sequence++
	if w.last == nil {
		w.last = map[course]events.Outcome{}
	}
	for _, lane := range []events.Lane{events.LaneWrite, events.LaneStatus} {
		part := d.In(lane)
		if len(part.Commands) == 0 {
			continue
		}
		o := events.Outcome{Key: key, Lane: lane, Turn: w.sequence, At: now, UID: w.uidOf(key)}
		for i, c := range part.Commands {
			r, err := w.carryOut(c)
			if err != nil {
				return fmt.Errorf("%s %v: %w", c.Verb, c.Ref(), err)
			}
			if r.Command, r.Ref = i, c.Ref(); r.Answer == nil && c.Note != nil {
				r.Answer = &events.Answer{Note: c.Note}
			}
			o.Results = append(o.Results, r)
		}
		w.last[course{key, lane}] = o
	}
	return nil
}

// uidOf is the uid of a key's own object.
func (w *turns) uidOf(key events.Key) types.UID {
	kind := key.Kind
	if owns := w.controller.Describe().Owns; kind == "" && owns != nil {
		kind = owns.Name
	}
	for _, obj := range w.objects {
		if o := obj.(objects.Object); kindOf(obj).Name == kind && o.GetNamespace() == key.Namespace && o.GetName() == key.Name {
			return o.GetUID()
		}
	}
	return ""
}

func (w *turns) carryOut(c events.Command) (events.Result, error) {
	r := events.Result{Status: events.Applied}
	if n := c.OnApplied; n != nil {
		message := strings.ReplaceAll(n.Message, "{name}", c.Name)
		w.told = append(w.told, effect.Told(n.About.Name, n.Type, n.Reason, message).String())
	}
	at := slices.IndexFunc(w.objects, func(o runtime.Object) bool {
		return kindOf(o).Name == c.Kind && o.(objects.Object).GetName() == c.Name
	})
	switch {
	case c.Verb == events.VerbRecord:
		return r, nil
	case c.Verb == events.VerbAsk && w.asked != nil:
		return w.asked(c), nil
	case c.Verb == events.VerbCreate:
		next, err := objects.Decoded(c.Kind.Resource(), string(c.Body))
		if err != nil {
			return r, err
		}
		w.complete(next, c.Name)
		next.SetNamespace(c.Namespace)
		w.objects = append(w.objects, next)
		r.UID = next.GetUID()
		return r, nil
	case at < 0:
		return r, errors.New("there is no such object")
	}
	was := w.objects[at].(objects.Object)
	r.UID = was.GetUID()
	var next objects.Object
	var err error
	switch c.Verb {
	case events.VerbDelete:
		next = w.remove(c.Kind.Resource(), was, frozen.OptionsOf(c))
	case events.VerbPatch:
		next, err = w.patched(was, c.Body)
	default:
		next, err = objects.Decoded(c.Kind.Resource(), string(c.Body))
	}
	if err != nil {
		return r, err
	}
	if next == nil {
		r.Removed = c.Verb == events.VerbDelete
		w.objects = slices.Delete(w.objects, at, at+1)
		return r, nil
	}
	if c.Verb == events.VerbUpdate {
		next.SetResourceVersion(objects.Newer(was.GetResourceVersion()))
	}
	w.objects[at] = next
	return r, nil
}

func kindOf(obj runtime.Object) kinds.Kind {
	switch obj.(type) {
	case *batchv1.CronJob:
		return kinds.CronJobs.Kind
	case *batchv1.Job:
		return kinds.Jobs.Kind
	case *policyv1.PodDisruptionBudget:
		return kinds.PodDisruptionBudgets.Kind
	case *appsv1.Deployment:
		return kinds.Deployments.Kind
	case *appsv1.ReplicaSet:
		return kinds.ReplicaSets.Kind
	case *appsv1.StatefulSet:
		return kinds.StatefulSets.Kind
	case *corev1.ReplicationController:
		return kinds.ReplicationControllers.Kind
	default:
		return kinds.Pods.Kind
	}
}
