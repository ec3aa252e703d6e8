package system

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

// lab is a namespace with pods that use devices; the test acts as its scheduler and its nodes.
type lab struct {
	*site
	t    *testing.T
	name string
}

func (s *site) lab(t *testing.T, name string) *lab {
	t.Helper()
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + name}}
	_, err := s.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
	return &lab{s, t, name}
}

// pod creates a pod with one resource claim entry.
func (l *lab) pod(name string, entry corev1.PodResourceClaim) *corev1.Pod {
	l.t.Helper()
	within(l.t, patience, name+" can be created", func() string {
		_, err := l.kube.CoreV1().Pods(l.name).Create(l.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			SchedulerName:  "the-test", // so that kube-scheduler does not bind it to a node with a kubelet
			ResourceClaims: []corev1.PodResourceClaim{entry},
			Containers:     []corev1.Container{{Name: "c", Image: "none/runs:it", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: entry.Name}}}}},
		}}, metav1.CreateOptions{})
		return made(err)
	})
	pod, err := l.kube.CoreV1().Pods(l.name).Get(l.t.Context(), name, metav1.GetOptions{})
	must(l.t, err)
	ctx := context.WithoutCancel(l.t.Context())
	l.t.Cleanup(func() { // no kubelet ends the pod
		now := int64(0)
		_ = l.kube.CoreV1().Pods(l.name).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	return pod
}

// allocate allocates a device for a claim and reserves the claim for pods, as the scheduler does.
func (l *lab) allocate(name string, pods ...*corev1.Pod) {
	l.t.Helper()
	l.allocateResult(name, resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "example.com", Pool: "p", Device: "d"}, pods...)
}

func (l *lab) allocateResult(name string, result resourcev1.DeviceRequestAllocationResult, pods ...*corev1.Pod) {
	l.t.Helper()
	claims := l.kube.ResourceV1().ResourceClaims(l.name)
	within(l.t, patience, name+" is allocated", func() string {
		c, err := claims.Get(l.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if len(c.Finalizers) == 0 {
			c.Finalizers = []string{resourcev1.Finalizer}
			if c, err = claims.Update(l.t.Context(), c, metav1.UpdateOptions{}); err != nil {
				return err.Error()
			}
		}
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}}}
		c.Status.ReservedFor = nil
		for _, p := range pods {
			c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		}
		_, err = claims.UpdateStatus(l.t.Context(), c, metav1.UpdateOptions{})
		return ask(err)
	})
}

func (l *lab) bind(pod *corev1.Pod) {
	l.t.Helper()
	must(l.t, l.kube.CoreV1().Pods(l.name).Bind(l.t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-of-" + l.name}}, metav1.CreateOptions{}))
}

func (l *lab) end(pod *corev1.Pod) {
	l.t.Helper()
	within(l.t, patience, pod.Name+" has ended", func() string {
		p, err := l.kube.CoreV1().Pods(l.name).Get(l.t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		p.Status.Phase = corev1.PodSucceeded
		_, err = l.kube.CoreV1().Pods(l.name).UpdateStatus(l.t.Context(), p, metav1.UpdateOptions{})
		return ask(err)
	})
}

// reserved waits until a claim is reserved for some pods, and has an allocation or none.
func (l *lab) reserved(name string, allocated bool, pods ...string) {
	l.t.Helper()
	within(l.t, patience, fmt.Sprintf("%s is reserved for %v, devices: %v", name, pods, allocated), func() string {
		c, err := l.kube.ResourceV1().ResourceClaims(l.name).Get(l.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		var by []string
		for _, r := range c.Status.ReservedFor {
			by = append(by, r.Name)
		}
		if fmt.Sprint(by) != fmt.Sprint(pods) || (c.Status.Allocation != nil) != allocated || (len(c.Finalizers) > 0) != allocated {
			return fmt.Sprintf("it is reserved for %v, allocated: %v, with the finalizers %v", by, c.Status.Allocation != nil, c.Finalizers)
		}
		return ""
	})
}

func (l *lab) template(name string) {
	l.t.Helper()
	_, err := l.kube.ResourceV1().ResourceClaimTemplates(l.name).Create(l.t.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": name}}, Spec: aDevice()},
	}, metav1.CreateOptions{})
	must(l.t, err)
}

func aDevice() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "example.com"}},
	}}}
}

