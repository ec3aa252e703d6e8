package workloads

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamgroups "k8s.io/kubernetes/pkg/controller/scheduling/podgroupprotection"

	"github.com/millrace/millrace/services/reconcilers/controllers/podgroupprotection"
	"github.com/millrace/millrace/test/oracle/frozen"
)

// GroupProtection is the controller that protects PodGroups.
var GroupProtection = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc, err := upstreamgroups.NewPodGroupProtectionController(logr.Discard(), f.Scheduling().V1alpha2().PodGroups(), f.Core().V1().Pods(), c)
		if err != nil {
			return nil, fmt.Errorf("make the group protection controller: %w", err)
		}
		return func() { gc.Run(ctx, 1) }, nil
	},
	Ours: podgroupprotection.Controller, Alone: frozen.NeverAlone, Fair: frozen.NothingLeftOut,
}
