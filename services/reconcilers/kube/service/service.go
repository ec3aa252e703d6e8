// Package service answers the questions that controllers ask about Services: which pods
// they select, and the ports and addresses of those.
package service

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Selects reports whether a service selects an object with these labels. Without a
// selector it selects nothing, with an empty one everything.
func Selects(s *corev1.Service, labels map[string]string) bool {
	return s.Spec.Selector != nil && label.Covers(labels, s.Spec.Selector)
}

// Pods are the pods that a service selects, whatever their state, sorted by name.
func Pods(snapshot reconcile.Snapshot, s *corev1.Service) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range reconcile.List(snapshot, kinds.Pods, s.Namespace) {
		if Selects(s, p.Labels) {
			pods = append(pods, p)
		}
	}
	return pods
}

// KeysOfPod maps a pod to the services that select it, and to those that did before.
//
// Upstream: k8s.io/endpointslice/util, where a pod that changes in nothing that
// endpoints are made of concerns no service. Here it always does, because a change that
// comes again must make the same turns as at first.
func KeysOfPod(snapshot reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, p := range []reconcile.Object{now, was} {
		if p.None() {
			continue
		}
		for _, s := range reconcile.List(snapshot, kinds.Services, p.GetNamespace()) {
			if key := Key(s); Selects(s, p.GetLabels()) && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Key is the key of an object.
func Key(obj metav1.Object) events.Key {
	return events.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Headless is true for a service without a cluster IP.
func Headless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == ""
}

// Reachable reports whether a pod has an address and may answer there. A terminating pod
// may, too.
func Reachable(p *corev1.Pod) bool {
	return !pod.Terminal(p) && (p.Status.PodIP != "" || len(p.Status.PodIPs) > 0)
}

// Hostname is the pod's name in the service's domain; ok is false if it has none.
func Hostname(s *corev1.Service, p *corev1.Pod) (name string, ok bool) {
	named := p.Spec.Hostname != "" && p.Spec.Subdomain == s.Name && s.Namespace == p.Namespace
	return p.Spec.Hostname, named
}

// Port is the pod's port for a port of a service; ok is false if the pod has no port of
// that name and protocol.
//
// Upstream: pkg/api/v1/pod, FindPort. Ports of sidecars count, after all others.
func Port(p *corev1.Pod, port *corev1.ServicePort) (number int32, ok bool) {
	if port.TargetPort.Type == intstr.Int {
		return port.TargetPort.IntVal, true
	}
	containers := slices.Clone(p.Spec.Containers)
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.Sidecar(c) {
			containers = append(containers, *c)
		}
	}
	for i := range containers {
		for _, c := range containers[i].Ports {
			if c.Name == port.TargetPort.StrVal && c.Protocol == port.Protocol {
				return c.ContainerPort, true
			}
		}
	}
	return 0, false
}

// Address parses an IP address; ok is false for any other text.
//
// Upstream: k8s.io/utils/net, ParseIPSloppy. Leading zeros are no sign of octal
// numbers.
func Address(text string) (address netip.Addr, ok bool) {
	if strings.Contains(text, ".") {
		parts := strings.Split(text, ".")
		for i, part := range parts {
			if part = strings.TrimLeft(part, "0"); part != "" {
				parts[i] = part
			} else {
				parts[i] = "0"
			}
		}
		text = strings.Join(parts, ".")
	}
	address, err := netip.ParseAddr(text)
	return address.Unmap(), err == nil
}