// TestDevicesOfPods: the controller creates a pod's claim from a template, writes its name into the pod's
// status, and deletes it when the pod has ended. A shared claim loses the reservation of a pod that has ended
// and of one that was deleted, then its allocation, and is reserved for a pod that no scheduler has bound.
func TestDevicesOfPods(t *testing.T) {
	s := here(t)
	s.run(t)
	l := s.lab(t, "devices")
	claims := s.kube.ResourceV1().ResourceClaims(l.name)
	template := "big"
	web := l.pod("web", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template})
	within(t, patience, "the pod says that its template is missing", func() string {
		told, err := s.kube.CoreV1().Events(l.name).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedResourceClaimCreation"})
		if err != nil {
			return err.Error()
		}
		for _, e := range told.Items {
			if strings.Contains(e.Message, `PodResourceClaim gpu: resource claim template "big"`) && e.Source.Component == "resource_claim" {
				return ""
			}
		}
		return fmt.Sprintf("it says %+v", told.Items)
	})
	l.template(template)
	var made string
	within(t, patience, "the pod says what its claim is called", func() string {
		p, err := s.kube.CoreV1().Pods(l.name).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || len(p.Status.ResourceClaimStatuses) != 1 {
			return fmt.Sprintf("it says %+v, %v", p.Status.ResourceClaimStatuses, err)
		}
		made = *p.Status.ResourceClaimStatuses[0].ResourceClaimName
		return ""
	})
	c, err := claims.Get(t.Context(), made, metav1.GetOptions{})
	must(t, err)
	if !strings.HasPrefix(made, "web-gpu-") || !metav1.IsControlledBy(c, web) || c.Labels["of"] != template || c.Annotations[resourcev1.PodResourceClaimAnnotation] != "gpu" {
		t.Errorf("the claim that was made for the pod is %+v; want a name from web-gpu-, the pod as controller, and the label and the annotation of the template", c.ObjectMeta)
	}
	l.allocate(made, web)
	l.bind(web)
	l.end(web)
	within(t, patience, "the claim goes when its pod has ended", func() string {
		_, err := claims.Get(t.Context(), made, metav1.GetOptions{})
		return gone(err)
	})

	_, err = claims.Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: aDevice()}, metav1.CreateOptions{})
	must(t, err)
	shared := "shared"
	entry := corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &shared}
	a, b := l.pod("a", entry), l.pod("b", entry)
	l.allocate(shared, a, b)
	l.bind(a)
	l.end(a)
	l.reserved(shared, true, "b")
	fixed := l.pod("fixed", entry)
	l.bind(fixed)
	l.reserved(shared, true, "b", "fixed")
	must(t, s.kube.CoreV1().Pods(l.name).Delete(t.Context(), "b", metav1.DeleteOptions{}))
	l.reserved(shared, true, "fixed")
	now := int64(0)
	must(t, s.kube.CoreV1().Pods(l.name).Delete(t.Context(), "fixed", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	l.reserved(shared, false)
}

// publish writes a slice of a pool in which the device has a taint; nil: none.
func (l *lab) publish(taint *resourcev1.DeviceTaint) {
	l.t.Helper()
	all := true
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice-of-" + l.name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "example.com", Pool: resourcev1.ResourcePool{Name: l.name, ResourceSliceCount: 1}, AllNodes: &all, Devices: []resourcev1.Device{{Name: "d"}},
	}}
	if taint != nil {
		slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{*taint}
	}
	slices := l.kube.ResourceV1().ResourceSlices()
	within(l.t, patience, "the slice is published", func() string {
		is, err := slices.Get(l.t.Context(), slice.Name, metav1.GetOptions{})
		if gone(err) == "" {
			_, err = slices.Create(l.t.Context(), slice, metav1.CreateOptions{})
			return made(err)
		}
		if err != nil {
			return err.Error()
		}
		slice.ResourceVersion = is.ResourceVersion
		_, err = slices.Update(l.t.Context(), slice, metav1.UpdateOptions{})
		return ask(err)
	})
}

// told waits for an Event about a pod.
func (l *lab) told(pod, reason, message string) {
	l.t.Helper()
	within(l.t, patience, fmt.Sprintf("%s of %s is told", message, pod), func() string {
		told, err := l.kube.CoreV1().Events(l.name).List(l.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err.Error()
		}
		for _, e := range told.Items {
			if e.InvolvedObject.Name == pod && e.Message == message {
				return ""
			}
		}
		return fmt.Sprintf("of %d other Events none is", len(told.Items))
	})
}

// user creates a pod that runs with the device, and tolerates some of its taints.
func (l *lab) user(name string, tolerations ...resourcev1.DeviceToleration) *corev1.Pod {
	l.t.Helper()
	spec := aDevice()
	spec.Devices.Requests[0].Exactly.Tolerations = tolerations
	_, err := l.kube.ResourceV1().ResourceClaims(l.name).Create(l.t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	must(l.t, err)
	pod := l.pod(name, corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &name})
	l.allocateResult(name, resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "example.com", Pool: l.name, Device: "d", Tolerations: tolerations}, pod)
	l.bind(pod)
	return pod
}

