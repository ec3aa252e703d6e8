package network_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/network"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
)

// TestRefusalsBite: a controller that gives up at a refusal, or that makes a mistake only after one, comes to
// a different end.
func TestRefusalsBite(t *testing.T) {
	oracletest.RefusalsBite(t, []oracletest.RefusalBite{
		{Name: "a slice is given up", Rest: network.EndpointSliceAtRest, Worlds: slicesWorld, Requests: []stage.Refusal{oracletest.Creates, oracletest.Updates, oracletest.Deletes}, Mutant: oracletest.GiveUp},
		{Name: "it is not told which slice was refused", Rest: network.EndpointSliceAtRest, Worlds: slicesWorld, Requests: []stage.Refusal{oracletest.Creates, oracletest.Updates, oracletest.Deletes}, Mutant: oracletest.TellNoFailure},
		{Name: "a mirror is given up", Rest: network.MirrorsAtRest, Worlds: mirrorWorld, Requests: []stage.Refusal{oracletest.Creates, oracletest.Updates, oracletest.Deletes}, Mutant: oracletest.GiveUp},
		{Name: "a range is given up", Rest: network.ServiceCIDRsAtRest, Worlds: rangeWorld, Requests: []stage.Refusal{oracletest.Patches, oracletest.StatusPatches}, Mutant: oracletest.GiveUp},
	})
}
