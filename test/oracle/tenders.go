package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
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
	upstreamroles "k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	upstreamendpoints "k8s.io/kubernetes/pkg/controller/endpoint"
	upstreamslices "k8s.io/kubernetes/pkg/controller/endpointslice"
	upstreampodgc "k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"

	"github.com/millrace/millrace/services/reconcilers/controllers/clusterroleaggregation"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpoints"
	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslice"
	"github.com/millrace/millrace/services/reconcilers/controllers/podgc"
	ourclaims "github.com/millrace/millrace/services/reconcilers/controllers/pvcprotection"
	ourvolumes "github.com/millrace/millrace/services/reconcilers/controllers/pvprotection"
)

// ClaimProtection is the controller that protects claims.
var ClaimProtection = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		pc, err := pvcprotection.NewPVCProtectionController(logr.Discard(), f.Core().V1().PersistentVolumeClaims(), f.Core().V1().Pods(), c)
		if err != nil {
			return nil, fmt.Errorf("make the claim protection controller: %w", err)
		}
		return func() { pc.Run(ctx, 1) }, nil
	},
	Ours: ourclaims.Controller, Asked: users, Alone: never, Fair: fairAsItIs,
}

// VolumeProtection is the controller that protects volumes.
var VolumeProtection = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		pc := pvprotection.NewPVProtectionController(logr.Discard(), f.Core().V1().PersistentVolumes(), c)
		return func() { pc.Run(ctx, 1) }, nil
	},
	Ours: ourvolumes.Controller, Alone: never, Fair: fairAsItIs,
}

// RoleAggregation is the controller of aggregated roles.
var RoleAggregation = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		rc := upstreamroles.NewClusterRoleAggregation(f.Rbac().V1().ClusterRoles(), c.RbacV1())
		return func() { rc.Run(ctx, 1) }, nil
	},
	Ours: clusterroleaggregation.Controller, Alone: never, Fair: fairRoles,
}

// PodGC is the controller that ends pods which no other component would end.
var PodGC = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc := upstreampodgc.NewPodGC(ctx, c, f.Core().V1().Pods(), f.Core().V1().Nodes(), 0)
		return func() { gc.Run(ctx) }, nil
	},
	Ours: podgc.New(podgc.Config{Threshold: -1}), Alone: never, Fair: fairPodGC,
}

// Kept is how many ended pods [EndedPods] keeps.
const Kept = 2

// EndedPods is the same controller, with a limit for ended pods.
var EndedPods = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc := upstreampodgc.NewPodGC(ctx, c, f.Core().V1().Pods(), f.Core().V1().Nodes(), Kept)
		return func() { gc.Run(ctx) }, nil
	},
	Ours: podgc.New(podgc.Config{Threshold: Kept}), Alone: never, Fair: fairAsItIs,
}

// Endpoints is the controller of Endpoints, the older lists of a service's pods.
var Endpoints = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		ec := upstreamendpoints.NewEndpointController(ctx, silentPods{core.Pods()}, core.Services(), core.Endpoints(), c, 0)
		return func() { ec.Run(ctx, 1) }, nil
	},
	Ours: endpoints.Controller, Alone: never, Fair: fairEndpoints,
}

// PerSlice is the capacity of a slice in the comparison: less than the number of endpoints.
const PerSlice = 3

// EndpointSlice is the controller of EndpointSlices.
var EndpointSlice = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		sc := upstreamslices.NewController(ctx, silentPods{core.Pods()}, core.Services(), core.Nodes(), f.Discovery().V1().EndpointSlices(), PerSlice, c, 0)
		return func() { sc.Run(ctx, 1) }, nil
	},
	Ours: endpointslice.New(endpointslice.Config{Max: PerSlice}), Alone: never, Fair: fairSlices,
}

// fairRoles leaves out the uid, with which ours makes sure that it is the same role, and an empty list, which
// upstream does not send.
func fairRoles(_ []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	return rewritten(theirs, bareRole), lets("role-as-it-is", ours, rewritten(ours, bareRole))
}

func bareRole(e Effect) Effect {
	how, body, _ := strings.Cut(e.Body, " ")
	tree := parsed([]byte(body))
	if meta, ok := tree["metadata"].(map[string]any); ok {
		delete(meta, "uid")
	}
	if rules, ok := tree["rules"].([]any); ok && len(rules) == 0 {
		delete(tree, "rules")
	}
	e.Body = how + " " + text(said(tree))
	return e
}

