// Package devicetainteviction evicts pods from devices with a taint of the effect NoExecute that
// the pod's claim does not tolerate. A driver taints a device in its ResourceSlice, an
// administrator taints any number of devices with a DeviceTaintRule.
//
// Each taint has the time at which it was added, so a restart begins no time again. A pod stays
// until the first of its devices' taints is no longer tolerated.
//
//	the key of a pod                      the key of a rule
//	  tolerated for now: wake then          report how many pods it evicts, or would
//	  not tolerated: mark, then delete
//	  may stay after all: report that
//
// Only the slices of a pool's highest generation count, the tolerations with which the claim was
// allocated, and pods for which the claim is reserved.
package devicetainteviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the controller under the default feature gates: without rules. A key is a pod or a rule.
var Controller = New(nil)

// New returns the controller with these feature gates changed from their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.DRADeviceTaints, gate.DRADeviceTaintRules)
	inputs := []reconcile.Input{
		{Kind: kinds.Pods.Kind, Keys: keysOfPod},
		{Kind: kinds.ResourceClaims.Kind, Keys: keysOfClaim},
		{Kind: kinds.ResourceSlices.Kind, Keys: keysOfSlice},
	}
	if gates.On(gate.DRADeviceTaintRules) { // without the gate the API server need not serve them
		inputs = append(inputs, reconcile.Input{Kind: kinds.DeviceTaintRules.Kind, Keys: keysOfRule})
	}
	return reconcile.Controller[View]{
		Name:   "device-taint-eviction-controller",
		Owns:   &kinds.Pods.Kind,
		Inputs: inputs,
		Writes: reconcile.Writes{
			{Verb: events.VerbDelete, Kind: kinds.Pods.Name, On: reconcile.Itself},
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, Subresource: "status", On: reconcile.Itself, Fields: []string{".status.conditions"},
				Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{string(corev1.DisruptionTarget)}}, {Path: ".status.conditions[*].reason", One: []string{why}}}},
			{Verb: events.VerbPatch, Kind: kinds.DeviceTaintRules.Name, Subresource: "status", On: reconcile.Itself, Fields: []string{".status.conditions"}, How: []types.PatchType{types.ApplyPatchType},
				Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{resourcev1beta2.DeviceTaintConditionEvictionInProgress}}}},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.Pods.Kind, On: reconcile.Itself, Reasons: []string{"DeviceTaintManagerEviction"}},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  gates.Settings(),
		Observe:   observe,
		Decide:    decide,
	}
}

// View is the input of the turn of a pod or a rule.
type View struct {
	// Pod is the pod of the key; nil in the turn of a rule.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Devices are the pod's devices that have NoExecute taints.
	Devices []Device `json:"devices,omitempty"`
	// Announced is true if the last report announced a deletion of the pod, now or later, and no
	// report has cancelled it.
	Announced bool `json:"announced,omitempty"`

	// Rule is the rule of the key; nil in the turn of a pod.
	Rule *resourcev1beta2.DeviceTaintRule `json:"rule,omitempty"`
	// Driven are the pods that the rule evicts, or would with the effect NoExecute.
	Driven []Driven `json:"driven,omitempty"`
	// Published and Allocated are how many published and allocated devices the rule selects.
	Published int `json:"published,omitempty"`
	Allocated int `json:"allocated,omitempty"`
	// Tally is the note of the last report.
	Tally Tally `json:"tally,omitzero"`
}

// Device is an allocated device of a claim.
type Device struct {
	// Taints are the NoExecute taints, Tolerations those of the claim for this device.
	Taints      []resourcev1.DeviceTaint      `json:"taints"`
	Tolerations []resourcev1.DeviceToleration `json:"tolerations,omitempty"`
	// Rules are the uids of the rules of the taints, in the order of the taints; empty for a taint
	// of a slice.
	Rules []types.UID `json:"rules,omitempty"`
}

// Driven is a pod that a rule evicts.
type Driven struct {
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
	// Evicted is the time of the pod's condition that this controller evicts it, if the pod is
	// terminating.
	Evicted *metav1.Time `json:"evicted,omitempty"`
	// Leaving is true if the pod is terminating, for any reason.
	Leaving bool `json:"leaving,omitempty"`
}

