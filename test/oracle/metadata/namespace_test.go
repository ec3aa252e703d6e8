package metadata_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	namespaces "github.com/millrace/millrace/services/reconcilers/controllers/namespace"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

// TestNamespacesGoAsUpstreams empties arbitrary namespaces twice, once with each controller: both act until
// they only wait, then pods end, finalizers are removed or faults are fixed, and they act again. Whenever
// they wait, the rest of the namespace and its conditions must be the same, and ours must not wait longer
// than upstream.
//
// Left out: the message about what remains while there are pods, or objects that may not be deleted. In these
// cases upstream reports that nothing remains.
func TestNamespacesGoAsUpstreams(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		if diff := anyEnd(r).compare(t, namespaces.Controller); diff != "" {
			r.Fatal(diff)
		}
	})
}

// end is how a namespace ends: its content, and what happens in each chapter.
type end struct {
	world  *place
	happen []func(least time.Duration) func(*place)
}

// chapters is the maximum number of chapters: all faults are fixed by the sixth.
const chapters = 12

func anyEnd(r *rapid.T) end {
	e := end{world: anyNamespace(r)}
	for chapter := range chapters {
		e.happen = append(e.happen, happen(r, chapter))
	}
	return e
}

// compare runs both until the namespace is empty, and shows the differences.
func (e end) compare(t *testing.T, controller reconcile.Any) string {
	theirs, ours := e.world.copied(), e.world.copied()
	ours.controller = controller
	for chapter := 0; ; chapter++ {
		estimate := theirs.goUpstream(t)
		wait, err := ours.goOurs()
		if err != nil {
			return err.Error()
		}
		if a, b := theirs.picture(), ours.picture(); a != b {
			return fmt.Sprintf("in chapter %d upstream (-) and we (+) come to different ends:\n%s", chapter, oracletest.Unlike(a, b))
		}
		if estimate > 0 && wait > time.Duration(estimate/2+1)*time.Second {
			return fmt.Sprintf("upstream looks again in %d s, we in %v", estimate/2+1, wait)
		}
		if ours.gone() {
			return ""
		}
		if chapter == chapters {
			return "it does not go: " + ours.picture()
		}
		change := e.happen[chapter](wait)
		change(theirs)
		change(ours)
	}
}

// item is an object in a namespace.
type item struct {
	name       string
	uid        types.UID
	finalizers []string
	deleting   bool
	grace      int64 // of a pod that runs on a node
	done       bool  // a pod that has ended
	kept       bool  // the delete is forbidden
}

// variety is a kind with its items.
type variety struct {
	gvr      schema.GroupVersionResource
	atOnce   bool // deletecollection is supported
	unlisted bool // lists fail
	items    []item
}

func (s *variety) name() kinds.Name { return kinds.NameOf(s.gvr.Group, s.gvr.Resource) }

// place is a namespace with all its content.
type place struct {
	ns        *corev1.Namespace
	varieties []variety
	lost      bool // the discovery of a group fails
	// foreground is the number of deletes with another propagation than Background.
	foreground int
	// mute is whether its status cannot be written, bound whether its finalizer cannot be removed.
	mute, bound bool
	now         time.Time
	// Of ours:
	controller reconcile.Any
	last, told *events.Outcome
}

func (p *place) copied() *place {
	c := *p
	c.ns, c.varieties = p.ns.DeepCopy(), slices.Clone(p.varieties)
	for i := range c.varieties {
		c.varieties[i].items = slices.Clone(c.varieties[i].items)
	}
	return &c
}

func anyNamespace(t *rapid.T) *place {
	deleted := metav1.NewTime(objects.Now.Add(-time.Duration(rapid.SampledFrom([]int{5, 6, 20, 31, 100}).Draw(t, "deleted, seconds ago")) * time.Second))
	p := &place{now: objects.Now, ns: &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", ResourceVersion: "1", DeletionTimestamp: &deleted},
		Spec:       corev1.NamespaceSpec{Finalizers: rapid.SampledFrom([][]corev1.FinalizerName{{"kubernetes"}, {"example.com/ours", "kubernetes"}, nil}).Draw(t, "spec.finalizers")},
		Status:     corev1.NamespaceStatus{Phase: rapid.SampledFrom([]corev1.NamespacePhase{"Active", "Terminating", "Terminating"}).Draw(t, "phase")},
	}}
	p.lost = rapid.IntRange(0, 4).Draw(t, "lost") == 0
	p.mute, p.bound = rapid.IntRange(0, 3).Draw(t, "mute") == 0, rapid.IntRange(0, 3).Draw(t, "bound") == 0
	for _, s := range []variety{
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, atOnce: true},
		{gvr: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, atOnce: true},
		{gvr: schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "widgets"}},
		{gvr: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, atOnce: true},
	} {
		pods := s.gvr.Resource == "pods"
		s.unlisted = !pods && rapid.IntRange(0, 5).Draw(t, "unlisted") == 0
		for i := range rapid.IntRange(0, 3).Draw(t, "how many") {
			s.items = append(s.items, anyItem(t, s.name(), i, pods))
		}
		// Upstream stops at the first forbidden delete, ours goes on: so the item is the last.
		if n := len(s.items); !pods && n > 0 && !s.unlisted && !s.items[n-1].deleting {
			exemption.Uses("refused-and-goes-on")
			s.items[n-1].kept = rapid.IntRange(0, 3).Draw(t, "kept") == 0
		}
		p.varieties = append(p.varieties, s)
	}
	return p
}

