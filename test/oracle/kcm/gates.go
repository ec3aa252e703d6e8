package kcm

import (
	"fmt"
	"slices"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// gates is held to change feature gates, and shared by runs of upstream's code.
var gates sync.RWMutex

// unguarded disables the gates by which upstream's controllers wait for the versions of their own writes: a
// fake client's writes may have none. It runs before any other gate changes, so that nothing restores them.
var unguarded = sync.OnceValue(func() error {
	err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		"StaleControllerConsistencyReplicaSet": false, "StaleControllerConsistencyStatefulSet": false,
		"StaleControllerConsistencyDaemonSet": false, "StaleControllerConsistencyJob": false,
	})
	if err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	return nil
})

// WithGates runs do under feature gates that are not at their defaults, and restores them. Upstream's gates are
// global, so no other code of upstream may run meanwhile.
func WithGates(set gate.Set, do func()) error {
	if err := unguarded(); err != nil {
		return err
	}
	if len(set) == 0 {
		gates.RLock()
		defer gates.RUnlock()
		do()
		return nil
	}
	gates.Lock()
	defer gates.Unlock()
	all := utilfeature.DefaultMutableFeatureGate
	then, before := map[string]bool{}, map[string]bool{}
	for name, on := range set {
		then[name] = on
	}
	for range all.Dependencies() { // a feature is off if it needs one that is off
		for feature, needs := range all.Dependencies() {
			if slices.ContainsFunc(needs, func(n featuregate.Feature) bool { on, set := then[string(n)]; return set && !on }) {
				then[string(feature)] = false
			}
		}
	}
	for name := range then {
		before[name] = all.Enabled(featuregate.Feature(name))
	}
	if err := all.SetFromMap(then); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	do()
	if err := all.SetFromMap(before); err != nil {
		return fmt.Errorf("put feature gates back: %w", err)
	}
	return nil
}
