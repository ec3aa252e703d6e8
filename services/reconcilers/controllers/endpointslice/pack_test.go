package endpointslice

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// Upstream: getSliceToFill.
func TestWhichSliceTakesTheRest(t *testing.T) {
	for _, c := range []struct {
		holds      []int
		more, most int
		want       int
	}{
		{[]int{}, 1, 4, -1},
		{[]int{1, 2}, 1, 4, 1},
		{[]int{2, 1}, 1, 4, 0},
		{[]int{3}, 1, 4, 0},
		{[]int{2, 3}, 1, 4, 1},
		{[]int{3, 2}, 2, 4, 1},
		{[]int{1}, 3, 4, 0},
		{[]int{4}, 1, 4, -1},
		{[]int{3, 4}, 2, 4, -1},
		{[]int{2, 2}, 1, 4, 0},
		{[]int{0}, 4, 4, -1},
		{[]int{1}, 5, 4, -1},
		{[]int{0}, 1, 1, -1},
	} {
		var all []*discoveryv1.EndpointSlice
		for _, n := range c.holds {
			all = append(all, &discoveryv1.EndpointSlice{Endpoints: make([]discoveryv1.Endpoint, n)})
		}
		if got := roomiest(all, c.more, c.most); got != c.want {
			t.Errorf("%d more go, of slices with %v of %d, to %d, want %d", c.more, c.holds, c.most, got, c.want)
		}
	}
}

// grown returns a view with slices for the pods before, and with the pods after.
func grown(most int, before, after []*corev1.Pod) View {
	v := View{Service: svc("web"), Max: most, Zones: map[string]string{"n1": "east"}, Pods: before}
	v = applied(v, decide(v, now), now)
	v.Pods = after
	return v
}

func pods(names ...string) (all []*corev1.Pod) {
	for i, name := range names {
		p := podAt(name, fmt.Sprintf("10.1.0.%d", i+1))
		reconciletest.ReadySince(now.Add(-time.Duration(10+i) * time.Minute))(p)
		all = append(all, p)
	}
	return all
}

// New endpoints go into the slice in which they fit exactly, and not into a new one.
func TestALastPlaceIsTaken(t *testing.T) {
	all := pods("a", "b", "c", "d", "e")
	for had, want := range map[int]map[events.Verb]int{
		2: {events.VerbUpdate: 1},
		3: {events.VerbUpdate: 1}, // of four, one place is left
		4: {events.VerbCreate: 1},
	} {
		v := grown(4, all[:had], all[:had+1])
		verbs := map[events.Verb]int{}
		for _, c := range decide(v, now).Commands {
			verbs[c.Verb]++
		}
		if fmt.Sprint(verbs) != fmt.Sprint(want) {
			t.Errorf("beside %d of 4 one more comes, and what is done is %v, want %v", had, verbs, want)
		}
	}
}

// The annotation of a slice has the time of the newest changes, and not that of earlier ones.
//
// Upstream: addTriggerTimeAnnotation.
func TestSinceWhenASliceIsSo(t *testing.T) {
	all := pods("a", "b", "c", "d") // ready for 10, 11, 12 and 13 minutes
	unready := podAt("e", "10.1.0.9")
	leaving, ended := all[0].DeepCopy(), all[0].DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: now}
	ended.Status.Phase, ended.Status.Conditions[0].Status = corev1.PodFailed, corev1.ConditionFalse
	ended.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Second))
	for name, c := range map[string]struct {
		before, after []*corev1.Pod
		want          time.Time
	}{
		"the first slice":                     {nil, all[:1], svc("web").CreationTimestamp.Time},
		"a pod comes":                         {all[:1], all[:2], now.Add(-11 * time.Minute)},
		"two come, and the first of them":     {all[:1], all[:3], now.Add(-12 * time.Minute)},
		"a pod goes, which has no moment":     {all[:2], all[:1], time.Time{}},
		"one goes, and another comes":         {all[:2], slices.Concat(all[:1], all[2:3]), now.Add(-12 * time.Minute)},
		"a pod is to go":                      {all[:2], []*corev1.Pod{leaving, all[1]}, time.Time{}},
		"a pod ends":                          {all[:2], []*corev1.Pod{ended, all[1]}, now.Add(-time.Second)},
		"one comes that was never ready":      {all[:1], append(slices.Clone(all[:1]), unready), time.Time{}},
		"one was never ready, and another is": {all[:1], append(slices.Clone(all[:2]), unready), now.Add(-11 * time.Minute)},
	} {
		v := grown(9, c.before, c.after)
		if c.before == nil {
			v.Slices = nil
		}
		d := decide(v, now)
		if len(d.Commands) != 1 {
			t.Errorf("%s: %d commands", name, len(d.Commands))
			continue
		}
		var said discoveryv1.EndpointSlice
		if err := json.Unmarshal(d.Commands[0].Body, &said); err != nil {
			t.Fatal(err)
		}
		want := ""
		if !c.want.IsZero() {
			want = c.want.UTC().Format(time.RFC3339Nano)
		}
		if got, there := said.Annotations[corev1.EndpointsLastChangeTriggerTime]; got != want || there != (want != "") {
			t.Errorf("%s: the last change trigger time is %q, want %q", name, got, want)
		}
	}
}

// Upstream: getAddressTypesForService.
func TestFamiliesOfAService(t *testing.T) {
	const four, six = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	for _, c := range []struct {
		families []corev1.IPFamily
		address  string
		want     []discoveryv1.AddressType
	}{
		{[]corev1.IPFamily{corev1.IPv4Protocol}, "10.0.0.1", []discoveryv1.AddressType{four}},
		{[]corev1.IPFamily{corev1.IPv6Protocol}, "fd00::1", []discoveryv1.AddressType{six}},
		{[]corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}, "fd00::1", []discoveryv1.AddressType{four, six}},
		{[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv4Protocol}, "10.0.0.1", []discoveryv1.AddressType{four}},
		{[]corev1.IPFamily{corev1.IPv4Protocol}, corev1.ClusterIPNone, []discoveryv1.AddressType{four}},
		{nil, "10.0.0.1", []discoveryv1.AddressType{four}},
		{nil, "fd00::1", []discoveryv1.AddressType{six}},
		{nil, "2001:db8::7", []discoveryv1.AddressType{six}},
		{nil, "::1", []discoveryv1.AddressType{six}},
		{nil, corev1.ClusterIPNone, []discoveryv1.AddressType{four, six}},
		{nil, "", []discoveryv1.AddressType{four, six}},
		{[]corev1.IPFamily{"IPv8"}, "fd00::1", []discoveryv1.AddressType{six}},
	} {
		v := View{Service: svc("web")}
		v.Service.Spec.IPFamilies, v.Service.Spec.ClusterIP = c.families, c.address
		if got := v.families(); !slices.Equal(got, c.want) {
			t.Errorf("a service with %v at %q has endpoints of %v, want %v", c.families, c.address, got, c.want)
		}
	}
}
