package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

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
