package network

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	endpointsliceutil "k8s.io/endpointslice/util"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	upstreamendpoints "k8s.io/kubernetes/pkg/controller/endpoint"
	upstreamslices "k8s.io/kubernetes/pkg/controller/endpointslice"

	"github.com/millrace/millrace/services/reconcilers/controllers/endpoints"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslice"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
)

// Endpoints is the controller of Endpoints, the older lists of a service's pods.
var Endpoints = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		ec := upstreamendpoints.NewEndpointController(ctx, kcm.SilentPods{PodInformer: core.Pods()}, core.Services(), core.Endpoints(), c, 0)
		return func() { ec.Run(ctx, 1) }, nil
	},
	Ours: endpoints.Controller, Alone: frozen.NeverAlone, Fair: fairEndpoints,
}

// PerSlice is the capacity of a slice in the comparison: less than the number of endpoints.
const PerSlice = 3

// EndpointSlice is the controller of EndpointSlices.
var EndpointSlice = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		sc := upstreamslices.NewController(ctx, kcm.SilentPods{PodInformer: core.Pods()}, core.Services(), core.Nodes(), f.Discovery().V1().EndpointSlices(), PerSlice, c, 0)
		return func() { sc.Run(ctx, 1) }, nil
	},
	Ours: endpointslice.New(endpointslice.Config{Max: PerSlice}), Alone: frozen.NeverAlone, Fair: fairSlices,
}

// fairEndpoints compares the trigger time of a change with the one that upstream would have if it remembered
// the change before ([triggered]).
func fairEndpoints(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	shows := map[types.UID]bool{}
	for _, e := range theirs {
		if next := (&corev1.Endpoints{}); e.Verb != effect.Remove && json.Unmarshal([]byte(e.Body), next) == nil {
			maps.Copy(shows, readyIn(next))
		}
	}
	var said map[types.UID]bool
	for _, obj := range world {
		if e, ok := obj.(*corev1.Endpoints); ok {
			said = readyIn(e)
		}
	}
	theirs = exemption.Lets("remembered-times", theirs, effect.Rewritten(theirs, func(e effect.Effect) effect.Effect { return since(e, triggered(world, said, shows)) }))
	return effect.Rewritten(theirs, bare), effect.Rewritten(ours, bare)
}

// readyIn maps the pods in Endpoints to whether they are ready there.
func readyIn(e *corev1.Endpoints) map[types.UID]bool {
	said := map[types.UID]bool{}
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			said[a.TargetRef.UID] = true
		}
		for _, a := range s.NotReadyAddresses {
			said[a.TargetRef.UID] = false
		}
	}
	return said
}

// triggered is the time that upstream writes for the first change that it publishes, if it has published
// which pods are ready according to said, and is about to publish shows. It remembers the times of pods,
// which no world has: a pod whose readiness is published as it is has its earlier time, and so has a pod that
// neither shows. If said is nil, upstream has not seen the Service before.
func triggered(world []runtime.Object, said, shows map[types.UID]bool) string {
	var service *corev1.Service
	var before, now []*corev1.Pod
	for _, obj := range world {
		if s, ok := obj.(*corev1.Service); ok {
			service = s
		}
	}
	for _, obj := range world {
		p, ok := obj.(*corev1.Pod)
		if !ok || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(p.Labels)) {
			continue
		}
		now, p = append(now, p), p.DeepCopy()
		was, there := said[p.UID]
		if _, shown := shows[p.UID]; there && was != podutil.IsPodReady(p) || !there && shown {
			p.Status.Conditions = nil
		}
		before = append(before, p)
	}
	times := endpointsliceutil.NewTriggerTimeTracker()
	at := times.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, before)
	if said != nil {
		at = times.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, now)
	}
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// since sets the trigger time in the object that an effect writes; "" removes it.
func since(e effect.Effect, at string) effect.Effect {
	if e.Verb != effect.Create && e.Verb != effect.Update {
		return e
	}
	tree := effect.Parse([]byte(e.Body))
	meta := tree["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	if notes == nil {
		notes = map[string]any{}
	}
	if notes[corev1.EndpointsLastChangeTriggerTime] = at; at == "" {
		delete(notes, corev1.EndpointsLastChangeTriggerTime)
	}
	meta["annotations"] = notes
	e.Body = effect.JSON(effect.NonEmpty(tree))
	return e
}

