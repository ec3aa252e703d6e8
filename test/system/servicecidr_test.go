package system

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestARangeThatServicesNeed: a ServiceCIDR that is being deleted stays while the address of a Service is in
// no other one, and its condition says so. It is deleted when a larger one contains the address, or when the
// Service is deleted.
func TestARangeThatServicesNeed(t *testing.T) {
	s := here(t)
	s.run(t)
	const name = "ranged"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	ranges, services := s.kube.NetworkingV1().ServiceCIDRs(), s.kube.CoreV1().Services(name)
	says := func(of string, want metav1.ConditionStatus, reason string) {
		within(t, patience, of+" says whether it is ready: "+string(want), func() string {
			c, err := ranges.Get(t.Context(), of, metav1.GetOptions{})
			if err != nil {
				return ask(err)
			}
			said := apimeta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
			switch {
			case said == nil || said.Status != want || said.Reason != reason:
				return "it does not"
			case len(c.Finalizers) != 1 || c.Finalizers[0] != "networking.k8s.io/service-cidr-finalizer":
				return "it is not protected"
			}
			return ""
		})
	}
	puts := func(of, cidr string) {
		_, err := ranges.Create(t.Context(), &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: of}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}},
		}, metav1.CreateOptions{})
		must(t, err)
		says(of, metav1.ConditionTrue, "")
	}
	puts("narrow", "10.150.0.0/28")
	within(t, patience, "a Service gets an address of the range", func() string {
		_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			ClusterIP: "10.150.0.5", Ports: []corev1.ServicePort{{Port: 80}},
		}}, metav1.CreateOptions{})
		return made(err)
	})
	must(t, ranges.Delete(t.Context(), "narrow", metav1.DeleteOptions{}))
	says("narrow", metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating)
	goes := func(of, why string) {
		within(t, patience, of+" goes, since "+why, func() string {
			_, err := ranges.Get(t.Context(), of, metav1.GetOptions{})
			return gone(err)
		})
	}
	puts("wide", "10.150.0.0/24")
	goes("narrow", "the address is in another one")
	must(t, ranges.Delete(t.Context(), "wide", metav1.DeleteOptions{}))
	says("wide", metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating)
	must(t, services.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	goes("wide", "the Service is gone")
}
