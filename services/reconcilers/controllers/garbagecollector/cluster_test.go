package garbagecollector

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

	sets    = kinds.Kind{Name: "replicasets.apps", Version: "v1", Kind: "ReplicaSet", Namespaced: true, Form: kinds.Metadata}
	pods    = kinds.Kind{Name: "pods", Version: "v1", Kind: "Pod", Namespaced: true, Form: kinds.Metadata}
	nodes   = kinds.Kind{Name: "nodes", Version: "v1", Kind: "Node", Form: kinds.Metadata}
	widgets = kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Namespaced: true, Form: kinds.Metadata}
	// hidden is a kind that is served but not watched, as when its list fails.
	hidden = kinds.Kind{Name: "ghosts.example.com", Version: "v1", Kind: "Ghost", Namespaced: true, Form: kinds.Metadata}

	watched = []kinds.Kind{sets, pods, nodes, widgets}
	served  = append(slices.Clone(watched), hidden)
)

// cluster is a toy API server with a toy writer before it and a toy shell behind it.
// Turns come only from mapped changes, failures and wakes, so that a missing trigger
// shows as an object that stays.
type cluster struct {
	t       fataler
	choose  func(n int) int // chooses which of n things happens next
	now     time.Time
	version int
	live    []reconcile.Object
	logs    map[kinds.Name][]change // not observed yet
	seen    *reconciletest.World
	due     []events.Key
	wakes   map[events.Key]time.Time
	debts   map[events.Key][]result // the writes of a key's last turn that it has not observed
	told    []events.Notice
	writes  int
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

type change struct{ was, now reconcile.Object }

type result struct {
	ref     events.Ref
	uid     types.UID
	version int
}

func newCluster(t fataler, choose func(n int) int) *cluster {
	return &cluster{
		t: t, choose: choose, now: epoch, logs: map[kinds.Name][]change{},
		seen: reconciletest.NewWorld(watched...), wakes: map[events.Key]time.Time{}, debts: map[events.Key][]result{},
	}
}

// inOrder returns a cluster in which every change is observed before the next turn.
func inOrder(t *testing.T) *cluster { return newCluster(t, func(int) int { return 0 }) }

func (c *cluster) find(ref events.Ref) (reconcile.Object, bool) {
	at := slices.IndexFunc(c.live, func(o reconcile.Object) bool { return o.Ref() == ref })
	if at < 0 {
		return reconcile.Object{}, false
	}
	return c.live[at], true
}

// put stores an object. An object that is being deleted and has no finalizer left is removed.
func (c *cluster) put(kind kinds.Kind, obj *metav1.PartialObjectMetadata) int {
	c.version++
	obj.ResourceVersion = strconv.Itoa(c.version)
	now := reconcile.Object{Kind: kind, Object: obj}
	was, _ := c.find(now.Ref())
	c.live = slices.DeleteFunc(c.live, func(o reconcile.Object) bool { return o.Ref() == now.Ref() })
	if obj.DeletionTimestamp != nil && len(obj.Finalizers) == 0 {
		now = reconcile.Object{}
	} else {
		c.live = append(c.live, now)
	}
	if kind.Name != hidden.Name {
		c.logs[kind.Name] = append(c.logs[kind.Name], change{was, now})
	}
	return c.version
}

func (c *cluster) create(kind kinds.Kind, namespace, name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, c.version+1)), OwnerReferences: owners,
	}}
	c.put(kind, obj)
	return obj
}

// edit changes an object as a user would.
func (c *cluster) edit(kind kinds.Kind, obj *metav1.PartialObjectMetadata, change func(*metav1.PartialObjectMetadata)) {
	found, ok := c.find(events.Ref{Kind: kind.Name, Namespace: obj.Namespace, Name: obj.Name})
	if !ok {
		c.t.Fatalf("edit %s: it is gone", obj.Name)
	}
	next := found.Object.(*metav1.PartialObjectMetadata).DeepCopy()
	change(next)
	c.put(kind, next)
}

// remove deletes an object as a user would.
func (c *cluster) remove(kind kinds.Kind, obj *metav1.PartialObjectMetadata, how metav1.DeletionPropagation) {
	c.edit(kind, obj, func(o *metav1.PartialObjectMetadata) { c.mark(o, how) })
}

func (c *cluster) mark(o *metav1.PartialObjectMetadata, how metav1.DeletionPropagation) {
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch how {
	case metav1.DeletePropagationForeground:
		o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		o.Finalizers = append(o.Finalizers, metav1.FinalizerOrphanDependents)
	}
	if o.DeletionTimestamp == nil {
		o.DeletionTimestamp = &metav1.Time{Time: c.now}
	}
}

