package job

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
)

// createdBy returns the pods that a decision on a view creates, and its wake.
func createdBy(v View) (pods []*corev1.Pod, wake time.Time) {
	d := decide(v, now)
	for _, c := range d.Commands {
		if c.Verb == events.VerbCreate {
			pods = append(pods, read[corev1.Pod](c.Body))
		}
	}
	return pods, d.WakeAt
}

// failedAgo returns a failed pod of an index, whose container ended ago.
func failedAgo(name string, index int, ago time.Duration, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := exitedWith(index, 1)
	p.Name, p.UID = name, "uid-"+p.UID
	p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(now.Add(-ago))
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func countedBefore(failures, ignored string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[batchv1.JobIndexFailureCountAnnotation], p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = failures, ignored
	}
}

// listedAlready adds failed pods to the status, where they are before they are replaced.
func listedAlready(pods ...*corev1.Pod) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
		for _, p := range pods {
			j.Status.UncountedTerminatedPods.Failed = append(j.Status.UncountedTerminatedPods.Failed, p.UID)
		}
	}
}

// A failed index waits alone: other indexes are tried meanwhile, and the decision
// requests a wake for the first that may be retried.
func TestAnIndexWaitsByItself(t *testing.T) {
	const s = time.Second
	for what, c := range map[string]struct {
		pods []*corev1.Pod
		want []string // indexes of the created pods
		wake time.Duration
	}{
		"one waits, two are tried": {[]*corev1.Pod{failedAgo("a", 0, 4*s)}, []string{"1", "2"}, 6 * s},
		"it has waited":            {[]*corev1.Pod{failedAgo("a", 0, 10*s)}, []string{"0", "1", "2"}, 0},
		"all wait": {
			[]*corev1.Pod{failedAgo("a", 0, 4*s), failedAgo("b", 1, 7*s), failedAgo("c", 2, 2*s)}, nil, 3 * s,
		},
		"it failed before":                       {[]*corev1.Pod{failedAgo("a", 0, 12*s, countedBefore("1", "0"))}, []string{"1", "2"}, 8 * s},
		"and was ignored before":                 {[]*corev1.Pod{failedAgo("a", 0, 12*s, countedBefore("1", "1"))}, []string{"1", "2"}, 28 * s},
		"of two the one that failed more often":  {[]*corev1.Pod{failedAgo("a", 0, 12*s), failedAgo("b", 0, 3*s, countedBefore("1", "0"))}, []string{"1", "2"}, 17 * s},
		"the other way round":                    {[]*corev1.Pod{failedAgo("a", 0, 12*s, countedBefore("1", "0")), failedAgo("b", 0, 3*s)}, []string{"1", "2"}, 8 * s},
		"of two that failed as often the last":   {[]*corev1.Pod{failedAgo("a", 0, 9*s), failedAgo("b", 0, 4*s)}, []string{"1", "2"}, 6 * s},
		"whatever they are called":               {[]*corev1.Pod{failedAgo("a", 0, 4*s), failedAgo("b", 0, 9*s)}, []string{"1", "2"}, 6 * s},
		"ignored failures count like the others": {[]*corev1.Pod{failedAgo("a", 0, 12*s, countedBefore("0", "1")), failedAgo("b", 0, 3*s)}, []string{"1", "2"}, 8 * s},
	} {
		pods, wake := createdBy(View{Job: indexedJob(3, perIndex(5), listedAlready(c.pods...)), Pods: c.pods})
		var tried []string
		for _, p := range pods {
			tried = append(tried, p.Annotations[batchv1.JobCompletionIndexAnnotation])
		}
		slices.Sort(tried)
		if !slices.Equal(tried, c.want) || c.wake == 0 != wake.IsZero() || c.wake != 0 && !wake.Equal(now.Add(c.wake)) {
			t.Errorf("%s: %v are tried, and it asks again at %v; want %v and after %v", what, tried, wake, c.want, c.wake)
		}
	}
}

