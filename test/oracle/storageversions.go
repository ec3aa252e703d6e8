package oracle

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamgc "k8s.io/kubernetes/pkg/controller/storageversiongc"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/controllers/storageversiongc"
)

// StorageVersions is the controller that takes API servers that are gone out of
// StorageVersions. What is not compared: one that is being deleted, which upstream goes on
// to write; and when it is looked at again, which upstream does as soon as a lease goes.
var StorageVersions = Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		gc := upstreamgc.NewStorageVersionGC(ctx, c, f.Coordination().V1().Leases(), f.Internal().V1alpha1().StorageVersions())
		return func() { gc.Run(ctx) }, nil
	},
	Ours: storageversiongc.Controller, Asked: leases, Alone: never, Fair: fairAsItIs,
}

// leases is a lease as it is, or that there is none.
func leases(world []runtime.Object, c events.Command) events.Result {
	for _, obj := range world {
		if l, ok := obj.(*coordinationv1.Lease); ok && l.Namespace == c.Namespace && l.Name == c.Name {
			return answered(l)
		}
	}
	return events.Result{Status: events.Absent}
}
