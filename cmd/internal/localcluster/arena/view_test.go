package arena

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

func pod(name, image string, ready bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec(image)}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return p
}

func dying(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	return p
}

func deployment(image string, n int32, status appsv1.DeploymentStatus) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: &n, Template: corev1.PodTemplateSpec{Spec: podSpec(image)}},
		Status:     status,
	}
}

func seen(objects ...runtime.Object) *view {
	v := newView()
	for _, o := range objects {
		v.heard(watch.Event{Type: watch.Added, Object: o}, time.Now(), v.take)
	}
	return v
}

func TestConditions(t *testing.T) {
	whole := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	stale := whole
	stale.ObservedGeneration = 1
	for _, c := range []struct {
		name string
		view *view
		is   Condition
		want bool
	}{
		{"ready", seen(pod("a", "x", true)), Ready(1), true},
		{"not ready", seen(pod("a", "x", false)), Ready(1), false},
		{"a dying pod is not ready", seen(dying(pod("a", "x", true))), Ready(1), false},
		{"created counts pods that are not ready", seen(pod("a", "x", false), pod("b", "x", false)), Created(2), true},
		{"replaced needs a create", seen(pod("a", "x", true)), Replaced(1, 1), false},
		{"replaced", seen(pod("a", "x", true), pod("b", "x", true)), Replaced(1, 2), true},
		{"available", seen(deployment("x", 1, whole)), Available(1), true},
		{"a stale status counts for nothing", seen(deployment("x", 1, stale)), Available(1), false},
		{"rolled out", seen(deployment("x", 1, whole), pod("a", "x", true)), RolledOut("web", "x", 1), true},
		{"an old pod is left", seen(deployment("x", 1, whole), pod("a", "x", true), dying(pod("b", "y", true))), RolledOut("web", "x", 1), false},
		{"pods of another image", seen(deployment("x", 1, whole), pod("a", "y", true)), RolledOut("web", "x", 1), false},
		{"empty", seen(), Empty(), true},
		{"a replica set is left", seen(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}), Empty(), false},
	} {
		if got := c.is.so(c.view); got != c.want {
			t.Errorf("%s: %v is %v, want %v", c.name, c.is, got, c.want)
		}
	}
}

func TestUntilTellsWhenTheChangeCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, begun := newView(), time.Now()
		go func() {
			time.Sleep(time.Second)
			v.heard(watch.Event{Type: watch.Added, Object: pod("a", "x", false)}, time.Now(), v.take)
			time.Sleep(time.Second)
			v.heard(watch.Event{Type: watch.Modified, Object: pod("a", "x", true)}, time.Now(), v.take)
		}()
		at, err := v.Until(t.Context(), Ready(1))
		if err != nil || at.Sub(begun) != 2*time.Second {
			t.Errorf("Until = %v, %v; want 2s", at.Sub(begun), err)
		}
		if v.Created() != 1 {
			t.Errorf("created is %d", v.Created())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, err := v.Until(ctx, Ready(2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestFollowGoesOnWhereAWatchEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, first, second := newView(), watch.NewFake(), watch.NewFake()
		var from []string
		open := func(o metav1.ListOptions) (watch.Interface, error) {
			switch from = append(from, o.ResourceVersion); len(from) {
			case 1:
				return nil, errors.New("away for a moment")
			case 2:
				return second, nil
			default:
				return nil, apierrors.NewResourceExpired("no more")
			}
		}
		go v.follow(t.Context(), open, first, "1", v.take)
		go func() {
			a, b := pod("a", "x", true), pod("b", "x", true)
			a.ResourceVersion, b.ResourceVersion = "7", "9"
			first.Add(a)
			first.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}})
			first.Stop()
			second.Add(b)
			second.Stop()
		}()
		if _, err := v.Until(t.Context(), Ready(2)); err != nil {
			t.Error(err)
		}
		if _, err := v.Until(t.Context(), Ready(3)); !errors.Is(err, errBroken) {
			t.Errorf("error is %v, want %v", err, errBroken)
		}
		if !slices.Equal(from, []string{"8", "8", "9"}) {
			t.Errorf("the watch was opened again from %v, want from 8, which a bookmark said, once more, and from 9", from)
		}
	})
}

func TestBeforeFindsTheLatestEarlierRevision(t *testing.T) {
	set := func(name, revision string) appsv1.ReplicaSet {
		return appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"deployment.kubernetes.io/revision": revision}}}
	}
	sets := []appsv1.ReplicaSet{set("one", "1"), set("three", "3"), set("two", "2")}
	if got := before(sets, 3); got == nil || got.Name != "two" {
		t.Errorf("before 3 is %v", got)
	}
	if got := before(sets, 1); got != nil {
		t.Errorf("before 1 is %v", got)
	}
}

func TestParallelDoesEverythingOnceAndReportsErrors(t *testing.T) {
	done := make([]int, 100)
	if err := Parallel(7, len(done), func(i int) error { done[i]++; return nil }); err != nil {
		t.Fatal(err)
	}
	for i, n := range done {
		if n != 1 {
			t.Errorf("%d was done %d times", i, n)
		}
	}
	boom := errors.New("boom")
	if err := Parallel(3, 5, func(i int) error {
		if i == 4 {
			return boom
		}
		return nil
	}); !errors.Is(err, boom) {
		t.Errorf("error is %v", err)
	}
}

func TestMostCountsOnlyWhatStays(t *testing.T) {
	done := pod("c", "x", true)
	done.Status.Phase = corev1.PodSucceeded
	v := seen(pod("a", "x", true), pod("b", "x", false), done)
	for _, o := range []*corev1.Pod{dying(pod("a", "x", true)), pod("d", "x", true)} {
		v.heard(watch.Event{Type: watch.Modified, Object: o}, time.Now(), v.take)
	}
	if got := v.Most(); got != 2 {
		t.Errorf("the most pods at a time were %d, want 2: one succeeded, and one was leaving when the last came", got)
	}
}

func TestMostCountsTheSetsTogetherByWhatTheyAskFor(t *testing.T) {
	set := func(name string, n int32) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{Replicas: &n}}
	}
	owned := func(name, by string) *corev1.Pod {
		p := pod(name, "x", true)
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(by), Controller: ptr.To(true)}}
		return p
	}
	// The old set requests one Pod and still has two; the new one has its two.
	v := seen(set("old", 1), set("new", 2), owned("a", "old"), owned("b", "old"), owned("c", "new"), owned("d", "new"))
	if got := v.Most(); got != 3 {
		t.Errorf("the most were %d, want the 3 that were asked for", got)
	}
	v.heard(watch.Event{Type: watch.Added, Object: owned("e", "new")}, time.Now(), v.take)
	v.heard(watch.Event{Type: watch.Added, Object: owned("f", "new")}, time.Now(), v.take)
	if got := v.Most(); got != 4 {
		t.Errorf("the most were %d, want the 4 that one set had", got)
	}
}
