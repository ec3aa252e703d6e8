package check

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestADeletedClaimMayWaitForItsPod: a deleted claim without its owner has converged only while an
// active pod of its namespace uses it.
func TestADeletedClaimMayWaitForItsPod(t *testing.T) {
	claim := Object{
		Ref: events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: "a", Name: "data-db-0"}, UID: "claim", Deleting: true,
		Owners: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", UID: "old"}},
	}
	user := Object{Ref: events.Ref{Kind: pods, Namespace: "a", Name: "db-0"}, UID: "pod", Active: true, Claims: []string{"data-db-0"}}
	elsewhere, other, alive := user, user, claim
	elsewhere.Ref.Namespace, other.Claims, alive.Deleting = "b", []string{"data-db-1"}, false
	for name, c := range map[string]struct {
		claim, pod Object
		want       int
	}{
		"its pod uses it":         {claim, user, 0},
		"a pod elsewhere":         {claim, elsewhere, 2},
		"a pod of another claim":  {claim, other, 2},
		"it is not deleted":       {alive, user, 1},
		"its pod was deleted too": {claim, Object{Ref: user.Ref, UID: "pod"}, 2},
	} {
		if found := Converged([]Change{{Revision: 1, Object: c.claim}, {Revision: 2, Object: c.pod}}); len(found) != c.want {
			t.Errorf("%s: %v, want %d violations", name, found, c.want)
		}
	}
}

// TestAClaimPassesBetweenItsSetAndItsPod: no other object changes from one controller to another in
// one step.
func TestAClaimPassesBetweenItsSetAndItsPod(t *testing.T) {
	for name, c := range map[string]struct {
		kind    kinds.Name
		was, is string
		want    bool
	}{
		"the set becomes smaller":       {kinds.PersistentVolumeClaims.Name, "StatefulSet", "Pod", true},
		"the set becomes larger":        {kinds.PersistentVolumeClaims.Name, "Pod", "StatefulSet", true},
		"another set takes the claim":   {kinds.PersistentVolumeClaims.Name, "StatefulSet", "StatefulSet", false},
		"a pod goes from set to set":    {kinds.Pods.Name, "StatefulSet", "Pod", false},
		"a pod goes from a set to none": {kinds.Pods.Name, "ReplicaSet", "ReplicaSet", false},
	} {
		o := Object{Ref: events.Ref{Kind: c.kind, Namespace: "a", Name: "b"}}
		if got := passesOn(&o, &metav1.OwnerReference{Kind: c.was}, &metav1.OwnerReference{Kind: c.is}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
