package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// API is a toy API server: versions, uids, generations, preconditions,
// finalizers and graceful deletion, as far as the controllers can tell the
// difference. It keeps every change for watchers.
type API struct {
	now     func() time.Time
	kinds   map[kinds.Name]kinds.Kind
	objects map[events.Ref]metav1.Object
	version int64
	births  int64
	log     map[kinds.Name][]Change
	// Writes counts the requests that changed something.
	Writes int
	// Refuse, when set, refuses a write before it happens.
	Refuse func(plan.Request) *plan.Response
}

// Change is one change in the log of a kind.
type Change struct {
	Op      events.Op
	Object  metav1.Object // its state after the change; for Gone its last one
	Version int64
}

// NewAPI is an empty API server that serves the kinds.
func NewAPI(now func() time.Time, served ...kinds.Kind) *API {
	a := &API{now: now, kinds: map[kinds.Name]kinds.Kind{}, objects: map[events.Ref]metav1.Object{}, version: 100, log: map[kinds.Name][]Change{}}
	for _, k := range served {
		a.kinds[k.Name] = k
	}
	return a
}

// Do carries out a request as the door would.
func (a *API) Do(r plan.Request) plan.Response {
	if r.Verb.Writes() && a.Refuse != nil {
		if refusal := a.Refuse(r); refusal != nil {
			return *refusal
		}
	}
	ref := events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	if r.Owner != nil {
		var known bool
		if ref, known = a.ownerRef(r.Owner, r.Namespace); !known {
			return plan.Response{Reason: plan.ReasonNoMatch}
		}
	}
	switch r.Verb {
	case plan.Look, plan.Read:
		return a.read(ref)
	case plan.Create:
		return a.create(ref, r.Body)
	case plan.Update:
		return a.update(ref, r.Subresource, r.Body)
	case plan.Patch:
		return a.patch(ref, r)
	case plan.Delete:
		return a.delete(ref, r.Delete)
	}
	return refusal(400, "BadRequest", "unknown verb "+string(r.Verb))
}

// Get is the object under a name, nil when there is none. It must not be
// changed.
func (a *API) Get(ref events.Ref) metav1.Object { return a.objects[ref] }

// List is every object of a kind, sorted by name.
func (a *API) List(kind kinds.Name) []metav1.Object {
	var refs []events.Ref
	for ref := range a.objects {
		if ref.Kind == kind {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(x, y events.Ref) int { return strings.Compare(x.String(), y.String()) })
	out := make([]metav1.Object, 0, len(refs))
	for _, ref := range refs {
		out = append(out, a.objects[ref])
	}
	return out
}

// Change lets something other than a controller change an object: a user, the
// scheduler, a node. change is given a copy.
func (a *API) Change(ref events.Ref, change func(metav1.Object)) {
	old, ok := a.objects[ref]
	if !ok {
		return
	}
	next := clone(old)
	change(next)
	a.store(ref, old, next)
}

func (a *API) read(ref events.Ref) plan.Response {
	obj, ok := a.objects[ref]
	if !ok {
		return refusal(404, "NotFound", ref.String()+" not found")
	}
	return a.answer(obj)
}

func (a *API) create(ref events.Ref, body []byte) plan.Response {
	if _, taken := a.objects[ref]; taken {
		return refusal(409, string(metav1.StatusReasonAlreadyExists), ref.String()+" already exists")
	}
	obj, err := a.decode(ref.Kind, body)
	if err != nil {
		return refusal(422, "Invalid", err.Error())
	}
	a.births++
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", a.births)))
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(a.now()))
	obj.SetDeletionTimestamp(nil)
	if pod, isPod := obj.(*corev1.Pod); isPod {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
	a.commit(ref, events.Is, obj)
	return a.answer(obj)
}

func (a *API) update(ref events.Ref, subresource string, body []byte) plan.Response {
	old, ok := a.objects[ref]
	if !ok {
		return refusal(404, "NotFound", ref.String()+" not found")
	}
	next, err := a.decode(ref.Kind, body)
	if err != nil {
		return refusal(422, "Invalid", err.Error())
	}
	if next.GetUID() != "" && next.GetUID() != old.GetUID() {
		return refusal(409, "Conflict", "uid differs")
	}
	if next.GetResourceVersion() != "" && next.GetResourceVersion() != old.GetResourceVersion() {
		return refusal(409, "Conflict", "the object has been modified")
	}
	keepManaged(next, old)
	if subresource == "status" {
		restoreSpec(next, old)
	} else {
		restoreStatus(next, old)
	}
	a.store(ref, old, next)
	return a.answer(a.current(ref, next))
}

func (a *API) patch(ref events.Ref, r plan.Request) plan.Response {
	old, ok := a.objects[ref]
	if !ok {
		return refusal(404, "NotFound", ref.String()+" not found")
	}
	var asked struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(r.Body, &asked); err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	if m := asked.Metadata; (m.UID != "" && m.UID != old.GetUID()) || (m.ResourceVersion != "" && m.ResourceVersion != old.GetResourceVersion()) {
		return refusal(409, "Conflict", "the precondition of the patch does not hold")
	}
	before, err := json.Marshal(old)
	if err != nil {
		return refusal(500, "InternalError", err.Error())
	}
	var after []byte
	if r.PatchType == types.MergePatchType {
		after, err = jsonpatch.MergePatch(before, r.Body)
	} else {
		after, err = strategicpatch.StrategicMergePatch(before, r.Body, old)
	}
	if err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	next, err := a.decode(ref.Kind, after)
	if err != nil {
		return refusal(422, "Invalid", err.Error())
	}
	keepManaged(next, old)
	a.store(ref, old, next)
	return a.answer(a.current(ref, next))
}

func (a *API) delete(ref events.Ref, o *metav1.DeleteOptions) plan.Response {
	old, ok := a.objects[ref]
	if !ok {
		return refusal(404, "NotFound", ref.String()+" not found")
	}
	if o != nil && o.Preconditions != nil {
		if uid := o.Preconditions.UID; uid != nil && *uid != old.GetUID() {
			return refusal(409, "Conflict", "uid differs")
		}
		if v := o.Preconditions.ResourceVersion; v != nil && *v != old.GetResourceVersion() {
			return refusal(409, "Conflict", "the object has been modified")
		}
	}
	next := clone(old)
	next.SetFinalizers(deletionFinalizers(old.GetFinalizers(), o))
	grace := int64(0)
	if pod, isPod := old.(*corev1.Pod); isPod && pod.Spec.NodeName != "" {
		grace = 30
	}
	if len(next.GetFinalizers()) == 0 && grace == 0 {
		a.Writes++
		a.remove(ref, old)
		return plan.Response{Code: 200}
	}
	if next.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(a.now())
		next.SetDeletionTimestamp(&at)
		next.SetDeletionGracePeriodSeconds(&grace)
		next.SetGeneration(old.GetGeneration() + 1)
	}
	a.store(ref, old, next)
	return a.answer(a.current(ref, next))
}

