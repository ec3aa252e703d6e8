package system

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lab is a namespace with pods that use devices; the test is its scheduler and its nodes.
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

// pod creates a pod with one entry.
func (l *lab) pod(name string, entry corev1.PodResourceClaim) *corev1.Pod {
	l.t.Helper()
	eventually(l.t, name+" can be created", func() string {
		_, err := l.kube.CoreV1().Pods(l.name).Create(l.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{entry},
			Containers:     []corev1.Container{{Name: "c", Image: "none/runs:it", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: entry.Name}}}}},
		}}, metav1.CreateOptions{})
		return made(err)
	})
	pod, err := l.kube.CoreV1().Pods(l.name).Get(l.t.Context(), name, metav1.GetOptions{})
	must(l.t, err)
	return pod
}

// allocate gives a claim a device, and reserves it for pods, as the scheduler does.
func (l *lab) allocate(name string, pods ...*corev1.Pod) {
	l.t.Helper()
	claims := l.kube.ResourceV1().ResourceClaims(l.name)
	eventually(l.t, name+" is allocated", func() string {
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
		c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "example.com", Pool: "p", Device: "d"},
		}}}
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
	eventually(l.t, pod.Name+" has ended", func() string {
		p, err := l.kube.CoreV1().Pods(l.name).Get(l.t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		p.Status.Phase = corev1.PodSucceeded
		_, err = l.kube.CoreV1().Pods(l.name).UpdateStatus(l.t.Context(), p, metav1.UpdateOptions{})
		return ask(err)
	})
}

// reserved waits until a claim is reserved for some pods, and has devices or has not.
func (l *lab) reserved(name string, allocated bool, pods ...string) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("%s is reserved for %v, devices: %v", name, pods, allocated), func() string {
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

// TestDevicesOfPods: a pod has a claim made by a template, with its name in the pod's status; it
// goes when the pod has ended. A shared claim loses the reservation of a pod that has ended and of
// one that is gone, then its devices, and gets one for a pod that no scheduler has bound.
func TestDevicesOfPods(t *testing.T) {
	s := here(t)
	s.run(t)
	l := s.lab(t, "devices")
	claims := s.kube.ResourceV1().ResourceClaims(l.name)
	template := "big"
	web := l.pod("web", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: &template})
	eventually(t, "the pod says that its template is missing", func() string {
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
	eventually(t, "the pod says what its claim is called", func() string {
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
		t.Errorf("the claim is %+v", c.ObjectMeta)
	}
	l.allocate(made, web)
	l.bind(web)
	l.end(web)
	eventually(t, "the claim goes when its pod has ended", func() string {
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
