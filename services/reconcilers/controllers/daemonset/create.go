package daemonset

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// creates returns creates of pods, each bound to its node. Bodies beyond template.Weight
// in total wait for the next turn.
func (s *stage) creates(wanted []create) []events.Command {
	if len(wanted) == 0 {
		return nil
	}
	taken := make(map[string]bool, len(s.Pods))
	for _, p := range s.Pods {
		taken[p.Name] = true
	}
	told := reconcile.WithEvents(
		s.notice(corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: {name}"),
		s.notice(corev1.EventTypeWarning, "FailedCreate", "Error creating: {error}"),
	)
	t := s.template()
	commands, size := make([]events.Command, 0, len(wanted)), 0
	for i, name := range names.Derived(s.Set, s.Attempt, len(wanted), func(name string) bool { return taken[name] }) {
		one := t // shallow: the parts are only read
		one.Spec.Affinity = bound(t.Spec.Affinity, wanted[i].node)
		if wanted[i].failures > 0 {
			one.Annotations = label.With(t.Annotations, failuresNote, strconv.Itoa(wanted[i].failures))
		}
		body := template.Pod(&one, kinds.DaemonSets.Kind, s.Set)
		if size += len(body); size > template.Weight && i > 0 {
			break
		}
		commands = append(commands, reconcile.Create(kinds.Pods.Kind, s.Set.Namespace, name, body, told))
	}
	return commands
}

// template returns the part that all pods of the set have in common.
//
// Upstream: pkg/controller/daemon/util, CreatePodTemplate.
func (s *stage) template() corev1.PodTemplateSpec {
	t := s.Set.Spec.Template // shallow: the parts are only read
	t.Spec.Tolerations = tolerations(&t.Spec)
	if s.generation != "" {
		t.Labels = label.With(t.Labels, extensionsv1beta1.DaemonSetTemplateGenerationKey, s.generation)
	}
	t.Labels = label.With(t.Labels, hashLabel, s.hash)
	return t
}

// delete returns the delete of a pod.
func (s *stage) delete(p *corev1.Pod) events.Command {
	return reconcile.Delete(kinds.Pods.Kind, p, reconcile.WithEvents(
		s.notice(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: {name}"),
		s.notice(corev1.EventTypeWarning, "FailedDelete", "Error deleting: {error}"),
	))
}

// notice returns an Event about the set.
func (v View) notice(level, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.DaemonSets.Kind, v.Set), Type: level, Reason: reason, Message: message}
}
