package job

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// restarted returns a pod whose containers restarted this often.
func restarted(phase corev1.PodPhase, containers, before int32) *corev1.Pod {
	return aPod(fmt.Sprintf("sum-%s-%d-%d", phase, containers, before), phase, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: containers}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", RestartCount: before}}
	})
}

// exitedWith returns a pod with an index whose containers c and d ended with these exit codes.
func exitedWith(index int, codes ...int32) *corev1.Pod {
	return aPod(fmt.Sprintf("sum-%d", index), corev1.PodFailed, withIndex(index), func(p *corev1.Pod) {
		for i, code := range codes {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: string(rune('c' + i)), State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(now)}},
			})
		}
	})
}

func indexedJob(completions int32, edits ...func(*batchv1.Job)) *batchv1.Job {
	return aJob(append([]func(*batchv1.Job){func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.Completions, j.Spec.Parallelism = of(batchv1.IndexedCompletion), of(completions), of(completions)
	}}, edits...)...)
}

// perIndex sets the back-off limit of each index.
func perIndex(limit int32, edits ...func(*batchv1.Job)) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.BackoffLimit, j.Spec.BackoffLimitPerIndex = of(int32(1<<31-1)), of(limit)
		j.Status.FailedIndexes = of("")
		for _, edit := range edits {
			edit(j)
		}
	}
}

func rule(action batchv1.PodFailurePolicyAction, edit func(*batchv1.PodFailurePolicyRule)) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		r := batchv1.PodFailurePolicyRule{Action: action}
		edit(&r)
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{r}}
	}
}

// reasonOf returns the reason why a Job must end; "" if it must not.
func reasonOf(j *batchv1.Job, pods ...*corev1.Pod) string {
	if s := look(View{Job: j, Pods: pods}, pods, now); s.end != nil {
		return s.end.reason
	}
	return ""
}

type verdictCase struct {
	job  *batchv1.Job
	pods []*corev1.Pod
	want string
}

func holdReasons(t *testing.T, cases map[string]verdictCase) {
	t.Helper()
	for what, c := range cases {
		if got := reasonOf(c.job, c.pods...); got != c.want {
			t.Errorf("%s: the Job fails because of %q, want %q", what, got, c.want)
		}
	}
}

// A Job fails as soon as its failures exceed the limit, and not before.
func TestAJobFailsAtItsLimit(t *testing.T) {
	failed := func(n int32, limit *int32) *batchv1.Job {
		return aJob(func(j *batchv1.Job) { j.Spec.BackoffLimit, j.Status.Failed = limit, n })
	}
	restarting := func(policy corev1.RestartPolicy, limit int32) *batchv1.Job {
		return aJob(func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy, j.Spec.BackoffLimit = policy, of(limit) })
	}
	const exceeded = batchv1.JobReasonBackoffLimitExceeded
	one := func(p *corev1.Pod) []*corev1.Pod { return []*corev1.Pod{p} }
	holdReasons(t, map[string]verdictCase{
		"as many as may":                      {failed(2, of(int32(2))), nil, ""},
		"one more":                            {failed(3, of(int32(2))), nil, exceeded},
		"six, and it does not say how many":   {failed(6, nil), nil, ""},
		"seven, and it does not say how many": {failed(7, nil), nil, exceeded},
		"one listed beside what was counted": {aJob(func(j *batchv1.Job) {
			j.Spec.BackoffLimit, j.Status.Failed = of(int32(2)), 2
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: listOf("uid-gone")}
		}), nil, exceeded},
		"as many restarts as pods may fail":      {restarting("OnFailure", 3), one(restarted("Running", 2, 1)), exceeded},
		"one restart less":                       {restarting("OnFailure", 3), one(restarted("Running", 1, 1)), ""},
		"restarts of two pods":                   {restarting("OnFailure", 3), []*corev1.Pod{restarted("Running", 2, 0), restarted("Pending", 0, 1)}, exceeded},
		"restarts of a pod that has failed":      {restarting("OnFailure", 3), one(restarted("Failed", 3, 3)), ""},
		"one restart where none may fail":        {restarting("OnFailure", 0), one(restarted("Running", 1, 0)), exceeded},
		"no restart where none may fail":         {restarting("OnFailure", 0), one(restarted("Running", 0, 0)), ""},
		"restarts of pods that are not to start": {restarting("Never", 3), one(restarted("Running", 9, 0)), ""},
	})
}

