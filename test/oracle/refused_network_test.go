package oracle_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle"
)

func TestRefusedEndpointsAreAsUpstreams(t *testing.T) {
	restAlike(t, oracle.EndpointsAtRest, endpointsWorld, creates, updates)
}

func TestRefusedSlicesAreAsUpstreams(t *testing.T) {
	restAlike(t, oracle.EndpointSliceAtRest, slicesWorld, creates, updates, deletes)
}

func TestRefusedMirrorsAreAsUpstreams(t *testing.T) {
	restAlike(t, oracle.MirrorsAtRest, mirrorWorld, creates, updates, deletes)
}
