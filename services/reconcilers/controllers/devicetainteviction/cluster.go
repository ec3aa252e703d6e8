package devicetainteviction

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/device"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// pool identifies a pool of a driver's devices.
type pool struct{ driver, name string }

// cluster has the slices and rules of the snapshot.
type cluster struct {
	s      reconcile.Snapshot
	slices []*resourcev1.ResourceSlice
	rules  []*resourcev1beta2.DeviceTaintRule
	newest map[pool]int64 // the highest generation of its slices
}

func look(s reconcile.Snapshot) *cluster {
	c := &cluster{s: s, slices: reconcile.List(s, kinds.ResourceSlices, ""), newest: map[pool]int64{}}
	for _, slice := range c.slices {
		of := pool{slice.Spec.Driver, slice.Spec.Pool.Name}
		if newest, known := c.newest[of]; !known || slice.Spec.Pool.Generation > newest {
			c.newest[of] = slice.Spec.Pool.Generation
		}
	}
	if _, read := s.Kind(kinds.DeviceTaintRules.Name); read {
		c.rules = reconcile.List(s, kinds.DeviceTaintRules, "")
	}
	return c
}

// claimsOf returns the claims that a pod uses: those that are allocated and reserved for it.
//
// Upstream: podEvictionTime.
func (c *cluster) claimsOf(p *corev1.Pod) (all []*resourcev1.ResourceClaim) {
	if p.Spec.NodeName == "" {
		return nil
	}
	for i := range p.Spec.ResourceClaims {
		what, name := device.ClaimOf(p, &p.Spec.ResourceClaims[i])
		claim, ok := reconcile.Get(c.s, kinds.ResourceClaims, p.Namespace, name)
		if ok && claim.Status.Allocation != nil && device.Reserved(claim, p) && (what != device.Made || owner.Controls(p, claim)) {
			all = append(all, claim)
		}
	}
	return all
}

// devicesOf returns the devices of a claim that have NoExecute taints.
func (c *cluster) devicesOf(claim *resourcev1.ResourceClaim) (all []Device) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if d := c.deviceOf(r); len(d.Taints) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// deviceOf returns an allocated device with its NoExecute taints, from its slice and from rules.
//
// Upstream: allEvictingDeviceTaints.
func (c *cluster) deviceOf(r resourcev1.DeviceRequestAllocationResult) Device {
	d := Device{Tolerations: r.Tolerations}
	add := func(t resourcev1.DeviceTaint, rule types.UID) {
		if t.Effect == resourcev1.DeviceTaintEffectNoExecute {
			d.Taints, d.Rules = append(d.Taints, t), append(d.Rules, rule)
		}
	}
	if found := c.published(r); found != nil {
		for _, t := range found.Taints {
			add(t, "")
		}
	}
	for _, rule := range c.rules {
		if selects(rule, r.Driver, r.Pool, r.Device) {
			add(taintOf(rule), rule.UID)
		}
	}
	return d
}

// published returns a device from the newest slices of its pool; nil if none has it.
func (c *cluster) published(r resourcev1.DeviceRequestAllocationResult) *resourcev1.Device {
	of := pool{r.Driver, r.Pool}
	for _, slice := range c.slices {
		if (pool{slice.Spec.Driver, slice.Spec.Pool.Name}) != of || slice.Spec.Pool.Generation != c.newest[of] {
			continue
		}
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == r.Device {
				return &slice.Spec.Devices[i]
			}
		}
	}
	return nil
}

// rulesOf returns the keys of the NoExecute rules that select devices of a claim.
func (c *cluster) rulesOf(claim *resourcev1.ResourceClaim) (keys []events.Key) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, rule := range c.rules {
		if rule.Spec.Taint.Effect != resourcev1beta2.DeviceTaintEffectNoExecute {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if selects(rule, r.Driver, r.Pool, r.Device) {
				keys = appendNew(keys, keyOfRule(rule))
			}
		}
	}
	return keys
}

// usersOf returns the keys of the pods for which claims with such a device are reserved.
func (c *cluster) usersOf(such func(resourcev1.DeviceRequestAllocationResult) bool) (keys []events.Key) {
	for _, claim := range reconcile.List(c.s, kinds.ResourceClaims, "") {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if such(r) {
				keys = appendNew(keys, podsOf(claim)...)
				break
			}
		}
	}
	return keys
}

// podsOf returns the keys of the pods for which a claim is reserved.
func podsOf(claim *resourcev1.ResourceClaim) (keys []events.Key) {
	for _, by := range claim.Status.ReservedFor {
		if device.IsPod(by) {
			keys = append(keys, keyOf(claim.Namespace, by.Name))
		}
	}
	return keys
}

// selects reports whether a rule selects a device. A rule without a selector selects none.
//
// Upstream: ruleMatchesDevice.
func selects(rule *resourcev1beta2.DeviceTaintRule, driver, pool, device string) bool {
	by := rule.Spec.DeviceSelector
	is := func(want *string, has string) bool { return want == nil || *want == has }
	return by != nil && is(by.Driver, driver) && is(by.Pool, pool) && is(by.Device, device)
}

func taintOf(rule *resourcev1beta2.DeviceTaintRule) resourcev1.DeviceTaint {
	t := rule.Spec.Taint
	return resourcev1.DeviceTaint{Key: t.Key, Value: t.Value, Effect: resourcev1.DeviceTaintEffect(t.Effect), TimeAdded: t.TimeAdded}
}

// drives reports whether a device of a slice has a NoExecute taint.
func drives(slice *resourcev1.ResourceSlice) bool {
	for i := range slice.Spec.Devices {
		for _, t := range slice.Spec.Devices[i].Taints {
			if t.Effect == resourcev1.DeviceTaintEffectNoExecute {
				return true
			}
		}
	}
	return false
}

// alike reports whether two versions of a slice have the same devices with the same taints.
func alike(a, b *resourcev1.ResourceSlice) bool {
	if a.Spec.Driver != b.Spec.Driver || a.Spec.Pool.Name != b.Spec.Pool.Name || a.Spec.Pool.Generation != b.Spec.Pool.Generation || len(a.Spec.Devices) != len(b.Spec.Devices) {
		return false
	}
	for i := range a.Spec.Devices {
		if a.Spec.Devices[i].Name != b.Spec.Devices[i].Name || !equality.Semantic.DeepEqual(a.Spec.Devices[i].Taints, b.Spec.Devices[i].Taints) {
			return false
		}
	}
	return true
}

func sameSpec(a, b *resourcev1beta2.DeviceTaintRule) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