// An indexed Job fails when too many indexes have failed, or when some have and no other is left.
func TestAJobFailsWithItsIndexes(t *testing.T) {
	most := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = of(n) } }
	told := func(done, lost string) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Status.CompletedIndexes, j.Status.FailedIndexes = done, of(lost) }
	}
	holdReasons(t, map[string]verdictCase{
		"as many are lost as may be":      {indexedJob(4, perIndex(0, most(1), told("", "2"))), nil, ""},
		"more are lost":                   {indexedJob(4, perIndex(0, most(1), told("", "1,2"))), nil, batchv1.JobReasonMaxFailedIndexesExceeded},
		"another one fails":               {indexedJob(4, perIndex(0, most(1), told("", "2"))), []*corev1.Pod{exitedWith(0, 1)}, batchv1.JobReasonMaxFailedIndexesExceeded},
		"it fails and is tried again":     {indexedJob(4, perIndex(1, most(1), told("", "2"))), []*corev1.Pod{exitedWith(0, 1)}, ""},
		"none may be lost, none is":       {indexedJob(4, perIndex(0, most(0))), nil, ""},
		"none may be lost, one is":        {indexedJob(4, perIndex(0, most(0), told("", "3"))), nil, batchv1.JobReasonMaxFailedIndexesExceeded},
		"the others are done":             {indexedJob(3, perIndex(0, told("1,2", "0"))), nil, batchv1.JobReasonFailedIndexes},
		"one is still to be done":         {indexedJob(4, perIndex(0, told("1,2", "0"))), nil, ""},
		"all are lost":                    {indexedJob(2, perIndex(0, told("", "0,1"))), nil, batchv1.JobReasonFailedIndexes},
		"all are done":                    {indexedJob(2, perIndex(0, told("0,1", ""))), nil, batchv1.JobReasonCompletionsReached},
		"one beyond those is of no count": {indexedJob(2, perIndex(0, told("1", ""))), []*corev1.Pod{exitedWith(2, 1)}, ""},
	})
}

// A rule matches the exit codes of the container that it names, or a condition with its status.
func TestWhatARuleIsAbout(t *testing.T) {
	codes := func(container *string, operator batchv1.PodFailurePolicyOnExitCodesOperator, values ...int32) func(*batchv1.PodFailurePolicyRule) {
		return func(r *batchv1.PodFailurePolicyRule) {
			r.OnExitCodes = &batchv1.PodFailurePolicyOnExitCodesRequirement{ContainerName: container, Operator: operator, Values: values}
		}
	}
	disrupted := func(r *batchv1.PodFailurePolicyRule) {
		r.OnPodConditions = []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	}
	with := func(kind corev1.PodConditionType, status corev1.ConditionStatus) *corev1.Pod {
		p := exitedWith(0, 1)
		p.Status.Conditions = []corev1.PodCondition{{Type: kind, Status: status}}
		return p
	}
	running := exitedWith(0, 1, 7)
	running.Status.ContainerStatuses[1].State.Terminated = nil
	const ends = batchv1.JobReasonPodFailurePolicy
	all := map[string]verdictCase{}
	for what, c := range map[string]struct {
		rule func(*batchv1.PodFailurePolicyRule)
		pod  *corev1.Pod
		want string
	}{
		"a code that is listed":              {codes(nil, "In", 1, 7), exitedWith(0, 7), ends},
		"one that is not":                    {codes(nil, "In", 1, 7), exitedWith(0, 2), ""},
		"not one of those, of any container": {codes(nil, "NotIn", 1), exitedWith(0, 1, 2), ends},
		"all of those":                       {codes(nil, "NotIn", 1, 2), exitedWith(0, 1, 2), ""},
		"the code of another container":      {codes(of("c"), "In", 7), exitedWith(0, 1, 7), ""},
		"the code of this container":         {codes(of("d"), "In", 7), exitedWith(0, 1, 7), ends},
		"of one that has not ended":          {codes(of("d"), "In", 7), running, ""},
		"the condition":                      {disrupted, with(corev1.DisruptionTarget, corev1.ConditionTrue), ends},
		"the condition, which does not hold": {disrupted, with(corev1.DisruptionTarget, corev1.ConditionFalse), ""},
		"another condition":                  {disrupted, with(corev1.PodReady, corev1.ConditionTrue), ""},
		"no condition":                       {disrupted, exitedWith(0, 1), ""},
	} {
		all[what] = verdictCase{indexedJob(3, rule(batchv1.PodFailurePolicyActionFailJob, c.rule)), []*corev1.Pod{c.pod}, c.want}
	}
	holdReasons(t, all)
	v := look(View{Job: indexedJob(3, perIndex(5), rule(batchv1.PodFailurePolicyActionFailIndex, codes(nil, "In", 1)))}, []*corev1.Pod{exitedWith(1, 1), exitedWith(2, 2)}, now)
	if v.lost.String() != "1" {
		t.Errorf("by a rule that gives up an index %q are lost, want 1", v.lost)
	}
}

