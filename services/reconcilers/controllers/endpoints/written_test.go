package endpoints

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// readySince returns a pod with an address that became ready ago.
func readySince(name, ip string, ago time.Duration) *corev1.Pod {
	p := podAt(name, ip)
	reconciletest.ReadySince(now.Add(-ago))(p)
	return p
}

// unready returns a pod that became unready ago.
func unready(name, ip string, ago time.Duration) *corev1.Pod {
	p := podAt(name, ip)
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-ago))},
	}
	return p
}

// published returns a view in which the endpoints are up to date.
func published(edit func(*corev1.Service), pods ...*corev1.Pod) View {
	v := View{Service: svc(), Pods: pods}
	if edit != nil {
		edit(v.Service)
	}
	v = applied(v, decide(v, now), now)
	v.Endpoints.UID, v.Endpoints.ResourceVersion = "e", "7"
	return v
}

// The object has the labels of its service and of its controller, and the label of a
// headless service only if the service is one.
func TestTheLabelsOfEndpoints(t *testing.T) {
	labels := func(of map[string]string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Labels = of }
	}
	headless := func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }
	for what, c := range map[string]struct {
		edits []func(*corev1.Service)
		want  map[string]string
	}{
		"none":                  {nil, map[string]string{managedBy: manager}},
		"one":                   {[]func(*corev1.Service){labels(map[string]string{"a": "b"})}, map[string]string{managedBy: manager, "a": "b"}},
		"without an address":    {[]func(*corev1.Service){headless}, map[string]string{managedBy: manager, corev1.IsHeadlessService: ""}},
		"it says so and is not": {[]func(*corev1.Service){labels(map[string]string{corev1.IsHeadlessService: "x"})}, map[string]string{managedBy: manager}},
		"it says so and is":     {[]func(*corev1.Service){headless, labels(map[string]string{corev1.IsHeadlessService: "x", "a": "b"})}, map[string]string{managedBy: manager, corev1.IsHeadlessService: "", "a": "b"}},
	} {
		v := published(func(s *corev1.Service) {
			for _, edit := range c.edits {
				edit(s)
			}
		}, readySince("a", "10.1.0.1", time.Minute))
		if !maps.Equal(v.Endpoints.Labels, c.want) {
			t.Errorf("%s: the labels are %v, want %v", what, v.Endpoints.Labels, c.want)
		}
	}
}

// Labels other than the service's, and a missing label of the controller, are corrected.
func TestLabelsOfOthersArePutRight(t *testing.T) {
	for what, edit := range map[string]func(*corev1.Endpoints){
		"one more":           func(e *corev1.Endpoints) { e.Labels["x"] = "y" },
		"another value":      func(e *corev1.Endpoints) { e.Labels["a"] = "y" },
		"one is missing":     func(e *corev1.Endpoints) { delete(e.Labels, "a") },
		"no signature":       func(e *corev1.Endpoints) { delete(e.Labels, managedBy) },
		"another signature":  func(e *corev1.Endpoints) { e.Labels[managedBy] = "x" },
		"none":               func(e *corev1.Endpoints) { e.Labels = nil },
		"too many, it says":  func(e *corev1.Endpoints) { e.Annotations[corev1.EndpointsOverCapacity] = "truncated" },
		"an address is gone": func(e *corev1.Endpoints) { e.Subsets = nil },
	} {
		v := published(func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} }, readySince("a", "10.1.0.1", time.Minute))
		want := v.Endpoints.DeepCopy()
		if v.Endpoints.Annotations == nil {
			v.Endpoints.Annotations = map[string]string{}
		}
		edit(v.Endpoints)
		d := decide(v, now)
		if len(d.Commands) != 1 {
			t.Errorf("%s: the decision leaves the Endpoints as they are: %s", what, d.Because)
			continue
		}
		got := applied(v, d, now).Endpoints
		if !maps.Equal(got.Labels, want.Labels) || got.Annotations[corev1.EndpointsOverCapacity] != "" || len(got.Subsets) != 1 {
			t.Errorf("%s: the Endpoints become %+v", what, got)
		}
	}
}

