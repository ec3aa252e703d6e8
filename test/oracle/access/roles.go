package access

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	upstreamroles "k8s.io/kubernetes/pkg/controller/clusterroleaggregation"

	"github.com/millrace/millrace/services/reconcilers/controllers/clusterroleaggregation"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
)

// RoleAggregation is the controller of aggregated roles.
var RoleAggregation = frozen.Pair{
	Theirs: func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		rc := upstreamroles.NewClusterRoleAggregation(f.Rbac().V1().ClusterRoles(), c.RbacV1())
		return func() { rc.Run(ctx, 1) }, nil
	},
	Ours: clusterroleaggregation.Controller, Alone: frozen.NeverAlone, Fair: fairRoles,
}

// fairRoles leaves out the uid, with which ours makes sure that it is the same role, and an empty list, which
// upstream does not send.
func fairRoles(_ []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	return effect.Rewritten(theirs, effect.WithoutUID), exemption.Lets("role-as-it-is", ours, effect.Rewritten(ours, effect.WithoutUID))
}
