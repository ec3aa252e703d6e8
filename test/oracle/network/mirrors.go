package network

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreammirrors "k8s.io/kubernetes/pkg/controller/endpointslicemirroring"

	"github.com/millrace/millrace/services/reconcilers/controllers/endpointslicemirroring"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
)

// MirroredPerSubset is the maximum number of mirrored addresses of a subset in the comparison.
const MirroredPerSubset = 3

// EndpointSliceMirroring is the controller that mirrors Endpoints.
var EndpointSliceMirroring = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		m := upstreammirrors.NewController(ctx, core.Endpoints(), f.Discovery().V1().EndpointSlices(), core.Services(), MirroredPerSubset, c, 0)
		return func() { m.Run(ctx, 1) }, nil
	},
	Ours:  endpointslicemirroring.New(endpointslicemirroring.Config{Max: MirroredPerSubset}),
	Alone: frozen.NeverAlone, Fair: fairMirrors,
}

// fairMirrors compares the slices afterwards, and the number of writes of each kind, but not:
//
//   - Their names, because upstream iterates over maps, and the order of addresses and
//     ports in a slice.
//   - The report about omitted addresses, if there is nothing to write: upstream repeats it at
//     each sync, ours with changes.
//   - The content of slices whose Endpoints are being deleted. They get no new ones, and
//     which of the wanted ones replaces an old one is chance.
//   - Anything, if upstream creates a slice under the name of an existing one. When the
//     mirror of one family replaces that of another, it may forget the new one and create
//     the other twice; the API server refuses that, and upstream retries.
func fairMirrors(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	confused := func(e effect.Effect) bool { return e.Verb == effect.Create && e.Name != "" }
	if slices.ContainsFunc(theirs, confused) {
		exemption.Uses("mirror-taken-twice")
		return nil, nil
	}
	isEvent := func(e effect.Effect) bool { return e.Verb == effect.Event }
	if !slices.ContainsFunc(ours, func(e effect.Effect) bool { return !isEvent(e) }) {
		theirs = exemption.Lets("left-out-again", theirs, slices.DeleteFunc(slices.Clone(theirs), isEvent))
	}
	return exemption.Lets("any-mirror", theirs, afterwards(world, theirs)), afterwards(world, ours)
}

// afterwards are the slices of a world after the effects, without their names, each as a create; and each
// effect without its object.
func afterwards(world []runtime.Object, effects []effect.Effect) []effect.Effect {
	slicesNow := map[string]string{}
	for _, obj := range world {
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			slicesNow[s.Name] = shown([]byte(effect.JSON(s)))
		}
	}
	var out []effect.Effect
	for i, e := range effects {
		switch e.Verb {
		case effect.Event:
			out = append(out, e)
			continue
		case effect.Remove:
			delete(slicesNow, e.Name)
		case effect.Update:
			slicesNow[e.Name] = shown([]byte(e.Body))
		case effect.Create:
			slicesNow["new "+string(rune('a'+i))] = shown([]byte(e.Body))
		}
		// As patches, because all patches are kept.
		out = append(out, effect.Effect{Verb: effect.Patch, Resource: e.Resource, Name: "counted as " + e.Verb})
	}
	if slices.ContainsFunc(world, leaving) {
		exemption.Uses("mirrors-that-leave")
		return out
	}
	for _, body := range slicesNow {
		out = append(out, effect.Effect{Verb: effect.Create, Resource: "endpointslices", Body: body})
	}
	return out
}

// leaving is true for Endpoints that are being deleted.
func leaving(obj runtime.Object) bool {
	e, ok := obj.(*corev1.Endpoints)
	return ok && e.DeletionTimestamp != nil
}

// shown is a slice without its names, with sorted addresses and ports.
func shown(body []byte) string {
	tree := effect.Parse(body)
	if meta, ok := tree["metadata"].(map[string]any); ok {
		for _, field := range []string{"name", "generateName", "uid", "resourceVersion", "creationTimestamp", "finalizers"} {
			delete(meta, field)
		}
	}
	for _, list := range []string{"endpoints", "ports"} {
		if all, ok := tree[list].([]any); ok {
			slices.SortFunc(all, func(a, b any) int { return strings.Compare(effect.JSON(a), effect.JSON(b)) })
		}
	}
	return effect.JSON(effect.NonEmpty(tree))
}
