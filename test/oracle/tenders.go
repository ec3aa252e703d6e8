package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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

// RoleAggregation is the controller of roles that are made of others.
var RoleAggregation = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		rc := upstreamroles.NewClusterRoleAggregation(f.Rbac().V1().ClusterRoles(), c.RbacV1())
		return func() { rc.Run(ctx, 1) }, nil
	},
	Ours: clusterroleaggregation.Controller, Alone: never, Fair: fairRoles,
}

// PodGC is the controller that ends pods which nobody else would.
var PodGC = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc := upstreampodgc.NewPodGC(ctx, c, f.Core().V1().Pods(), f.Core().V1().Nodes(), 0)
		return func() { gc.Run(ctx) }, nil
	},
	Ours: podgc.New(podgc.Config{Threshold: -1}), Alone: never, Fair: fairPodGC,
}

// Endpoints is the controller of the older lists of who answers for a service.
var Endpoints = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		ec := upstreamendpoints.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), c, 0)
		return func() { ec.Run(ctx, 1) }, nil
	},
	Ours: endpoints.Controller, Alone: never, Fair: fairEndpoints,
}

// PerSlice is how many endpoints a slice holds in the comparison: more than there are.
// Which of them goes into which slice, where they do not all fit, is chance upstream;
// the controller's own laws are about that.
const PerSlice = 100

// EndpointSlice is the controller of the newer ones.
var EndpointSlice = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		sc := upstreamslices.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), f.Discovery().V1().EndpointSlices(), PerSlice, c, 0)
		return func() { sc.Run(ctx, 1) }, nil
	},
	Ours: endpointslice.New(endpointslice.Config{Max: PerSlice}), Alone: never, Fair: fairSlices, Chance: several,
}

// fairRoles leaves out the uid, by which we make sure that it is the same role, and
// an empty list, which upstream does not send.
func fairRoles(_ []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	return rewritten(theirs, bareRole), rewritten(ours, bareRole)
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

// fairPodGC leaves of both what they do in the same step: upstream says that a pod has
// failed and deletes it, we delete it when that is seen. Of the status the phase is
// compared; that of a pod whose node is gone is said after a quarantine, which the
// controller's own tests are about: what we note at its beginning is left out. A pod
// that has been deleted at once already is deleted again by upstream, every 20 seconds.
func fairPodGC(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	held := func(obj runtime.Object) bool {
		p, ok := obj.(*corev1.Pod)
		return ok && p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0 &&
			(p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
	}
	if slices.ContainsFunc(world, held) {
		theirs = nil
	}
	fair := func(effects []Effect) []Effect {
		effects = rewritten(effects, phaseOnly)
		effects = slices.DeleteFunc(effects, func(e Effect) bool { return e.Verb == patch && e.Body == "" })
		if slices.ContainsFunc(effects, claims) {
			return only(effects, claims)
		}
		return effects
	}
	return fair(theirs), fair(ours)
}

// phaseOnly is a change of a pod's status without all but its phase, and its end
// without how long it has.
func phaseOnly(e Effect) Effect {
	if e.Verb != patch {
		e.Body = ""
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

// since is an annotation of times that upstream remembers and we read from the world.
const since = corev1.EndpointsLastChangeTriggerTime

// fairEndpoints leaves out since when a change was to be published, and what upstream
// does again: it looks at a service once for itself and once for its pods.
func fairEndpoints(_ []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	return unrepeated(rewritten(theirs, timelessly)), rewritten(ours, timelessly)
}

// unrepeated is each effect once.
func unrepeated(effects []Effect) []Effect {
	var out []Effect
	for _, e := range effects {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

func timelessly(e Effect) Effect {
	if e.Verb != create && e.Verb != update {
		return e
	}
	tree := parsed([]byte(e.Body))
	if meta, ok := tree["metadata"].(map[string]any); ok {
		if notes, ok := meta["annotations"].(map[string]any); ok {
			delete(notes, since)
		}
		delete(meta, "creationTimestamp")
	}
	if all, ok := tree["endpoints"].([]any); ok && len(all) == 0 {
		delete(tree, "endpoints")
	}
	e.Body = text(said(tree))
	return e
}

// fairSlices compares what slices there are afterwards, as for mirrors, but for since
// when a change was to be published. By how many writes that came to be is left out:
// upstream looks twice, and the second time at a world without what it has just done.
//
// The empty slice that a service of before has left, and that it leaves alone since it
// overlooks whose that is, counts as the one that we put in its place: the garbage
// collector takes it away, and then it makes its own.
func fairSlices(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	theirs, ours = unrepeated(rewritten(theirs, timelessly)), rewritten(ours, timelessly)
	if left := leftEmpty(world); left != nil && touch(ours, left) && !touch(theirs, left) {
		mine := left.DeepCopy()
		mine.OwnerReferences[0].UID = uidOf(world, left.OwnerReferences[0].Name)
		theirs = append(theirs, updated("endpointslices", mine.Name, []byte(text(mine))))
	}
	standing := func(e Effect) bool { return e.Verb != patch }
	return only(afterwards(world, theirs), standing), only(afterwards(world, ours), standing)
}

func touch(effects []Effect, s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(effects, func(e Effect) bool { return e.Name == s.Name })
}

// several is true where there are two slices: to which of those that are as full as each
// other it adds, and which it takes for other ports, upstream leaves to chance. It keeps
// their names in sets, so no order in which they are found makes that definite.
func several(world []runtime.Object) bool { return len(slicesOf(world)) > 1 }

func slicesOf(world []runtime.Object) (all []*discoveryv1.EndpointSlice) {
	for _, obj := range world {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			all = append(all, s)
		}
	}
	return all
}

// leftEmpty is the slice of a service of before that shows nothing, if it is the only one
// of its family.
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

// uidOf is the uid of the service of a name.
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
