package query

import (
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// anyRange draws a ServiceCIDR with a few addresses.
func anyRange(t *rapid.T, name string) *networkingv1.ServiceCIDR {
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.CIDRs = []string{rapid.SampledFrom([]string{"10.0.0.0/28", "10.0.0.0/29", "10.0.0.4/30", "fd00::/124", "none"}).Draw(t, name)}
	if rapid.Bool().Draw(t, name+" is protected") {
		c.Finalizers = []string{"x", RangeFinalizer}
	}
	if rapid.Bool().Draw(t, name+" is deleted") {
		c.DeletionTimestamp = &metav1.Time{}
	}
	return c
}

func anyAddress(t *rapid.T) *networkingv1.IPAddress {
	a := &networkingv1.IPAddress{}
	base := netip.MustParseAddr(rapid.SampledFrom([]string{"10.0.0.0", "10.0.0.4", "fd00::"}).Draw(t, "family"))
	for range rapid.IntRange(1, 3).Draw(t, "number") {
		base = base.Next()
	}
	a.Name, a.Labels = base.String(), map[string]string{networkingv1.LabelManagedBy: AddressManager}
	return a
}

// Whichever ServiceCIDRs the controller releases because no address needs them, in any order and
// all by one view, each address that was in a protected ServiceCIDR is still in one.
func TestNoAddressIsLeftWithoutARange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*networkingv1.ServiceCIDR
		for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(2, 3).Draw(t, "how many")] {
			all = append(all, anyRange(t, name))
		}
		address := anyAddress(t)
		a, allocated := Allocated(address)
		if !allocated {
			t.Fatalf("%s is not allocated", address.Name)
		}
		before, after := 0, 0
		for _, c := range all {
			if len(c.Finalizers) == 0 || !InRange(c, a) {
				continue // it may have been deleted already
			}
			before++
			if c.DeletionTimestamp == nil || RangesOf(c, all).Need(address) {
				after++
			}
		}
		if before > 0 && after == 0 {
			t.Fatalf("%s was in %d ServiceCIDRs, all of which go", address.Name, before)
		}
	})
}

// Tells for each address of a small network whether Services may have it.
func TestWhatIsInARange(t *testing.T) {
	for cidr, in := range map[string]map[string]bool{
		"10.0.0.8/29":  {"10.0.0.7": false, "10.0.0.8": false, "10.0.0.9": true, "10.0.0.14": true, "10.0.0.15": false, "fd00::9": false},
		"10.0.0.11/29": {"10.0.0.8": false, "10.0.0.9": true, "10.0.0.15": false},
		"10.0.0.8/31":  {"10.0.0.8": false, "10.0.0.9": false},
		"fd00::8/125":  {"fd00::7": false, "fd00::8": false, "fd00::9": true, "fd00::f": true, "10.0.0.9": false},
		"10.0.0.0/22":  {"10.0.3.255": false, "10.0.0.255": true, "10.0.3.254": true, "10.0.4.1": false},
		"no prefix":    {"10.0.0.1": false},
	} {
		c := &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
		for a, want := range in {
			if got := InRange(c, netip.MustParseAddr(a)); got != want {
				t.Errorf("%s is in %s: %t", a, cidr, got)
			}
		}
	}
	c := func(cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
	}
	if !RangesOverlap(c("10.0.0.0/24", "fd00::/112"), c("fd00::/120")) || RangesOverlap(c("10.0.0.0/24"), c("10.0.1.0/24", "fd00::/112")) {
		t.Error("two ServiceCIDRs that share a prefix do not overlap, or two that share none do")
	}
	for name, manager := range map[string]string{"10.0.0.1": "another-manager", "": AddressManager, "web": AddressManager} {
		if _, allocated := Allocated(&metav1.ObjectMeta{Name: name, Labels: map[string]string{networkingv1.LabelManagedBy: manager}}); allocated {
			t.Errorf("%q of %s is allocated", name, manager)
		}
	}
}
