// Package policy compares the controllers of what bounds and sizes workloads with upstream's:
// PodDisruptionBudgets, HorizontalPodAutoscalers, ResourceQuotas and ValidatingAdmissionPolicies.
package policy
