package apiserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// API is a simulated API server: versions, uids, generations, preconditions, finalizers and graceful
// deletion, as far as the controllers can tell the difference. It keeps every change for
// watchers. It never changes a stored object: each change stores another one.
type API struct {
	now     func() time.Time
	Kinds   []*Collection
	Version int64
	creates int64
	// Encoding is the current encoding of objects, and encoded that of each version; nil if it
	// does not matter.
	Encoding int
	Encoded  map[Stored]int
	// Writes counts the requests that changed something.
	Writes int
	// Refuse, when set, refuses a write before it happens.
	Refuse func(plan.Request) *plan.Response
	// Meter returns the load of the pods that the scale of a Deployment selects.
	Meter func(d *appsv1.Deployment, selector string) query.Reading
	// Allows reports whether a user may do something; nil: no user may do anything.
	Allows func(asked authorizationv1.SubjectAccessReviewSpec, now time.Time) bool
	// Changed, when set, is called for every change: old is nil for a create, now for a delete.
	Changed func(ref events.Ref, old, now metav1.Object)
}

// Collection is everything of one kind.
type Collection struct {
	Kind    kinds.Kind
	Objects map[events.Ref]metav1.Object
	Sorted  []metav1.Object // by namespace and name
	Log     []Change
	// Compacted is the version up to which watchers cannot be told any more.
	Compacted int64
	fresh     func() metav1.Object
}

// Change is one change in the log of a kind.
type Change struct {
	Op      events.Op
	Object  metav1.Object // its state after the change; for Gone its last one
	Version int64
}

// makers make the objects of every kind that the simulated API server can serve.
var makers = map[kinds.Name]func() metav1.Object{
	kinds.Deployments.Name:          func() metav1.Object { return &appsv1.Deployment{} },
	kinds.ReplicaSets.Name:          func() metav1.Object { return &appsv1.ReplicaSet{} },
	kinds.Pods.Name:                 func() metav1.Object { return &corev1.Pod{} },
	kinds.Namespaces.Name:           func() metav1.Object { return &corev1.Namespace{} },
	kinds.PodDisruptionBudgets.Name: func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
	kinds.ServiceAccounts.Name:      func() metav1.Object { return &corev1.ServiceAccount{} },
	kinds.ConfigMaps.Name:           func() metav1.Object { return &corev1.ConfigMap{} },
}

// New returns an empty API server that serves the kinds.
func New(now func() time.Time, served ...kinds.Kind) *API {
	a := &API{now: now, Version: 100}
	for _, k := range served {
		a.Kinds = append(a.Kinds, &Collection{Kind: k, Objects: map[events.Ref]metav1.Object{}, fresh: maker(k.Name)})
	}
	return a
}

// Of is the collection of a kind; nil for a kind that is not served.
func (a *API) Of(kind kinds.Name) *Collection {
	for _, c := range a.Kinds {
		if c.Kind.Name == kind {
			return c
		}
	}
	return nil
}

// Has reports whether an object exists.
func (a *API) Has(ref events.Ref) bool {
	c := a.Of(ref.Kind)
	return c != nil && c.Objects[ref] != nil
}

// Do carries out a request, like the writer's door.
func (a *API) Do(r plan.Request) plan.Response {
	if r.Verb.Writes() && a.Refuse != nil {
		if refusal := a.Refuse(r); refusal != nil {
			return *refusal
		}
	}
	switch {
	case r.Verb == plan.Search && r.Subresource == query.SubReadings:
		return a.readings(r)
	case r.Verb == plan.Search && r.Subresource == query.SubRanges:
		return a.ranges(r.Kind)
	}
	ref := events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	if r.Owner != nil {
		var refusal *plan.Response
		if ref, refusal = a.ownerOf(r); refusal != nil {
			return *refusal
		}
	}
	c := a.Of(ref.Kind)
	if c == nil {
		return Refusal(404, "NotFound", "no such kind: "+string(ref.Kind))
	}
	old, there := c.Objects[ref]
	switch {
	case r.Verb == plan.Create && there:
		return Refusal(409, string(metav1.StatusReasonAlreadyExists), ref.String()+" already exists")
	case r.Verb == plan.Create:
		if refusal := a.closed(ref.Namespace); refusal != nil {
			return *refusal
		}
		return a.create(c, ref, r.Body)
	case !there:
		return Refusal(404, "NotFound", ref.String()+" not found")
	case r.Subresource == "scale":
		return a.scale(c, ref, old, r)
	}
	switch r.Verb {
	case plan.Look:
		return answer(old)
	case plan.Read:
		return whole(old)
	case plan.Update:
		return a.update(c, ref, old, r)
	case plan.Patch:
		return a.patch(c, ref, old, r)
	case plan.Delete:
		return a.delete(c, ref, old, r.Delete)
	case plan.Search:
		return a.asked(old, r)
	default:
		return Refusal(400, "BadRequest", "unknown verb "+string(r.Verb))
	}
}