// A replacement pod carries the counts of failures and of ignored failures of its index.
func TestAPodInheritsTheFailuresOfItsIndex(t *testing.T) {
	ignore := rule(batchv1.PodFailurePolicyActionIgnore, func(r *batchv1.PodFailurePolicyRule) {
		r.OnExitCodes = &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "In", Values: []int32{1}}
	})
	for what, c := range map[string]struct {
		edit            func(*batchv1.Job)
		before          func(*corev1.Pod)
		failed, ignored string
	}{
		"the first failure":            {perIndex(5), countedBefore("", ""), "1", ""},
		"the third":                    {perIndex(5), countedBefore("2", ""), "3", ""},
		"one that does not count":      {perIndex(5, ignore), countedBefore("", ""), "0", "1"},
		"one more that does not count": {perIndex(5, ignore), countedBefore("2", "3"), "2", "4"},
		"one that counts after those":  {perIndex(5), countedBefore("2", "3"), "3", "3"},
		"one without the annotations":  {perIndex(5), func(p *corev1.Pod) {}, "1", ""},
	} {
		old := failedAgo("a", 0, time.Hour, c.before)
		job := indexedJob(1, c.edit, listedAlready(old))
		pods, _ := createdBy(View{Job: job, Pods: []*corev1.Pod{old}})
		if len(pods) != 1 {
			t.Errorf("%s: %d pods are created", what, len(pods))
			continue
		}
		notes := pods[0].Annotations
		if notes[batchv1.JobIndexFailureCountAnnotation] != c.failed || notes[batchv1.JobIndexIgnoredFailureCountAnnotation] != c.ignored {
			t.Errorf("%s: the written status says %v, want %q failures and %q ignored", what, notes, c.failed, c.ignored)
		}
	}
}

// A container gets its index as a variable, unless its template has one of that name. A
// finalizer in the template is not duplicated.
func TestATemplateWithTheVariableKeepsIt(t *testing.T) {
	job := indexedJob(1, func(j *batchv1.Job) {
		j.Spec.Template.Finalizers = []string{batchv1.JobTrackingFinalizer}
		j.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		j.Spec.Template.Spec.Containers = []corev1.Container{
			{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}, {Name: "d", Env: []corev1.EnvVar{{Name: indexVariable, Value: "own"}}},
		}
	})
	pods, _ := createdBy(View{Job: job})
	if len(pods) != 1 || !slices.Equal(pods[0].Finalizers, []string{batchv1.JobTrackingFinalizer}) {
		t.Fatalf("created are %v", pods)
	}
	spec := pods[0].Spec
	if e := spec.Containers[1].Env; len(e) != 1 || e[0].Value != "own" {
		t.Errorf("a variable of its own is %v", e)
	}
	for _, e := range [][]corev1.EnvVar{spec.InitContainers[0].Env, spec.Containers[0].Env[1:]} {
		if len(e) != 1 || e[0].Name != indexVariable || e[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" {
			t.Errorf("a container has the variables %v, want its index from the label", e)
		}
	}
}

// The name of a long Job is truncated in its pods' names, never the index.
func TestAPodOfAJobWithALongNameHasItsIndex(t *testing.T) {
	long := strings.Repeat("x", 70)
	if got := stemOf(long, "12"); len(got) != names.StemLength || !strings.HasSuffix(got, "x-12-") {
		t.Errorf("its name begins with %q", got)
	}
	if got := stemOf("sum", "12"); got != "sum-12-" {
		t.Errorf("its name begins with %q", got)
	}
}

// Large pods are created in several turns.
func TestLargePodsAreCreatedInTurns(t *testing.T) {
	for weight, want := range map[int]int{template.Weight: 1, template.Weight / 3: 2, template.Weight / 8: 4} {
		pods, _ := createdBy(View{Job: indexedJob(4, func(j *batchv1.Job) {
			j.Spec.Template.Annotations = map[string]string{"a": strings.Repeat("x", weight)}
		})})
		if len(pods) != want {
			t.Errorf("of pods with %d bytes %d are created in a turn, want %d", weight, len(pods), want)
		}
	}
}

// A new pod gets a name that no other pod has.
func TestANameThatIsTaken(t *testing.T) {
	job := aJob(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = of(int32(1)), of(int32(1)) })
	first, _ := createdBy(View{Job: job})
	other := aPod("other", corev1.PodRunning, orphaned, letGo)
	other.Labels = nil
	v := View{Job: job, Pods: []*corev1.Pod{other}}
	names := func() string {
		for _, c := range decide(v, now).Commands {
			if c.Verb == events.VerbCreate {
				return c.Name
			}
		}
		return ""
	}
	free := names()
	if other.Name = free; len(first) != 1 || free == "" || names() == free || names() == "" {
		t.Errorf("beside %q one is created as %q", free, names())
	}
}

// A pod whose failure ends the retries of its index is kept until the status has the
// failed index, even if the status lists the pod: nothing else would record that the
// index has failed.
func TestThePodOfALostIndexIsKeptUntilTheStatusSaysSo(t *testing.T) {
	p := failedAgo("a", 0, time.Hour, countedBefore("2", "0"))
	for said, want := range map[string]bool{"": false, "1": false, "0": true, "0,2": true} {
		job := indexedJob(3, perIndex(2), listedAlready(p))
		job.Status.FailedIndexes = &said
		d := decide(View{Job: job, Pods: []*corev1.Pod{p}}, now)
		released := slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Verb == events.VerbPatch && c.Name == p.Name })
		if released != want {
			t.Errorf("failedIndexes is %q: %s: it is let go: %v, want %v", said, d.Because, released, want)
		}
	}
}