// settle runs until nothing happens any more. It fires wakes only a few times, because a
// waiting owner requests one after the other.
func (c *cluster) settle() {
	c.t.Helper()
	idle := 0
	for range 20000 {
		var logs []kinds.Name
		for _, k := range watched {
			if len(c.logs[k.Name]) > 0 {
				logs = append(logs, k.Name)
			}
		}
		moves := len(logs)
		if len(c.due) > 0 {
			moves++
		}
		if moves == 0 {
			if idle++; idle > 10 || !c.wake() {
				return
			}
			continue
		}
		if move := c.choose(moves); move < len(logs) {
			c.fold(logs[move])
		} else if c.turn() {
			idle = 0
		}
	}
	c.t.Fatalf("not settled after 20000 moves: due %v", c.due)
}

func (c *cluster) fold(kind kinds.Name) {
	next := c.logs[kind][0]
	c.logs[kind] = c.logs[kind][1:]
	if next.now.None() {
		c.seen.Remove(kind, next.was.GetNamespace(), next.was.GetName())
	} else {
		c.seen.Put(next.now.Kind, next.now.Object)
	}
	for _, key := range Controller.Inputs[0].Keys(c.seen, next.was, next.now) {
		c.ask(key)
	}
}

func (c *cluster) ask(key events.Key) {
	if !slices.Contains(c.due, key) {
		c.due = append(c.due, key)
	}
}

// wake advances the time to the earliest wake and asks every key with a wake at that time.
func (c *cluster) wake() bool {
	if len(c.wakes) == 0 {
		return false
	}
	var keys []events.Key
	earliest := c.now.Add(time.Hour)
	for key, at := range c.wakes {
		keys = append(keys, key)
		if at.Before(earliest) {
			earliest = at
		}
	}
	slices.SortFunc(keys, func(a, b events.Key) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		if !c.wakes[key].After(earliest) {
			delete(c.wakes, key)
			c.ask(key)
		}
	}
	if earliest.After(c.now) {
		c.now = earliest
	}
	return true
}

// turn takes a key's turn, unless the writes of its last one have not been observed. It
// reports whether anything was written.
func (c *cluster) turn() bool {
	at := c.choose(len(c.due))
	key := c.due[at]
	c.due = slices.Delete(c.due, at, at+1)
	if !c.settled(key) {
		c.due = append(c.due, key)
		for _, k := range watched { // in any order, the turn waits for these
			if len(c.logs[k.Name]) > 0 {
				c.fold(k.Name)
			}
		}
		return false
	}
	d, ok := Controller.Ask(c.seen, key, c.now)
	if !ok {
		return false
	}
	if !d.WakeAt.IsZero() {
		c.wakes[key] = d.WakeAt
	}
	if len(d.Commands) == 0 {
		return false
	}
	before, outcome := c.writes, events.Outcome{Key: key, Lane: events.LaneWrite, At: c.now}
	for i, command := range d.Commands {
		if !Controller.Writes.Allows(command) {
			c.t.Fatalf("%v was not promised", command)
		}
		r := c.carry(command)
		r.Command, r.Ref = i, command.Ref()
		outcome.Results = append(outcome.Results, r)
		if version, err := strconv.Atoi(r.Version); err == nil {
			c.debts[key] = append(c.debts[key], result{command.Ref(), command.If.UID, version})
		}
	}
	c.seen.Remember(outcome)
	if outcome.OK() {
		c.ask(key)
	} else {
		c.wakes[key] = c.now.Add(time.Second) // the engine's back-off
	}
	return c.writes > before
}

func (c *cluster) settled(key events.Key) bool {
	c.debts[key] = slices.DeleteFunc(c.debts[key], func(d result) bool {
		obj, ok := c.seen.Get(d.ref.Kind, d.ref.Namespace, d.ref.Name)
		if !ok {
			return !slices.ContainsFunc(c.logs[d.ref.Kind], func(ch change) bool { return !ch.now.None() && ch.now.GetUID() == d.uid })
		}
		version, _ := strconv.Atoi(obj.GetResourceVersion())
		return version >= d.version || obj.GetUID() != d.uid
	})
	return len(c.debts[key]) == 0
}

