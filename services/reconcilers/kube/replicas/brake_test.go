package replicas

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// A node rejects every pod at once. The set replaces each, but ever more slowly.
func TestPodsThatAreTurnedAwayAreReplacedEverMoreSlowly(t *testing.T) {
	v := View{Set: reconciletest.ReplicaSet("web", 3)}
	clock, perMinute := now, map[int]int{}
	for clock.Before(now.Add(20 * time.Minute)) {
		d := decide(v, clock)
		creates := d.In(events.LaneWrite).Commands
		if len(creates) == 0 {
			if !d.WakeAt.After(clock) {
				t.Fatalf("at %v no pod is created, and no turn follows: %+v", clock, d)
			}
			clock = d.WakeAt
			continue
		}
		for _, b := range creates {
			perMinute[int(clock.Sub(now).Minutes())]++
			v.Pods = append(v.Pods, turned(b.Name, v, clock))
		}
		clock = clock.Add(time.Second) // upstream needs less for the round
		v.Set.ResourceVersion += "0"
	}
	if perMinute[0] < 3*patience/2 {
		t.Errorf("only %d tries in the first minute", perMinute[0])
	}
	for minute := 1; minute < 20; minute++ {
		if perMinute[minute] > 12 {
			t.Errorf("%d pods in minute %d", perMinute[minute], minute)
		}
	}
	var late int
	for minute := 10; minute < 20; minute++ {
		late += perMinute[minute]
	}
	if late < 3 || late > 9 {
		t.Errorf("%d pods in the last ten minutes, want one try in five", late)
	}
}

func turned(name string, v View, at time.Time) *corev1.Pod {
	p := reconciletest.Pod(name, of(v.Set), reconciletest.InPhase(corev1.PodFailed))
	p.CreationTimestamp, p.Status.Reason = metav1.NewTime(at), "NodeAffinity"
	return p
}

// What nodes take, what is long ago, and what is another's, is no reason to rest.
func TestWhenThereIsNoReasonToRest(t *testing.T) {
	fresh := func() View {
		v := View{Set: reconciletest.ReplicaSet("web", 3)}
		for i := range patience + 1 {
			v.Pods = append(v.Pods, turned(fmt.Sprint("web-", i), v, now.Add(-time.Millisecond)))
		}
		return v
	}
	if v := fresh(); !v.rest(now).After(now) {
		t.Fatal("there is no rest at all")
	}
	for name, change := range map[string]func(*View){
		"as many as one has patience with": func(v *View) { v.Pods = v.Pods[1:] },
		"a later one runs": func(v *View) {
			v.Pods = append(v.Pods, reconciletest.Pod("ok", of(v.Set), reconciletest.InPhase(corev1.PodRunning)))
			v.Pods[len(v.Pods)-1].CreationTimestamp = metav1.NewTime(now)
		},
		"they ran before they failed": func(v *View) {
			for _, p := range v.Pods {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 1}}
			}
		},
		"they are another's": func(v *View) {
			for _, p := range v.Pods {
				p.OwnerReferences[0].UID = "another"
			}
		},
		"it was long ago": func(v *View) {
			for _, p := range v.Pods {
				p.CreationTimestamp = metav1.NewTime(now.Add(-longestRest))
			}
		},
		"another clock says that it is still to come": func(v *View) {
			for _, p := range v.Pods {
				p.CreationTimestamp = metav1.NewTime(now.Add(time.Hour))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := fresh()
			change(&v)
			if v.rest(now).After(now) {
				t.Errorf("the set rests until %v, want no rest", v.rest(now))
			}
		})
	}
}
