package job

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Upstream: getRemainingTimeForFailuresCount.
func TestHowLongTheNextPodWaits(t *testing.T) {
	if until := patience(0, now); !until.IsZero() {
		t.Errorf("without a failure it waits until %v", until)
	}
	for failures, want := range map[int]time.Duration{
		1: 10 * time.Second, 2: 20 * time.Second, 3: 40 * time.Second, 4: 80 * time.Second, 5: 160 * time.Second, 6: 320 * time.Second,
		7: 10 * time.Minute, 8: 10 * time.Minute, 63: 10 * time.Minute, 64: 10 * time.Minute, 1000: 10 * time.Minute,
	} {
		if until := patience(failures, now); until.Sub(now) != want {
			t.Errorf("after %d failures it waits for %v, want %v", failures, until.Sub(now), want)
		}
	}
}

// endingAt makes a pod's container end at a time.
func endingAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, stopped("c", 0, at))
	}
}

func stopped(name string, code int32, at time.Time) corev1.ContainerStatus {
	end := &corev1.ContainerStateTerminated{ExitCode: code}
	if !at.IsZero() {
		end.FinishedAt = metav1.NewTime(at)
	}
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: end}}
}

// Failures up to the last success delay nothing, and a failure in the same second is not
// after it.
//
// Upstream: newBackoffRecord.
func TestASuccessEndsTheWait(t *testing.T) {
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		succeeded, failed []int // seconds ago
		wait              time.Duration
	}{
		"a failure":                      {nil, []int{4}, 6 * time.Second},
		"a failure long ago":             {nil, []int{11}, 0},
		"two failures":                   {nil, []int{9, 4}, 16 * time.Second},
		"a failure before a success":     {[]int{3}, []int{4}, 0},
		"a failure with a success":       {[]int{4}, []int{4}, 0},
		"a failure after a success":      {[]int{5}, []int{4}, 6 * time.Second},
		"failures around a success":      {[]int{5}, []int{6, 4}, 6 * time.Second},
		"failures between two successes": {[]int{8, 2}, []int{6, 4}, 0},
	} {
		v := View{Job: aJob()}
		for i, at := range c.succeeded {
			v.Pods = append(v.Pods, aPod(fmt.Sprint("well-", i), corev1.PodSucceeded, endingAt(ago(at))))
		}
		for i, at := range c.failed {
			v.Pods = append(v.Pods, aPod(fmt.Sprint("bad-", i), corev1.PodFailed, endingAt(ago(at))))
		}
		v.Job.Spec.Completions, v.Job.Spec.Parallelism = of(int32(9)), of(int32(1))
		d := decide(v, now)
		created := slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Verb == events.VerbCreate && c.Kind == kinds.Pods.Name })
		if created != (c.wait == 0) || !created && d.WakeAt.Sub(now) != c.wait {
			t.Errorf("%s: a pod is created: %v, and it asks again after %v, want %v", name, created, d.WakeAt.Sub(now), c.wait)
		}
	}
}

// Upstream: getFinishedTime. Of what runs beside the others it looks at nothing but that:
// what the others say counts only where they all have ended.
func TestWhenAPodEnded(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	beside := func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "beside", RestartPolicy: &always})
	}
	at := func(seconds int) time.Time { return now.Add(-time.Minute).Add(time.Duration(seconds) * time.Second) }
	main := func(c corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, c) }
	}
	initial := func(c corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, c) }
	}
	ready := func(status corev1.ConditionStatus, at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			c := corev1.PodCondition{Type: corev1.PodReady, Status: status}
			if !at.IsZero() {
				c.LastTransitionTime = metav1.NewTime(at)
			}
			p.Status.Conditions = append(p.Status.Conditions, c)
		}
	}
	scheduled := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(at(1))})
	}
	deleted := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at(40)}, of(int64(30))
	}
	running := corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	created := aPod("sum", corev1.PodFailed).CreationTimestamp.Time
	for name, c := range map[string]struct {
		edits []func(*corev1.Pod)
		want  time.Time
	}{
		"when its container did":                   {[]func(*corev1.Pod){main(stopped("c", 1, at(5))), ready(corev1.ConditionFalse, at(9)), deleted}, at(5)},
		"when its last container did":              {[]func(*corev1.Pod){main(stopped("c", 1, at(7))), main(stopped("d", 0, at(5)))}, at(7)},
		"one container has no end":                 {[]func(*corev1.Pod){main(stopped("c", 1, at(5))), main(running), ready(corev1.ConditionFalse, at(9))}, at(9)},
		"one container does not say when it ended": {[]func(*corev1.Pod){main(stopped("c", 1, time.Time{})), ready(corev1.ConditionFalse, at(9))}, at(9)},
		"what came before the others":              {[]func(*corev1.Pod){initial(stopped("before", 0, at(7))), main(stopped("c", 1, at(5)))}, at(5)},
		"what came before, and did not end":        {[]func(*corev1.Pod){initial(running), main(stopped("c", 1, at(5)))}, at(5)},
		"what runs beside ended last":              {[]func(*corev1.Pod){beside, main(stopped("c", 1, at(5))), initial(stopped("beside", 0, at(7)))}, at(7)},
		"what runs beside goes on":                 {[]func(*corev1.Pod){beside, main(stopped("c", 1, at(5))), initial(corev1.ContainerStatus{Name: "beside"}), deleted}, at(10)},
		"only what runs beside ended":              {[]func(*corev1.Pod){beside, main(running), initial(stopped("beside", 0, at(7))), ready(corev1.ConditionFalse, at(9))}, at(7)},
		"when it was not ready any more":           {[]func(*corev1.Pod){scheduled, ready(corev1.ConditionFalse, at(9)), deleted}, at(9)},
		"it is ready":                              {[]func(*corev1.Pod){ready(corev1.ConditionTrue, at(9)), deleted}, at(10)},
		"it is not ready, since an unknown time":   {[]func(*corev1.Pod){ready(corev1.ConditionFalse, time.Time{}), deleted}, at(10)},
		"when it was deleted":                      {[]func(*corev1.Pod){deleted}, at(10)},
		"nothing is known":                         {nil, created},
	} {
		if got := endedAt(aPod("sum", corev1.PodFailed, c.edits...)); !got.Equal(c.want) {
			t.Errorf("%s: the pod ended at %v, want %v", name, got, c.want)
		}
	}
}

