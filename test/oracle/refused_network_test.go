package oracle_test

import (
	"testing"

	"github.com/millrace/millrace/test/oracle"
)

func TestRefusedEndpointsAreAsUpstreams(t *testing.T) {
	restAlike(t, oracle.EndpointsAtRest, endpointsWorld, creates, updates)
}
