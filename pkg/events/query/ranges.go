package query

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
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

// SubRanges is the subresource of the search for the address ranges of a kind's objects, for the
// condition Unshared of a command (If). The API server has no such subresource: the writer lists the objects,
// live. The answer is a list of [Ranged].
const SubRanges = "ranges"

// HasRanges reports whether objects of the kind have address ranges that no two of them may share.
func HasRanges(kind kinds.Name) bool { return kind == kinds.Nodes.Name }

// Ranged is an object with its ranges.
type Ranged struct {
	Name   string    `json:"name"`
	UID    types.UID `json:"uid,omitempty"`
	Ranges []string  `json:"ranges"`
}

// RangedBody is the part of an object of such a kind, or of a patch of one, that has its ranges.
type RangedBody struct {
	Spec struct {
		PodCIDR  string   `json:"podCIDR"`
		PodCIDRs []string `json:"podCIDRs"`
	} `json:"spec"`
}

// Ranges are the ranges in the body, without duplicates of podCIDR.
func (b RangedBody) Ranges() []string {
	all := slices.Clone(b.Spec.PodCIDRs)
	if b.Spec.PodCIDR != "" && !slices.Contains(all, b.Spec.PodCIDR) {
		all = append(all, b.Spec.PodCIDR)
	}
	return all
}

// RangesIn are the ranges that a command's body assigns to its object.
//
// Errors: the body cannot be read, has no range, or has an invalid one.
func RangesIn(body json.RawMessage) ([]netip.Prefix, error) {
	var said RangedBody
	if err := json.Unmarshal(body, &said); err != nil {
		return nil, fmt.Errorf("read the ranges in a body: %w", err)
	}
	var all []netip.Prefix
	for _, text := range said.Ranges() {
		r, err := ParseRange(text)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read the ranges in a body: there are none")
	}
	return all, nil
}

// ParseRange reads a range of addresses. The API server accepts leading zeros in objects from
// earlier versions, and reads such numbers as decimal.
//
// Upstream: k8s.io/utils/net, ParseCIDRSloppy.
//
// Errors: the text is no range.
func ParseRange(text string) (netip.Prefix, error) {
	r, err := netip.ParsePrefix(text)
	if err != nil {
		r, err = netip.ParsePrefix(withoutZeros(text))
	}
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("read the range %.60q: %w", text, err)
	}
	if r.Addr().Is4In6() && r.Bits() >= 96 {
		r = netip.PrefixFrom(r.Addr().Unmap(), r.Bits()-96)
	}
	return r.Masked(), nil
}

// withoutZeros removes leading zeros from the numbers of an IPv4 range.
func withoutZeros(text string) string {
	address, bits, _ := strings.Cut(text, "/")
	parts := strings.Split(address, ".")
	for i, part := range parts {
		if rest := strings.TrimLeft(part, "0"); rest != "" {
			parts[i] = rest
		} else if part != "" {
			parts[i] = "0"
		}
	}
	return strings.Join(parts, ".") + "/" + bits
}

// Overlaps gives the first of the ranges that shares an address with a range of this object.
// Ranges of the object that cannot be parsed share none.
func (o Ranged) Overlaps(ranges []netip.Prefix) (which netip.Prefix, some bool) {
	for _, text := range o.Ranges {
		has, err := ParseRange(text)
		if err != nil {
			continue
		}
		if at := slices.IndexFunc(ranges, has.Overlaps); at >= 0 {
			return ranges[at], true
		}
	}
	return netip.Prefix{}, false
}
