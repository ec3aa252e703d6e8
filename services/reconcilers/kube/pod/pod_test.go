package pod_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
)

var now = time.Date(2030, time.January, 1, 12, 0, 0, 0, time.UTC)

func ready(since time.Time) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
	}}}
}

func TestLifeOfAPod(t *testing.T) {
	deleted := metav1.NewTime(now)
	for _, c := range []struct {
		phase                         corev1.PodPhase
		deleted                       *metav1.Time
		active, terminating, terminal bool
	}{
		{corev1.PodPending, nil, true, false, false},
		{corev1.PodRunning, nil, true, false, false},
		{corev1.PodUnknown, nil, true, false, false},
		{corev1.PodSucceeded, nil, false, false, true},
		{corev1.PodFailed, nil, false, false, true},
		{corev1.PodRunning, &deleted, false, true, false},
		{corev1.PodFailed, &deleted, false, false, true},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: c.deleted}, Status: corev1.PodStatus{Phase: c.phase}}
		if pod.Active(p) != c.active || pod.Terminating(p) != c.terminating || pod.Terminal(p) != c.terminal {
			t.Errorf("%s, deleted %v: active %v, terminating %v, terminal %v", c.phase, c.deleted != nil,
				pod.Active(p), pod.Terminating(p), pod.Terminal(p))
		}
	}
}

func TestAvailable(t *testing.T) {
	notReady := ready(now.Add(-time.Hour))
	notReady.Status.Conditions[1].Status = corev1.ConditionFalse
	for what, c := range map[string]struct {
		pod     *corev1.Pod
		seconds int32
		want    bool
		known   bool // the moment is
	}{
		"not ready":                        {notReady, 0, false, false},
		"no conditions":                    {&corev1.Pod{}, 0, false, false},
		"ready, at once":                   {ready(now), 0, true, true},
		"ready, since when is unknown":     {ready(time.Time{}), 0, true, false},
		"since when is unknown, must last": {ready(time.Time{}), 1, false, false},
		"a second short":                   {ready(now.Add(-9 * time.Second)), 10, false, true},
		"to the second":                    {ready(now.Add(-10 * time.Second)), 10, true, true},
	} {
		if got := pod.Available(c.pod, c.seconds, now); got != c.want {
			t.Errorf("%s: available %v, want %v", what, got, c.want)
		}
		at, known := pod.AvailableAt(c.pod, c.seconds)
		if known != c.known {
			t.Errorf("%s: moment known %v, want %v", what, known, c.known)
		}
		if known && pod.Available(c.pod, c.seconds, at.Add(-time.Second)) && c.seconds > 0 {
			t.Errorf("%s: available before %v", what, at)
		}
		if known && !pod.Available(c.pod, c.seconds, at) {
			t.Errorf("%s: not available at %v", what, at)
		}
	}
}

// A controller that waits for pods to be available wakes for the first of them.
func TestTheNextToBeAvailable(t *testing.T) {
	second := func(n int) time.Time { return now.Add(time.Duration(n) * time.Second) }
	starting := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		min  int32
		want time.Time
	}{
		"none":              {nil, 10, time.Time{}},
		"none to wait for":  {[]*corev1.Pod{ready(second(-10)), ready(second(-60)), starting}, 10, time.Time{}},
		"one":               {[]*corev1.Pod{starting, ready(second(-4))}, 10, second(6)},
		"the first of two":  {[]*corev1.Pod{ready(second(-9)), ready(second(-4))}, 10, second(1)},
		"the second of two": {[]*corev1.Pod{ready(second(-4)), ready(second(-9)), ready(second(-11))}, 10, second(1)},
		"at once":           {[]*corev1.Pod{ready(second(-4))}, 0, time.Time{}},
	} {
		if got := pod.NextAvailable(c.pods, c.min, now); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
