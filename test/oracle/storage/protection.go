package storage

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"

	ourclaims "github.com/millrace/millrace/services/reconcilers/controllers/pvcprotection"
	ourvolumes "github.com/millrace/millrace/services/reconcilers/controllers/pvprotection"
	"github.com/millrace/millrace/test/oracle/frozen"
)

// ClaimProtection is the controller that protects claims.
var ClaimProtection = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		pc, err := pvcprotection.NewPVCProtectionController(logr.Discard(), f.Core().V1().PersistentVolumeClaims(), f.Core().V1().Pods(), c)
		if err != nil {
			return nil, fmt.Errorf("make the claim protection controller: %w", err)
		}
		return func() { pc.Run(ctx, 1) }, nil
	},
	Ours: ourclaims.Controller, Asked: frozen.UsersOfClaim, Alone: frozen.NeverAlone, Fair: frozen.NothingLeftOut,
}

// VolumeProtection is the controller that protects volumes.
var VolumeProtection = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		pc := pvprotection.NewPVProtectionController(logr.Discard(), f.Core().V1().PersistentVolumes(), c)
		return func() { pc.Run(ctx, 1) }, nil
	},
	Ours: ourvolumes.Controller, Alone: frozen.NeverAlone, Fair: frozen.NothingLeftOut,
}
