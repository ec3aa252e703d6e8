package controllerflags

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

// features are the feature gates set by the flag.
type features struct{ set map[string]bool }

// Kubernetes is the version whose gates these are, and Previous the one before. kube is the
// component prefix of a gate, and ofKube that of a version.
const (
	Kubernetes = "1.36"
	Previous   = "1.35"
	kube       = "kube:"
	ofKube     = "kube="
)

func (s *features) add(f *pflag.FlagSet) {
	f.Var(cliflag.NewMapStringBool(&s.set), "feature-gates",
		"feature gates of kube-controller-manager as `name=true,name=false`, with its defaults; also AllAlpha and AllBeta. "+
			"Set them as for kube-apiserver. These have an effect here: "+strings.Join(options(), ", "))
}

// on is whether a gate is on.
func (s *features) on(name string) bool {
	all, err := s.gates()
	return err == nil && all.Enabled(featuregate.Feature(name))
}

// GateOn is whether a gate is on that the process reads itself, and no controller. In a process without
// controllers, where o is nil, all gates have their defaults.
func (o *Options) GateOn(name string) bool {
	if o == nil {
		return (&features{}).on(name)
	}
	return o.features.on(name)
}

// own are the gates that the process itself reads, and no controller.
var own = []string{string(zpages.ComponentFlagz), string(zpages.ComponentStatusz)}

// options are the gates that Millrace reads, with their stages and defaults.
func options() (all []string) {
	for _, g := range gate.Known() {
		if len(g.Readers) > 0 || slices.Contains(own, g.Name) {
			all = append(all, fmt.Sprintf("%s (%s, default %v)", g.Name, strings.ToLower(string(g.Stage)), g.On))
		}
	}
	return all
}

// gates are all of kube-controller-manager's gates, with the values set by the flag. It refuses
// a value for a gate that is locked or unknown.
func (s *features) gates() (featuregate.MutableVersionedFeatureGate, error) {
	all := featuregate.NewVersionedFeatureGate(version.MustParse(Kubernetes))
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

// says is whether the flag names a gate.
func (s *features) says(name string) bool {
	_, plain := s.set[name]
	_, qualified := s.set[kube+name]
	return plain || qualified
}

// needs are the gates that each gate depends on.
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

// known refuses a name that no gate has, and suggests a similar one.
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
				return fmt.Errorf("read --feature-gates: kube-controller-manager %s has no gate %s; did you mean %s?", Kubernetes, name, other)
			}
		}
		return fmt.Errorf("read --feature-gates: kube-controller-manager %s has no gate %s; take it out", Kubernetes, name)
	}
	return nil
}

// near is whether one edit turns one word into the other.
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

// config are the gates that controllers read and that differ from their defaults. It logs the
// set gates that no controller reads, and records all gates in the metric
// kubernetes_feature_enabled.
//
// Errors: a gate is unknown; it cannot be set, or not in Millrace.
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
