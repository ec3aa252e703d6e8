package storage

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

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/ephemeralvolume"
	"github.com/millrace/millrace/services/reconcilers/controllers/vacprotection"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/stage"
)

// EphemeralVolume is the controller of ephemeral volumes.
var EphemeralVolume = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		ec, err := ephemeral.NewController(ctx, c, f.Core().V1().Pods(), f.Core().V1().PersistentVolumeClaims())
		if err != nil {
			return nil, fmt.Errorf("make the ephemeral volume controller: %w", err)
		}
		return func() { ec.Run(ctx, 1) }, nil
	},
	Ours: ephemeralvolume.Controller, Alone: creates, Fair: claimsThenConflicts,
}

func creates(e effect.Effect) bool { return e.Verb == effect.Create }

// claimsThenConflicts leaves out upstream's Event, in the sync that creates claims, that another claim is not
// the pod's. Ours emits it when the created claims exist.
func claimsThenConflicts(_ []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	if slices.ContainsFunc(theirs, creates) {
		theirs = exemption.Lets("conflict-after-claims", theirs, effect.Only(theirs, creates))
	}
	return theirs, ours
}

// ClassProtection is the controller that protects VolumeAttributesClasses.
var ClassProtection = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		core := f.Core().V1()
		vac, err := upstreamvac.NewVACProtectionController(logr.Discard(), c, core.PersistentVolumeClaims(), core.PersistentVolumes(), f.Storage().V1().VolumeAttributesClasses())
		if err != nil {
			return nil, fmt.Errorf("make the class protection controller: %w", err)
		}
		return func() { vac.Run(ctx, 1) }, nil
	},
	Ours: vacprotection.Controller, Alone: frozen.NeverAlone, Fair: frozen.NothingLeftOut,
}

// EphemeralVolumeAtRest runs undisturbed on an API server that refuses some of its writes.
var EphemeralVolumeAtRest = stage.Rest{Theirs: EphemeralVolume.Theirs, Ours: EphemeralVolume.Ours, Kinds: stage.Served(kinds.PersistentVolumeClaims.Kind, kinds.Pods.Kind)}

// ClassProtectionAtRest runs undisturbed on an API server that refuses some of its writes.
var ClassProtectionAtRest = stage.Rest{Theirs: ClassProtection.Theirs, Ours: ClassProtection.Ours, Kinds: stage.Served(kinds.VolumeAttributesClasses.Kind, kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind)}