// asked answers a question about an existing object.
func (a *API) asked(about metav1.Object, r plan.Request) plan.Response {
	switch r.Subresource {
	case query.SubUsers:
		return a.users(about)
	case query.SubReview:
		return a.review(about, r.Body)
	case query.SubTypes:
		return typesOf(about, r.Body)
	case query.SubObjects:
		return a.objects(about, r.Body)
	case query.SubExpiry:
		response := answer(about)
		response.Body, _ = json.Marshal(query.ExpiryOf(about.(*corev1.Secret))) // every time in it has a form
		return response
	default:
		return a.search(about, r.Body)
	}
}

// Get is the object of a name, nil when there is none. The caller must not change it.
func (a *API) Get(ref events.Ref) metav1.Object {
	if c := a.Of(ref.Kind); c != nil {
		return c.Objects[ref]
	}
	return nil
}

// List is every object of a kind, sorted by namespace and name. The caller must not change the
// list or its objects.
func (a *API) List(kind kinds.Name) []metav1.Object {
	if c := a.Of(kind); c != nil {
		return c.Sorted
	}
	return nil
}

// Load stores an object as it is, with a new version.
func (a *API) Load(kind kinds.Name, obj metav1.Object) {
	ref := events.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	a.commit(a.Of(kind), ref, a.Get(ref), clone(obj))
}

// Change lets something other than a controller change an object: a user, the scheduler, a
// node. change gets a copy.
func (a *API) Change(ref events.Ref, change func(metav1.Object)) {
	c := a.Of(ref.Kind)
	if old, ok := c.Objects[ref]; ok {
		next := clone(old)
		change(next)
		a.store(c, ref, old, next)
	}
}

func (a *API) create(c *Collection, ref events.Ref, body []byte) plan.Response {
	obj := c.fresh()
	if err := json.Unmarshal(body, obj); err != nil {
		return Refusal(422, "Invalid", err.Error())
	}
	a.creates++
	obj.SetUID(types.UID("uid-" + strconv.FormatInt(a.creates, 10)))
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(a.now()))
	obj.SetDeletionTimestamp(nil)
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending}
	case *corev1.Namespace:
		o.Status.Phase = corev1.NamespaceActive
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		o.Generation = 0 // it has none
	default:
		defaulted(obj)
	}
	a.Writes++
	a.commit(c, ref, nil, obj)
	return answer(obj)
}

func (a *API) update(c *Collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	next := c.fresh()
	if err := json.Unmarshal(r.Body, next); err != nil {
		return Refusal(422, "Invalid", err.Error())
	}
	if next.GetUID() != "" && next.GetUID() != old.GetUID() {
		return Refusal(409, "Conflict", "uid differs")
	}
	if next.GetResourceVersion() != "" && next.GetResourceVersion() != old.GetResourceVersion() {
		return Refusal(409, "Conflict", "the object has been modified")
	}
	keepManaged(next, old)
	switch r.Subresource {
	case "status":
		restoreSpec(next, old)
	case "finalize":
		next = finalize(next, old)
	case query.SubApproval:
		next = judged(next, old, a.now())
	default:
		restoreStatus(next, old)
	}
	return answer(a.store(c, ref, old, next))
}

