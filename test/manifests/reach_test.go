package manifests

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// metricsLabel is the label of namespaces that may scrape.
const metricsLabel = "millrace.io/metrics"

// place is the origin of a connection: a pod of the installation, or of another namespace.
type place struct {
	name      string
	pod       labels.Set
	namespace labels.Set // nil: the installation's own
}

// opening is a port of a pod: name and number.
type opening struct {
	name   string
	number int
}

// reach: the policies allow exactly the connections that are needed.
func reach(all []runtime.Object) (wrong []string) {
	policies := of[*networkingv1.NetworkPolicy](all)
	if !slices.ContainsFunc(policies, deniesAll) {
		wrong = append(wrong, "no policy denies everything by default")
	}
	from := []place{
		{"a pod of another namespace", labels.Set{"app.kubernetes.io/name": "other"}, labels.Set{"kubernetes.io/metadata.name": "other"}},
		{"a reader's look-alike of another namespace", labels.Set{"app.kubernetes.io/name": "millrace", "app.kubernetes.io/component": "reader"}, labels.Set{"kubernetes.io/metadata.name": "other"}},
		{"a scraper", labels.Set{}, labels.Set{metricsLabel: "true"}},
		{"another pod of the namespace", labels.Set{"app": "other"}, nil},
		{"another pod that calls itself ours", labels.Set{"app.kubernetes.io/name": "millrace", "app.kubernetes.io/component": "other"}, nil},
	}
	for _, p := range pods(all) {
		from = append(from, place{p.component(), p.Labels, nil})
	}
	for _, to := range pods(all) {
		ports := []opening{{"unnamed", 9999}}
		for _, at := range to.container().Ports {
			ports = append(ports, opening{at.Name, int(at.ContainerPort)})
		}
		for _, who := range from {
			for _, at := range ports {
				if got, want := lets(policies, who, to.Labels, at), needs(all, who, to, at.name); got != want {
					wrong = append(wrong, fmt.Sprintf("%s reaches port %s of %s: %t", who.name, at.name, to.component(), got))
				}
			}
		}
	}
	return append(wrong, leaving(all, policies)...)
}

// needs reports whether a place needs a port.
func needs(all []runtime.Object, who place, to pod, port string) bool {
	service := who.namespace == nil && slices.ContainsFunc(pods(all), func(p pod) bool { return p.component() == who.name })
	itself := who.name == to.component()
	switch {
	case to.program() == "bus" && port == "nats":
		return service && !itself
	case to.program() == "bus" && port == "cluster":
		return itself
	case port == "health" && who.namespace[metricsLabel] == "true":
		return true
	case to.program() == "bus" && port == "health" && to.flag("cluster-listen") != "":
		return service && !itself // services ask how the server syncs
	}
	return false
}

// lets reports whether the policies allow a connection, at its origin and at its target.
func lets(policies []*networkingv1.NetworkPolicy, who place, to labels.Set, at opening) bool {
	in := selected(policies, to, networkingv1.PolicyTypeIngress)
	entered := len(in) == 0
	for _, p := range in {
		for _, r := range p.Spec.Ingress {
			entered = entered || matches(r.From, who) && opens(r.Ports, at)
		}
	}
	if who.namespace != nil { // egress of another namespace is not ours to check
		return entered
	}
	out := selected(policies, who.pod, networkingv1.PolicyTypeEgress)
	left := len(out) == 0
	for _, p := range out {
		for _, r := range p.Spec.Egress {
			left = left || matches(r.To, place{pod: to}) && opens(r.Ports, at)
		}
	}
	return entered && left
}

// selected are the policies of one direction that apply to a pod.
func selected(policies []*networkingv1.NetworkPolicy, pod labels.Set, direction networkingv1.PolicyType) (some []*networkingv1.NetworkPolicy) {
	for _, p := range policies {
		if slices.Contains(p.Spec.PolicyTypes, direction) && fits(&p.Spec.PodSelector, pod) {
			some = append(some, p)
		}
	}
	return some
}

func fits(s *metav1.LabelSelector, set labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}

// matches reports whether a place is one of the peers of a rule; no peers means everyone.
func matches(peers []networkingv1.NetworkPolicyPeer, who place) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.IPBlock != nil:
			return true // any pod may have the address
		case p.NamespaceSelector == nil:
			return who.namespace == nil && fits(p.PodSelector, who.pod)
		case p.PodSelector != nil && !fits(p.PodSelector, who.pod):
			return false
		}
		return fits(p.NamespaceSelector, who.namespace)
	})
}

// opens reports whether a rule covers a port; no ports means all.
func opens(ports []networkingv1.NetworkPolicyPort, at opening) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return p.Port == nil || *p.Port == intstr.FromString(at.name) || *p.Port == intstr.FromInt(at.number)
	})
}

// leaving: pods connect to DNS and to the bus. Only pods with a token connect to the API server.
func leaving(all []runtime.Object, policies []*networkingv1.NetworkPolicy) (wrong []string) {
	for _, p := range pods(all) {
		for _, at := range []opening{{"", 443}, {"", 6443}, {"", 80}, {"", 10250}} {
			open := false
			for _, policy := range selected(policies, p.Labels, networkingv1.PolicyTypeEgress) {
				for _, r := range policy.Spec.Egress {
					open = open || matches(r.To, place{namespace: labels.Set{"kubernetes.io/metadata.name": "elsewhere"}}) && opens(r.Ports, at)
				}
			}
			if want := slices.Contains([]string{"watcher", "writer"}, p.program()) && slices.Contains([]int{443, 6443}, at.number); open != want {
				wrong = append(wrong, fmt.Sprintf("%s goes out to port %d: %t", p.component(), at.number, open))
			}
		}
	}
	return wrong
}

func deniesAll(p *networkingv1.NetworkPolicy) bool {
	s := p.Spec
	return len(s.PodSelector.MatchLabels)+len(s.PodSelector.MatchExpressions) == 0 && len(s.PolicyTypes) == 2 && len(s.Ingress)+len(s.Egress) == 0
}
