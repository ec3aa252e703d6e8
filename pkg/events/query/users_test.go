package query

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	corev1 "k8s.io/api/core/v1"
)

// If there are too many pods to name, the answer does not say that they need nothing.
func TestUsersThatAreNotNamed(t *testing.T) {
	claim, down := &corev1.PersistentVolumeClaim{}, []User{{Name: "p", UID: "up", Own: true, Down: true}}
	if (Users{Pods: down, Count: 1}).Need(claim) {
		t.Error("a claim is needed by a pod that is shut down and does not own it")
	}
	if !(Users{Pods: down, Count: 2}).Need(claim) {
		t.Error("a claim is not needed, although one of its users is not named")
	}
}

// The users of an object, as an outcome describes them.
func TestUsersAreNamed(t *testing.T) {
	var many Users
	for range MaxUsers + 5 {
		many.Name("10.0.0.1")
	}
	if many.Count != MaxUsers+5 || len(many.Names) != MaxUsers {
		t.Errorf("%d are counted, and %d named", many.Count, len(many.Names))
	}
	for want, u := range map[string]Users{
		"nothing needs it":                 {},
		"2 need it":                        {Count: 2},
		"needed by 10.0.0.1":               {Names: []string{"10.0.0.1"}, Count: 1},
		"needed by 10.0.0.1 and 104 more":  many,
		"needed by the pod web":            {Pods: []User{{Name: "web"}}, Count: 1},
		"needed by the pod web and 1 more": {Pods: []User{{Name: "web"}}, Count: 2},
	} {
		if got := u.String(); got != want {
			t.Errorf("the users are written %q, want %q", got, want)
		}
	}
}

// A pod is in the PodGroup that it names until it has ended.
func TestWhichPodsAreInAGroup(t *testing.T) {
	group, other := "g", "h"
	for phase, in := range map[corev1.PodPhase]bool{
		corev1.PodPending: true, corev1.PodRunning: true, corev1.PodUnknown: true, "": true, corev1.PodSucceeded: false, corev1.PodFailed: false,
	} {
		for _, of := range []*string{&group, &other, nil} {
			p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: of}
			if got := InPodGroup(p, "g"); got != (in && of == &group) {
				t.Errorf("a pod that is %q and names %v is in the group: %t", phase, of, got)
			}
		}
	}
	if InPodGroup(&corev1.Pod{}, "g") || InPodGroup(&corev1.Pod{}, "") {
		t.Error("a pod that names no group is in one")
	}
}

// The users of an object are looked for in the kinds that can need it.
func TestWhichKindsNeedAnObject(t *testing.T) {
	for kind, want := range map[kinds.Name][]kinds.Name{
		kinds.PersistentVolumeClaims.Name: {kinds.Pods.Name}, kinds.PodGroups.Name: {kinds.Pods.Name},
		kinds.ServiceCIDRs.Name: {kinds.IPAddresses.Name, kinds.ServiceCIDRs.Name}, kinds.Pods.Name: nil,
	} {
		if got := UserKinds(kind); !slices.Equal(got, want) {
			t.Errorf("%s is needed by %v, want %v", kind, got, want)
		}
	}
}
