package controllerflags

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

func TestWhatFlagsTellOfRanges(t *testing.T) {
	of := func(ranges ...any) (c controllers.Ranges) {
		for i := 0; i < len(ranges); i += 2 {
			c.Cluster = append(c.Cluster, controllers.Range{CIDR: ranges[i].(string), Mask: ranges[i+1].(int)})
		}
		return c
	}
	without := of("10.0.0.0/16", 24)
	without.Services = []string{"10.96.0.0/12", "fd00:2::/112"}
	for args, want := range map[string]any{
		"":                           of(),
		"--cluster-cidr=10.0.0.0/16": of(), // ignored without --allocate-node-cidrs
		"--cluster-cidr=nonsense --service-cluster-ip-range=x --node-cidr-mask-size=99":                                          of(),
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16":                                                                       of("10.0.0.0/16", 24),
		"--allocate-node-cidrs --cluster-cidr=10.0.3.7/16":                                                                       of("10.0.0.0/16", 24),
		"--allocate-node-cidrs --cluster-cidr=010.0.0.0/16":                                                                      of("10.0.0.0/16", 24),
		"--allocate-node-cidrs --cluster-cidr=fd00::/48":                                                                         of("fd00::/48", 64),
		"--allocate-node-cidrs --cluster-cidr=fd00::/48,10.0.0.0/16":                                                             of("fd00::/48", 64, "10.0.0.0/16", 24),
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=26":                                              of("10.0.0.0/16", 26),
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv4=26":                                         of("10.0.0.0/16", 26),
		"--allocate-node-cidrs --cluster-cidr=fd00::/56 --node-cidr-mask-size-ipv6=72":                                           of("fd00::/56", 72),
		"--allocate-node-cidrs --cluster-cidr=fd00::/56 --node-cidr-mask-size=72":                                                of("fd00::/56", 72),
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,fd00::/56 --node-cidr-mask-size-ipv4=25 --node-cidr-mask-size-ipv6=72": of("10.0.0.0/16", 25, "fd00::/56", 72),
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/24":                                                                       of("10.0.0.0/24", 24),
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.96.0.0/12,fd00:2::/112":                  without,
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --cidr-allocator-type=RangeAllocator":                                  of("10.0.0.0/16", 24),

		"--allocate-node-cidrs":                                                                                   "needs it",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0":                                                           "read the range",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,10.1.0.0/16":                                            "one of each IP family",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,fd00::/56,fd01::/56":                                    "more than two",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/25":                                                        "cannot have a prefix of 24 bits",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=33":                               "cannot have a prefix of 33 bits",
		"--allocate-node-cidrs --cluster-cidr=fd00::/47":                                                          "16 more than the cluster's",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,fd00::/56 --node-cidr-mask-size=24":                     "of both IP families it is",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24": "does not go together",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv6=64":                          "only IPv4",
		"--allocate-node-cidrs --cluster-cidr=fd00::/56 --node-cidr-mask-size-ipv4=24":                            "only IPv6",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.96.0.0/12,10.97.0.0/16":   "one of each IP family",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=x":                           "--service-cluster-ip-range",
		"--service-cluster-ip-range=10.96.0.0/12,fd00::/112,fd01::/112":                                           "more than two",
		"--cidr-allocator-type=CloudAllocator":                                                                    "needs a cloud provider",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --cidr-allocator-type=IPAMFromCluster":                  "needs a cloud provider",
	} {
		o, flags := New(), pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.Add(flags)
		if err := flags.Parse(strings.Fields(args)); err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		config, err := o.Config()
		if message, wrong := want.(string); wrong {
			if err == nil || !strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %q", args, err, message)
			}
		} else if err != nil || !reflect.DeepEqual(config.Ranges, want) {
			t.Errorf("%s comes to %+v, %v; want %+v", args, config.Ranges, err, want)
		}
	}
}
