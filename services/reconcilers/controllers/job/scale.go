package job

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// indexVariable tells a container its index.
const indexVariable = "JOB_COMPLETION_INDEX"

// scale either creates or deletes pods, never both in one turn. It deletes the pods of a
// Job that ends only after the status says why. Otherwise the terminating pods would
// count as failures and become the reason why the Job ends.
func (s *sight) scale() reconcile.Decision {
	surplus := s.surplus()
	switch {
	case s.end != nil && !s.end.announced:
		return reconcile.Decision{}
	case s.end != nil && len(s.active) > 0:
		return reconcile.Do("the Job ends, and its pods are deleted", s.deletions(head(s.active, Burst))...)
	case s.end != nil, s.job.DeletionTimestamp != nil:
		return reconcile.Decision{}
	case s.relieve(surplus):
		return reconcile.Decision{} // the failed pods that they replaced are counted first
	case s.suspended() && len(surplus) > 0:
		return reconcile.Do("the Job is suspended", s.removals(head(surplus, Burst))...)
	case s.suspended():
		return reconcile.Decision{}
	case len(surplus) > 0:
		return reconcile.Do("too many pods", s.removals(head(surplus, Burst))...)
	}
	lack := s.wanted() - len(s.active)
	if s.replacesEnded() {
		lack -= len(s.leaving)
	}
	switch rest := s.rest(); {
	case lack <= 0:
		return reconcile.Decision{}
	case s.perIndex():
		return s.createsOf(s.pending(min(lack, Burst)))
	case rest.After(s.now):
		return reconcile.Wake(rest, "too few pods, but the Job backs off after a failure")
	case s.indexed():
		return s.createsOf(s.pending(min(lack, Burst)))
	default:
		return reconcile.Do("too few pods", s.creates(min(lack, Burst))...)
	}
}

// wanted returns how many pods should be active. A Job without completions runs at its
// parallelism until the first success, and then starts no more pods.
func (s *sight) wanted() int {
	parallelism := number(s.job.Spec.Parallelism, 1)
	switch {
	case s.job.Spec.Completions != nil:
		return max(0, min(parallelism, s.completions()-s.succeeded))
	case s.succeeded > 0:
		return len(s.active)
	default:
		return parallelism
	}
}

// surplus returns the active pods to delete: first those with a duplicate or an invalid
// index, then as many others as exceed the wanted number.
func (s *sight) surplus() []*corev1.Pod {
	excess := max(0, len(s.active)-s.wanted())
	if s.suspended() {
		excess = len(s.active)
	}
	unfit, fit := s.unfit()
	if more := excess - len(unfit); more > 0 {
		unfit = append(unfit, head(pod.Least(fit), more)...)
	}
	return unfit
}

// unfit splits the active pods of an indexed Job. unfit are those without a valid index
// and, of those that share an index, all but the best; fit are the rest.
func (s *sight) unfit() (unfit, fit []*corev1.Pod) {
	if !s.indexed() {
		return nil, slices.Clone(s.active)
	}
	same := map[int][]*corev1.Pod{}
	var order []int
	for _, p := range s.active { // by index
		if !s.valid(p) {
			unfit = append(unfit, p)
			continue
		}
		index, _ := indexOf(p)
		if len(same[index]) == 0 {
			order = append(order, index)
		}
		same[index] = append(same[index], p)
	}
	for _, index := range order {
		twins := pod.Least(same[index])
		unfit = append(unfit, twins[:len(twins)-1]...)
		fit = append(fit, twins[len(twins)-1])
	}
	return unfit, fit
}

func head(pods []*corev1.Pod, count int) []*corev1.Pod { return pods[:min(len(pods), count)] }

// deletions returns the deletes of pods that the Job counts.
func (s *sight) deletions(toDelete []*corev1.Pod) []events.Command {
	told := reconcile.WithEvents(
		s.notice(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: {name}"),
		s.notice(corev1.EventTypeWarning, "FailedDelete", "Error deleting: {error}"),
	)
	commands := make([]events.Command, 0, len(toDelete))
	for _, p := range toDelete {
		commands = append(commands, reconcile.Delete(kinds.Pods.Kind, p, told))
	}
	return commands
}

// removals returns the deletes of pods that the Job does not count: each finalizer is removed first.
func (s *sight) removals(toDelete []*corev1.Pod) []events.Command {
	var commands []events.Command
	for i, deletion := range s.deletions(toDelete) {
		if counted(toDelete[i]) {
			commands = append(commands, release(toDelete[i]))
		}
		commands = append(commands, deletion)
	}
	return commands
}

// pending returns the first count indexes that are neither completed, failed nor active.
func (s *sight) pending(count int) []int {
	busy := s.done.with(s.lost).with(each(indexesOf(s.active)))
	if s.replacesEnded() {
		busy = busy.with(each(indexesOf(s.leaving)))
	}
	return busy.free(count, s.completions())
}

// notice returns an Event about the Job.
func (s *sight) notice(level, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.Jobs.Kind, s.job), Type: level, Reason: reason, Message: message}
}

