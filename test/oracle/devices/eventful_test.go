package devices_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle/devices"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

// TestWorldsAreEventful makes sure that upstream does everything that it can do in the worlds.
func TestWorldsAreEventful(t *testing.T) {
	oracletest.Eventful(t, []oracletest.EventfulCase{
		{Name: "requests about pools", Pair: devices.PoolRequests, Key: oracletest.ClusterKey, Worlds: poolWorld, Want: []string{"update resourcepoolstatusrequests/status", "delete resourcepoolstatusrequests", "nodeName", `"allocatedDevices":2`}},
	})
}
