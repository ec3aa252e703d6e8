package nodeipam

import (
	"net/netip"
	"slices"
)

// pool is a range of the cluster, divided into blocks of which each node gets one.
//
// Upstream: pkg/controller/nodeipam/ipam/cidrset, CidrSet.
type pool struct {
	cluster netip.Prefix
	bits    int
	blocks  uint64
	used    []span // sorted and disjoint
}

// span is a run of blocks, from the first to the last.
type span struct{ first, last uint64 }

func newPool(r Range) (pool, bool) {
	cluster, err := netip.ParsePrefix(r.CIDR)
	if err != nil || r.Mask < cluster.Bits() || r.Mask > cluster.Addr().BitLen() || r.Mask-cluster.Bits() > 32 {
		return pool{}, false // the validation of the flags excludes this
	}
	return pool{cluster: cluster.Masked(), bits: r.Mask, blocks: 1 << (r.Mask - cluster.Bits())}, true
}

// span returns the blocks that share addresses with a range; ok is false if there are none.
func (p *pool) span(r netip.Prefix) (s span, ok bool) {
	switch {
	case !p.cluster.Overlaps(r):
		return span{}, false
	case r.Bits() <= p.cluster.Bits():
		return span{0, p.blocks - 1}, true
	}
	s.first = p.index(r.Addr())
	s.last = s.first
	if r.Bits() < p.bits {
		s.last += 1<<(p.bits-r.Bits()) - 1
	}
	return s, true
}

// index is the number of the block that contains an address: its bits between the cluster's
// prefix and the end of a node's.
func (p *pool) index(a netip.Addr) (i uint64) {
	bytes := a.AsSlice()
	for bit := p.cluster.Bits(); bit < p.bits; bit++ {
		i = i<<1 | uint64(bytes[bit/8]>>(7-bit%8)&1)
	}
	return i
}

// block is the range of the block with a number.
func (p *pool) block(i uint64) netip.Prefix {
	bytes := p.cluster.Addr().AsSlice()
	for bit := p.bits - 1; bit >= p.cluster.Bits(); bit-- {
		bytes[bit/8] |= byte(i&1) << (7 - bit%8)
		i >>= 1
	}
	a, _ := netip.AddrFromSlice(bytes) // the length is right for an address
	return netip.PrefixFrom(a, p.bits)
}

// own reports whether a range is one of the blocks.
func (p *pool) own(r netip.Prefix) bool {
	return r.Bits() == p.bits && p.cluster.Contains(r.Addr()) && r == r.Masked()
}

// free reports whether no block of a range is used.
func (p *pool) free(r netip.Prefix) bool {
	s, inside := p.span(r)
	return !inside || !slices.ContainsFunc(p.used, func(u span) bool { return u.first <= s.last && s.first <= u.last })
}

// add marks blocks as used.
func (p *pool) add(s span) {
	at, _ := slices.BinarySearchFunc(p.used, s, func(u, s span) int {
		if u.last+1 < s.first {
			return -1
		}
		return 1
	})
	end := at
	for ; end < len(p.used) && p.used[end].first <= s.last+1; end++ {
		s = span{min(s.first, p.used[end].first), max(s.last, p.used[end].last)}
	}
	p.used = slices.Replace(p.used, at, end, s)
}

// count is how many blocks are used.
func (p *pool) count() (n uint64) {
	for _, u := range p.used {
		n += u.last - u.first + 1
	}
	return n
}

// next returns the first free block after the last assigned one, and how many used blocks
// lie between. The search wraps around.
//
// Upstream: AllocateNext.
func (p *pool) next(last string) (r netip.Prefix, tries uint64, ok bool) {
	if p.count() == p.blocks {
		return netip.Prefix{}, 0, false
	}
	from := uint64(0)
	if given, err := netip.ParsePrefix(last); err == nil && p.own(given) {
		from = (p.index(given.Addr()) + 1) % p.blocks
	}
	at := from
	for _, u := range slices.Concat(p.used, p.used) {
		if u.first <= at && at <= u.last {
			at = (u.last + 1) % p.blocks
		}
	}
	return p.block(at), (at + p.blocks - from) % p.blocks, true
}
