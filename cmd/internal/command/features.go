package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/version"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	zpages "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// features are the feature gates that were set.
type features struct{ set map[string]bool }

// kubernetes is the version whose gates these are, and previous the one before. kube is the
// component that gates may be said to be of, and ofKube that of a version.
const (
	kubernetes = "1.36"
	previous   = "1.35"
	kube       = "kube:"
	ofKube     = "kube="
)

func (s *features) add(f *pflag.FlagSet) {
	f.Var(cliflag.NewMapStringBool(&s.set), "feature-gates",
		"feature gates of kube-controller-manager as `name=true,name=false`, with its defaults; also AllAlpha and AllBeta. "+
			"Set the same as for kube-apiserver. These matter here: "+strings.Join(options(), ", "))
}

// on tells whether a gate of this process itself is on: one that no controller reads. nil is
// what has no feature gates, where all are at their defaults.
func (s *features) on(name string) bool {
	if s == nil {
		s = &features{}
	}
	all, err := s.gates()
	return err == nil && all.Enabled(featuregate.Feature(name))
}

// own are the gates that the process reads and no controller.
var own = []string{string(zpages.ComponentFlagz), string(zpages.ComponentStatusz)}

// options are the gates that controllers here read, with their stages and defaults.
func options() (all []string) {
	for _, g := range gate.Known() {
		if len(g.Readers) > 0 || slices.Contains(own, g.Name) {
			all = append(all, fmt.Sprintf("%s (%s, default %v)", g.Name, strings.ToLower(string(g.Stage)), g.On))
		}
	}
	return all
}

// gates are all that kube-controller-manager knows, with what was set. What is set for a
// feature that is locked, or unknown, is refused.
func (s *features) gates() (featuregate.MutableVersionedFeatureGate, error) {
	all := featuregate.NewVersionedFeatureGate(version.MustParse(kubernetes))
	for _, g := range gate.Known() {
		spec := featuregate.FeatureSpec{Default: g.On, LockToDefault: g.Locked, Version: version.MustParse("1.0")}
		switch g.Stage {
		case gate.Alpha:
			spec.PreRelease = featuregate.Alpha
		case gate.Beta:
			spec.PreRelease = featuregate.Beta
		case gate.Deprecated:
			spec.PreRelease = featuregate.Deprecated
		}
		if err := all.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{featuregate.Feature(g.Name): {spec}}); err != nil {
			return nil, err
		}
	}
	if err := all.AddDependencies(needs()); err != nil {
		return nil, err
	}
	set := make(map[string]bool, len(s.set))
	for name, on := range s.set {
		set[strings.TrimPrefix(name, kube)] = on
	}
	if err := known(set, all); err != nil {
		return nil, err
	}
	if err := all.SetFromMap(set); err != nil {
		return nil, fmt.Errorf("read --feature-gates: %w", err)
	}
	return all, nil
}

// says tells whether a gate was named.
func (s *features) says(name string) bool {
	_, plain := s.set[name]
	_, qualified := s.set[kube+name]
	return plain || qualified
}

// needs are the gates that each gate needs.
func needs() map[featuregate.Feature][]featuregate.Feature {
	all := map[featuregate.Feature][]featuregate.Feature{}
	for _, g := range gate.Known() {
		of := []featuregate.Feature{}
		for _, name := range g.Needs {
			of = append(of, featuregate.Feature(name))
		}
		all[featuregate.Feature(g.Name)] = of
	}
	return all
}

// known finds a name that no gate has, and the one that may have been meant.
func known(set map[string]bool, all featuregate.MutableVersionedFeatureGate) error {
	names := all.GetAll()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if _, ok := names[featuregate.Feature(name)]; ok {
			continue
		}
		if component, _, qualified := strings.Cut(name, ":"); qualified {
			return fmt.Errorf("read --feature-gates: %s is of the component %s, and the gates here are those of kube; take it out", name, component)
		}
		for other := range names {
			if strings.EqualFold(string(other), name) || near(string(other), name) {
				return fmt.Errorf("read --feature-gates: kube-controller-manager %s has no gate %s; did you mean %s?", kubernetes, name, other)
			}
		}
		return fmt.Errorf("read --feature-gates: kube-controller-manager %s has no gate %s; take it out", kubernetes, name)
	}
	return nil
}

// near tells whether one edit makes one word of another.
func near(a, b string) bool {
	if len(a) < len(b) {
		a, b = b, a
	}
	if len(a)-len(b) > 1 {
		return false
	}
	at := 0
	for at < len(b) && a[at] == b[at] {
		at++
	}
	if len(a) == len(b) {
		return at == len(a) || a[at+1:] == b[at+1:] || at+2 <= len(a) && a[at] == b[at+1] && a[at+1] == b[at] && a[at+2:] == b[at+2:]
	}
	return a[at+1:] == b[at:]
}

// config are the gates that controllers read and that are not at their defaults. It says
// which of those that were set are without effect, and records all for the metric
// kubernetes_feature_enabled.
//
// Errors: there is no such gate; it cannot be set, or not here.
func (s *features) config() (gate.Set, error) {
	all, err := s.gates()
	if err != nil {
		return nil, err
	}
	differs := gate.Set{}
	var idle []string
	for _, g := range gate.Known() {
		on, said := all.Enabled(featuregate.Feature(g.Name)), s.says(g.Name)
		switch {
		case len(g.Readers) > 0 && on != g.On:
			differs[g.Name] = on
		case len(g.Readers) > 0, slices.Contains(own, g.Name):
		case g.Fixed != "" && said && on != g.On:
			return nil, fmt.Errorf("read --feature-gates: %s cannot be %v here: %s", g.Name, on, g.Fixed)
		case said, g.Fixed != "" && on != g.On: // of AllAlpha and AllBeta
			idle = append(idle, g.Name)
		}
	}
	all.AddMetrics()
	if len(idle) > 0 {
		klog.Background().Info("Feature gates are set that no controller here reads", "gates", idle)
	}
	if len(differs) == 0 {
		return nil, nil
	}
	return differs, nil
}
