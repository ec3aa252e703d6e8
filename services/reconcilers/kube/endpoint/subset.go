package endpoint

import (
	"bytes"
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"
)

// Spot identifies an address, because pods may share the address of their node.
type Spot struct {
	ip  string
	uid types.UID
}

// SpotOf returns the spot of an address.
func SpotOf(a *corev1.EndpointAddress) Spot {
	if a.TargetRef == nil {
		return Spot{ip: a.IP}
	}
	return Spot{a.IP, a.TargetRef.UID}
}

// bundle holds the addresses behind one port, and whether each is ready.
type bundle struct {
	port  corev1.EndpointPort
	none  bool // no port at all
	ready map[Spot]bool
}

// Repacked groups addresses with the same ports, in upstream's order. An address
// that is not ready in any subset with a port is not ready for that port.
//
// Upstream: pkg/api/v1/endpoints, RepackSubsets.
func Repacked(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	addresses := map[Spot]corev1.EndpointAddress{}
	var bundles []*bundle
	for i := range subsets {
		ports := subsets[i].Ports
		if len(subsets[i].Addresses)+len(subsets[i].NotReadyAddresses) == 0 {
			continue
		}
		if len(ports) == 0 {
			bundles = gathered(bundles, &bundle{none: true}, &subsets[i], addresses)
		}
		for _, port := range ports {
			bundles = gathered(bundles, &bundle{port: port}, &subsets[i], addresses)
		}
	}
	byAddresses := map[string]*corev1.EndpointSubset{}
	var packed []corev1.EndpointSubset
	var order []string
	for _, b := range bundles {
		key, subset := b.subset(addresses)
		if byAddresses[key] == nil {
			byAddresses[key] = subset
			order = append(order, key)
		}
		if !b.none {
			byAddresses[key].Ports = append(byAddresses[key].Ports, b.port)
		}
	}
	for _, key := range order {
		subset := byAddresses[key]
		slices.SortStableFunc(subset.Ports, byDigest)
		packed = append(packed, *subset)
	}
	slices.SortStableFunc(packed, byDigest)
	return packed
}

// gathered adds the addresses of a subset to the bundle of a port.
func gathered(bundles []*bundle, b *bundle, subset *corev1.EndpointSubset, addresses map[Spot]corev1.EndpointAddress) []*bundle {
	at := slices.IndexFunc(bundles, func(o *bundle) bool { return o.none == b.none && samePort(o.port, b.port) })
	if at >= 0 {
		b = bundles[at]
	} else {
		b.ready = map[Spot]bool{}
		bundles = append(bundles, b)
	}
	add := func(a corev1.EndpointAddress, ready bool) {
		s := SpotOf(&a)
		if _, known := addresses[s]; !known {
			addresses[s] = a
		}
		if was, known := b.ready[s]; !known || was {
			b.ready[s] = ready
		}
	}
	for _, a := range subset.Addresses {
		add(a, true)
	}
	for _, a := range subset.NotReadyAddresses {
		add(a, false)
	}
	return bundles
}

func samePort(a, b corev1.EndpointPort) bool {
	return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol && ptr.Equal(a.AppProtocol, b.AppProtocol)
}

// subset is the bundle as a subset without its port, and a key for it.
func (b *bundle) subset(addresses map[Spot]corev1.EndpointAddress) (string, *corev1.EndpointSubset) {
	var subset corev1.EndpointSubset
	var key strings.Builder
	spots := make([]Spot, 0, len(b.ready))
	for s := range b.ready {
		spots = append(spots, s)
	}
	slices.SortFunc(spots, func(a, b Spot) int { return cmp.Or(cmp.Compare(a.ip, b.ip), cmp.Compare(a.uid, b.uid)) })
	for _, s := range spots {
		mark := " - "
		if b.ready[s] {
			subset.Addresses = append(subset.Addresses, addresses[s])
			mark = " + "
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, addresses[s])
		}
		key.WriteString(mark + s.ip + " " + string(s.uid))
	}
	return key.String(), &subset
}

// byDigest is upstream's order, which has no other meaning. With it, a controller
// that takes over has nothing to write.
func byDigest[T any](a, b T) int { return bytes.Compare(digest(a), digest(b)) }

func digest(value any) []byte {
	hash := fnv.New128a()
	_, _ = hash.Write([]byte(dump.ForHash(value))) // a hash never fails
	return hash.Sum(nil)
}