func anyItem(t *rapid.T, kind kinds.Name, i int, pod bool) item {
	o := item{name: fmt.Sprint("o", i), uid: types.UID(fmt.Sprint(kind, "-", i))}
	o.finalizers = rapid.SampledFrom([][]string{nil, nil, {"example.com/a"}, {"example.com/a", "example.com/b"}, {metav1.FinalizerDeleteDependents}}).Draw(t, "finalizers")
	if pod {
		o.grace = rapid.SampledFrom([]int64{0, 2, 30, 60}).Draw(t, "grace")
		o.done = rapid.IntRange(0, 4).Draw(t, "done") == 0
	}
	o.deleting = (len(o.finalizers) > 0 || o.grace > 0 && !o.done) && rapid.IntRange(0, 3).Draw(t, "deleting") == 0
	return o
}

// happen draws what happens while both wait, for at least so long.
func happen(t *rapid.T, chapter int) func(least time.Duration) func(*place) {
	all := chapter >= 5
	what := func(name string) bool { return all || rapid.Bool().Draw(t, name) }
	end, free, mend, allow := what("pods end"), what("finalizers go"), what("what is broken is mended"), what("what was kept may go")
	speak, loose := what("its status may be written"), what("it may be let go")
	wait := time.Duration(rapid.IntRange(10, 80).Draw(t, "seconds go by")) * time.Second
	return func(least time.Duration) func(*place) {
		return func(p *place) {
			p.now = p.now.Add(wait + least)
			p.mute, p.bound = p.mute && !speak, p.bound && !loose
			p.goesOn(end, free, mend, allow)
		}
	}
}

// goesOn ends pods, removes finalizers, fixes faults and allows forbidden deletes.
func (p *place) goesOn(end, free, mend, allow bool) {
	p.lost = p.lost && !mend
	for i := range p.varieties {
		s := &p.varieties[i]
		s.unlisted = s.unlisted && !mend
		for j := range s.items {
			o := &s.items[j]
			o.kept = o.kept && !allow
			if o.deleting && free {
				o.finalizers = nil
			}
			if o.deleting && end {
				o.grace = 0
			}
		}
		s.items = slices.DeleteFunc(s.items, func(o item) bool { return o.deleting && len(o.finalizers) == 0 && (o.grace == 0 || o.done) })
	}
}

var errKept = errors.New(`admission webhook "keep.example.com" denied the request: keep`)

// remove deletes an item in the background.
func (s *variety) remove(name string) error {
	i := slices.IndexFunc(s.items, func(o item) bool { return o.name == name })
	if i < 0 {
		return apierrors.NewNotFound(s.gvr.GroupResource(), name)
	}
	o := &s.items[i]
	if o.kept {
		return errKept
	}
	o.finalizers = slices.DeleteFunc(slices.Clone(o.finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	if o.deleting = true; len(o.finalizers) == 0 && (o.grace == 0 || o.done) {
		s.items = slices.Delete(s.items, i, i+1)
	}
	return nil
}

func (s *variety) unavailable() error {
	if s.unlisted {
		return apierrors.NewServiceUnavailable("conversion webhook of " + s.gvr.Resource + " failed")
	}
	return nil
}

func (p *place) discover() ([]*metav1.APIResourceList, error) {
	var lists []*metav1.APIResourceList
	for _, s := range p.varieties {
		verbs := metav1.Verbs{"delete", "list"}
		if s.atOnce {
			verbs = append(verbs, "deletecollection")
		}
		lists = append(lists, &metav1.APIResourceList{
			GroupVersion: s.gvr.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: s.gvr.Resource, Namespaced: true, Verbs: verbs}},
		})
	}
	if p.lost {
		return lists, &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("stale GroupVersion discovery: metrics.k8s.io/v1")}}
	}
	return lists, nil
}

func (p *place) deletes(how metav1.DeletionPropagation) {
	if how != metav1.DeletePropagationBackground {
		p.foreground++
	}
}

func (p *place) gone() bool { return !slices.Contains(p.ns.Spec.Finalizers, "kubernetes") }

