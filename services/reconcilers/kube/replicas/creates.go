package replicas

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// fertile is true if pods can be created from the template. A pod without labels
// would not match the selector.
//
// Upstream: pkg/controller/controller_utils.go, createPods.
func (v View) fertile() bool { return len(v.Set.Spec.Template.Labels) > 0 }

// creates returns creates of pods. All share one body. Their names differ from
// those of all existing pods, whatever their state, and from those of a failed
// attempt.
func (s Sets[T]) creates(v View, count int) []events.Command {
	taken := make(map[string]bool, len(v.Pods))
	for _, p := range v.Pods {
		taken[p.Name] = true
	}
	var attempt uint64
	if v.Failure != nil {
		attempt = v.Failure.Attempt
	}
	body := template.Pod(&v.Set.Spec.Template, s.Kind.Kind, v.Set)
	told := reconcile.WithEvents(
		s.notice(v, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: {name}"),
		s.notice(v, corev1.EventTypeWarning, "FailedCreate", "Error creating: {error}"),
	)
	commands := make([]events.Command, 0, count)
	for _, name := range names.Derived(v.Set, attempt, count, func(name string) bool { return taken[name] }) {
		commands = append(commands, reconcile.Create(kinds.Pods.Kind, v.Set.Namespace, name, body, told))
	}
	return commands
}

// deletions returns deletes of pods.
func (s Sets[T]) deletions(v View, toDelete []*corev1.Pod) []events.Command {
	told := reconcile.WithEvents(
		s.notice(v, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: {name}"),
		s.notice(v, corev1.EventTypeWarning, "FailedDelete", "Error deleting: {error}"),
	)
	commands := make([]events.Command, 0, len(toDelete))
	for _, p := range toDelete {
		commands = append(commands, reconcile.Delete(kinds.Pods.Kind, p, told))
	}
	return commands
}

// notice is an Event about the set.
func (s Sets[T]) notice(v View, level, reason, message string) *events.Notice {
	return &events.Notice{
		About: reconcile.About(s.Kind.Kind, v.Set), Type: level, Reason: reason, Message: message,
	}
}
