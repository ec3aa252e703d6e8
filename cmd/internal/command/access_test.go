package command

import (
	"slices"
	"testing"

	"github.com/spf13/pflag"
)

// TestNothingConfidentialIsServedUnasked: without flags nobody is served profiles, and
// everyone only health, as by kube-controller-manager.
func TestNothingConfidentialIsServedUnasked(t *testing.T) {
	o := newServiceOptions()
	o.add(pflag.NewFlagSet("", pflag.ContinueOnError))
	if o.profiling || o.access.TokenFile != "" || !slices.Equal(o.access.Always, []string{"/healthz", "/readyz", "/livez"}) {
		t.Errorf("without flags it serves profiles (%v) and %+v", o.profiling, o.access)
	}
}
