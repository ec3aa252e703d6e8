package metadata

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	clienttesting "k8s.io/client-go/testing"
	upstream "k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	collector "github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// The kinds of a world with owners: two built-in ones, of which one has no namespace; a custom one, whose
// objects accept only JSON merge patches; and one that is served but not watched.
var (
	ownedMaps    = kinds.Kind{Name: "configmaps", Version: "v1", Kind: "ConfigMap", Namespaced: true, Form: kinds.Metadata}
	ownedNodes   = kinds.Kind{Name: "nodes", Version: "v1", Kind: "Node", Form: kinds.Metadata}
	ownedWidgets = kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Namespaced: true, Form: kinds.Metadata}
	unwatched    = kinds.Kind{Name: "gadgets.example.com", Version: "v1", Kind: "Gadget", Namespaced: true, Form: kinds.Metadata}

	ownedKinds = []kinds.Kind{ownedMaps, ownedNodes, ownedWidgets, unwatched}
	collected  = ownedKinds[:3]
)

// OwnedKinds are the kinds of such a world; the last one is not watched.
func OwnedKinds() []kinds.Kind { return slices.Clone(ownedKinds) }

// Garbage is a world with owners, in chapters: each has the writes of users at one moment, after which both
// collectors run undisturbed.
type Garbage struct {
	Chapters []func(*apiserver.API)
	// Refuse, when set, makes the function that refuses writes.
	Refuse func() func(plan.Request) *plan.Response
}

// chapterOfGarbage is how long a chapter takes. All retries and resyncs have happened by then.
const chapterOfGarbage = 20 * time.Minute

// Compare runs the chapters with both, and shows the differences; "" if there are none. Compared are, after
// each chapter, all objects, and the options of all deletes.
func (w Garbage) Compare(t *testing.T) (diff string, err error) {
	var theirs []page
	synctest.Test(t, func(*testing.T) { theirs, err = w.theirs() })
	if err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	ours, err := w.ours()
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	for i := range theirs {
		if diff := effect.EqualSets(theirs[i].lines, ours[i].lines); diff != "" {
			return fmt.Sprintf("after chapter %d:\n%s- wrote\n  %s\n+ wrote\n  %s\n", i, diff,
				strings.Join(theirs[i].wrote, "\n  "), strings.Join(ours[i].wrote, "\n  ")), nil
		}
	}
	return "", nil
}

// page has the objects after a chapter, and the writes in it.
type page struct{ lines, wrote []string }

func (w Garbage) stage(now func() time.Time) *stage.Stage {
	s := stage.NewStage(now, ownedKinds...)
	var more func(plan.Request) *plan.Response
	if w.Refuse != nil {
		more = w.Refuse()
	}
	s.Refuse = func(r plan.Request) *plan.Response {
		if r.Verb == plan.Patch && r.PatchType == types.StrategicMergePatchType && strings.Contains(string(r.Kind), "example.com") {
			return &plan.Response{Code: 415, Reason: string(metav1.StatusReasonUnsupportedMediaType), Message: "the body of the request was in an unknown format"}
		}
		if more != nil {
			return more(r)
		}
		return nil
	}
	return s
}

// owners are the uids of all objects that were ever named as owners.
type owners map[types.UID]bool

func (o owners) note(objects []metav1.Object) {
	for _, obj := range objects {
		for _, ref := range obj.GetOwnerReferences() {
			o[ref.UID] = true
		}
	}
}

// page is the page of a chapter whose first write is the given one. The options of a delete count only if the
// object has no dependents: otherwise upstream depends on which of two it processes first, and tries twice in
// a circle.
func pageOf(s *stage.Stage, from int, owners owners) page {
	p := page{wrote: slices.Clone(s.Writes[from:])}
	for _, obj := range s.Objects() {
		p.lines = append(p.lines, stateOf(obj))
	}
	for _, line := range p.wrote {
		if verb, rest, _ := strings.Cut(line, " "); verb == string(plan.Delete) {
			p.lines = append(p.lines, deleted(rest, owners))
		}
	}
	return p
}

// deleted is a delete in compared form: kind, name, propagation, "uid" and uid.
func deleted(line string, owners owners) string {
	words := strings.Fields(line)
	if owners[types.UID(words[len(words)-1])] {
		return "delete " + strings.Join(words[:2], " ")
	}
	return "delete " + line
}

