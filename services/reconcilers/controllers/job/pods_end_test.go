package job

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func before(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// A pod ended when the last of the containers that matter ended; else when it stopped
// being ready, was deleted, or at worst was created.
func TestTheEndsOfAPod(t *testing.T) {
	const m = time.Minute
	status := func(name string, ago time.Duration) corev1.ContainerStatus {
		s := corev1.ContainerStatus{Name: name}
		switch {
		case ago > 0:
			s.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: before(ago)}
		case ago < 0:
			s.State.Terminated = &corev1.ContainerStateTerminated{}
		}
		return s
	}
	beside := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: of(corev1.ContainerRestartPolicyAlways)}, {Name: "i"}, {Name: "o", RestartPolicy: of(corev1.ContainerRestartPolicyOnFailure)}}
	}
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c := corev1.PodCondition{Type: kind, Status: status}
			if ago > 0 {
				c.LastTransitionTime = before(ago)
			}
			p.Status.Conditions = append(p.Status.Conditions, c)
		}
	}
	containers := func(all ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = all }
	}
	first := func(all ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.InitContainerStatuses = all }
	}
	deleted := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = of(before(2*m)), of(int64(60))
	}
	unready := condition(corev1.PodReady, corev1.ConditionFalse, 9*m)
	for what, c := range map[string]struct {
		edits []func(*corev1.Pod)
		want  time.Duration
	}{
		"when it was created":                   {nil, time.Hour},
		"when it was deleted":                   {[]func(*corev1.Pod){deleted}, 3 * m},
		"when it was not ready any more":        {[]func(*corev1.Pod){unready, deleted}, 9 * m},
		"it is ready":                           {[]func(*corev1.Pod){condition(corev1.PodReady, corev1.ConditionTrue, 9*m)}, time.Hour},
		"another condition is false":            {[]func(*corev1.Pod){condition(corev1.PodScheduled, corev1.ConditionFalse, 9*m)}, time.Hour},
		"it does not say since when":            {[]func(*corev1.Pod){condition(corev1.PodReady, corev1.ConditionFalse, 0)}, time.Hour},
		"with its container":                    {[]func(*corev1.Pod){containers(status("c", 5*m)), unready, deleted}, 5 * m},
		"with the last of them":                 {[]func(*corev1.Pod){containers(status("c", 5*m), status("d", 4*m), status("e", 7*m))}, 4 * m},
		"one has not ended":                     {[]func(*corev1.Pod){containers(status("c", 5*m), status("d", 0)), unready}, 9 * m},
		"one ended, and does not say when":      {[]func(*corev1.Pod){containers(status("c", 5*m), status("d", -1)), unready}, 9 * m},
		"one that ran beside ended later":       {[]func(*corev1.Pod){beside, containers(status("c", 5*m)), first(status("s", 4*m)), unready}, 4 * m},
		"one that ran beside goes on":           {[]func(*corev1.Pod){beside, containers(status("c", 5*m)), first(status("s", 0)), unready}, 9 * m},
		"those before the others are no matter": {[]func(*corev1.Pod){beside, containers(status("c", 5*m)), first(status("i", 4*m), status("o", 0)), unready}, 5 * m},
	} {
		if got := endedAt(aPod("a", corev1.PodFailed, c.edits...)); !got.Equal(now.Add(-c.want)) {
			t.Errorf("%s: the pod ended %v ago, want %v", what, now.Sub(got), c.want)
		}
	}
}

