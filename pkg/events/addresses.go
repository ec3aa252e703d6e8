package events

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// RangeFinalizer keeps a ServiceCIDR for as long as addresses need it.
	// Upstream: pkg/controller/servicecidrs, ServiceCIDRProtectionFinalizer.
	RangeFinalizer = "networking.k8s.io/service-cidr-finalizer"
	// AddressManager is what the API servers' allocators put in the label
	// ipaddress.kubernetes.io/managed-by. No other IPAddress needs a ServiceCIDR.
	// Upstream: pkg/registry/core/service/ipallocator, ControllerName.
	AddressManager = "ipallocator.k8s.io"
)

// Ranges are the prefixes of a ServiceCIDR, and those of others that stay.
type Ranges struct{ own, others []netip.Prefix }

// RangesOf gives the ranges of a ServiceCIDR among all. Another one stays if it is not being
// deleted and has the finalizer, so that it cannot go without a look at what needs it.
// Nothing may rely on one that is being deleted: each of two that have the same prefix would
// go because of the other.
func RangesOf(own *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR) Ranges {
	r := Ranges{own: prefixes(own)}
	for _, other := range all {
		if other.Name != own.Name && other.DeletionTimestamp == nil && slices.Contains(other.Finalizers, RangeFinalizer) {
			r.others = append(r.others, prefixes(other)...)
		}
	}
	return r
}

// Need tells whether an IPAddress of an allocator is in the ServiceCIDR, and in none that stays.
func (r Ranges) Need(address metav1.Object) bool {
	a, allocated := Allocated(address)
	return allocated && containsAddress(r.own, a) && !containsAddress(r.others, a)
}

// Allocated is the address of an IPAddress; ok is false for one that no allocator manages.
func Allocated(address metav1.Object) (a netip.Addr, ok bool) {
	if address.GetLabels()[networkingv1.LabelManagedBy] != AddressManager {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(address.GetName())
	return a, err == nil
}

// InRange tells whether an address may be allocated from a ServiceCIDR.
func InRange(c *networkingv1.ServiceCIDR, a netip.Addr) bool { return containsAddress(prefixes(c), a) }

// RangesOverlap tells whether two ServiceCIDRs have an address in common.
func RangesOverlap(a, b *networkingv1.ServiceCIDR) bool {
	of := prefixes(b)
	return slices.ContainsFunc(prefixes(a), func(p netip.Prefix) bool { return slices.ContainsFunc(of, p.Overlaps) })
}

func prefixes(c *networkingv1.ServiceCIDR) (all []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil { // the API server has seen to it
			all = append(all, p.Masked())
		}
	}
	return all
}

// containsAddress tells whether an address may be allocated from one of some prefixes: it is
// none of a network, and in IPv4 no broadcast address.
//
// Upstream: pkg/api/servicecidr, PrefixContainsIP.
func containsAddress(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool {
		return p.Contains(a) && a != p.Addr() && !(a.Is4() && a == last(p))
	})
}

// last is the highest address of a prefix.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(bytes) // as many bytes as an address has
	return a
}
