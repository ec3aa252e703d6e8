package check

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestAClaimPassesBetweenItsSetAndItsPod, and nothing else goes from one controller to another in
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
