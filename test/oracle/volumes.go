package oracle

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/volume/ephemeral"
	upstreamvac "k8s.io/kubernetes/pkg/controller/volume/vacprotection"

	"github.com/millrace/millrace/services/reconcilers/controllers/ephemeralvolume"
	"github.com/millrace/millrace/services/reconcilers/controllers/vacprotection"
)

// EphemeralVolume is the controller of ephemeral volumes.
var EphemeralVolume = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		ec, err := ephemeral.NewController(ctx, c, f.Core().V1().Pods(), f.Core().V1().PersistentVolumeClaims())
		if err != nil {
			return nil, fmt.Errorf("make the ephemeral volume controller: %w", err)
		}
		return func() { ec.Run(ctx, 1) }, nil
	},
	Ours: ephemeralvolume.Controller, Alone: creates, Fair: claimsThenConflicts,
}

func creates(e Effect) bool { return e.Verb == create }

// claimsThenConflicts leaves out upstream's Event, in the sync that creates claims, that another claim is not
// the pod's. Ours emits it when the created claims exist.
func claimsThenConflicts(_ []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	if slices.ContainsFunc(theirs, creates) {
		theirs = lets("conflict-after-claims", theirs, only(theirs, creates))
	}
	return theirs, ours
}

// ClassProtection is the controller that protects VolumeAttributesClasses.
var ClassProtection = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		vac, err := upstreamvac.NewVACProtectionController(logr.Discard(), c, core.PersistentVolumeClaims(), core.PersistentVolumes(), f.Storage().V1().VolumeAttributesClasses())
		if err != nil {
			return nil, fmt.Errorf("make the class protection controller: %w", err)
		}
		return func() { vac.Run(ctx, 1) }, nil
	},
	Ours: vacprotection.Controller, Alone: never, Fair: fairAsItIs,
}

// never is for controllers of which one decision is one sync.
func never(Effect) bool { return false }

// fairAsItIs leaves out nothing.
func fairAsItIs(_ []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) { return theirs, ours }
