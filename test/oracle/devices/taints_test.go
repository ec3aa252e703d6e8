package devices_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/oracle/devices"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/sim/apiserver"
)

func TestDevicesDrivePodsAwayAsUpstreamsDo(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		v := &racks{now: objects.Now, pace: 1}
		for range rapid.IntRange(1, 20).Draw(r, "chapters") {
			v.act(r) // of several acts in one moment upstream sees each
			v.Chapter()
			v.now = v.now.Add(devices.DeviceTaints.Chapter)
		}
		v.Compare(t, r, devices.DeviceTaints)
	})
}

// racks has devices, and pods that use them.
type racks struct {
	oracletest.Village
	now  time.Time // of the chapter
	made int
	// pace is the unit of all times, in seconds.
	pace int64
}

func (v *racks) act(r *rapid.T) {
	n := rapid.IntRange(0, 2).Draw(r, "pod")
	pod, claim := fmt.Sprint("pod-", n), fmt.Sprint("claim-", n)
	switch rapid.IntRange(0, 9).Draw(r, "act") {
	case 0, 1, 2:
		v.user(r, pod, claim)
	case 3, 4, 5, 6:
		v.slice(r)
	case 7:
		v.Does(func(api *apiserver.API) {
			api.Change(claimRef(claim), func(o metav1.Object) { o.(*resourcev1.ResourceClaim).Status.ReservedFor = nil })
		}, "%s is reserved for no pod", claim)
	case 8:
		v.Remove(oracletest.PodRef(pod))
	default:
		v.Does(func(api *apiserver.API) { api.Finish(oracletest.PodRef(pod)) }, "%s has gone", pod)
	}
}

// user creates a pod with a claim that has devices, unless the pod exists.
func (v *racks) user(r *rapid.T, pod, claim string) {
	v.made++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: pod, UID: types.UID(fmt.Sprint(pod, "-", v.made))}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "e", ResourceClaimName: &claim}}
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: claim, UID: types.UID(fmt.Sprint(claim, "-", v.made))}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: p.UID}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for range rapid.IntRange(1, 2).Draw(r, "devices") {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Driver: rapid.SampledFrom([]string{"d", "d", "x"}).Draw(r, "driver"), Pool: rapid.SampledFrom([]string{"p", "p", "q"}).Draw(r, "pool"),
			Device: rapid.SampledFrom([]string{"0", "1"}).Draw(r, "device"), Tolerations: rapid.SliceOfN(rapid.Custom(v.toleration), 0, 2).Draw(r, "tolerations"),
		})
	}
	v.Does(func(api *apiserver.API) {
		if api.Get(oracletest.PodRef(pod)) == nil {
			api.Load(kinds.ResourceClaims.Name, c)
			api.Load(kinds.Pods.Name, p)
		}
	}, "create %s with %+v", p.UID, c.Status.Allocation.Devices.Results)
}

func (v *racks) toleration(r *rapid.T) resourcev1.DeviceToleration {
	by := resourcev1.DeviceToleration{
		Key: rapid.SampledFrom([]string{"a", "b", ""}).Draw(r, "key"), Operator: rapid.SampledFrom([]resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpExists, resourcev1.DeviceTolerationOpEqual, ""}).Draw(r, "operator"),
		Effect: rapid.SampledFrom([]resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoExecute, "", resourcev1.DeviceTaintEffectNoSchedule}).Draw(r, "effect"),
		Value:  rapid.SampledFrom([]string{"", "v"}).Draw(r, "value"),
	}
	if rapid.IntRange(0, 3).Draw(r, "limited") > 0 {
		by.TolerationSeconds = oracletest.Ptr(v.pace * rapid.Int64Range(-1, 100/v.pace).Draw(r, "seconds"))
	}
	return by
}

