package oracle

import (
	"fmt"
	"slices"
	"sync"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// gates is held to change feature gates, and shared by what runs upstream's code.
var gates sync.RWMutex

// unguarded takes the gates off upstream's controllers that wait until the versions of their own
// writes come back: a fake client's writes may have none. It is done before any other gate is
// changed, so that nothing puts them back.
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

// under has upstream do something under feature gates that are not at their defaults, and
// puts them back. They are global there, so nothing else of upstream may run meanwhile.
func under(set gate.Set, do func()) error {
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
	for range all.Dependencies() { // what needs a feature that is off is off
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
