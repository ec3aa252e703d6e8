package job

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// scale is what happens to pods: some are created or some are deleted, never both at once.
// The pods of a Job that ends are deleted once it says why: a pod on its way out counts
// as a failure otherwise, and then that is why the Job ends.
func (s *sight) scale() reconcile.Decision {
	surplus := s.surplus()
	switch {
	case s.end != nil && !s.end.announced:
		return reconcile.Decision{}
	case s.end != nil && len(s.active) > 0:
		return reconcile.Do("the Job ends, and so do its pods", s.deletions(head(s.active, Burst))...)
	case s.end != nil, s.job.DeletionTimestamp != nil:
		return reconcile.Decision{}
	case s.relieve(surplus):
		return reconcile.Decision{} // those whose place they have taken are counted first
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
		return reconcile.Wake(rest, "too few pods, but it is not long since the last one failed")
	case s.indexed():
		return s.createsOf(s.pending(min(lack, Burst)))
	default:
		return reconcile.Do("too few pods", s.creates(min(lack, Burst))...)
	}
}

// wanted is how many pods should be at work. A Job that does not say how many have
// to succeed goes on until the first one has, and then starts no more.
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

// surplus are the pods at work that should not be: those whose index is another's
// too, or not asked for, and then as many as there are too many.
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

// unfit are the pods at work that bear no index which is asked for, and of those
// that bear the same all but the best.
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

// deletions are the ends of pods that are counted.
func (s *sight) deletions(toDelete []*corev1.Pod) []events.Command {
	told := reconcile.Tell(
		s.notice(corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: {name}"),
		s.notice(corev1.EventTypeWarning, "FailedDelete", "Error deleting: {error}"),
	)
	commands := make([]events.Command, 0, len(toDelete))
	for _, p := range toDelete {
		commands = append(commands, reconcile.Delete(kinds.Pods.Kind, p, told))
	}
	return commands
}

// removals are the ends of pods that are not: the finalizer goes first.
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

// pending are the first indexes that no pod has seen to.
func (s *sight) pending(count int) []int {
	busy := s.done.with(s.lost).with(each(indexesOf(s.active)))
	if s.replacesEnded() {
		busy = busy.with(each(indexesOf(s.leaving)))
	}
	return busy.free(count, s.completions())
}

// notice is told on the Job.
func (s *sight) notice(level, reason, message string) *events.Notice {
	return &events.Notice{About: reconcile.About(kinds.Jobs.Kind, s.job), Type: level, Reason: reason, Message: message}
}
