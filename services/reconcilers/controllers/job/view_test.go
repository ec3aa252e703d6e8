package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

// aJob returns a Job with three completions and a parallelism of two.
func aJob(edits ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "sum", UID: "uid-sum", ResourceVersion: "1", Generation: 1},
		Spec: batchv1.JobSpec{
			Parallelism: of(int32(2)), Completions: of(int32(3)), BackoffLimit: of(int32(6)), Suspend: of(false),
			CompletionMode: of(batchv1.NonIndexedCompletion), PodReplacementPolicy: of(batchv1.TerminatingOrFailed),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "sum"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"job": "sum"}},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "sum:1"}}},
			},
		},
	}
	for _, edit := range edits {
		edit(j)
	}
	return j
}

func of[T any](value T) *T { return &value }

// aPod returns one of its pods, with the finalizer.
func aPod(name string, phase corev1.PodPhase, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "batch", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
			Labels: map[string]string{"job": "sum"}, Finalizers: []string{batchv1.JobTrackingFinalizer},
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: "sum", UID: "uid-sum", Controller: of(true), BlockOwnerDeletion: of(true),
			}},
		},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: phase},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func withIndex(index int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index)}
	}
}

func anyView(t *rapid.T) View {
	v := View{Job: anyJob(t)}
	if rapid.IntRange(0, 9).Draw(t, "stray") == 9 {
		return View{Stray: aPod("sum-x", corev1.PodFailed), Over: rapid.Bool().Draw(t, "over")}
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		v.Pods = append(v.Pods, anyPod(t, v.Job, fmt.Sprintf("sum-%d", i)))
	}
	v.Job.Status.UncountedTerminatedPods = anyList(t, v.Pods)
	if rapid.IntRange(0, 3).Draw(t, "let go") == 3 {
		v.LetGo = of(now.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds ago")) * time.Second))
	}
	for _, p := range v.Pods {
		if p.DeletionTimestamp != nil && len(p.Finalizers) == 0 && rapid.Bool().Draw(t, "surplus") {
			v.Surplus = append(v.Surplus, p.UID)
		}
	}
	v.Attempt = rapid.SampledFrom([]uint64{0, 0, 7}).Draw(t, "attempt")
	if rapid.Bool().Draw(t, "reported") { // so that sometimes there is nothing to do but wait
		for range 6 {
			v = applied(v, decide(v, now), now)
		}
	}
	return v
}

func anyJob(t *rapid.T) *batchv1.Job {
	small := func(name string) *int32 { return of(int32(rapid.IntRange(0, 4).Draw(t, name))) }
	j := aJob()
	j.Spec.Parallelism, j.Spec.BackoffLimit = small("parallelism"), small("backoffLimit")
	switch rapid.IntRange(0, 3).Draw(t, "mode") {
	case 0:
		j.Spec.Completions = nil
	case 1:
		j.Spec.Completions = small("completions")
	default:
		j.Spec.Completions, j.Spec.CompletionMode = small("completions"), of(batchv1.IndexedCompletion)
		if rapid.Bool().Draw(t, "perIndex") {
			j.Spec.BackoffLimitPerIndex = of(int32(rapid.IntRange(0, 1).Draw(t, "perIndexLimit")))
			if rapid.Bool().Draw(t, "maxFailed") {
				j.Spec.MaxFailedIndexes = small("maxFailedIndexes")
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "successPolicy") == 2 {
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: of("0,2-9"), SucceededCount: of(int32(1))}}}
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "failurePolicy") == 2 {
		j.Spec.PodFailurePolicy = anyPolicy(t)
	} else if rapid.Bool().Draw(t, "replace ended only") {
		j.Spec.PodReplacementPolicy = of(batchv1.Failed)
	}
	if rapid.IntRange(0, 4).Draw(t, "suspend") == 4 {
		j.Spec.Suspend = of(true)
	}
	if rapid.IntRange(0, 3).Draw(t, "deadline") == 3 {
		j.Spec.ActiveDeadlineSeconds = of(int64(60))
		j.Status.StartTime = of(metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 70).Draw(t, "started")) * time.Second)))
	}
	if rapid.IntRange(0, 6).Draw(t, "deleted") == 6 {
		j.DeletionTimestamp = of(metav1.NewTime(now))
	}
	if rapid.IntRange(0, 5).Draw(t, "target") == 5 {
		j.Status.Conditions = []batchv1.JobCondition{{
			Type:   rapid.SampledFrom([]batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet}).Draw(t, "which"),
			Status: corev1.ConditionTrue, Reason: "Told", LastTransitionTime: metav1.NewTime(now.Add(-time.Second)),
		}}
	}
	return j
}