// The annotation has the time of the first change that the object does not show yet, and
// is missing if no change has a time.
func TestSinceWhenItChanged(t *testing.T) {
	const m = time.Minute
	a, b := readySince("a", "10.1.0.1", 50*m), readySince("b", "10.1.0.2", 40*m)
	silent := podAt("c", "10.1.0.3") // without the condition Ready
	for what, c := range map[string]struct {
		before, pods []*corev1.Pod
		want         time.Duration // 0: no annotation
	}{
		"a pod became ready":          {[]*corev1.Pod{a}, []*corev1.Pod{a, readySince("d", "10.1.0.4", 3*m)}, 3 * m},
		"two did":                     {[]*corev1.Pod{a}, []*corev1.Pod{a, readySince("d", "10.1.0.4", 3*m), readySince("e", "10.1.0.5", 7*m)}, 7 * m},
		"two did, the other order":    {[]*corev1.Pod{a}, []*corev1.Pod{a, readySince("d", "10.1.0.4", 7*m), readySince("e", "10.1.0.5", 3*m)}, 7 * m},
		"one ceased to be":            {[]*corev1.Pod{a, b}, []*corev1.Pod{a, unready("b", "10.1.0.2", 2*m)}, 2 * m},
		"one is again":                {[]*corev1.Pod{a, unready("b", "10.1.0.2", 9*m)}, []*corev1.Pod{a, readySince("b", "10.1.0.2", 2*m)}, 2 * m},
		"one is as it was, not ready": {[]*corev1.Pod{a, unready("b", "10.1.0.2", 9*m)}, []*corev1.Pod{readySince("d", "10.1.0.4", 4*m), a, unready("b", "10.1.0.2", 9*m)}, 4 * m},
		"one is gone":                 {[]*corev1.Pod{a, b}, []*corev1.Pod{a}, 0},
		"one that never was ready":    {[]*corev1.Pod{a}, []*corev1.Pod{a, silent}, 0},
		"one without an address":      {[]*corev1.Pod{a, b}, []*corev1.Pod{a, func() *corev1.Pod { p := readySince("f", "", 5*m); p.Status.PodIPs = nil; return p }()}, 0},
	} {
		v := published(nil, c.before...)
		v.Endpoints.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "1999-01-01T00:00:00Z"}
		v.Pods = c.pods
		d := decide(v, now)
		if len(d.Commands) != 1 {
			t.Errorf("%s: nothing is written: %s", what, d.Because)
			continue
		}
		want := ""
		if c.want > 0 {
			want = now.Add(-c.want).UTC().Format(time.RFC3339Nano)
		}
		if got := applied(v, d, now).Endpoints.Annotations[corev1.EndpointsLastChangeTriggerTime]; got != want {
			t.Errorf("%s: since %q, want %q", what, got, want)
		}
	}
	if got := published(nil, a).Endpoints.Annotations[corev1.EndpointsLastChangeTriggerTime]; got != now.Add(-time.Hour).UTC().Format(time.RFC3339Nano) {
		t.Errorf("new Endpoints have the trigger time %q, want that of the Service", got)
	}
}

// A subset has the ports of the service. Without ports a headless service has one subset,
// and any other service none.
func TestAServiceWithoutPorts(t *testing.T) {
	for ip, want := range map[string]int{corev1.ClusterIPNone: 1, "10.0.0.1": 0} {
		v := published(func(s *corev1.Service) { s.Spec.Ports, s.Spec.ClusterIP = nil, ip }, readySince("a", "10.1.0.1", time.Minute))
		if got := len(v.Endpoints.Subsets); got != want {
			t.Errorf("with the address %q it has %d subsets, want %d", ip, got, want)
		}
	}
	v := published(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, readySince("a", "10.1.0.1", time.Minute))
	if s := v.Endpoints.Subsets; len(s) != 1 || len(s[0].Ports) != 1 || s[0].Ports[0].Port != 8080 {
		t.Errorf("with a port and no address it has %v", s)
	}
}

