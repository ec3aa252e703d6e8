package replicas

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// A failure is told while there is another number of pods than is wanted because of it.
//
// Upstream: calculateStatus and SetCondition.
func TestWhichFailuresAreTold(t *testing.T) {
	web := reconciletest.ReplicaSet("web", 2)
	created := decide(View{Set: web}, now).In(events.LaneWrite).Commands[0].Name
	ref := func(name string) events.Ref { return events.Ref{Namespace: reconciletest.Namespace, Name: name} }
	refused := events.Result{Status: events.Refused, Code: 403, Message: "no", Ref: ref(created)}
	with := func(edit func(*events.Result)) *Failure {
		r := refused
		edit(&r)
		return &Failure{Attempt: 7, Result: r}
	}
	deletion := func(r *events.Result) { r.Ref = ref("p0") }
	for what, c := range map[string]struct {
		pods    int
		failure *Failure
		edit    func(*appsv1.ReplicaSet)
		want    string
	}{
		"nothing failed":                    {1, nil, nil, ""},
		"a create":                          {1, with(func(*events.Result) {}), nil, "FailedCreate: no"},
		"a create, of one that is wanted":   {0, with(func(*events.Result) {}), nil, "FailedCreate: no"},
		"a create that is not needed":       {2, with(func(*events.Result) {}), nil, ""},
		"a create, and there are too many":  {3, with(func(*events.Result) {}), nil, ""},
		"a create as the API was down":      {1, with(func(r *events.Result) { r.Status, r.Code = events.Failed, 0 }), nil, "FailedCreate: no"},
		"a create under a taken name":       {1, with(func(r *events.Result) { r.Status, r.Code = events.Conflict, 409 }), nil, ""},
		"a create of a turn too late":       {1, with(func(r *events.Result) { r.Code = 0 }), nil, ""},
		"a create as the namespace goes":    {1, with(func(r *events.Result) { r.Cause = "NamespaceTerminating" }), nil, ""},
		"of a name that is not ours":        {1, with(func(r *events.Result) { r.Ref = ref("other") }), nil, ""},
		"of a pod that is there":            {1, with(deletion), nil, ""},
		"a delete":                          {3, with(deletion), nil, "FailedDelete: unable to delete pods: no"},
		"a delete of one that is gone":      {3, with(func(r *events.Result) { r.Ref = ref("p9") }), nil, ""},
		"a delete of one that was gone":     {3, with(func(r *events.Result) { deletion(r); r.Status = events.Absent }), nil, ""},
		"a delete that is not needed":       {2, with(deletion), nil, ""},
		"the template has no labels":        {1, nil, func(s *appsv1.ReplicaSet) { s.Spec.Template.Labels = nil }, "FailedCreate: unable to create pods, no labels"},
		"nor has it, and none is needed":    {2, nil, func(s *appsv1.ReplicaSet) { s.Spec.Template.Labels = nil }, ""},
		"nor has it, and some are too many": {3, nil, func(s *appsv1.ReplicaSet) { s.Spec.Template.Labels = nil }, ""},
		"the set is being deleted":          {1, with(func(*events.Result) {}), func(s *appsv1.ReplicaSet) { s.DeletionTimestamp = &metav1.Time{Time: now} }, ""},
	} {
		v := View{Set: web.DeepCopy(), Failure: c.failure}
		if c.edit != nil {
			c.edit(v.Set)
		}
		for i := range c.pods {
			v.Pods = append(v.Pods, reconciletest.Pod(fmt.Sprintf("p%d", i), of(web)))
		}
		for _, had := range []bool{false, true} {
			other := appsv1.ReplicaSetCondition{Type: "Other", Reason: "Other"}
			v.Set.Status.Conditions = []appsv1.ReplicaSetCondition{other}
			if had {
				v.Set.Status.Conditions = append(v.Set.Status.Conditions, appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Reason: "Before"})
			}
			want := c.want
			if want != "" && had {
				want = "Before: " // it keeps the words of the first failure
			}
			got := ""
			said := v.conditions(owner.Claim[*corev1.Pod]{Mine: v.Pods}, now)
			for _, s := range said {
				if s.Type == appsv1.ReplicaSetReplicaFailure {
					got = s.Reason + ": " + s.Message
				}
			}
			if got != want || said[0] != other {
				t.Errorf("%s, told before: %v: %q is said, want %q", what, had, got, want)
			}
		}
	}
}

