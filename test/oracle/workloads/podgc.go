package workloads

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreampodgc "k8s.io/kubernetes/pkg/controller/podgc"

	"github.com/millrace/millrace/services/reconcilers/controllers/podgc"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
)

// PodGC is the controller that ends pods which no other component would end.
var PodGC = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc := upstreampodgc.NewPodGC(ctx, c, f.Core().V1().Pods(), f.Core().V1().Nodes(), 0)
		return func() { gc.Run(ctx) }, nil
	},
	Ours: podgc.New(podgc.Config{Threshold: -1}), Alone: frozen.NeverAlone, Fair: fairPodGC,
}

// Kept is how many ended pods [EndedPods] keeps.
const Kept = 2

// EndedPods is the same controller, with a limit for ended pods.
var EndedPods = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc := upstreampodgc.NewPodGC(ctx, c, f.Core().V1().Pods(), f.Core().V1().Nodes(), Kept)
		return func() { gc.Run(ctx) }, nil
	},
	Ours: podgc.New(podgc.Config{Threshold: Kept}), Alone: frozen.NeverAlone, Fair: frozen.NothingLeftOut,
}

// fairPodGC leaves of both the effects of the same step: upstream marks a pod as failed and deletes it, ours
// deletes it when it has seen the mark. Of the status only the phase is compared. The status of a pod whose
// node is missing is written after a quarantine, which the controller's own tests cover: our note at its
// beginning is left out. Upstream deletes a pod again every 20 seconds that has already been deleted without
// a grace period.
func fairPodGC(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	held := func(obj runtime.Object) bool {
		p, ok := obj.(*corev1.Pod)
		return ok && p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0 &&
			(p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
	}
	theirs = exemption.Lets("held-pod", theirs, effect.Only(theirs, func(e effect.Effect) bool {
		return e.Verb != effect.Remove || !slices.ContainsFunc(world, func(obj runtime.Object) bool { return held(obj) && obj.(objects.Object).GetName() == e.Name })
	}))
	fair := func(effects []effect.Effect) []effect.Effect {
		effects = exemption.Lets("conditions-of-lost-pods", effects, effect.Rewritten(effects, phaseOnly))
		effects = slices.DeleteFunc(effects, func(e effect.Effect) bool { return e.Verb == effect.Patch && e.Body == "" })
		if slices.ContainsFunc(effects, claims) {
			exemption.Uses("failed-first")
			return effect.Only(effects, claims)
		}
		return effects
	}
	return fair(theirs), fair(ours)
}

// phaseOnly reduces a patch of a pod's status to the phase.
func phaseOnly(e effect.Effect) effect.Effect {
	if e.Verb != effect.Patch {
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
