package system

import (
	"fmt"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

// TestPoolsOfDevicesAreCounted: if the API server serves the API and its gate is on, a request about the
// pools of a driver waits until a pool has all of its slices. Its status then has the number of devices and
// of allocated ones. A request that was answered more than an hour ago is deleted.
func TestPoolsOfDevicesAreCounted(t *testing.T) {
	if !served(t) {
		return
	}
	t.Parallel()
	const gate = "--feature-gates=DRAResourcePoolStatus=true"
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{}, gate, "--runtime-config=resource.k8s.io/v1alpha3=true")
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	requests := s.kube.ResourceV1alpha3().ResourcePoolStatusRequests()
	request := func(name string) *resourcev1alpha3.ResourcePoolStatusRequest {
		r, err := requests.Create(t.Context(), &resourcev1alpha3.ResourcePoolStatusRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: "example.com"},
		}, metav1.CreateOptions{})
		must(t, err)
		return r
	}
	old, none := request("old"), int32(0)
	old.Status = &resourcev1alpha3.ResourcePoolStatusRequestStatus{PoolCount: &none, Conditions: []metav1.Condition{{
		Type: resourcev1alpha3.ResourcePoolStatusRequestConditionComplete, Status: metav1.ConditionTrue, Reason: "CalculationComplete",
		LastTransitionTime: metav1.NewTime(time.Now().Add(-2 * time.Hour)),
	}}}
	_, err = requests.UpdateStatus(t.Context(), old, metav1.UpdateOptions{})
	must(t, err)

	m := s.run(t, gate)
	within(t, patience, "the request that was answered two hours ago is deleted", func() string {
		_, err := requests.Get(t.Context(), "old", metav1.GetOptions{})
		return gone(err)
	})
	l := s.lab(t, "counted")
	l.user("holder")
	l.publishSlice("first", 2, "d", "e")
	at := asker{site: s, nats: m.nats}
	at.awaitLook(t, "resourceslices.resource.k8s.io/counted-first", "resourcepoolstatusrequest-controller")
	request("new")
	at.awaitLook(t, "resourcepoolstatusrequests.resource.k8s.io/new", "resourcepoolstatusrequest-controller")
	if r, err := requests.Get(t.Context(), "new", metav1.GetOptions{}); err != nil || r.Status != nil {
		t.Errorf("the request has the status %+v, %v while one of two slices is missing; want none", r.Status, err)
	}
	l.publishSlice("second", 2, "f")
	within(t, patience, "the request is answered", func() string {
		r, err := requests.Get(t.Context(), "new", metav1.GetOptions{})
		if err != nil || r.Status == nil {
			return fmt.Sprint("it has no status, ", err)
		}
		if *r.Status.PoolCount != 1 || len(r.Status.Pools) != 1 || len(r.Status.Conditions) != 1 {
			return fmt.Sprintf("the answer is %+v", r.Status)
		}
		c, p := r.Status.Conditions[0], r.Status.Pools[0]
		if c.Type != "Complete" || c.Status != metav1.ConditionTrue || c.Reason != "CalculationComplete" || c.Message != "Calculated status for 1 pools" {
			return fmt.Sprintf("it says %+v", c)
		}
		if p.PoolName != l.name || p.Driver != "example.com" || *p.ResourceSliceCount != 2 || *p.TotalDevices != 3 || *p.AllocatedDevices != 1 || *p.AvailableDevices != 2 || *p.UnavailableDevices != 0 {
			return fmt.Sprintf("of the pool it says %+v", p)
		}
		return ""
	})
}

// publishSlice publishes one of several slices of the lab's pool.
func (l *lab) publishSlice(name string, of int64, devices ...string) {
	l.t.Helper()
	all := true
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: l.name + "-" + name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "example.com", Pool: resourcev1.ResourcePool{Name: l.name, Generation: 1, ResourceSliceCount: of}, AllNodes: &all,
	}}
	for _, d := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: d})
	}
	_, err := l.kube.ResourceV1().ResourceSlices().Create(l.t.Context(), slice, metav1.CreateOptions{})
	must(l.t, err)
}