// picture is the rest of a namespace, and its status.
func (p *place) picture() string {
	var b strings.Builder
	fmt.Fprintln(&b, "finalizers", p.ns.Spec.Finalizers, "phase", p.ns.Status.Phase)
	fmt.Fprintln(&b, "deletes not in the background:", p.foreground)
	for _, s := range p.varieties {
		for _, o := range s.items {
			fmt.Fprintln(&b, s.name(), o.name, o.finalizers, "deleting:", o.deleting)
		}
	}
	for _, c := range p.ns.Status.Conditions {
		if p.unspoken() && (c.Type == corev1.NamespaceContentRemaining || c.Type == corev1.NamespaceFinalizersRemaining) {
			exemption.Uses("remains-with-pods")
			continue
		}
		fmt.Fprintln(&b, c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

// unspoken is true if upstream does not report what remains.
func (p *place) unspoken() bool {
	return len(p.varieties[0].items) > 0 || slices.ContainsFunc(p.varieties, func(s variety) bool {
		return slices.ContainsFunc(s.items, func(o item) bool { return o.kept })
	})
}

// goUpstream lets upstream's deleter act until it only waits, and returns its estimate of the wait in
// seconds.
func (p *place) goUpstream(t *testing.T) (estimate int64) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(p.now))
		client, meta := fake.NewSimpleClientset(), metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
		client.PrependReactor("*", "*", p.answerNamespaces)
		meta.PrependReactor("*", "*", p.answerLists)
		d := deletion.NewNamespacedResourcesDeleter(t.Context(), client.CoreV1().Namespaces(), meta, client.CoreV1(), p.discover, corev1.FinalizerKubernetes)
		for range 3 { // its status and its acts are stable by then
			estimate = 0
			var remaining *deletion.ResourcesRemainingError
			if err := d.Delete(context.Background(), p.ns.Name); errors.As(err, &remaining) {
				estimate = remaining.Estimate
			}
		}
	})
	return estimate
}

func (p *place) answerNamespaces(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.Matches("list", "pods") {
		return true, p.pods(), nil
	}
	// The fake client sends a finalize as a create.
	if a, writes := action.(clienttesting.CreateAction); writes {
		if err := p.write(a.GetObject().(*corev1.Namespace), a.GetSubresource()); err != nil {
			return true, nil, err
		}
	}
	return true, p.ns.DeepCopy(), nil
}

func (p *place) pods() *corev1.PodList {
	list := &corev1.PodList{}
	for _, o := range p.varieties[0].items {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &o.grace}}
		if o.done {
			pod.Status.Phase = corev1.PodSucceeded
		}
		list.Items = append(list.Items, pod)
	}
	return list
}

func (p *place) write(ns *corev1.Namespace, subresource string) error {
	switch {
	case subresource == "finalize" && p.bound, subresource == "status" && p.mute:
		return errKept
	case subresource == "finalize":
		p.ns.Spec.Finalizers = ns.Spec.Finalizers
	default:
		p.ns.Status = ns.Status
	}
	return nil
}

func (p *place) answerLists(action clienttesting.Action) (bool, runtime.Object, error) {
	i := slices.IndexFunc(p.varieties, func(s variety) bool { return s.gvr == action.GetResource() })
	s := &p.varieties[i]
	if err := s.unavailable(); err != nil {
		return true, nil, err // the API server lists the objects of a deletecollection
	}
	if a, deletes := action.(interface {
		GetDeleteOptions() metav1.DeleteOptions
	}); deletes {
		if policy := a.GetDeleteOptions().PropagationPolicy; policy != nil { // the fake client loses that of a collection
			p.deletes(*policy)
		}
	}
	switch action.GetVerb() {
	case "delete-collection":
		for _, o := range slices.Clone(s.items) {
			if err := s.remove(o.name); err != nil {
				return true, nil, err
			}
		}
		return true, nil, nil
	case "delete":
		return true, nil, s.remove(action.(clienttesting.DeleteAction).GetName())
	default:
		list := &metav1.List{}
		for _, o := range s.items {
			list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.name, Finalizers: o.finalizers}}})
		}
		return true, list, nil
	}
}

// goOurs lets our controller act until it only waits, and returns the duration of the wait.
func (p *place) goOurs() (time.Duration, error) {
	key := events.Key{Name: p.ns.Name}
	for range 24 {
		world := reconciletest.NewWorld().Put(kinds.Namespaces.Kind, p.ns)
		for _, o := range []*events.Outcome{p.last, p.told} {
			if o != nil {
				world.Remember(*o)
			}
		}
		d, ok := p.controller.Ask(world, key, p.now)
		acts := slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Lane() == events.LaneWrite })
		if !ok || len(d.Commands) == 0 || !acts && p.mute && p.told != nil {
			return max(d.WakeAt.Sub(p.now), 0), nil
		}
		if act := d.In(events.LaneWrite).Commands; acts && p.repeats(act) {
			return 0, nil // it retries a refusal with growing back-off
		}
		p.carry(key, d.Commands)
	}
	return 0, fmt.Errorf("it still acts: %s", p.picture())
}

