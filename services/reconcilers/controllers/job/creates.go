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
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// indexVariable tells a container its index.
const indexVariable = "JOB_COMPLETION_INDEX"

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
