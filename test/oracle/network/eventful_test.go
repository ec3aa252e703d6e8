package network_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/network"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

// TestWorldsAreEventful makes sure that upstream does everything that it can do in the worlds.
func TestWorldsAreEventful(t *testing.T) {
	oracletest.Eventful(t, []oracletest.EventfulCase{
		{Name: "mirrors", Pair: network.EndpointSliceMirroring, Key: oracletest.Key, Worlds: mirrorWorld, Want: []string{
			"create endpointslices", "update endpointslices", "delete endpointslices", "InvalidIPAddress", "TooManyAddressesToMirror",
		}},
		{Name: "ranges of addresses", Pair: network.ServiceCIDRs, Key: oracletest.Key, Worlds: rangeWorld, Want: []string{"patch servicecidrs web", "patch servicecidrs/status", "deleteFromPrimitiveList", "Terminating"}},
	})
}