// carry does what the writer and the API server do for a command.
func (c *cluster) carry(command events.Command) events.Result {
	found, ok := c.find(command.Ref())
	if !ok || found.GetUID() != command.If.UID {
		return events.Result{Status: events.Unchanged}
	}
	for _, ref := range command.If.Absent {
		if reason := c.refuses(found, ref); reason != "" {
			return events.Result{Status: events.Refused, Reason: reason}
		}
	}
	if v := command.If.ResourceVersion; v != "" && v != found.GetResourceVersion() {
		same := command.If.SameOwners != nil && slices.EqualFunc(command.If.SameOwners, found.GetOwnerReferences(), sameReference)
		if !same {
			return events.Result{Status: events.Conflict, Code: 409}
		}
	}
	next := found.Object.(*metav1.PartialObjectMetadata).DeepCopy()
	switch command.Verb {
	case events.VerbDelete:
		c.mayGo(found)
		c.mark(next, command.Propagation)
	case events.VerbPatch:
		if found.Kind.Name.Group() == "example.com" && command.PatchType == types.StrategicMergePatchType {
			return events.Result{Status: events.Refused, Code: 415}
		}
		c.patch(next, command)
	}
	c.writes++
	if command.OnApplied != nil {
		c.told = append(c.told, *command.OnApplied)
	}
	return events.Result{Status: events.Applied, Version: strconv.Itoa(c.put(found.Kind, next))}
}

// refuses is the writer's live check that an owner is absent.
func (c *cluster) refuses(o reconcile.Object, ref metav1.OwnerReference) string {
	at := slices.IndexFunc(served, func(k kinds.Kind) bool { return k.APIVersion() == ref.APIVersion && k.Kind == ref.Kind })
	if at < 0 {
		return noMatch
	}
	namespace := ""
	if served[at].Namespaced {
		if namespace = o.GetNamespace(); namespace == "" {
			return unresolvable
		}
	}
	owner, ok := c.find(events.Ref{Kind: served[at].Name, Namespace: namespace, Name: ref.Name})
	if ok && owner.GetUID() == ref.UID {
		return ownerAlive
	}
	return ""
}

// mayGo checks the most important rule: nothing with a live owner is deleted, unless an
// owner waits for the deletion.
func (c *cluster) mayGo(o reconcile.Object) {
	c.t.Helper()
	for _, ref := range o.GetOwnerReferences() {
		if c.refuses(o, ref) != ownerAlive {
			continue
		}
		at := slices.IndexFunc(c.live, func(owner reconcile.Object) bool { return owner.GetUID() == ref.UID })
		if !waiting(c.live[at]) {
			c.t.Fatalf("%s is deleted, although its owner %s lives", o.GetName(), ref.Name)
		}
	}
}

// patch applies the patches that this controller sends.
func (c *cluster) patch(o *metav1.PartialObjectMetadata, command events.Command) {
	c.t.Helper()
	var p struct {
		Metadata struct {
			UID             types.UID  `json:"uid"`
			ResourceVersion string     `json:"resourceVersion"`
			Finalizers      *[]string  `json:"finalizers"`
			OwnerReferences *[]element `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(command.Body, &p); err != nil {
		c.t.Fatalf("patch %s: %v", command.Body, err)
	}
	if p.Metadata.Finalizers != nil {
		o.Finalizers = *p.Metadata.Finalizers
	}
	if p.Metadata.OwnerReferences == nil {
		return
	}
	if command.PatchType == types.MergePatchType {
		o.OwnerReferences = nil
		for _, e := range *p.Metadata.OwnerReferences {
			o.OwnerReferences = append(o.OwnerReferences, e.OwnerReference)
		}
		return
	}
	for _, e := range *p.Metadata.OwnerReferences {
		same := func(r metav1.OwnerReference) bool { return r.UID == e.UID }
		if e.Patch == "delete" {
			o.OwnerReferences = slices.DeleteFunc(o.OwnerReferences, same)
		} else if at := slices.IndexFunc(o.OwnerReferences, same); at >= 0 {
			o.OwnerReferences[at] = e.OwnerReference
		}
	}
}

type element struct {
	metav1.OwnerReference
	Patch string `json:"$patch"`
}

// names returns the names of the existing objects, sorted.
func (c *cluster) names() string {
	var names []string
	for _, o := range c.live {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func refTo(kind kinds.Kind, o *metav1.PartialObjectMetadata, blocking bool) metav1.OwnerReference {
	ref := metav1.OwnerReference{APIVersion: kind.APIVersion(), Kind: kind.Kind, Name: o.Name, UID: o.UID}
	if blocking {
		ref.BlockOwnerDeletion = &blocking
	}
	return ref
}
