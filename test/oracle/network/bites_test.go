package network_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/network"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

// TestTheOracleBitesInPlacesThatItMayChoose: the parts that the comparison leaves out hide no other fault.
func TestTheOracleBitesInPlacesThatItMayChoose(t *testing.T) {
	written := func(old, with string) oracletest.Mutant {
		return oracletest.Mutant{Garble: oracletest.Replace(old, with)}
	}
	for _, c := range []struct {
		name   string
		pair   frozen.Pair
		worlds func(*rapid.T) []runtime.Object
		mutant oracletest.Mutant
	}{
		{"slices have no times", network.EndpointSlice, slicesWorld, written(corev1.EndpointsLastChangeTriggerTime, "no-time")},
		{"endpoints have no times", network.Endpoints, endpointsWorld, written(corev1.EndpointsLastChangeTriggerTime, "no-time")},
		{"slices have no hints", network.EndpointSlice, slicesWorld, written(`"hints"`, `"h"`)},
	} {
		t.Run(c.name, func(t *testing.T) { oracletest.Noticed(t, c.pair, c.mutant, oracletest.Key, c.worlds) })
	}
}