// creates returns count creates of pods without an index. They share one body.
func (s *sight) creates(count int) []events.Command {
	t := s.job.Spec.Template
	t.Finalizers = withFinalizer(t.Finalizers)
	body := template.Pod(&t, kinds.Jobs.Kind, s.job)
	commands := make([]events.Command, 0, count)
	for _, name := range names.Derived(s.job, s.view.Attempt, count, s.taken) {
		commands = append(commands, s.create(name, body))
	}
	return commands
}

// createsOf creates pods for those indexes whose back-off has passed.
func (s *sight) createsOf(pending []int) reconcile.Decision {
	d := reconcile.Decision{Because: "too few pods"}
	var next time.Time
	size := 0
	for _, index := range pending {
		if at := s.restOf(index); at.After(s.now) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		create := s.createOf(index)
		if size += len(create.Body); size > template.Weight && len(d.Commands) > 0 {
			break
		}
		d.Commands = append(d.Commands, create)
	}
	if len(d.Commands) == 0 && !next.IsZero() {
		return reconcile.Wake(next, "too few pods, but each index backs off after a failure")
	}
	d.WakeAt = next
	return d
}

// createOf returns the create of the pod of an index. The pod has its index as label,
// annotation, variable and host name, and the count of failures if the Job counts them by index.
func (s *sight) createOf(index int) events.Command {
	text := strconv.Itoa(index)
	t := *s.job.Spec.Template.DeepCopy()
	t.Finalizers = withFinalizer(t.Finalizers)
	t.Labels = label.With(t.Labels, batchv1.JobCompletionIndexAnnotation, text)
	t.Annotations = label.With(t.Annotations, batchv1.JobCompletionIndexAnnotation, text)
	if s.perIndex() {
		failed, ignored := s.inherited(index)
		t.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(failed)
		if ignored > 0 {
			t.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(ignored)
		}
	}
	t.Spec.Hostname = s.job.Name + "-" + text
	for _, containers := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range containers {
			tellIndex(&containers[i])
		}
	}
	stem := stemOf(s.job.Name, text)
	return s.create(names.Suffixed(stem, s.job, s.view.Attempt, 1, s.taken)[0], template.PodUnder(stem, &t, kinds.Jobs.Kind, s.job))
}

func (s *sight) create(name string, body json.RawMessage) events.Command {
	return reconcile.Create(kinds.Pods.Kind, s.job.Namespace, name, body, reconcile.WithEvents(
		s.notice(corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: {name}"),
		s.notice(corev1.EventTypeWarning, "FailedCreate", "Error creating: {error}"),
	))
}

// taken reports whether a pod has a name.
func (s *sight) taken(name string) bool {
	if s.names == nil {
		s.names = make(map[string]bool, len(s.view.Pods))
		for _, p := range s.view.Pods {
			s.names[p.Name] = true
		}
	}
	return s.names[name]
}

// inherited returns how often an index has failed, and how often the rules ignored that,
// including the pod that is replaced now.
func (s *sight) inherited(index int) (failed, ignored int) {
	p, ok := s.retained[index]
	switch {
	case !ok:
		return 0, 0
	case s.verdict(p).counts:
		return failuresOf(p) + 1, ignoredOf(p)
	default:
		return failuresOf(p), ignoredOf(p) + 1
	}
}

// stemOf returns the prefix of the name of an indexed pod. It truncates the name of a
// long Job, never the index.
func stemOf(job, index string) string {
	end := "-" + index + "-"
	return job[:min(len(job), names.StemLength-len(end))] + end
}

func withFinalizer(have []string) []string {
	if slices.Contains(have, batchv1.JobTrackingFinalizer) {
		return have
	}
	return append(slices.Clone(have), batchv1.JobTrackingFinalizer)
}

// tellIndex adds the variable with the index to a container that has no variable of that
// name.
func tellIndex(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == indexVariable }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"},
	}})
}
