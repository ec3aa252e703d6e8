package system

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodesGetRangesOfTheirOwn runs two replicas of each service, kills one of them meanwhile, and adds a
// node that already has a range. Each of many nodes that appear at once gets a range that no other node has,
// until none is left; a node that waits gets the range of a deleted one.
func TestNodesGetRangesOfTheirOwn(t *testing.T) {
	s := here(t)
	m := s.unstarted(t, s.credentials(), time.Now())
	m.startBus()
	for range 2 {
		for _, name := range serviceNames {
			m.addAt(name, m.nats, "--allocate-node-cidrs", "--cluster-cidr=10.200.0.0/19,fd00:200::/59",
				"--service-cluster-ip-range=10.200.1.0/25,fd00:200:0:1::/112")
		}
	}
	for _, name := range serviceNames {
		for _, replica := range m.services[name] {
			replica.ready(t)
		}
	}
	const many = 30 // 32 blocks, without the block of Services and the block of the node that has its own
	nodes := s.kube.CoreV1().Nodes()
	come := func(name string, ranges ...string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
		if len(ranges) > 0 {
			n.Spec.PodCIDR = ranges[0]
		}
		_, err := nodes.Create(t.Context(), n, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { // another test may get the control plane
			if err := nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				must(t, err)
			}
		})
	}
	come("ranged-own", "10.200.7.0/24", "fd00:200:0:7::/64")
	var all sync.WaitGroup
	for i := range many {
		if i == many/2 { // while ranges are being given
			for _, name := range []string{"reconcilers", "writer"} {
				victim := m.services[name][0]
				victim.kill(t)
				m.forget(name, victim)
			}
		}
		all.Go(func() { come(fmt.Sprintf("ranged-%02d", i)) })
	}
	all.Wait()
	having := func() (ranges map[string][]string, fault string) {
		list, err := nodes.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, ask(err)
		}
		ranges = map[string][]string{}
		var given []netip.Prefix
		for _, n := range list.Items {
			if !strings.HasPrefix(n.Name, "ranged-") || len(n.Spec.PodCIDRs) == 0 {
				continue
			}
			ranges[n.Name] = n.Spec.PodCIDRs
			for _, text := range n.Spec.PodCIDRs {
				r := netip.MustParsePrefix(text)
				for _, other := range append(given, netip.MustParsePrefix("10.200.1.0/25"), netip.MustParsePrefix("fd00:200:0:1::/112")) {
					if other.Overlaps(r) {
						t.Fatalf("node %s has the range %v, which overlaps with %v of another", n.Name, r, other)
					}
				}
				given = append(given, r)
			}
		}
		return ranges, ""
	}
	late := time.Now().Add(patience - 10*time.Second)
	within(t, patience, "every node has a range of each family, and none is another's", func() string {
		ranges, fault := having()
		if fault == "" && len(ranges) < many+1 {
			fault = fmt.Sprintf("%d nodes have ranges", len(ranges))
		}
		for i := range many {
			if name := fmt.Sprintf("ranged-%02d", i); fault != "" && ranges[name] == nil && time.Now().After(late) {
				why, err := asker{site: s, nats: m.nats}.ask(t, "why-not", "node/"+name, "--controller=node-ipam-controller")
				return fmt.Sprintf("%s, and %s has none: %s %v", fault, name, why, err)
			}
		}
		return fault
	})
	come("ranged-late")
	within(t, patience, "it is told that there is none left", func() string {
		told, err := s.kube.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=CIDRNotAvailable"})
		if err != nil || len(told.Items) > 0 {
			return ask(err)
		}
		return "it is not"
	})
	ranges, _ := having()
	free := ranges["ranged-00"]
	must(t, nodes.Delete(t.Context(), "ranged-00", metav1.DeleteOptions{}))
	within(t, patience, "the node that waited gets the ranges of the one that is gone", func() string {
		if ranges, fault := having(); fault != "" || strings.Join(ranges["ranged-late"], " ") != strings.Join(free, " ") {
			return fmt.Sprintf("it has %v, and not %v %s", ranges["ranged-late"], free, fault)
		}
		return ""
	})
}
