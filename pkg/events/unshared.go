package events

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubRanges is the subresource of the search for the address ranges of a kind's objects, for the
// condition [If].Unshared. The API server has no such subresource: the writer lists the objects,
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