// A turn creates or deletes at most 500 pods, as upstream does; and the decision does not
// depend on the status.
func TestBursts(t *testing.T) {
	v := View{Set: reconciletest.ReplicaSet("web", 2000)}
	d := decide(v, now)
	if n := len(d.In(events.LaneWrite).Commands); n != 500 || !d.StatusBlind {
		t.Errorf("%d pods are created; blind to the status: %v", n, d.StatusBlind)
	}
}

// A set whose pods are rejected rests for as long as that has lasted, and for five minutes
// at most.
func TestHowLongASetRests(t *testing.T) {
	for first, want := range map[time.Duration]time.Duration{0: time.Second, time.Minute: time.Minute, time.Hour: 5 * time.Minute} {
		v := View{Set: reconciletest.ReplicaSet("web", 3)}
		for i := range 11 {
			p := turned(fmt.Sprint("web-", i), v, now)
			if i == 0 {
				p.CreationTimestamp = metav1.NewTime(now.Add(-first))
			}
			v.Pods = append(v.Pods, p)
		}
		if got := v.rest(now); !got.Equal(now.Add(want)) {
			t.Errorf("after %v the set rests until %v, want %v", first, got, now.Add(want))
		}
		v.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending}
		if got := v.rest(now); !got.IsZero() {
			t.Errorf("with a pod that has yet to start the set rests until %v, want no rest", got)
		}
	}
}

// Of pods that are not there none is as good as another.
func TestPodsThatAreNotThere(t *testing.T) {
	v := View{Set: reconciletest.ReplicaSet("web", 1), Pods: []*corev1.Pod{reconciletest.Pod("a"), reconciletest.Pod("b")}}
	for pair, want := range map[[2]types.UID]bool{{"uid-a", "uid-b"}: true, {"uid-a", "uid-x"}: false, {"uid-x", "uid-a"}: false, {"uid-x", "uid-y"}: false} {
		if got := AsGood(v, pair[0], pair[1], now); got != want {
			t.Errorf("%v are as good: %v, want %v", pair, got, want)
		}
	}
}

// The buckets of ages are powers of two, a quarter to eight, as upstream's.
func TestBucketsOfAges(t *testing.T) {
	next := 0.25
	for _, b := range ageRatio.Buckets {
		if b != next {
			t.Errorf("a bucket is %v, want %v", b, next)
		}
		next *= 2
	}
	if next != 16 {
		t.Errorf("the last bucket is %v", next/2)
	}
}

// A set that is no Deployment's, and one that has no pod too many, are seen without company.
func TestSetsWithoutCompany(t *testing.T) {
	alone := reconciletest.ReplicaSet("web", 0)
	world := reconciletest.NewWorld()
	world.Put(sets.Kind.Kind, alone)
	pods := []metav1.Object{reconciletest.Pod("a", of(alone), reconciletest.On("n1"))}
	world.Put(kinds.Pods.Kind, pods...)
	if v, _ := observe(world, key("web")); v.Crowd != nil {
		t.Errorf("of a set of its own the view has the crowd %v, want none", v.Crowd)
	}
	rolled := reconciletest.ReplicaSet("web", 1, reconciletest.OwnedBy[*appsv1.ReplicaSet](kinds.Deployments.Kind, reconciletest.Deployment("web", 1)))
	world.Put(sets.Kind.Kind, rolled)
	if v, _ := observe(world, key("web")); v.Crowd != nil {
		t.Errorf("of a set with as many pods as are wanted the view has the crowd %v, want none", v.Crowd)
	}
	alone.Spec.Selector = nil
	world.Put(sets.Kind.Kind, alone)
	if v, ok := observe(world, key("web")); !ok || len(v.Pods) != 0 {
		t.Errorf("of a set without a selector the view has %d pods (found: %v), want none", len(v.Pods), ok)
	}
}
