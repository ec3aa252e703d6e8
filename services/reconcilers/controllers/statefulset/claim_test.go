package statefulset

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Upstream: isClaimOwnerUpToDate.
func TestWhatOwnsAClaim(t *testing.T) {
	retain, remove := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for _, c := range []struct {
		deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType
		replica, beyond holder
	}{
		{retain, retain, none, none},
		{remove, retain, theSet, theSet},
		{retain, remove, none, thePod},
		{remove, remove, theSet, thePod},
	} {
		v := View{Set: stateful("web", 2)}
		v.Set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
		v.Set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: c.deleted, WhenScaled: c.scaled}
		for ordinal, want := range []holder{c.beyond, c.replica, c.replica, c.beyond} {
			if got := v.holder(ordinal); got != want {
				t.Errorf("deleted: %s, scaled: %s: the claim of %d is of holder %d, want %d", c.deleted, c.scaled, ordinal, got, want)
			}
		}
	}
	if got := (View{Set: stateful("web", 2)}).holder(0); got != none {
		t.Errorf("without a policy a claim is of holder %d", got)
	}
}

// held: a turn that does nothing to pods and claims leaves no claim of a pod that is there
// without the owner that it should have. A set may be deleted before a pod is ready.
func held(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Set.DeletionTimestamp != nil {
		return nil
	}
	for _, command := range c.Decide(v, now).Commands {
		if command.Lane() == events.Act {
			return nil
		}
	}
	s := v.stage(v.members(), history{}, now)
	for _, p := range s.replicas {
		there := p != nil && owner.Controls(v.Set, p) && !pod.Terminal(p)
		if there {
			for _, b := range s.bonds(v.ordinal(p), p) {
				if !b.settled() {
					return fmt.Errorf("claim %s has not the owner that it should have", b.Name)
				}
			}
		}
		if !v.atOnce() && (!there || s.unwell(p) != "") {
			return nil
		}
	}
	return nil
}