// Upstream: getMatchingContainerFromList.
func TestWhichContainersARuleIsAbout(t *testing.T) {
	running := corev1.ContainerStatus{Name: "run", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	in, not := batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	for name, c := range map[string]struct {
		operator      batchv1.PodFailurePolicyOnExitCodesOperator
		codes         []int32
		only          string
		main, initial []corev1.ContainerStatus
		want          string // the container; "" none
	}{
		"a code that is listed":                 {in, []int32{3, 42}, "", []corev1.ContainerStatus{stopped("c", 42, now)}, nil, "c"},
		"a code that is not listed":             {in, []int32{3}, "", []corev1.ContainerStatus{stopped("c", 42, now)}, nil, ""},
		"a code that must not be listed":        {not, []int32{3}, "", []corev1.ContainerStatus{stopped("c", 42, now)}, nil, "c"},
		"a code that must not be and is":        {not, []int32{42}, "", []corev1.ContainerStatus{stopped("c", 42, now)}, nil, ""},
		"one that succeeded is no other code":   {not, []int32{42}, "", []corev1.ContainerStatus{stopped("beside", 0, now), stopped("c", 42, now)}, nil, ""},
		"one that succeeded is not listed":      {in, []int32{0}, "", []corev1.ContainerStatus{stopped("c", 0, now)}, nil, ""},
		"one that succeeded goes before":        {not, []int32{3}, "", []corev1.ContainerStatus{stopped("beside", 0, now), stopped("c", 42, now)}, nil, "c"},
		"one that runs":                         {not, []int32{3}, "", []corev1.ContainerStatus{running}, nil, ""},
		"another than the one that it is about": {not, []int32{3}, "d", []corev1.ContainerStatus{stopped("c", 42, now)}, nil, ""},
		"the one that it is about":              {not, []int32{3}, "d", []corev1.ContainerStatus{stopped("c", 42, now), stopped("d", 1, now)}, nil, "d"},
		"one that is started first":             {in, []int32{42}, "", []corev1.ContainerStatus{running}, []corev1.ContainerStatus{stopped("before", 42, now)}, "before"},
		"those that are started first are last": {in, []int32{42}, "", []corev1.ContainerStatus{stopped("c", 42, now)}, []corev1.ContainerStatus{stopped("before", 42, now)}, "c"},
		"one that was started first, and went well": {
			not, []int32{42}, "", []corev1.ContainerStatus{stopped("c", 42, now)}, []corev1.ContainerStatus{stopped("before", 0, now)}, ""},
		"an operator that is none": {"Between", []int32{42}, "", []corev1.ContainerStatus{stopped("c", 42, now)}, nil, ""},
	} {
		rule := &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: c.operator, Values: c.codes}
		if c.only != "" {
			rule.ContainerName = &c.only
		}
		p := aPod("sum", corev1.PodFailed, func(p *corev1.Pod) { p.Status.ContainerStatuses, p.Status.InitContainerStatuses = c.main, c.initial })
		got, ok := exited(p, rule)
		if got.Name != c.want || ok != (c.want != "") {
			t.Errorf("%s: the rule is about the container %q, %v, want %q", name, got.Name, ok, c.want)
		}
	}
}
