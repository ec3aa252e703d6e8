package job

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// ending is why a Job must end.
type ending struct {
	// target is FailureTarget or SuccessCriteriaMet.
	target          batchv1.JobConditionType
	reason, message string
	// announced is true if the status already has the target condition.
	announced bool
}

func (e *ending) failed() bool { return e.target == batchv1.JobFailureTarget }

// ending returns the first reason to end, in this order: an announced end stands, then
// failures, then successes. So a Job whose last success arrives together with one failure
// too many fails.
func (s *sight) ending() *ending {
	for _, target := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if c, ok := conditionOf(s.job.Status.Conditions, target); ok {
			return &ending{target: target, reason: c.Reason, message: c.Message, announced: true}
		}
	}
	for _, p := range s.pods {
		if v := s.verdict(p); v.forAll && s.hasFailed(p) {
			return failure(batchv1.JobReasonPodFailurePolicy, v.message)
		}
	}
	deadline, limited := s.deadline()
	switch {
	case s.failed > s.limit(), s.restartsTooOften():
		return failure(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case limited && !s.now.Before(deadline):
		return failure(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	case s.perIndex() && s.job.Spec.MaxFailedIndexes != nil && s.lost.count() > int(*s.job.Spec.MaxFailedIndexes):
		return failure(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
	case s.perIndex() && len(s.lost) > 0 && s.lost.count()+s.done.count() >= s.completions():
		return failure(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
	}
	if at, met := s.successRule(); s.indexed() && met {
		return success(batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", at))
	}
	enough := s.succeeded >= s.completions()
	if s.job.Spec.Completions == nil {
		enough = s.succeeded > 0
	}
	if enough && len(s.active) == s.excess() {
		return success(batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	}
	return nil
}

// excess is how many of the active pods this turn deletes anyway. If that is all of them,
// the Job need not wait for them.
func (s *sight) excess() int {
	if s.job.DeletionTimestamp != nil {
		return 0
	}
	return min(len(s.surplus()), Burst)
}

func failure(reason, message string) *ending {
	return &ending{target: batchv1.JobFailureTarget, reason: reason, message: message}
}

func success(reason, message string) *ending {
	return &ending{target: batchv1.JobSuccessCriteriaMet, reason: reason, message: message}
}

// limit is how many pods may fail. The API server defaults a missing number to 6.
func (s *sight) limit() int { return number(s.job.Spec.BackoffLimit, 6) }

// restartsTooOften reports whether the containers of pods with restartPolicy OnFailure
// restarted as often as pods may fail.
func (s *sight) restartsTooOften() bool {
	if s.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := 0
	for _, p := range s.pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range p.Status.InitContainerStatuses {
			restarts += int(c.RestartCount)
		}
		for _, c := range p.Status.ContainerStatuses {
			restarts += int(c.RestartCount)
		}
	}
	return restarts >= max(s.limit(), 1)
}

// deadline returns when the Job must have ended. A suspended Job has no deadline, because
// resuming it restarts its clock.
func (s *sight) deadline() (at time.Time, limited bool) {
	if s.job.Spec.ActiveDeadlineSeconds == nil || s.job.Status.StartTime == nil || s.suspended() {
		return time.Time{}, false
	}
	return s.job.Status.StartTime.Add(time.Duration(*s.job.Spec.ActiveDeadlineSeconds) * time.Second), true
}

// conditionOf returns the condition of a type, and whether it is True.
func conditionOf(conditions []batchv1.JobCondition, of batchv1.JobConditionType) (batchv1.JobCondition, bool) {
	for _, c := range conditions {
		if c.Type == of {
			return c, c.Status == corev1.ConditionTrue
		}
	}
	return batchv1.JobCondition{}, false
}

// verdict is how a Job's pod failure policy judges a failed pod.
type verdict struct {
	counts  bool   // the failure counts towards the limits and in the status
	forIts  bool   // the index is not retried
	forAll  bool   // the Job fails
	message string // why the Job fails
	action  string // action of the first rule that matches; "" if none does
}

// verdict applies the first rule that matches; if none does, the failure counts.
//
// Upstream: pkg/controller/job/pod_failure_policy.go.
func (s *sight) verdict(p *corev1.Pod) verdict {
	if s.job.Spec.PodFailurePolicy == nil {
		return verdict{counts: true}
	}
	for i, rule := range s.job.Spec.PodFailurePolicy.Rules {
		what, fits := fits(rule, p)
		if !fits {
			continue
		}
		action := string(rule.Action)
		switch rule.Action {
		case batchv1.PodFailurePolicyActionIgnore:
			return verdict{action: action}
		case batchv1.PodFailurePolicyActionCount:
			return verdict{counts: true, action: action}
		case batchv1.PodFailurePolicyActionFailIndex:
			return verdict{counts: true, forIts: true, action: action}
		case batchv1.PodFailurePolicyActionFailJob:
			return verdict{counts: true, forAll: true, action: action, message: fmt.Sprintf("%s matching %s rule at index %d", what, rule.Action, i)}
		}
	}
	return verdict{counts: true}
}

// fits reports whether a rule matches a pod, and describes the match.
func fits(rule batchv1.PodFailurePolicyRule, p *corev1.Pod) (what string, ok bool) {
	if rule.OnExitCodes != nil {
		c, ok := exited(p, rule.OnExitCodes)
		if !ok {
			return "", false
		}
		return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", c.Name, p.Namespace, p.Name, c.State.Terminated.ExitCode), true
	}
	for _, c := range p.Status.Conditions {
		for _, pattern := range rule.OnPodConditions {
			if c.Type == pattern.Type && c.Status == pattern.Status {
				return fmt.Sprintf("Pod %s/%s has condition %s", p.Namespace, p.Name, c.Type), true
			}
		}
	}
	return "", false
}

// exited returns the first container whose exit code a rule matches, init containers last.
func exited(p *corev1.Pod, rule *batchv1.PodFailurePolicyOnExitCodesRequirement) (corev1.ContainerStatus, bool) {
	for _, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		end := c.State.Terminated
		if end == nil || end.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != c.Name {
			continue
		}
		listed := slices.Contains(rule.Values, end.ExitCode)
		if rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed ||
			rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed {
			return c, true
		}
	}
	return corev1.ContainerStatus{}, false
}

// successRule returns the position of the first rule that the succeeded indexes satisfy.
//
// Upstream: pkg/controller/job/success_policy.go.
func (s *sight) successRule() (at int, met bool) {
	if s.job.Spec.SuccessPolicy == nil || len(s.done) == 0 {
		return 0, false
	}
	for i, rule := range s.job.Spec.SuccessPolicy.Rules {
		have, all := s.done.count(), 0
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes, s.completions())
			if len(wanted) == 0 {
				continue
			}
			have, all = s.done.common(wanted), wanted.count()
		}
		if rule.SucceededIndexes != nil && have == all || rule.SucceededCount != nil && have >= int(*rule.SucceededCount) {
			return i, true
		}
	}
	return 0, false
}
