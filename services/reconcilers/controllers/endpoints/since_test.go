package endpoints

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func pods(n int) (all []*corev1.Pod) {
	for i := range n {
		p := podAt(fmt.Sprintf("web-%04d", i), fmt.Sprintf("10.1.%d.%d", i/200, i%200+1))
		reconciletest.ReadySince(now.Add(-time.Duration(10+i) * time.Minute))(p)
		all = append(all, p)
	}
	return all
}

// The annotation has the time of the newest changes, and not that of earlier ones.
//
// Upstream: syncService, which clears the annotation where nothing has a moment.
func TestSinceWhenItIsSo(t *testing.T) {
	all := pods(3) // ready for 10, 11 and 12 minutes
	lost := podAt("web-0000", "10.1.0.1")
	lost.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: all[0].Status.Conditions[0].LastTransitionTime}}
	ended, deaf := lost.DeepCopy(), all[2].DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	deaf.Status.PodIP, deaf.Status.PodIPs = "", nil
	for name, c := range map[string]struct {
		before, after []*corev1.Pod
		want          time.Time
	}{
		"the service came":                {nil, all[:1], svc().CreationTimestamp.Time},
		"a pod comes":                     {all[:1], all[:2], now.Add(-11 * time.Minute)},
		"two come, and the first of them": {all[:1], all[:3], now.Add(-12 * time.Minute)},
		"a pod is ready no more":          {all[:2], []*corev1.Pod{lost, all[1]}, now.Add(-10 * time.Minute)},
		"a pod ends":                      {all[:2], []*corev1.Pod{ended, all[1]}, now.Add(-10 * time.Minute)},
		"one without an address comes":    {all[:1], []*corev1.Pod{all[0], all[1], deaf}, now.Add(-11 * time.Minute)},
		"a pod goes, which has no moment": {all[:2], all[:1], time.Time{}},
		"one goes, and another comes":     {all[:2], slices.Concat(all[:1], all[2:3]), now.Add(-12 * time.Minute)},
	} {
		v := View{Service: svc(), Pods: c.before}
		if c.before != nil {
			v = applied(v, decide(v, now), now)
		}
		v.Pods = c.after
		d := decide(v, now)
		if len(d.Commands) != 1 {
			t.Errorf("%s: %d commands", name, len(d.Commands))
			continue
		}
		want := ""
		if !c.want.IsZero() {
			want = c.want.UTC().Format(time.RFC3339Nano)
		}
		said := applied(v, d, now).Endpoints.Annotations
		if got, there := said[corev1.EndpointsLastChangeTriggerTime]; got != want || there != (want != "") {
			t.Errorf("%s: the last change trigger time is %q, want %q", name, got, want)
		}
	}
}

// A complete object loses the annotation that it is incomplete.
func TestNoLongerTooMany(t *testing.T) {
	v := View{Service: svc(), Pods: pods(capacity + 1)}
	v = applied(v, decide(v, now), now)
	if v.Endpoints.Annotations[corev1.EndpointsOverCapacity] != "truncated" {
		t.Fatal("the Endpoints are not marked as truncated")
	}
	v.Pods = v.Pods[:capacity]
	v = applied(v, decide(v, now), now)
	if said, there := v.Endpoints.Annotations[corev1.EndpointsOverCapacity]; there {
		t.Errorf("the Endpoints have all addresses, and are marked %q", said)
	}
}