// Tally is how many pods the rule had evicted at a report, and which of them were still terminating.
type Tally struct {
	Evicted int         `json:"evicted"`
	Leaving []types.UID `json:"leaving,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	if k.Kind == kinds.DeviceTaintRules.Name {
		return observeRule(s, k)
	}
	return observePod(s, k)
}

func decide(v View, now time.Time) reconcile.Decision {
	if v.Rule != nil {
		return v.decideRule(now)
	}
	return v.decidePod(now)
}

func keyOf(namespace, name string) events.Key { return events.Key{Namespace: namespace, Name: name} }

// keysOfPod maps a pod to itself if its devices have NoExecute taints, and to the rules of those taints.
func keysOfPod(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	p, there := now.Object.(*corev1.Pod)
	if !there {
		p, _ = was.Object.(*corev1.Pod)
	}
	if p == nil || len(p.Spec.ResourceClaims) == 0 {
		return nil
	}
	c := look(s)
	tainted := false
	for _, claim := range c.claimsOf(p) {
		keys = appendNew(keys, c.rulesOf(claim)...)
		tainted = tainted || len(c.devicesOf(claim)) > 0
	}
	if there && tainted {
		keys = appendNew(keys, keyOf(p.Namespace, p.Name))
	}
	return keys
}

// keysOfClaim maps a claim whose allocation or reservations have changed to the pods for which it
// is and was reserved, and to the rules that select its devices.
func keysOfClaim(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	before, _ := was.Object.(*resourcev1.ResourceClaim)
	after, _ := now.Object.(*resourcev1.ResourceClaim)
	if before != nil && after != nil && before.UID == after.UID &&
		(before.Status.Allocation == nil) == (after.Status.Allocation == nil) && slices.Equal(before.Status.ReservedFor, after.Status.ReservedFor) {
		return nil
	}
	c := look(s)
	for _, claim := range []*resourcev1.ResourceClaim{before, after} {
		if claim != nil {
			keys = appendNew(keys, c.rulesOf(claim)...)
			keys = appendNew(keys, podsOf(claim)...)
		}
	}
	return keys
}

// keysOfSlice maps a slice with changed taints to the pods that have devices of its pool.
func keysOfSlice(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	before, _ := was.Object.(*resourcev1.ResourceSlice)
	after, _ := now.Object.(*resourcev1.ResourceSlice)
	if before != nil && after != nil && alike(before, after) {
		return nil
	}
	c := look(s)
	for _, slice := range []*resourcev1.ResourceSlice{before, after} {
		if slice == nil {
			continue
		}
		of := pool{slice.Spec.Driver, slice.Spec.Pool.Name}
		if !drives(slice) && !slices.ContainsFunc(c.slices, func(other *resourcev1.ResourceSlice) bool {
			return pool{other.Spec.Driver, other.Spec.Pool.Name} == of && drives(other)
		}) {
			continue
		}
		keys = appendNew(keys, c.usersOf(func(r resourcev1.DeviceRequestAllocationResult) bool { return pool{r.Driver, r.Pool} == of })...)
	}
	return keys
}

// keysOfRule maps a rule to itself and, if its spec has changed, to the pods with devices that it
// selects or did.
func keysOfRule(s reconcile.Snapshot, was, now reconcile.Object) (keys []events.Key) {
	before, _ := was.Object.(*resourcev1beta2.DeviceTaintRule)
	after, _ := now.Object.(*resourcev1beta2.DeviceTaintRule)
	if after != nil {
		keys = append(keys, keyOfRule(after))
	}
	if before != nil && after != nil && before.UID == after.UID && sameSpec(before, after) {
		return keys
	}
	c := look(s)
	for _, rule := range []*resourcev1beta2.DeviceTaintRule{before, after} {
		if rule != nil && rule.Spec.Taint.Effect == resourcev1beta2.DeviceTaintEffectNoExecute {
			keys = appendNew(keys, c.usersOf(func(r resourcev1.DeviceRequestAllocationResult) bool {
				return selects(rule, r.Driver, r.Pool, r.Device)
			})...)
		}
	}
	return keys
}

func keyOfRule(rule metav1.Object) events.Key {
	return events.Key{Kind: kinds.DeviceTaintRules.Name, Name: rule.GetName()}
}

func appendNew(keys []events.Key, more ...events.Key) []events.Key {
	for _, key := range more {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