// bare is an effect without its object's creation time, which the API server sets, and without an empty list
// of endpoints, which it may omit.
func bare(e effect.Effect) effect.Effect {
	if e.Verb != effect.Create && e.Verb != effect.Update {
		return e
	}
	tree := effect.Parse([]byte(e.Body))
	delete(tree["metadata"].(map[string]any), "creationTimestamp")
	if all, ok := tree["endpoints"].([]any); ok && len(all) == 0 {
		delete(tree, "endpoints")
	}
	e.Body = effect.JSON(effect.NonEmpty(tree))
	return e
}

// fairSlices compares the slices afterwards ([packing]), and the number of writes of each kind.
//
// The empty slice of an earlier service, which upstream leaves alone because it ignores the owner's uid,
// counts as the slice that ours creates in its place: the garbage collector deletes it, and then upstream
// creates its own.
func fairSlices(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	if left := leftEmpty(world); left != nil && touch(ours, left) && !touch(theirs, left) {
		exemption.Uses("left-empty")
		mine := left.DeepCopy()
		mine.OwnerReferences[0].UID = uidOf(world, left.OwnerReferences[0].Name)
		theirs = append(theirs, effect.Created("endpointslices", mine.Namespace, "", []byte(effect.JSON(mine))), effect.Removed("endpointslices", left.Name, metav1.DeleteOptions{}))
	}
	shows := map[types.UID]bool{}
	for _, s := range slicesAfter(world, theirs) {
		maps.Copy(shows, servingIn(s))
	}
	var said map[types.UID]bool
	for _, s := range slicesOf(world) {
		if s.OwnerReferences[0].UID != uidOf(world, s.OwnerReferences[0].Name) {
			continue
		}
		if said == nil {
			said = map[types.UID]bool{}
		}
		maps.Copy(said, servingIn(s))
	}
	theirs = exemption.Lets("remembered-times", theirs, effect.Rewritten(theirs, func(e effect.Effect) effect.Effect { return since(e, triggered(world, said, shows)) }))
	return packing(world, theirs), packing(world, ours)
}

// servingIn maps the pods in a slice to whether each serves.
func servingIn(s *discoveryv1.EndpointSlice) map[types.UID]bool {
	said := map[types.UID]bool{}
	for _, e := range s.Endpoints {
		said[e.TargetRef.UID] = *e.Conditions.Serving
	}
	return said
}

func touch(effects []effect.Effect, s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(effects, func(e effect.Effect) bool { return e.Name == s.Name })
}

func slicesOf(world []runtime.Object) (all []*discoveryv1.EndpointSlice) {
	for _, obj := range world {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			all = append(all, s)
		}
	}
	return all
}

// leftEmpty is the empty slice of an earlier service, if it is the only one of its family.
func leftEmpty(world []runtime.Object) *discoveryv1.EndpointSlice {
	families := map[discoveryv1.AddressType][]*discoveryv1.EndpointSlice{}
	for _, s := range slicesOf(world) {
		families[s.AddressType] = append(families[s.AddressType], s)
	}
	for _, all := range families {
		if s := all[0]; len(all) == 1 && len(s.Endpoints)+len(s.Ports) == 0 && s.OwnerReferences[0].UID != uidOf(world, s.OwnerReferences[0].Name) {
			return s
		}
	}
	return nil
}

// uidOf is the uid of the service with a name.
func uidOf(world []runtime.Object, name string) types.UID {
	for _, obj := range world {
		if s, ok := obj.(*corev1.Service); ok && s.Name == name {
			return s.UID
		}
	}
	return ""
}
