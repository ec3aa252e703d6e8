package statefulset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
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

// Where order does not matter, a pod with claims is created although another pod lacks a claim,
// because the API server may refuse that claim for good.
//
// Upstream: a claim that cannot be created keeps off the replicas after it only.
func TestAPodDoesNotWaitForTheClaimsOfOthers(t *testing.T) {
	v := View{Set: stateful("web", 2)}
	v.Set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	r := v.revision(revision.Patch(&v.Set.Spec.Template), 1)
	r.UID, r.ResourceVersion = "r1", "1"
	v.Revisions = []*appsv1.ControllerRevision{r}
	v.Claims = []*corev1.PersistentVolumeClaim{claimed("data-web-0")}
	var created []string
	for _, c := range decide(v, now).Commands {
		if c.Verb == events.VerbCreate {
			created = append(created, c.Name)
		}
	}
	if want := []string{"web-0", "data-web-1"}; !slices.Equal(created, want) {
		t.Errorf("%q are created, want %q", created, want)
	}
}

// A template may be a claim that a program or a user copied: with a generateName, and with fields
// that the API server has set. The controller keeps the first, as upstream does, and leaves out the
// rest.
func TestAClaimIsMadeOfAWholeTemplate(t *testing.T) {
	v := View{Set: stateful("web", 1)}
	at := metav1.NewTime(now)
	v.Set.Spec.VolumeClaimTemplates[0].ObjectMeta = metav1.ObjectMeta{
		Name: "data", Namespace: "elsewhere", GenerateName: "pvc-", UID: "another", Generation: 7, SelfLink: "/x", CreationTimestamp: at, DeletionTimestamp: &at,
		Labels: map[string]string{"tier": "db"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"example.com/x"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1"}},
	}
	r := v.revision(revision.Patch(&v.Set.Spec.Template), 1)
	r.UID, r.ResourceVersion = "r1", "1"
	v.Revisions = []*appsv1.ControllerRevision{r}
	d, creates := decide(v, now), 0
	if err := reconciletest.Promised(Controller.Describe(), reconcile.Body(v), d); err != nil {
		t.Error(err)
	}
	for _, c := range d.Commands {
		if c.Verb != events.VerbCreate {
			continue
		}
		creates++
		made := parsed[corev1.PersistentVolumeClaim](c.Body)
		want := metav1.ObjectMeta{
			Name: "data-web-0", Namespace: web.Namespace, GenerateName: "pvc-", Labels: map[string]string{"tier": "db", "app": "web"}, Annotations: map[string]string{"a": "b"},
			Finalizers: []string{"example.com/x"}, OwnerReferences: v.Set.Spec.VolumeClaimTemplates[0].OwnerReferences,
		}
		if diff := cmp.Diff(want, made.ObjectMeta); diff != "" {
			t.Errorf("the claim differs (-want +got):\n%s", diff)
		}
	}
	if creates != 1 {
		t.Errorf("%d objects are created, want one claim", creates)
	}
}

// held: a turn that does nothing to pods and claims leaves no claim of an existing pod without its
// owner, unless the claim is being deleted, because the set may be deleted before a pod is ready.
func held(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Set.DeletionTimestamp != nil {
		return nil
	}
	for _, command := range c.Decide(v, now).Commands {
		if command.Lane() == events.LaneWrite {
			return nil
		}
	}
	s := v.stage(v.members(), history{}, now)
	for _, p := range s.replicas {
		there := p != nil && owner.Controls(v.Set, p) && !pod.Terminal(p)
		if there {
			for _, b := range s.bonds(v.ordinal(p), p) {
				if b.DeletionTimestamp == nil && !b.settled() {
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