// leaves waits until a pod has the reason of its disruption in its status, and is deleted.
func (l *lab) leaves(name string) {
	l.t.Helper()
	within(l.t, patience, name+" says why it is disrupted, and is deleted", func() string {
		p, err := l.kube.CoreV1().Pods(l.name).Get(l.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByDeviceTaintManager" && p.DeletionTimestamp != nil {
				return ""
			}
		}
		return fmt.Sprintf("it was deleted at %v, and says %+v", p.DeletionTimestamp, p.Status.Conditions)
	})
	l.told(name, "DeviceTaintManagerEviction", "Marking for deletion")
}

func (l *lab) stays(name string) {
	l.t.Helper()
	if p, err := l.kube.CoreV1().Pods(l.name).Get(l.t.Context(), name, metav1.GetOptions{}); err != nil || p.DeletionTimestamp != nil {
		l.t.Errorf("the pod %s, which tolerates the taint of its device, was deleted: %v", name, err)
	}
}

// patient tolerates the evicting taint for a time; nil: for ever.
func patient(seconds *int64) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{Key: "example.com/broken", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: seconds}
}

// TestPodsLeaveTaintedDevices: a pod is deleted if its device gets a taint that its claim does not tolerate;
// a pod that tolerates the taint for a time stays if the taint goes in that time.
func TestPodsLeaveTaintedDevices(t *testing.T) {
	if !served(t) {
		return
	}
	s := here(t)
	s.run(t)
	l := s.lab(t, "tainted-devices")
	l.publish(nil)
	hour := int64(3600)
	l.user("leaves")
	l.user("stays", patient(&hour))
	l.publish(&resourcev1.DeviceTaint{Key: "example.com/broken", Effect: resourcev1.DeviceTaintEffectNoExecute})
	l.leaves("leaves")
	l.publish(nil)
	l.told("stays", "DeviceTaintManagerEviction", "Cancelling deletion")
	l.stays("stays")
}

// TestRulesTaintDevices: a DeviceTaintRule without effect reports what it would do. One with an effect evicts
// the pods that do not tolerate it, and counts them.
func TestRulesTaintDevices(t *testing.T) {
	if !served(t) {
		return
	}
	t.Parallel()
	const gates = "--feature-gates=DRADeviceTaintRules=true"
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{}, gates, "--runtime-config=resource.k8s.io/v1beta2=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.Stop()) })
	m := s.run(t, gates)
	l := s.lab(t, "rules-of-devices")
	l.publish(nil)
	l.user("leaves")
	l.user("stays", patient(nil))
	at := asker{site: s, nats: m.nats, namespace: l.name}
	for _, seen := range []string{"resourceslices.resource.k8s.io/slice-of-" + l.name, "resourceclaims.resource.k8s.io/leaves", "resourceclaims.resource.k8s.io/stays", "pods/leaves", "pods/stays"} {
		at.awaitLook(t, seen, "device-taint-eviction-controller") // what it says of a rule is not counted again
	}
	rules := s.kube.ResourceV1beta2().DeviceTaintRules()
	rule, err := rules.Create(t.Context(), &resourcev1beta2.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Spec: resourcev1beta2.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1beta2.DeviceTaintSelector{Pool: &l.name},
			Taint:          resourcev1beta2.DeviceTaint{Key: "example.com/broken", Effect: resourcev1beta2.DeviceTaintEffectNone},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	says := func(reason, message string) {
		t.Helper()
		within(t, patience, "the rule says "+reason, func() string {
			if rule, err = rules.Get(t.Context(), "broken", metav1.GetOptions{}); err != nil {
				return err.Error()
			}
			for _, c := range rule.Status.Conditions {
				if c.Type == resourcev1beta2.DeviceTaintConditionEvictionInProgress && c.Reason == reason && strings.HasPrefix(c.Message, message) && c.ObservedGeneration == rule.Generation {
					return ""
				}
			}
			return fmt.Sprintf("it says %+v", rule.Status.Conditions)
		})
	}
	says("NoEffect", "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute.")
	l.stays("leaves")
	rule.Spec.Taint.Effect = resourcev1beta2.DeviceTaintEffectNoExecute
	_, err = rules.Update(t.Context(), rule, metav1.UpdateOptions{})
	must(t, err)
	l.leaves("leaves")
	says("Completed", "1 pod evicted since starting the controller.")
	l.stays("stays")
}