func (a *API) patch(c *Collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	switch {
	case r.FillsToken():
		return a.fillToken(c, ref, old, r)
	case r.Certifies():
		return a.certify(c, ref, old, r)
	case r.Signs():
		return a.sign(c, ref, old, r)
	}
	var asked struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(r.Body, &asked); err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	if m := asked.Metadata; (m.UID != "" && m.UID != old.GetUID()) || (m.ResourceVersion != "" && m.ResourceVersion != old.GetResourceVersion()) {
		return Refusal(409, "Conflict", "the precondition of the patch does not hold")
	}
	before, err := json.Marshal(old)
	if err != nil {
		return Refusal(500, "InternalError", err.Error())
	}
	var after []byte
	if r.PatchType == types.MergePatchType {
		after, err = jsonpatch.MergePatch(before, r.Body)
	} else {
		after, err = strategicpatch.StrategicMergePatch(before, r.Body, old)
	}
	if err != nil {
		return Refusal(400, "BadRequest", err.Error())
	}
	next := c.fresh()
	if err := json.Unmarshal(after, next); err != nil {
		return Refusal(422, "Invalid", err.Error())
	}
	if retyped(old, next) || reranged(old, next) {
		return Refusal(422, "Invalid", "this cannot be changed")
	}
	keepManaged(next, old)
	if equal(old, next) {
		return answer(a.rewrite(c, ref, old))
	}
	return answer(a.store(c, ref, old, next))
}

func (a *API) delete(c *Collection, ref events.Ref, old metav1.Object, o *metav1.DeleteOptions) plan.Response {
	if o != nil && o.Preconditions != nil {
		if uid := o.Preconditions.UID; uid != nil && *uid != old.GetUID() {
			return Refusal(409, "Conflict", "uid differs")
		}
		if v := o.Preconditions.ResourceVersion; v != nil && *v != old.GetResourceVersion() {
			return Refusal(409, "Conflict", "the object has been modified")
		}
	}
	next := clone(old)
	next.SetFinalizers(deletionFinalizers(old.GetFinalizers(), o))
	grace := int64(0)
	if pod, isPod := old.(*corev1.Pod); isPod && pod.Spec.NodeName != "" && !atOnceAsked(o) {
		grace = 30
	}
	if len(next.GetFinalizers()) == 0 && grace == 0 && !kept(next) {
		a.Writes++
		a.remove(c, ref, old, old)
		return plan.Response{Code: 200}
	}
	if next.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(a.now())
		next.SetDeletionTimestamp(&at)
		next.SetDeletionGracePeriodSeconds(&grace)
		if ns, ok := next.(*corev1.Namespace); ok {
			ns.Status.Phase = corev1.NamespaceTerminating
		} else {
			next.SetGeneration(old.GetGeneration() + 1)
		}
	}
	return answer(a.store(c, ref, old, next))
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

// Finish deletes an object that is being deleted once no finalizer holds it, like a node does
// with a pod.
func (a *API) Finish(ref events.Ref) {
	c := a.Of(ref.Kind)
	old, ok := c.Objects[ref]
	if ok && old.GetDeletionTimestamp() != nil && len(old.GetFinalizers()) == 0 {
		a.remove(c, ref, old, old)
	}
}

// store commits a changed object and returns the result. It leaves an unchanged object alone,
// and deletes one that is being deleted and has no finalizers any more.
func (a *API) store(c *Collection, ref events.Ref, old, next metav1.Object) metav1.Object {
	if equal(old, next) {
		return old
	}
	a.Writes++
	if !equalSpec(old, next) {
		next.SetGeneration(old.GetGeneration() + 1)
	}
	_, isPod := next.(*corev1.Pod)
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 && !isPod && !kept(next) {
		a.remove(c, ref, old, next)
		return next
	}
	a.commit(c, ref, old, next)
	return next
}

func (a *API) remove(c *Collection, ref events.Ref, old, last metav1.Object) {
	last = clone(last)
	a.Version++
	last.SetResourceVersion(strconv.FormatInt(a.Version, 10))
	c.put(ref, nil)
	c.Log = append(c.Log, Change{Op: events.Gone, Object: last, Version: a.Version})
	if a.Changed != nil {
		a.Changed(ref, old, nil)
	}
}

func (a *API) commit(c *Collection, ref events.Ref, old, obj metav1.Object) {
	a.Version++
	obj.SetResourceVersion(strconv.FormatInt(a.Version, 10))
	if a.Encoded != nil {
		a.Encoded[StoredAs(obj)] = a.Encoding
	}
	c.put(ref, obj)
	c.Log = append(c.Log, Change{Op: events.Is, Object: obj, Version: a.Version})
	if a.Changed != nil {
		a.Changed(ref, old, obj)
	}
}