// repeats reports whether the same commands failed just before.
func (p *place) repeats(commands []events.Command) bool {
	if p.last == nil || p.last.OK() || len(p.last.Results) != len(commands) {
		return false
	}
	for i, c := range commands {
		if p.last.Results[i].Ref != c.Ref() {
			return false
		}
	}
	return p.last.At.Equal(p.now)
}

// carry acts as the writer.
func (p *place) carry(key events.Key, commands []events.Command) {
	outcome := events.Outcome{Key: key, Lane: events.LaneWrite, UID: p.ns.UID, At: p.now}
	for _, c := range commands {
		r := events.Result{Ref: c.Ref(), UID: uidIn(c), Status: events.Applied}
		switch c.Verb {
		case events.VerbUpdate:
			ns := new(corev1.Namespace)
			if err := json.Unmarshal(c.Body, ns); err != nil {
				panic(err) // our own encoding
			}
			if err := p.write(ns, c.Subresource); err != nil {
				r.Status, r.Code, r.Message = events.Refused, 403, err.Error()
			}
			if c.Subresource == "status" {
				p.told = &events.Outcome{Key: key, Lane: events.LaneStatus, UID: p.ns.UID, At: p.now, Results: []events.Result{r}}
				continue // an outcome of the other lane
			}
		case events.VerbDelete:
			p.deletes(c.Propagation)
			i := slices.IndexFunc(p.varieties, func(s variety) bool { return s.name() == c.Kind })
			if err := p.varieties[i].remove(c.Name); err != nil {
				r.Status, r.Code, r.Message = events.Refused, 403, err.Error()
			}
		case events.VerbAsk:
			body, err := json.Marshal(p.contents())
			if err != nil {
				panic(err) // it has plain fields
			}
			r.Status, r.Answer = events.Answered, &events.Answer{Body: body}
		}
		outcome.Results = append(outcome.Results, r)
	}
	if len(outcome.Results) > 0 {
		p.last = &outcome
	}
}

// uidIn is the uid in a command's condition.
func uidIn(c events.Command) types.UID {
	if c.If == nil {
		return ""
	}
	return c.If.UID
}

// contents is the answer of the writer's door.
func (p *place) contents() (c query.Contents) {
	if _, err := p.discover(); err != nil {
		c.Undiscovered, c.Groups = err.Error(), 1
	}
	for i := range p.varieties {
		s := &p.varieties[i]
		h := query.Holding{Kind: s.name(), Version: s.gvr.Version, Finalizers: map[string]int{}}
		if err := s.unavailable(); err != nil {
			h.Failure = err.Error()
			c.Kinds = append(c.Kinds, h)
			continue
		}
		for _, o := range s.items {
			h.Count++
			for _, f := range o.finalizers {
				h.Finalizers[f]++
			}
			if !o.deleting || slices.Contains(o.finalizers, metav1.FinalizerDeleteDependents) {
				h.Standing = append(h.Standing, query.Standing{Name: o.name, UID: o.uid})
			} else if !o.done {
				h.Grace = max(h.Grace, o.grace)
			}
		}
		if h.Count > 0 {
			c.Kinds = append(c.Kinds, h)
		}
		if i == 0 && h.Count > 0 {
			c.Partial = true
			break
		}
	}
	return c
}

// TestNamespacesThatStopBite: the comparison detects a namespace controller that stops at a refused status,
// or reports nothing after it.
func TestNamespacesThatStopBite(t *testing.T) {
	ends := rapid.Custom(anyEnd)
	for name, controller := range map[string]reconcile.Any{"stops": waitsToSay{namespaces.Controller}, "says nothing more": oracletest.GiveUp(namespaces.Controller)} {
		t.Run(name, func(t *testing.T) {
			for seed := range oracletest.Enough {
				if ends.Example(seed).compare(t, controller) != "" {
					return
				}
			}
			t.Errorf("nothing was noticed in %d namespaces", oracletest.Enough)
		})
	}
}

// waitsToSay is one of our controllers that does nothing else until a refused status is written.
type waitsToSay struct{ reconcile.Any }

func (w waitsToSay) Ask(s reconcile.Snapshot, k events.Key, now time.Time) (reconcile.Decision, bool) {
	d, ok := w.Any.Ask(s, k, now)
	if tells := d.In(events.LaneStatus); len(tells.Commands) > 0 {
		return tells, ok
	}
	return d, ok
}
