package events

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// RangeFinalizer keeps a ServiceCIDR for as long as allocated addresses need it.
	// Upstream: pkg/controller/servicecidrs, ServiceCIDRProtectionFinalizer.
	RangeFinalizer = "networking.k8s.io/service-cidr-finalizer"
	// AddressManager is the value that the API servers' allocators set for the label
	// ipaddress.kubernetes.io/managed-by. An IPAddress without it needs no ServiceCIDR.
	// Upstream: pkg/registry/core/service/ipallocator, ControllerName.
	AddressManager = "ipallocator.k8s.io"
)

// Ranges are the prefixes of one ServiceCIDR, and the prefixes of the other ServiceCIDRs that
// stay.
type Ranges struct{ own, others []netip.Prefix }

// RangesOf gives the ranges of the ServiceCIDR own among all. Another ServiceCIDR stays if it is
// not being deleted and has the finalizer: the controller then checks its addresses before it
// goes. A ServiceCIDR that is being deleted does not count: of two with the same prefix, each
// would go because of the other.
func RangesOf(own *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR) Ranges {
	r := Ranges{own: prefixes(own)}
	for _, other := range all {
		if other.Name != own.Name && other.DeletionTimestamp == nil && slices.Contains(other.Finalizers, RangeFinalizer) {
			r.others = append(r.others, prefixes(other)...)
		}
	}
	return r
}

// Need reports whether an allocator's IPAddress is in this ServiceCIDR and in no other one that
// stays.
func (r Ranges) Need(address metav1.Object) bool {
	a, allocated := Allocated(address)
	return allocated && containsAddress(r.own, a) && !containsAddress(r.others, a)
}

// Allocated gives the address of an IPAddress; ok is false when no allocator manages it.
func Allocated(address metav1.Object) (a netip.Addr, ok bool) {
	if address.GetLabels()[networkingv1.LabelManagedBy] != AddressManager {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(address.GetName())
	return a, err == nil
}

// InRange reports whether an address may be allocated from a ServiceCIDR.
func InRange(c *networkingv1.ServiceCIDR, a netip.Addr) bool { return containsAddress(prefixes(c), a) }

// RangesOverlap reports whether two ServiceCIDRs have an address in common.
func RangesOverlap(a, b *networkingv1.ServiceCIDR) bool {
	of := prefixes(b)
	return slices.ContainsFunc(prefixes(a), func(p netip.Prefix) bool { return slices.ContainsFunc(of, p.Overlaps) })
}

func prefixes(c *networkingv1.ServiceCIDR) (all []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil { // the API server has validated it
			all = append(all, p.Masked())
		}
	}
	return all
}

// containsAddress reports whether an address may be allocated from one of the prefixes. A prefix's
// network address and, in IPv4, its broadcast address may not.
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
	a, _ := netip.AddrFromSlice(bytes) // the length is always right
	return a
}
