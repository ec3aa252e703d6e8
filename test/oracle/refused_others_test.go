package oracle_test

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle"
)

func TestRefusedGroupsAreProtectedAsUpstreams(t *testing.T) {
	restAlike(t, oracle.GroupProtectionAtRest, groupWorld, updates)
}

func TestRefusedClassesAreProtectedAsUpstreams(t *testing.T) {
	restAlike(t, oracle.ClassProtectionAtRest, classWorld, updates)
}

// TestRefusedServiceCIDRsAreAsUpstreams has one ServiceCIDR, because with several it is chance which is
// refused, and none that can never get its finalizer.
func TestRefusedServiceCIDRsAreAsUpstreams(t *testing.T) {
	oracle.Uses("ready-though-unprotected")
	passing := patches
	passing.Times = 2
	restAlike(t, oracle.ServiceCIDRsAtRest, func(t *rapid.T) []runtime.Object {
		world := rangeWorld(t)
		return slices.DeleteFunc(world, func(obj runtime.Object) bool {
			_, ok := obj.(*networkingv1.ServiceCIDR)
			return ok && obj != world[0]
		})
	}, passing, statusPatches)
}

// TestRefusedTokensAreCleanedAsUpstreams: upstream does not retry the delete of a token until the token
// changes, so ours is compared with an upstream without refusals.
func TestRefusedTokensAreCleanedAsUpstreams(t *testing.T) {
	restAlike(t, oracle.TokensAtRest, bootstrapWorld, deletes)
}

// TestRefusedRootCertificatesArePublishedAsUpstreams, and the tests below, are lives in which some writes are
// refused.
func TestRefusedRootCertificatesArePublishedAsUpstreams(t *testing.T) {
	fewer(t, 4)
	inhabit(t, oracle.RootCAPublisher, certificatesTouched, oracle.Refusal{Verb: plan.Create, Kind: kinds.ConfigMaps.Name}, oracle.Refusal{Verb: plan.Update, Kind: kinds.ConfigMaps.Name})
}

func TestRefusedAccountsAreMadeAsUpstreams(t *testing.T) {
	fewer(t, 4)
	inhabit(t, oracle.ServiceAccounts, accountsTouched, oracle.Refusal{Verb: plan.Create, Kind: kinds.ServiceAccounts.Name})
}