// The back-off of the next pod depends on the failures since the last success, only of
// valid pods of the Job itself.
func TestWaitsAfterEachFailure(t *testing.T) {
	const s = time.Second
	ended := func(name string, phase corev1.PodPhase, ago time.Duration, edits ...func(*corev1.Pod)) *corev1.Pod {
		p := aPod(name, phase, edits...)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: before(ago)}}}}
		return p
	}
	leaving := func(name string, ago time.Duration, edits ...func(*corev1.Pod)) *corev1.Pod {
		return aPod(name, corev1.PodRunning, append(edits, func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = of(before(ago)), nil })...)
	}
	indexed := func(j *batchv1.Job) { j.Spec.CompletionMode = of(batchv1.IndexedCompletion) }
	told := func(failed int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Status.Failed = failed } }
	for what, c := range map[string]struct {
		job  *batchv1.Job
		pods []*corev1.Pod
		want time.Duration // from now; 0: no wait
	}{
		"nothing failed":                {aJob(), nil, 0},
		"one failed":                    {aJob(), []*corev1.Pod{ended("a", "Failed", 4*s)}, 6 * s},
		"two failed":                    {aJob(), []*corev1.Pod{ended("a", "Failed", 4*s), ended("b", "Failed", 9*s)}, 16 * s},
		"a success since":               {aJob(), []*corev1.Pod{ended("a", "Failed", 4*s), ended("b", "Succeeded", 3*s)}, 0},
		"a success between":             {aJob(), []*corev1.Pod{ended("a", "Failed", 4*s), ended("b", "Succeeded", 6*s), ended("c", "Failed", 9*s)}, 6 * s},
		"of two successes the last one": {aJob(), []*corev1.Pod{ended("a", "Failed", 4*s), ended("b", "Succeeded", 3*s), ended("c", "Succeeded", 9*s)}, 0},
		"a success of an index that is not asked for": {
			aJob(indexed), []*corev1.Pod{ended("a", "Failed", 4*s, withIndex(0)), ended("b", "Succeeded", 3*s, withIndex(7))}, 6 * s,
		},
		"a failure of such an index":                             {aJob(indexed), []*corev1.Pod{ended("a", "Failed", 4*s, withIndex(3))}, 0},
		"one that leaves, and the status has a failure more":     {aJob(told(1)), []*corev1.Pod{leaving("a", 4*s)}, 6 * s},
		"one that leaves, and the status has none":               {aJob(), []*corev1.Pod{leaving("a", 4*s)}, 0},
		"two leave, and the status has one":                      {aJob(told(1)), []*corev1.Pod{leaving("a", 8*s), leaving("b", 4*s)}, 6 * s},
		"the same two the other way round":                       {aJob(told(1)), []*corev1.Pod{leaving("a", 4*s), leaving("b", 8*s)}, 6 * s},
		"one failed and is counted, one leaves":                  {aJob(told(1)), []*corev1.Pod{ended("a", "Failed", 4*s, letGo), leaving("b", 2*s)}, 6 * s},
		"one failed and is still kept, one leaves, two are told": {aJob(told(1)), []*corev1.Pod{ended("a", "Failed", 4*s), leaving("b", 2*s)}, 18 * s},
	} {
		s := look(View{Job: c.job, Pods: c.pods}, c.pods, now)
		got := s.rest()
		if c.want == 0 && got.After(now) || c.want != 0 && !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: the next waits %v, want %v", what, got.Sub(now), c.want)
		}
	}
	for failures, want := range map[int]time.Duration{-1: 0, 0: 0, 1: 10 * s, 2: 20 * s, 5: 160 * s, 7: 600 * s, 8: 600 * s, 70: 600 * s} {
		if got := patience(failures, now); want == 0 && !got.IsZero() || want != 0 && !got.Equal(now.Add(want)) {
			t.Errorf("after %d failures it waits %v, want %v", failures, got.Sub(now), want)
		}
	}
}

// The reason label of a created pod in the metrics.
func TestWhatAPodIsCreatedFor(t *testing.T) {
	leaving := aPod("sum-b", corev1.PodRunning, func(p *corev1.Pod) { p.DeletionTimestamp = of(before(time.Hour)) })
	failed := aPod("sum-a", corev1.PodFailed, func(p *corev1.Pod) { p.Status.ContainerStatuses = exitedWith(0, 1).Status.ContainerStatuses })
	failed.Status.ContainerStatuses[0].State.Terminated.FinishedAt = before(time.Hour)
	ended := func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = of(batchv1.Failed) }
	three := func(j *batchv1.Job) { j.Spec.Parallelism = of(int32(3)) }
	for what, c := range map[string]struct {
		job  *batchv1.Job
		pods []*corev1.Pod
		want string
	}{
		"nothing was there":                   {aJob(), nil, "new"},
		"one leaves":                          {aJob(three), []*corev1.Pod{leaving}, "recreate_terminating_or_failed"},
		"one failed":                          {aJob(three), []*corev1.Pod{failed}, "recreate_terminating_or_failed"},
		"one failed, and only such count":     {aJob(three, ended), []*corev1.Pod{failed}, "recreate_failed"},
		"none failed, and only such count":    {aJob(three, ended), nil, "new"},
		"one leaves, and only failures count": {aJob(three, ended), []*corev1.Pod{leaving}, "recreate_terminating_or_failed"},
	} {
		d := decide(View{Job: c.job, Pods: c.pods}, now)
		found := 0
		for _, f := range d.Figures {
			if f.Metric != podsCreated {
				continue
			}
			if found++; f.Labels[0] != c.want || f.Value != 1 || (f.Labels[1] == "failed") != f.Failed {
				t.Errorf("%s: a pod counts as %+v, want %s", what, f, c.want)
			}
		}
		if found == 0 {
			t.Errorf("%s: no pod is created: %s", what, d.Because)
		}
	}
}