// put stores an object under its name; nil deletes it.
func (c *Collection) put(ref events.Ref, obj metav1.Object) {
	at, found := slices.BinarySearchFunc(c.Sorted, ref, func(o metav1.Object, ref events.Ref) int {
		return cmp.Or(cmp.Compare(o.GetNamespace(), ref.Namespace), cmp.Compare(o.GetName(), ref.Name))
	})
	// A loop over a list may change the collection: never change the list in place.
	switch {
	case obj == nil:
		delete(c.Objects, ref)
		if found {
			c.Sorted = slices.Concat(c.Sorted[:at], c.Sorted[at+1:])
		}
		return
	case found:
		c.Sorted = slices.Clone(c.Sorted)
		c.Sorted[at] = obj
	default:
		c.Sorted = slices.Insert(slices.Clone(c.Sorted), at, obj)
	}
	c.Objects[ref] = obj
}

// After is the index in the log of the first change with a later version.
func (c *Collection) After(version int64) int {
	at, _ := slices.BinarySearchFunc(c.Log, version, func(x Change, v int64) int {
		if x.Version <= v {
			return -1
		}
		return 1
	})
	return at
}

// Restore brings everything back to a version, as from a backup. The server assigns versions
// again from there; uids it does not.
func (a *API) Restore(version int64) {
	for _, c := range a.Kinds {
		was := c.Objects
		c.Log = c.Log[:c.After(version):c.After(version)]
		c.Objects, c.Sorted = map[events.Ref]metav1.Object{}, nil
		for _, change := range c.Log {
			ref := events.Ref{Kind: c.Kind.Name, Namespace: change.Object.GetNamespace(), Name: change.Object.GetName()}
			if change.Op == events.Gone {
				c.put(ref, nil)
			} else {
				c.put(ref, change.Object)
			}
		}
		a.told(c, was)
	}
	a.Version = version
}

// told reports a restore's changes of a collection.
func (a *API) told(c *Collection, was map[events.Ref]metav1.Object) {
	if a.Changed == nil {
		return
	}
	for ref, old := range was {
		if c.Objects[ref] == nil {
			a.Changed(ref, old, nil)
		}
	}
	for ref, now := range c.Objects {
		if old := was[ref]; old != now {
			a.Changed(ref, old, now)
		}
	}
}

// Compact forgets the history: a watcher that has not received all of it has to list.
func (a *API) Compact() {
	for _, c := range a.Kinds {
		c.Compacted = a.Version
	}
}

func answer(obj metav1.Object) plan.Response {
	return plan.Response{Code: 200, Object: plan.Object{
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Deleting: obj.GetDeletionTimestamp() != nil,
		Grace: obj.GetDeletionGracePeriodSeconds(), Finalizers: len(obj.GetFinalizers()) > 0, Owners: obj.GetOwnerReferences(),
		Waiting: Waits(obj),
	}}
}

// whole is an answer with the whole object.
func whole(obj metav1.Object) plan.Response {
	body, err := json.Marshal(obj)
	if err != nil {
		return Refusal(500, "InternalError", err.Error())
	}
	r := answer(obj)
	r.Body = body
	return r
}

// ownerOf is the owner of a request, or the refusal if it cannot exist.
func (a *API) ownerOf(r plan.Request) (events.Ref, *plan.Response) {
	switch ref, known := a.OwnerRef(r.Owner, r.Namespace); {
	case !known:
		return ref, &plan.Response{Reason: plan.ReasonNoMatch}
	case ref.Namespace == "" && a.Of(ref.Kind).Kind.Namespaced:
		return ref, &plan.Response{Reason: plan.ReasonUnresolvable}
	default:
		return ref, nil
	}
}

// OwnerRef is the object that an owner reference in a namespace names; false for a kind that is not served.
func (a *API) OwnerRef(o *metav1.OwnerReference, namespace string) (events.Ref, bool) {
	for _, c := range a.Kinds {
		if c.Kind.Kind == o.Kind && c.Kind.APIVersion() == o.APIVersion {
			if !c.Kind.Namespaced {
				namespace = ""
			}
			return events.Ref{Kind: c.Kind.Name, Namespace: namespace, Name: o.Name}, true
		}
	}
	return events.Ref{}, false
}

// Refusal is the answer to a request that is not carried out.
func Refusal(code int, reason, message string) plan.Response {
	return plan.Response{Code: code, Reason: reason, Message: message}
}

func clone(obj metav1.Object) metav1.Object {
	return obj.(runtime.Object).DeepCopyObject().(metav1.Object)
}

// Number is a version as a number; versions of the simulated API server are numbers.
func Number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("the simulated API server never handed out the version %q", version))
	}
	return n
}

// RefOf is the place of an object of a kind.
func RefOf(kind kinds.Name, obj metav1.Object) events.Ref {
	return events.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
