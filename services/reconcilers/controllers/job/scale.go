package job

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

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
