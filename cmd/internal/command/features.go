package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// features are the feature gates that were set.
type features struct{ set map[string]bool }

// standard are the gates on which controllers here depend, as they are when nobody sets
// them. Upstream: kube-controller-manager of Kubernetes 1.36.
var standard = map[string]bool{"APIServerIdentity": true, "StorageVersionAPI": false}

func (s *features) add(f *pflag.FlagSet) {
	f.Var(cliflag.NewMapStringBool(&s.set), "feature-gates",
		"features that are on or off, as kube-apiserver has them; StorageVersionAPI=true, for an API server that serves it, runs storageversion-garbage-collector-controller")
}

// check finds a gate that is none here.
func (s *features) check() error {
	for _, gate := range slices.Sorted(maps.Keys(s.set)) {
		if _, known := standard[gate]; !known {
			return fmt.Errorf("read --feature-gates: no controller here depends on %s; take it out (there are %s)",
				gate, strings.Join(slices.Sorted(maps.Keys(standard)), ", "))
		}
	}
	return nil
}

// on is true when all of some gates are.
func (s *features) on(gates ...string) bool {
	return !slices.ContainsFunc(gates, func(gate string) bool {
		set, was := s.set[gate]
		return was && !set || !was && !standard[gate]
	})
}
