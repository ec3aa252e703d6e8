package network_test

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/network"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestRefusedEndpointsAreAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, network.EndpointsAtRest, endpointsWorld, oracletest.Creates, oracletest.Updates)
}

func TestRefusedSlicesAreAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, network.EndpointSliceAtRest, slicesWorld, oracletest.Creates, oracletest.Updates, oracletest.Deletes)
}

func TestRefusedMirrorsAreAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, network.MirrorsAtRest, mirrorWorld, oracletest.Creates, oracletest.Updates, oracletest.Deletes)
}

// TestRefusedServiceCIDRsAreAsUpstreams has one ServiceCIDR, because with several it is chance which is
// refused, and none that can never get its finalizer.
func TestRefusedServiceCIDRsAreAsUpstreams(t *testing.T) {
	exemption.Uses("ready-though-unprotected")
	passing := oracletest.Patches
	passing.Times = 2
	oracletest.RestAlike(t, network.ServiceCIDRsAtRest, func(t *rapid.T) []runtime.Object {
		world := rangeWorld(t)
		return slices.DeleteFunc(world, func(obj runtime.Object) bool {
			_, ok := obj.(*networkingv1.ServiceCIDR)
			return ok && obj != world[0]
		})
	}, passing, oracletest.StatusPatches)
}
