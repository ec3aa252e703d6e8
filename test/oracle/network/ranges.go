package network

import (
	"context"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/servicecidr"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
)

// ServiceCIDRs is the controller of the ranges from which Services get their addresses, for
// the first ServiceCIDR of a world.
var ServiceCIDRs = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		sc := servicecidrs.NewController(ctx, f.Networking().V1().ServiceCIDRs(), f.Networking().V1().IPAddresses(), c)
		return func() { sc.Run(ctx, 1) }, nil
	},
	Ours: servicecidr.Controller, Alone: frozen.NeverAlone, Fair: fairRanges,
}

// fairRanges leaves of upstream's effects those about the first ServiceCIDR. The delete of that one is not
// compared if another one may be deleted at any time, on which ours does not rely.
func fairRanges(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	own := world[0].(*networkingv1.ServiceCIDR)
	theirs = effect.Rewritten(effect.Only(theirs, func(e effect.Effect) bool { return e.Name == own.Name }), effect.WithoutUID)
	leaves := slices.ContainsFunc(world[1:], func(obj runtime.Object) bool {
		other, ok := obj.(*networkingv1.ServiceCIDR)
		return ok && query.RangesOverlap(own, other) && (other.DeletionTimestamp != nil || !slices.Contains(other.Finalizers, query.RangeFinalizer))
	})
	if ours = effect.Rewritten(ours, effect.WithoutUID); own.DeletionTimestamp != nil && leaves {
		return exemption.Lets("range-that-stays", theirs, nil), nil
	}
	return theirs, ours
}