// fairPodGC leaves of both the effects of the same step: upstream marks a pod as failed and deletes it, ours
// deletes it when it has seen the mark. Of the status only the phase is compared. The status of a pod whose
// node is missing is written after a quarantine, which the controller's own tests cover: our note at its
// beginning is left out. Upstream deletes a pod again every 20 seconds that has already been deleted without
// a grace period.
func fairPodGC(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	held := func(obj runtime.Object) bool {
		p, ok := obj.(*corev1.Pod)
		return ok && p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0 &&
			(p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
	}
	theirs = lets("held-pod", theirs, only(theirs, func(e Effect) bool {
		return e.Verb != remove || !slices.ContainsFunc(world, func(obj runtime.Object) bool { return held(obj) && obj.(object).GetName() == e.Name })
	}))
	fair := func(effects []Effect) []Effect {
		effects = lets("conditions-of-lost-pods", effects, rewritten(effects, phaseOnly))
		effects = slices.DeleteFunc(effects, func(e Effect) bool { return e.Verb == patch && e.Body == "" })
		if slices.ContainsFunc(effects, claims) {
			Uses("failed-first")
			return only(effects, claims)
		}
		return effects
	}
	return fair(theirs), fair(ours)
}

// phaseOnly reduces a patch of a pod's status to the phase.
func phaseOnly(e Effect) Effect {
	if e.Verb != patch {
		return e
	}
	_, body, _ := strings.Cut(e.Body, " ")
	var said struct{ Status struct{ Phase string } }
	if err := json.Unmarshal([]byte(body), &said); err != nil {
		panic(err) // it has been parsed before
	}
	e.Body = said.Status.Phase
	return e
}

// fairEndpoints compares the trigger time of a change with the one that upstream would have if it remembered
// the change before ([triggered]).
func fairEndpoints(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	shows := map[types.UID]bool{}
	for _, e := range theirs {
		if next := (&corev1.Endpoints{}); e.Verb != remove && json.Unmarshal([]byte(e.Body), next) == nil {
			maps.Copy(shows, readyIn(next))
		}
	}
	var said map[types.UID]bool
	for _, obj := range world {
		if e, ok := obj.(*corev1.Endpoints); ok {
			said = readyIn(e)
		}
	}
	theirs = lets("remembered-times", theirs, rewritten(theirs, func(e Effect) Effect { return since(e, triggered(world, said, shows)) }))
	return rewritten(theirs, bare), rewritten(ours, bare)
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

// since sets the trigger time in the object that an effect writes.
func since(e Effect, at string) Effect {
	if e.Verb != create && e.Verb != update {
		return e
	}
	tree := parsed([]byte(e.Body))
	meta := tree["metadata"].(map[string]any)
	notes, _ := meta["annotations"].(map[string]any)
	if notes == nil {
		notes = map[string]any{}
	}
	notes[corev1.EndpointsLastChangeTriggerTime], meta["annotations"] = at, notes
	e.Body = text(said(tree))
	return e
}

// unrepeated removes repeated effects.
func unrepeated(effects []Effect) []Effect {
	var out []Effect
	for _, e := range effects {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// bare is an effect without its object's creation time, which the API server sets, and without an empty list
// of endpoints, which it may omit.
func bare(e Effect) Effect {
	if e.Verb != create && e.Verb != update {
		return e
	}
	tree := parsed([]byte(e.Body))
	delete(tree["metadata"].(map[string]any), "creationTimestamp")
	if all, ok := tree["endpoints"].([]any); ok && len(all) == 0 {
		delete(tree, "endpoints")
	}
	e.Body = text(said(tree))
	return e
}

// fairSlices compares the slices afterwards ([packing]), and the number of writes of each kind.
//
// The empty slice of an earlier service, which upstream leaves alone because it ignores the owner's uid,
// counts as the slice that ours creates in its place: the garbage collector deletes it, and then upstream
// creates its own.
func fairSlices(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	if left := leftEmpty(world); left != nil && touch(ours, left) && !touch(theirs, left) {
		Uses("left-empty")
		mine := left.DeepCopy()
		mine.OwnerReferences[0].UID = uidOf(world, left.OwnerReferences[0].Name)
		theirs = append(theirs, created("endpointslices", mine.Namespace, "", []byte(text(mine))), removed("endpointslices", left.Name, metav1.DeleteOptions{}))
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
	theirs = lets("remembered-times", theirs, rewritten(theirs, func(e Effect) Effect { return since(e, triggered(world, said, shows)) }))
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

func touch(effects []Effect, s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(effects, func(e Effect) bool { return e.Name == s.Name })
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

func rewritten(effects []Effect, as func(Effect) Effect) []Effect {
	out := make([]Effect, len(effects))
	for i, e := range effects {
		out[i] = as(e)
	}
	return out
}