func anyPolicy(t *rapid.T) *batchv1.PodFailurePolicy {
	actions := rapid.SampledFrom([]batchv1.PodFailurePolicyAction{"Ignore", "Count", "FailJob", "FailIndex"})
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{Action: actions.Draw(t, "on 1"), OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "In", Values: []int32{1}}},
		{Action: actions.Draw(t, "on disruption"), OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
		}},
	}}
}

func anyPod(t *rapid.T, j *batchv1.Job, name string) *corev1.Pod {
	ago := func(what string) metav1.Time {
		return metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, what)) * time.Second))
	}
	p := aPod(name, rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Running", "Failed", "Failed", "Succeeded"}).Draw(t, "phase"))
	if rapid.IntRange(0, 4).Draw(t, "no finalizer") == 4 {
		p.Finalizers = nil
	}
	if rapid.IntRange(0, 5).Draw(t, "orphan") == 5 {
		p.OwnerReferences = nil
	}
	if rapid.IntRange(0, 4).Draw(t, "leaving") == 4 && len(p.OwnerReferences) > 0 {
		p.DeletionTimestamp = of(ago("deleted"))
	}
	if *j.Spec.CompletionMode == batchv1.IndexedCompletion && rapid.IntRange(0, 8).Draw(t, "no index") < 8 {
		p.Annotations = map[string]string{
			batchv1.JobCompletionIndexAnnotation:   strconv.Itoa(rapid.IntRange(0, 4).Draw(t, "index")),
			batchv1.JobIndexFailureCountAnnotation: strconv.Itoa(rapid.IntRange(0, 1).Draw(t, "count")),
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(rapid.IntRange(1, 2).Draw(t, "code")), FinishedAt: ago("ended"),
		}}}}
		if rapid.Bool().Draw(t, "disrupted") {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		}
	}
	return p
}

// anyList returns a list of uids as a status may have it: of ended pods, and of deleted ones.
func anyList(t *rapid.T, pods []*corev1.Pod) *batchv1.UncountedTerminatedPods {
	list := &batchv1.UncountedTerminatedPods{}
	if rapid.IntRange(0, 3).Draw(t, "gone") == 3 {
		list.Failed = append(list.Failed, "uid-gone")
	}
	for _, p := range pods {
		if rapid.Bool().Draw(t, "listed") {
			continue
		}
		switch p.Status.Phase {
		case corev1.PodFailed:
			list.Failed = append(list.Failed, p.UID)
		case corev1.PodSucceeded:
			if _, indexed := indexOf(p); !indexed {
				list.Succeeded = append(list.Succeeded, p.UID)
			}
		}
	}
	return list
}

func shuffled(t *rapid.T, v View) View {
	v.Pods = rapid.Permutation(v.Pods).Draw(t, "order")
	return v
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, now time.Time) View {
	v.Pods = slices.Clone(v.Pods)
	for _, c := range d.Commands {
		at := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == c.Name })
		if c.Lane() == events.LaneWrite {
			v.Attempt = 0
		}
		switch {
		case v.Stray != nil:
			v.Stray = patched(v.Stray, c)
		case c.Verb == events.VerbRecord:
		case c.Verb == events.VerbCreate:
			created := read[corev1.Pod](c.Body)
			created.Namespace, created.Name, created.UID = c.Namespace, c.Name, types.UID("uid-"+c.Name)
			created.CreationTimestamp, created.Status.Phase = metav1.NewTime(now), corev1.PodPending
			v.Pods = append(v.Pods, created)
		case c.Verb == events.VerbDelete:
			v.Pods[at] = v.Pods[at].DeepCopy()
			v.Pods[at].DeletionTimestamp = of(metav1.NewTime(now))
			v.Pods = vanish(v.Pods, at)
		case c.Verb == events.VerbPatch:
			v.Pods[at] = patched(v.Pods[at], c)
			if len(v.Pods[at].OwnerReferences) == 0 {
				v.Pods = slices.Delete(v.Pods, at, at+1) // released: no longer visible
				continue
			}
			v.Pods = vanish(v.Pods, at)
		case c.Verb == events.VerbUpdate:
			v.Job = read[batchv1.Job](c.Body)
		}
	}
	return v
}

// vanish removes a pod without finalizers.
func vanish(pods []*corev1.Pod, at int) []*corev1.Pod {
	if p := pods[at]; p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
		return slices.Delete(pods, at, at+1)
	}
	return pods
}

func patched(p *corev1.Pod, c events.Command) *corev1.Pod {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	if text, err = strategicpatch.StrategicMergePatch(text, c.Body, p); err != nil {
		panic(err)
	}
	return read[corev1.Pod](text)
}

func read[T any](body json.RawMessage) *T {
	var value T
	if err := json.Unmarshal(body, &value); err != nil {
		panic(err)
	}
	return &value
}
