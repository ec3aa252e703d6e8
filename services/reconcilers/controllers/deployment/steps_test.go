package deployment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// aSet returns a set of a Deployment that is hours old, with pods of an image.
func aSet(d *appsv1.Deployment, name, image string, hours int, size, available int32) *appsv1.ReplicaSet {
	s := reconciletest.ReplicaSet(name, size, ownSet(kinds.Deployments.Kind, d))
	s.CreationTimestamp = metav1.NewTime(reconciletest.Now.Add(-time.Duration(hours) * time.Hour))
	s.Spec.Template.Spec.Containers[0].Image = image
	s.Status.Replicas, s.Status.AvailableReplicas, s.Status.ObservedGeneration = size, available, s.Generation
	return s
}

func imageOf(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// Unavailable replicas go first, but of all old sets together no more than may be
// missing, and unavailable replicas of the new set count as missing, too.
func TestHowFastOldSetsShrink(t *testing.T) {
	d := rolling(4, "25%", "25%") // from 3 available to 5 in all
	for _, c := range []struct {
		what           string
		fresh          int32    // available of 1
		first, second  [2]int32 // size, available
		want, wantNext int32
	}{
		{"the new one is not available", 0, [2]int32{2, 0}, [2]int32{2, 2}, 1, 2},
		{"two sick sets share one budget", 0, [2]int32{2, 0}, [2]int32{2, 0}, 1, 2},
		{"the new one is available", 1, [2]int32{2, 0}, [2]int32{2, 2}, 0, 2},
		{"one is shrinking already", 1, [2]int32{1, 2}, [2]int32{3, 1}, 1, 3},
		{"all serve", 1, [2]int32{2, 2}, [2]int32{2, 2}, 0, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			sets := []*appsv1.ReplicaSet{
				aSet(d, "web-a", "old:1", 3, c.first[0], c.first[1]), aSet(d, "web-b", "old:2", 2, c.second[0], c.second[1]),
				aSet(d, "web-c", imageOf(d), 1, 1, c.fresh),
			}
			r := newRollout(View{Deployment: d}, sets, reconciletest.Now)
			r.shrink()
			if got, next := r.old[0].size, r.old[1].size; got != c.want || next != c.wantNext {
				t.Errorf("the old sets are to have %d and %d, want %d and %d", got, next, c.want, c.wantNext)
			}
		})
	}
}

func TestADeletedDeploymentMakesAndResizesNothing(t *testing.T) {
	d := rolling(4, "25%", "25%")
	old := aSet(d, "web-a", "old:1", 1, 4, 4)
	d.DeletionTimestamp = &metav1.Time{Time: reconciletest.Now}
	if acts := decide(View{Deployment: d, Sets: []*appsv1.ReplicaSet{old}}, reconciletest.Now).In(events.LaneWrite).Commands; len(acts) > 0 {
		t.Errorf("on its way out it wants %+v", acts)
	}
}

// A failed create of a set with another name says nothing about this one.
func TestACollisionIsOneOfTheName(t *testing.T) {
	d := rolling(4, "25%", "25%")
	taken := events.Result{Status: events.Conflict, Code: 409, Reason: string(metav1.StatusReasonAlreadyExists)}
	taken.Ref = events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: d.Namespace, Name: "web-other"}
	creates := func() []events.Command {
		return decide(View{Deployment: d, Failure: &taken}, reconciletest.Now).In(events.LaneWrite).Commands
	}
	if got := creates(); len(got) != 1 || got[0].Verb != events.VerbCreate {
		t.Fatalf("after the collision of another name it wants %+v", got)
	}
	taken.Ref.Name = creates()[0].Name
	if got := creates(); len(got) != 0 {
		t.Errorf("after a collision of this name it wants %+v", got)
	}
}

func TestOfTwoSetsOfOneTemplateTheOlderIsTheNewOne(t *testing.T) {
	d := rolling(4, "25%", "25%")
	older, younger := aSet(d, "web-b", imageOf(d), 2, 1, 1), aSet(d, "web-a", imageOf(d), 1, 1, 1)
	r := newRollout(View{Deployment: d}, []*appsv1.ReplicaSet{younger, older}, reconciletest.Now)
	if r.fresh == nil || r.fresh.seen != older || len(r.old) != 1 || r.old[0].seen != younger {
		t.Errorf("the new set is %+v", r.fresh)
	}
}

