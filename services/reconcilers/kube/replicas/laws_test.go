package replicas

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// arrives: where nodes do their part, the set ends with as many pods as it should have.
func arrives(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Set.DeletionTimestamp != nil {
		return nil
	}
	for range 30 {
		now = now.Add(time.Hour) // no rest after failures is as long
		v.Pods = slices.DeleteFunc(slices.Clone(v.Pods), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
		d := c.Decide(v, now)
		if len(d.Commands) > 0 {
			v = applied(v, d, now)
			continue
		}
		have := 0
		for _, p := range v.Pods {
			if pod.Active(p) && owner.Controls(v.Set, p) {
				have++
			}
		}
		if have != v.wanted() {
			return fmt.Errorf("it ends with %d pods, and %d are wanted", have, v.wanted())
		}
		return nil
	}
	return fmt.Errorf("after 30 turns it still wants something: %s", c.Decide(v, now).Because)
}
