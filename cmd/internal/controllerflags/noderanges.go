package controllerflags

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// rangeAllocator is the only allocator.
const rangeAllocator = "RangeAllocator"

// The default prefix lengths of nodes' ranges.
//
// Upstream: cmd/kube-controller-manager/app/core.go, defaultNodeMaskCIDRIPv4 and IPv6. The bound of
// the difference to the cluster's is that of pkg/controller/nodeipam/ipam/cidrset.
const (
	defaultMask4 = 24
	defaultMask6 = 64
	widest6      = 16
)

// rangeOptions are the flags of node-ipam-controller.
type rangeOptions struct {
	allocate          bool
	cluster, services string
	allocator         string
	mask              int32
	mask4, mask6      int32
}

func newRangeOptions() rangeOptions { return rangeOptions{allocator: rangeAllocator} }

func (o *rangeOptions) add(f *pflag.FlagSet) {
	f.BoolVar(&o.allocate, "allocate-node-cidrs", o.allocate, "allocate a pod CIDR for each node from --cluster-cidr; without it node-ipam-controller is off")
	f.StringVar(&o.cluster, "cluster-cidr", o.cluster, "`CIDR` of pods, or two, one for each IP family; only with --allocate-node-cidrs")
	f.StringVar(&o.services, "service-cluster-ip-range", o.services, "`CIDR` of Services, or two, one for each IP family, which is not allocated to nodes; only with --allocate-node-cidrs")
	f.Int32Var(&o.mask, "node-cidr-mask-size", o.mask, "mask size of a node's CIDR in a single-stack cluster (default 24 for IPv4, 64 for IPv6)")
	f.Int32Var(&o.mask4, "node-cidr-mask-size-ipv4", o.mask4, "mask size of a node's IPv4 CIDR in a dual-stack cluster (default 24)")
	f.Int32Var(&o.mask6, "node-cidr-mask-size-ipv6", o.mask6, "mask size of a node's IPv6 CIDR in a dual-stack cluster (default 64)")
	f.StringVar(&o.allocator, "cidr-allocator-type", o.allocator, "how ranges are given; "+rangeAllocator+" is the only one that there is")
}

// config translates the flags to the controller's configuration; empty if the controller is off.
//
// Upstream: cmd/kube-controller-manager/app/core.go, newNodeIpamController.
//
// Errors: the ranges cannot be parsed, or contradict each other.
func (o *rangeOptions) config() (controllers.Ranges, error) {
	services := strings.Split(o.services, ",")
	switch {
	case o.allocator != "" && o.allocator != rangeAllocator:
		return controllers.Ranges{}, fmt.Errorf("read --cidr-allocator-type: %q needs a cloud provider, and there is none here or in kube-controller-manager; %s is the only one", o.allocator, rangeAllocator)
	case len(services) > 2:
		return controllers.Ranges{}, errors.New("read --service-cluster-ip-range: there are more than two ranges")
	case !o.allocate:
		return controllers.Ranges{}, nil
	case strings.TrimSpace(o.cluster) == "":
		return controllers.Ranges{}, errors.New("read --cluster-cidr: --allocate-node-cidrs needs it")
	}
	cluster, err := readRanges("cluster-cidr", strings.Split(strings.TrimSpace(o.cluster), ","))
	if err != nil {
		return controllers.Ranges{}, err
	}
	masks, err := o.masks(cluster)
	if err != nil {
		return controllers.Ranges{}, err
	}
	var c controllers.Ranges
	for i, r := range cluster {
		if err := fits(r, masks[i]); err != nil {
			return controllers.Ranges{}, err
		}
		c.Cluster = append(c.Cluster, controllers.Range{CIDR: r.String(), Mask: masks[i]})
	}
	services = slices.DeleteFunc(services, func(s string) bool { return strings.TrimSpace(s) == "" })
	excluded, err := readRanges("service-cluster-ip-range", services)
	for _, r := range excluded {
		c.Services = append(c.Services, r.String())
	}
	return c, err
}

// readRanges parses one range, or two of different IP families.
func readRanges(flag string, texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		r, err := query.ParseRange(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("read --%s: %w", flag, err)
		}
		all = append(all, r)
	}
	if len(all) > 2 {
		return nil, fmt.Errorf("read --%s: there are more than two ranges", flag)
	}
	if len(all) == 2 && all[0].Addr().Is4() == all[1].Addr().Is4() {
		return nil, fmt.Errorf("read --%s: two ranges have to be one of each IP family", flag)
	}
	return all, nil
}

// masks are the prefix lengths of nodes' ranges, one for each of the cluster's.
//
// Upstream: setNodeCIDRMaskSizes.
func (o *rangeOptions) masks(cluster []netip.Prefix) ([]int, error) {
	single, only4 := len(cluster) == 1, cluster[0].Addr().Is4()
	switch {
	case !single && o.mask != 0:
		return nil, errors.New("read --node-cidr-mask-size: in a cluster of both IP families it is --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	case o.mask != 0 && (o.mask4 != 0 || o.mask6 != 0):
		return nil, errors.New("read --node-cidr-mask-size: it does not go together with --node-cidr-mask-size-ipv4 or --node-cidr-mask-size-ipv6")
	case single && !only4 && o.mask4 != 0:
		return nil, errors.New("read --node-cidr-mask-size-ipv4: the cluster has only IPv6")
	case single && only4 && o.mask6 != 0:
		return nil, errors.New("read --node-cidr-mask-size-ipv6: the cluster has only IPv4")
	}
	masks := make([]int, 0, len(cluster))
	for _, r := range cluster {
		mask, said := defaultMask6, o.mask6
		if r.Addr().Is4() {
			mask, said = defaultMask4, o.mask4
		}
		for _, s := range []int32{o.mask, said} {
			if s != 0 {
				mask = int(s)
			}
		}
		masks = append(masks, mask)
	}
	return masks, nil
}

// fits is an error if a range cannot be divided into ranges of a prefix length.
func fits(cluster netip.Prefix, mask int) error {
	switch {
	case mask < cluster.Bits() || mask > cluster.Addr().BitLen():
		return fmt.Errorf("read --cluster-cidr: a node's part of %v cannot have a prefix of %d bits (--node-cidr-mask-size)", cluster, mask)
	case cluster.Addr().Is6() && mask-cluster.Bits() > widest6:
		return fmt.Errorf("read --cluster-cidr: a node's part of %v has a prefix of %d bits, and %d more than the cluster's are the most (--node-cidr-mask-size)", cluster, mask, widest6)
	default:
		return nil
	}
}