// An old set that may still have pods, or whose controller has not observed its last
// change, is not deleted.
func TestHistoryThatMayHavePodsIsSpared(t *testing.T) {
	d := rolling(4, "25%", "25%")
	limit := int32(0)
	d.Spec.RevisionHistoryLimit = &limit
	for what, change := range map[string]func(*appsv1.ReplicaSet){
		"empty":             func(*appsv1.ReplicaSet) {},
		"with a pod":        func(s *appsv1.ReplicaSet) { s.Status.Replicas = 1 },
		"changed since":     func(s *appsv1.ReplicaSet) { s.Generation++ },
		"wants replicas":    func(s *appsv1.ReplicaSet) { one := int32(1); s.Spec.Replicas = &one },
		"on its way out":    func(s *appsv1.ReplicaSet) { s.DeletionTimestamp = &metav1.Time{Time: reconciletest.Now} },
		"empty, and sooner": func(s *appsv1.ReplicaSet) { s.CreationTimestamp.Time = s.CreationTimestamp.Add(-time.Hour) },
	} {
		old := aSet(d, "web-a", "old:1", 2, 0, 0)
		change(old)
		r := newRollout(View{Deployment: d}, []*appsv1.ReplicaSet{old, aSet(d, "web-b", imageOf(d), 1, 4, 4)}, reconciletest.Now)
		if goes := len(r.forget().Commands) > 0; goes != slices.Contains([]string{"empty", "empty, and sooner"}, what) {
			t.Errorf("a set that is %s is deleted: %t", what, goes)
		}
	}
}

// A rollout misses its deadline at the very second of it: the wake is at that time.
func TestTheDeadlineIsMissedWhenItIsReached(t *testing.T) {
	d := rolling(4, "25%", "25%")
	seconds := int32(600)
	d.Spec.ProgressDeadlineSeconds = &seconds
	began := metav1.NewTime(reconciletest.Now)
	d.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentProgressing, Status: "True", Reason: reasonUpdated, LastUpdateTime: began, LastTransitionTime: began,
	}}
	sets := []*appsv1.ReplicaSet{aSet(d, "web-a", "old:1", 2, 4, 4), aSet(d, "web-b", imageOf(d), 1, 1, 0)}
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas, d.Status.ReadyReplicas = 5, 1, 4, 4
	reason := func(at time.Time) string {
		r := newRollout(View{Deployment: d}, sets, at)
		c, _ := find(r.progress(d.Status, d.Status), appsv1.DeploymentProgressing)
		return c.Reason
	}
	wake := decide(View{Deployment: d, Sets: sets}, reconciletest.Now).WakeAt
	if want := began.Add(600 * time.Second); !wake.Equal(want) {
		t.Errorf("the next turn is at %v, want %v", wake, want)
	}
	if got := reason(wake.Add(-time.Second)) + ", " + reason(wake); got != fmt.Sprint(reasonUpdated, ", ", reasonTimedOut) {
		t.Errorf("a second before, and then: %s", got)
	}
}

// The deadline runs for a rollout whose new set was created, whether or not the report
// about that succeeded.
func TestTheDeadlineRunsWhetherOrNotTheCreationWasTold(t *testing.T) {
	for _, stored := range [][]events.Lane{{events.LaneWrite}, {events.LaneWrite, events.LaneStatus}} {
		d := rolling(3, "25%", "25%")
		limit := int32(600)
		d.Spec.ProgressDeadlineSeconds = &limit
		old := aSet(d, "web-a", "old:1", 1, 3, 3)
		old.Annotations = map[string]string{revisionNote: "1", desiredNote: "3", mostNote: "4"}
		d.Annotations = map[string]string{revisionNote: "1"}
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = 3, 3, 3
		d.Status.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: reasonComplete,
			Message: `ReplicaSet "web-a" has successfully progressed.`,
		}}
		v, now := View{Deployment: d, Sets: []*appsv1.ReplicaSet{old}}, reconciletest.Now
		said := func() string {
			c, _ := find(v.Deployment.Status.Conditions, appsv1.DeploymentProgressing)
			return c.Reason
		}
		for n := range 4 { // no pod of the new set can be created
			decision := decide(v, now)
			for _, lane := range stored {
				v = carryOut(v, decision.In(lane), now)
			}
			if stored = []events.Lane{events.LaneWrite, events.LaneStatus}; n == 2 {
				if said() != reasonCreated {
					t.Errorf("the rollout goes on, and it says %s", said())
				}
				now = now.Add(time.Duration(limit) * time.Second)
			}
		}
		if said() != reasonTimedOut {
			t.Errorf("ten minutes later it says %s", said())
		}
	}
}
