package oracle_test

import (
	"slices"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/controller-manager/pkg/features/register"
	_ "k8s.io/kubernetes/pkg/features"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// cli are the gates that upstream's programs add when they read their flags.
var cli = map[string]bool{"ContextualLogging": true, "LoggingAlphaOptions": true, "LoggingBetaOptions": true, "NativeHistograms": true}

func TestGatesAreUpstreams(t *testing.T) {
	theirs, ours := utilfeature.DefaultMutableFeatureGate.GetAll(), map[featuregate.Feature]bool{"AllAlpha": true, "AllBeta": true}
	needs := map[featuregate.Feature][]string{}
	for name, of := range utilfeature.DefaultMutableFeatureGate.Dependencies() {
		for _, n := range of {
			needs[name] = append(needs[name], string(n))
		}
	}
	for _, g := range gate.Known() {
		name := featuregate.Feature(g.Name)
		ours[name] = true
		spec, there := theirs[name]
		switch {
		case !there && !cli[g.Name]:
			t.Errorf("upstream does not know %s", name)
		case there && !slices.Equal(slices.Sorted(slices.Values(needs[name])), g.Needs):
			t.Errorf("%s needs %v, want %v", name, g.Needs, needs[name])
		case there && (spec.Default != g.On || spec.LockToDefault != g.Locked || string(spec.PreRelease) != string(g.Stage)):
			t.Errorf("%s is %+v, want %+v", name, g, spec)
		}
	}
	for name := range theirs {
		if !ours[name] {
			t.Errorf("we do not know %s", name)
		}
	}
}