// stateOf are the fields of an object that matter to garbage collection.
func stateOf(obj metav1.Object) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s/%s", obj.GetUID(), obj.GetNamespace(), obj.GetName())
	if obj.GetDeletionTimestamp() != nil {
		b.WriteString(" deleting")
	}
	if f := obj.GetFinalizers(); len(f) > 0 {
		fmt.Fprintf(&b, " finalizers %v", slices.Sorted(slices.Values(f)))
	}
	for _, ref := range obj.GetOwnerReferences() {
		fmt.Fprintf(&b, " of %s %s %s %s", ref.APIVersion, ref.Kind, ref.Name, ref.UID)
		if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
			b.WriteString(" blocks")
		}
	}
	return b.String()
}

func (w Garbage) ours() (pages []page, err error) {
	a := &stage.Actor{Controller: collector.Controller, Now: objects.Now}
	a.Stage = w.stage(func() time.Time { return a.Now })
	a.Begin(collected...)
	a.Later = func(key events.Key) bool { // upstream processes an owner's dependents before it deletes the owner
		obj, ok := a.See.Get(key.Kind, key.Namespace, key.Name)
		return ok && obj.GetDeletionTimestamp() != nil
	}
	owners := owners{}
	for _, chapter := range w.Chapters {
		from := len(a.Stage.Writes)
		a.Stage.Do(chapter)
		owners.note(a.Stage.Objects())
		if err := a.Until(a.Now.Add(chapterOfGarbage)); err != nil {
			return nil, err
		}
		pages = append(pages, pageOf(a.Stage, from, owners))
	}
	return pages, nil
}

func (w Garbage) theirs() (pages []page, err error) {
	time.Sleep(time.Until(objects.Now))
	s := w.stage(time.Now)
	client, written := clientset.NewClientset(), metadatafake.NewSimpleMetadataClient(partials())
	client.PrependReactor("*", "events", func(action clienttesting.Action) (_ bool, e runtime.Object, _ error) {
		s.Locked(func() { e = s.Record(action) })
		return true, e, nil
	})
	if err := s.Connect(written, written.Tracker(), stage.MetadataOnly); err != nil {
		return nil, err
	}
	informers, started := metadataOnly{metadatainformer.NewSharedInformerFactory(written, 0)}, make(chan struct{})
	close(started)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gc, err := upstream.NewGarbageCollector(ctx, client, written, mapperOf(ownedKinds), upstream.DefaultIgnoredResources(), informers, started)
	if err != nil {
		return nil, fmt.Errorf("make the garbage collector: %w", err)
	}
	stage.Beside(func(ctx context.Context) {
		done := make(chan struct{})
		go func() { defer close(done); gc.Sync(ctx, preferred{}, time.Hour) }()
		gc.Run(ctx, 1, time.Minute)
		<-done
	}, func() {
		time.Sleep(10 * time.Second)
		owners := owners{}
		for _, chapter := range w.Chapters {
			from := len(s.Writes)
			s.Do(chapter)
			s.Do(func(*apiserver.API) { owners.note(s.Objects()) })
			time.Sleep(chapterOfGarbage)
			synctest.Wait()
			s.Locked(func() { pages = append(pages, pageOf(s, from, owners)) })
		}
	})
	informers.Shutdown()
	return pages, nil
}

// partials is the scheme of a client for metadata only.
func partials() *runtime.Scheme {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err) // it is upstream's own
	}
	return scheme
}

// metadataOnly makes metadata informers for all kinds.
type metadataOnly struct {
	metadatainformer.SharedInformerFactory
}

// ForResource returns the informer of a kind.
func (m metadataOnly) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	return m.SharedInformerFactory.ForResource(r), nil
}

// Start starts the informers.
func (m metadataOnly) Start(stop <-chan struct{}) { m.SharedInformerFactory.Start(stop) }

// preferred is the discovery of watchable kinds.
type preferred struct {
	discovery.ServerResourcesInterface
}

// ServerPreferredResources returns the watched kinds.
func (preferred) ServerPreferredResources() (lists []*metav1.APIResourceList, err error) {
	for _, k := range collected {
		lists = append(lists, &metav1.APIResourceList{GroupVersion: k.APIVersion(), APIResources: []metav1.APIResource{{
			Name: k.Name.Resource(), Namespaced: k.Namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"delete", "list", "watch"},
		}}})
	}
	return lists, nil
}

// mapped knows which resources are served.
type mapped struct{ meta.RESTMapper }

// Reset does nothing, because there is no cache.
func (mapped) Reset() {}

func mapperOf(served []kinds.Kind) mapped {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range served {
		scope := meta.RESTScopeRoot
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		m.AddSpecific(schema.GroupVersionKind(k.GVK()), k.GVR(), k.GVR(), scope)
	}
	return mapped{m}
}