// A Job succeeds under the first of its rules that is satisfied.
func TestUnderWhichRuleAJobSucceeds(t *testing.T) {
	rules := func(all ...batchv1.SuccessPolicyRule) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: all} }
	}
	count := func(n int32) batchv1.SuccessPolicyRule { return batchv1.SuccessPolicyRule{SucceededCount: &n} }
	these := func(text string) batchv1.SuccessPolicyRule { return batchv1.SuccessPolicyRule{SucceededIndexes: &text} }
	some := func(text string, n int32) batchv1.SuccessPolicyRule {
		return batchv1.SuccessPolicyRule{SucceededIndexes: &text, SucceededCount: &n}
	}
	for what, c := range map[string]struct {
		rules func(*batchv1.Job)
		done  string
		want  int // -1: no rule is satisfied
	}{
		"too few":                        {rules(count(2)), "1", -1},
		"enough":                         {rules(count(2)), "1,3", 0},
		"more than enough":               {rules(count(2)), "1-3", 0},
		"not all of these":               {rules(these("0,1")), "1,2", -1},
		"all of these":                   {rules(these("0,1")), "0-2", 0},
		"enough of these":                {rules(some("0-2", 2)), "0,2", 0},
		"enough, but not of these":       {rules(some("0-2", 2)), "0,3", -1},
		"the second":                     {rules(count(9), these("3")), "3", 1},
		"the first asks for none at all": {rules(these("7-9"), count(1)), "0", 1},
		"nothing is done":                {rules(count(0), these("7-9")), "", -1},
	} {
		s := look(View{Job: indexedJob(4, c.rules, func(j *batchv1.Job) { j.Status.CompletedIndexes = c.done })}, nil, now)
		if at, met := s.successRule(); met != (c.want >= 0) || met && at != c.want {
			t.Errorf("%s: rule %d is met: %t, want %d", what, at, met, c.want)
		}
	}
}

// A Job has enough successes when it has completions of them, or one if completions is
// not set, and no active pod stays.
func TestWhenAJobHasEnough(t *testing.T) {
	asks := func(completions *int32, succeeded int32, edits ...func(*batchv1.Job)) *batchv1.Job {
		return aJob(append(edits, func(j *batchv1.Job) { j.Spec.Completions, j.Status.Succeeded = completions, succeeded })...)
	}
	leaving := func(j *batchv1.Job) { j.DeletionTimestamp = of(metav1.NewTime(now)) }
	working := []*corev1.Pod{aPod("sum-a", corev1.PodRunning)}
	const enough = batchv1.JobReasonCompletionsReached
	holdReasons(t, map[string]verdictCase{
		"none of three":                       {asks(of(int32(3)), 0), nil, ""},
		"one of three":                        {asks(of(int32(3)), 1), nil, ""},
		"three":                               {asks(of(int32(3)), 3), nil, enough},
		"none, where any is enough":           {asks(nil, 0), nil, ""},
		"one, where any is enough":            {asks(nil, 1), nil, enough},
		"any, and others are at work":         {asks(nil, 1), working, ""},
		"one is at work that goes":            {asks(of(int32(1)), 1), working, enough},
		"it is deleted, and with it that one": {asks(of(int32(1)), 1, leaving), working, ""},
	})
}

// A pod with an index beyond completions does not count, and an index counts once.
func TestAnIndexCountsOnce(t *testing.T) {
	job := indexedJob(3, func(j *batchv1.Job) { j.Status.CompletedIndexes, j.Status.Succeeded = "0", 1 })
	pods := []*corev1.Pod{
		aPod("sum-0", corev1.PodSucceeded, withIndex(0)), aPod("sum-1", corev1.PodSucceeded, withIndex(1)), aPod("sum-1b", corev1.PodSucceeded, withIndex(1)),
		aPod("sum-3", corev1.PodSucceeded, withIndex(3)), aPod("sum-x", corev1.PodSucceeded), aPod("sum-4", corev1.PodFailed, withIndex(4)),
	}
	if s := look(View{Job: job}, pods, now); s.succeeded != 2 || s.done.String() != "0,1" || s.failed != 0 {
		t.Errorf("%d have succeeded, %q, and %d failed; want 2, 0 and 1, and none", s.succeeded, s.done, s.failed)
	}
	if d, limited := look(View{Job: aJob(func(j *batchv1.Job) {
		j.Spec.ActiveDeadlineSeconds, j.Status.StartTime = of(int64(60)), of(metav1.NewTime(now))
	})}, nil, now).deadline(); !limited || !d.Equal(now.Add(time.Minute)) {
		t.Errorf("the deadline is %v, %t; want a minute on", d, limited)
	}
}

func listOf(uids ...types.UID) []types.UID { return uids }