// slice publishes devices with taints, or deletes a slice.
func (v *racks) slice(r *rapid.T) {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: rapid.SampledFrom([]string{"s", "t"}).Draw(r, "slice")}}
	ref := events.Ref{Kind: kinds.ResourceSlices.Name, Name: s.Name}
	if rapid.IntRange(0, 4).Draw(r, "unpublish") == 0 {
		v.Remove(ref)
		return
	}
	s.Spec.Driver, s.Spec.Pool = "d", resourcev1.ResourcePool{Name: "p", Generation: rapid.Int64Range(0, 2).Draw(r, "generation")}
	// A device is in one slice of a pool.
	d := resourcev1.Device{Name: map[string]string{"s": "0", "t": "1"}[s.Name]}
	for range rapid.IntRange(0, 2).Draw(r, "taints") {
		at := metav1.NewTime(v.now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(r, "since")) * time.Second).Truncate(time.Second))
		d.Taints = append(d.Taints, resourcev1.DeviceTaint{
			Key: rapid.SampledFrom([]string{"a", "b"}).Draw(r, "taint"), Value: rapid.SampledFrom([]string{"", "v"}).Draw(r, "value"), TimeAdded: &at,
			Effect: rapid.SampledFrom([]resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule}).Draw(r, "effect"),
		})
	}
	s.Spec.Devices = []resourcev1.Device{d}
	v.Does(func(api *apiserver.API) {
		if was := api.Get(ref); was != nil {
			s.UID = was.GetUID()
		}
		api.Load(kinds.ResourceSlices.Name, s)
	}, "publish %s of generation %d with %+v", s.Name, s.Spec.Pool.Generation, s.Spec.Devices)
}

// TestRulesDrivePodsAwayAsUpstreamsDo is the same with rules. Pods leave only because of their devices,
// because upstream does not check a rule again when a pod is deleted for another reason, or loses its claim.
// They leave at the beginning or in the middle of a chapter, and upstream checks the rule ten seconds later.
func TestRulesDrivePodsAwayAsUpstreamsDo(t *testing.T) {
	oracletest.Fewer(t, 4)
	rapid.Check(t, func(r *rapid.T) {
		v := &racks{now: objects.Now, pace: 15}
		for range rapid.IntRange(1, 16).Draw(r, "chapters") {
			n := rapid.IntRange(0, 2).Draw(r, "pod")
			switch pod := fmt.Sprint("pod-", n); rapid.IntRange(0, 5).Draw(r, "act") {
			case 0, 1, 2:
				v.rule(r)
			case 3:
				v.Does(func(api *apiserver.API) { api.Finish(oracletest.PodRef(pod)) }, "%s has gone", pod)
			default:
				v.user(r, pod, fmt.Sprint("claim-", n))
			}
			v.Chapter()
			v.now = v.now.Add(devices.DeviceTaintRules.Chapter)
		}
		v.Compare(t, r, devices.DeviceTaintRules)
	})
}

// rule creates, changes or deletes a rule.
func (v *racks) rule(r *rapid.T) {
	name := rapid.SampledFrom([]string{"r", "s"}).Draw(r, "rule")
	ref := events.Ref{Kind: kinds.DeviceTaintRules.Name, Name: name}
	if rapid.IntRange(0, 3).Draw(r, "delete") == 0 {
		v.Remove(ref)
		return
	}
	v.made++
	rule := &resourcev1beta2.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(name, "-", v.made)), Generation: 1, CreationTimestamp: metav1.NewTime(v.now.Truncate(time.Second))}}
	if rapid.IntRange(0, 5).Draw(r, "of devices") > 0 {
		some := func(what string, of ...string) *string {
			if one := rapid.SampledFrom(append(of, "")).Draw(r, what); one != "" {
				return &one
			}
			return nil
		}
		rule.Spec.DeviceSelector = &resourcev1beta2.DeviceTaintSelector{Driver: some("driver", "d", "x"), Pool: some("pool", "p", "q"), Device: some("device", "0")}
	}
	at := metav1.NewTime(v.now.Add(time.Second - time.Duration(v.pace*rapid.Int64Range(0, 60/v.pace).Draw(r, "since"))*time.Second).Truncate(time.Second))
	rule.Spec.Taint = resourcev1beta2.DeviceTaint{
		Key: rapid.SampledFrom([]string{"a", "b"}).Draw(r, "taint"), TimeAdded: &at,
		Effect: rapid.SampledFrom([]resourcev1beta2.DeviceTaintEffect{"NoExecute", "NoExecute", "NoExecute", "None", "NoSchedule"}).Draw(r, "effect"),
	}
	v.Does(func(api *apiserver.API) {
		if api.Get(ref) == nil {
			api.Load(kinds.DeviceTaintRules.Name, rule)
			return
		}
		api.Change(ref, func(o metav1.Object) { o.(*resourcev1beta2.DeviceTaintRule).Spec = rule.Spec })
	}, "rule %s, %+v %v", rule.UID, rule.Spec.DeviceSelector, rule.Spec.Taint)
}
