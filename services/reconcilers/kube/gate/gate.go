// Package gate knows the feature gates of kube-controller-manager: their stages and defaults in
// Kubernetes 1.36, which of them controllers here read, and which have no effect.
//
// A controller takes a [Set] and asks it where upstream asks its gates. The gates that differ
// from their defaults are part of the controller's settings and so of its turns. Replay
// therefore decides under the gates of the time.
package gate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Stage is how settled a feature is.
type Stage string

// The stages of Kubernetes. GA is the empty string, as upstream.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = ""
	Deprecated Stage = "DEPRECATED"
)

// The gates that controllers here read.
const (
	APIServerIdentity                           = "APIServerIdentity"
	StorageVersionAPI                           = "StorageVersionAPI"
	GenericWorkload                             = "GenericWorkload"
	PodCertificateRequest                       = "PodCertificateRequest"
	StorageVersionMigrator                      = "StorageVersionMigrator"
	ClusterTrustBundle                          = "ClusterTrustBundle"
	HPAScaleToZero                              = "HPAScaleToZero"
	HPAConfigurableTolerance                    = "HPAConfigurableTolerance"
	PodLevelResources                           = "PodLevelResources"
	DRAExtendedResource                         = "DRAExtendedResource"
	PersistentVolumeClaimUnusedSinceTime        = "PersistentVolumeClaimUnusedSinceTime"
	TaintTolerationComparisonOperators          = "TaintTolerationComparisonOperators"
	DeploymentReplicaSetTerminatingReplicas     = "DeploymentReplicaSetTerminatingReplicas"
	StatefulSetSemanticRevisionComparison       = "StatefulSetSemanticRevisionComparison"
	MutableSchedulingDirectivesForSuspendedJobs = "MutableSchedulingDirectivesForSuspendedJobs"
	PodDeletionCost                             = "PodDeletionCost"
	MaxUnavailableStatefulSet                   = "MaxUnavailableStatefulSet"
	DRAPrioritizedList                          = "DRAPrioritizedList"
	DRADeviceTaints                             = "DRADeviceTaints"
	DRADeviceTaintRules                         = "DRADeviceTaintRules"
	DRAResourcePoolStatus                       = "DRAResourcePoolStatus"
)

// readers are the controllers that read a gate.
var readers = map[string][]string{
	APIServerIdentity: {"storageversion-garbage-collector-controller"},
	StorageVersionAPI: {"storageversion-garbage-collector-controller"},

	GenericWorkload:       {"podgroup-protection-controller"},
	PodCertificateRequest: {"podcertificaterequest-cleaner-controller"},

	StorageVersionMigrator: {"storage-version-migrator-controller"},
	ClusterTrustBundle:     {"kube-apiserver-serving-clustertrustbundle-publisher-controller"},

	HPAScaleToZero:                              {"horizontal-pod-autoscaler-controller"},
	HPAConfigurableTolerance:                    {"horizontal-pod-autoscaler-controller"},
	PersistentVolumeClaimUnusedSinceTime:        {"persistentvolumeclaim-protection-controller"},
	DeploymentReplicaSetTerminatingReplicas:     {"deployment-controller", "replicaset-controller"},
	StatefulSetSemanticRevisionComparison:       {"statefulset-controller"},
	MutableSchedulingDirectivesForSuspendedJobs: {"job-controller"},
	PodDeletionCost:                             {"replicaset-controller", "replicationcontroller-controller"},
	MaxUnavailableStatefulSet:                   {"statefulset-controller"},
	DRAExtendedResource:                         {"resourcequota-controller"},
	DRAPrioritizedList:                          {"resourceclaim-controller"},
	DRADeviceTaints:                             {"device-taint-eviction-controller"},
	DRADeviceTaintRules:                         {"device-taint-eviction-controller"},
	DRAResourcePoolStatus:                       {"resourcepoolstatusrequest-controller"},
	TaintTolerationComparisonOperators:          {"taint-eviction-controller", "daemonset-controller"},
	PodLevelResources:                           {"horizontal-pod-autoscaler-controller", "resourcequota-controller"},
}

// fixed are gates that upstream's code of a controller reads but that have one value only for
// that controller here, and the reason.
var fixed = map[string]string{
	"WorkloadWithJob":           "job-controller makes no Workloads and PodGroups; leave the gate off, and run job-controller in kube-controller-manager if Jobs need them (--controllers=*,-job-controller)",
	"DRAWorkloadResourceClaims": "resourceclaim-controller makes no claims of PodGroups and reserves none for them, and device-taint-eviction-controller evicts no pods for those; leave the gate off, and run both in kube-controller-manager if PodGroups need them (--controllers=*,-resourceclaim-controller,-device-taint-eviction-controller)",
}

// A Gate is what is known of a feature gate.
type Gate struct {
	Name  string
	Stage Stage
	// On is the default; Locked: it cannot be changed.
	On, Locked bool
	// Needs are the gates that must be on for this one to be on.
	Needs []string
	// Readers are the controllers here that read the gate. Without any it has no effect.
	Readers []string
	// Fixed is why the gate can only have its default value here, although upstream allows
	// both; empty for most.
	Fixed string
}

// Known returns every gate that kube-controller-manager knows, sorted by name.
func Known() []Gate {
	var all []Gate
	for _, group := range known {
		for name := range strings.FieldsSeq(group.names) {
			all = append(all, Gate{name, group.stage, group.on, group.locked, needs[name], readers[name], fixed[name]})
		}
	}
	slices.SortFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Set holds the gates that differ from their defaults; nil for none.
type Set map[string]bool

// On reports whether a gate is on. The name must be one of the constants here.
func (s Set) On(name string) bool {
	if on, set := s[name]; set {
		return on
	}
	return defaults[name]
}

// defaults are the defaults of all gates.
var defaults = func() map[string]bool {
	on := map[string]bool{}
	for _, g := range Known() {
		on[g.Name] = g.On
	}
	return on
}()

// Of returns the part of a set about some gates; nil if it is empty.
func (s Set) Of(names ...string) Set {
	part := maps.Clone(s)
	maps.DeleteFunc(part, func(name string, _ bool) bool { return !slices.Contains(names, name) })
	if len(part) == 0 {
		return nil
	}
	return part
}

// Settings encodes a set for a controller that has no other settings; nil for an empty set, as
// before there were gates.
func (s Set) Settings() json.RawMessage {
	if len(s) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]Set{"gates": s})
	if err != nil {
		panic(err) // impossible for a map of booleans
	}
	return text
}