// A pod's address is the first of the right family: the service's first family, else that
// of its cluster IP, else that of the pod's IP.
func TestWhichAddressOfAPod(t *testing.T) {
	const four, six = "10.1.0.1", "fd00::1"
	for _, c := range []struct {
		families []corev1.IPFamily
		cluster  string
		ips      []string
		want     string
	}{
		{[]corev1.IPFamily{"IPv4"}, "fd00::9", []string{six, four}, four}, {[]corev1.IPFamily{"IPv6", "IPv4"}, "10.0.0.1", []string{four, six}, six},
		{nil, "fd00::9", []string{four, six}, six}, {nil, "10.0.0.1", []string{six, four}, four},
		{nil, corev1.ClusterIPNone, []string{four, six}, four}, {nil, corev1.ClusterIPNone, []string{six, four}, six}, {nil, "", []string{six, four}, six},
		{[]corev1.IPFamily{"IPv6"}, "", []string{four}, ""}, {[]corev1.IPFamily{"IPv4"}, "", []string{"x", four}, four}, {[]corev1.IPFamily{"IPv6"}, "", []string{"x", six}, six},
		{[]corev1.IPFamily{"IPv4"}, "", []string{four, "10.1.0.2"}, four},
	} {
		s := svc()
		s.Spec.IPFamilies, s.Spec.ClusterIP = c.families, c.cluster
		p := readySince("a", c.ips[0], time.Minute)
		p.Status.PodIPs = nil
		for _, ip := range c.ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		address, ok := View{Service: s}.address(p)
		if ok != (c.want != "") || address.IP != c.want {
			t.Errorf("families %v, address %q: of %v it is %q, %t, want %q", c.families, c.cluster, c.ips, address.IP, ok, c.want)
		}
	}
}

// The address of a pod with a name in the service's domain has that name. A terminating
// pod appears only if the service publishes unready addresses.
func TestHowAPodIsTold(t *testing.T) {
	p := readySince("a", "10.1.0.1", time.Minute)
	p.Spec.Hostname, p.Spec.Subdomain = "first", "web"
	v := View{Service: svc()}
	if a, ok := v.address(p); !ok || a.Hostname != "first" || *a.NodeName != "n1" || a.TargetRef == nil || a.TargetRef.Name != "a" || a.TargetRef.Kind != "Pod" {
		t.Errorf("the address is %+v, %t", a, ok)
	}
	p.Spec.Subdomain = "other"
	if a, _ := v.address(p); a.Hostname != "" {
		t.Errorf("in another domain it is told as %+v", a)
	}
	p.DeletionTimestamp = &metav1.Time{Time: now}
	for _, all := range []bool{false, true} {
		if v.Service.Spec.PublishNotReadyAddresses = all; true {
			if _, ok := v.address(p); ok != all {
				t.Errorf("one that leaves is told: %t, where all are published: %t", ok, all)
			}
		}
	}
	p.DeletionTimestamp, p.Status.Phase = nil, corev1.PodSucceeded
	if _, ok := v.address(p); ok {
		t.Error("one that has ended is told")
	}
}

// Another order of addresses is no difference; an additional address is one.
func TestEndpointsThatAnotherSorted(t *testing.T) {
	v := published(nil, readySince("a", "10.1.0.1", time.Minute), readySince("b", "10.1.0.2", time.Minute))
	subsets := v.Endpoints.Subsets
	if len(subsets) != 1 || len(subsets[0].Addresses) != 2 {
		t.Fatalf("the subsets are %v", subsets)
	}
	one, two := subsets[0], *subsets[0].DeepCopy()
	one.Addresses, two.Addresses = one.Addresses[:1], two.Addresses[1:]
	for what, c := range map[string]struct {
		subsets []corev1.EndpointSubset
		right   bool
	}{
		"in two parts": {[]corev1.EndpointSubset{two, one}, true}, "one is missing": {[]corev1.EndpointSubset{two}, false}, "as it is": {subsets, true},
	} {
		if v.Endpoints.Subsets = c.subsets; (len(decide(v, now).Commands) == 0) != c.right {
			t.Errorf("%s: the Endpoints are left as they are: %t, want the opposite", what, !c.right)
		}
	}
	v.Endpoints = nil
	if got := decide(v, now); len(got.Commands) != 1 || fmt.Sprint(got.Commands[0].Verb) != "create" {
		t.Errorf("where there is none: %s", got.Because)
	}
}