// deletionFinalizers are the finalizers after a delete with a propagation.
// Upstream: registry/generic/registry, deletionFinalizersForGarbageCollection.
func deletionFinalizers(have []string, o *metav1.DeleteOptions) []string {
	if o == nil || o.PropagationPolicy == nil {
		return have
	}
	kept := slices.DeleteFunc(slices.Clone(have), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch *o.PropagationPolicy {
	case metav1.DeletePropagationForeground:
		return append(kept, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		return append(kept, metav1.FinalizerOrphanDependents)
	default:
		return kept
	}
}

// Finish takes away a deleting object once nothing holds it, as the node does
// with a pod.
func (a *API) Finish(ref events.Ref) {
	old, ok := a.objects[ref]
	if ok && old.GetDeletionTimestamp() != nil && len(old.GetFinalizers()) == 0 {
		a.remove(ref, old)
	}
}

// store commits a changed object; one that is the same is left as it is, and a
// deleting one that nothing holds any more goes.
func (a *API) store(ref events.Ref, old, next metav1.Object) {
	if equal(old, next) {
		return
	}
	a.Writes++
	if !equalSpec(old, next) {
		next.SetGeneration(old.GetGeneration() + 1)
	}
	_, isPod := next.(*corev1.Pod)
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 && !isPod {
		a.remove(ref, next)
		return
	}
	a.commit(ref, events.Is, next)
}

func (a *API) remove(ref events.Ref, last metav1.Object) {
	last = clone(last)
	delete(a.objects, ref)
	a.version++
	last.SetResourceVersion(strconv.FormatInt(a.version, 10))
	a.log[ref.Kind] = append(a.log[ref.Kind], Change{Op: events.Gone, Object: last, Version: a.version})
}

func (a *API) commit(ref events.Ref, op events.Op, obj metav1.Object) {
	a.version++
	obj.SetResourceVersion(strconv.FormatInt(a.version, 10))
	a.objects[ref] = obj
	a.log[ref.Kind] = append(a.log[ref.Kind], Change{Op: op, Object: obj, Version: a.version})
}

// current is the stored object, or what it was when the write took it away.
func (a *API) current(ref events.Ref, written metav1.Object) metav1.Object {
	if obj, ok := a.objects[ref]; ok {
		return obj
	}
	return written
}

func (a *API) answer(obj metav1.Object) plan.Response {
	body, err := json.Marshal(obj)
	if err != nil {
		return refusal(500, "InternalError", err.Error())
	}
	return plan.Response{Code: 200, Body: body, Object: plan.Object{
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Deleting: obj.GetDeletionTimestamp() != nil,
		Grace: obj.GetDeletionGracePeriodSeconds(), Finalizers: len(obj.GetFinalizers()) > 0, Owners: obj.GetOwnerReferences(),
		Waiting: waits(obj),
	}}
}

func (a *API) ownerRef(o *metav1.OwnerReference, namespace string) (events.Ref, bool) {
	for _, name := range slices.Sorted(maps.Keys(a.kinds)) {
		if k := a.kinds[name]; k.Kind == o.Kind && k.APIVersion() == o.APIVersion {
			if !k.Namespaced {
				namespace = ""
			}
			return events.Ref{Kind: name, Namespace: namespace, Name: o.Name}, true
		}
	}
	return events.Ref{}, false
}

func (a *API) decode(kind kinds.Name, body []byte) (metav1.Object, error) {
	k, ok := a.kinds[kind]
	if !ok {
		return nil, fmt.Errorf("no such kind: %s", kind)
	}
	return kinds.Decode(k, kinds.JSON, body)
}

func refusal(code int, reason, message string) plan.Response {
	return plan.Response{Code: code, Reason: reason, Message: message}
}

func clone(obj metav1.Object) metav1.Object {
	return obj.(runtime.Object).DeepCopyObject().(metav1.Object)
}
