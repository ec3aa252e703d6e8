package network_test

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/test/oracle/network"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestServiceCIDRsAreAsUpstreams(t *testing.T) {
	oracletest.Agree(t, network.ServiceCIDRs, events.Key{Name: oracletest.Owner}, rangeWorld)
}

// rangeWorld is a ServiceCIDR, others with or without common addresses, and addresses.
func rangeWorld(t *rapid.T) []runtime.Object {
	prefixes := rapid.SampledFrom([]string{"10.0.0.0/28", "10.0.0.0/29", "10.0.0.8/29", "10.0.0.4/30", "10.0.1.0/28", "fd00::/124", "fd00::8/125"})
	made := func(name string) *networkingv1.ServiceCIDR {
		c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "10"}}
		c.Spec.CIDRs = []string{prefixes.Draw(t, name)}
		if second := prefixes.Draw(t, name+" besides"); (second[0] == 'f') != (c.Spec.CIDRs[0][0] == 'f') {
			c.Spec.CIDRs = append(c.Spec.CIDRs, second)
		}
		c.Finalizers = rapid.SampledFrom([][]string{{query.RangeFinalizer}, {query.RangeFinalizer}, {"x", query.RangeFinalizer}, {"x"}, nil}).Draw(t, name+"'s finalizers")
		return c
	}
	own := made(oracletest.Owner)
	if len(own.Finalizers) > 0 && oracletest.Chance(t, 2, "deleted") {
		own.DeletionTimestamp = oracletest.Ptr(oracletest.Ago(t, 20, "when"))
	}
	own.Status.Conditions = rapid.SampledFrom([][]metav1.Condition{
		nil, {{Type: "Ready", Status: "True", Message: "Kubernetes Service CIDR is ready"}}, {{Type: "Ready", Status: "True", Message: "so"}},
		{{Type: "Other", Status: "True"}}, {{Type: "Ready", Status: "Unknown", Reason: "R"}},
		{{Type: "Ready", Status: "False", Reason: "Terminating", Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"}},
	}).Draw(t, "conditions")
	world := []runtime.Object{own}
	for i := range rapid.IntRange(0, 3).Draw(t, "others") {
		other := made(fmt.Sprint("other-", i))
		if len(other.Finalizers) > 0 && oracletest.Chance(t, 8, "other is deleted") {
			other.DeletionTimestamp = oracletest.Ptr(oracletest.Ago(t, 20, "when"))
		}
		world = append(world, other)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "addresses") { // each at another offset, 0 to 15
		a := &networkingv1.IPAddress{}
		family, last := "IPv4", 5*i+rapid.IntRange(0, 4+i/2).Draw(t, "address")
		if a.Name = fmt.Sprintf("10.0.0.%d", last); oracletest.Chance(t, 3, "IPv6") {
			family, a.Name = "IPv6", fmt.Sprintf("fd00::%x", last)
		}
		manager := rapid.SampledFrom([]string{query.AddressManager, query.AddressManager, query.AddressManager, "another"}).Draw(t, "manager")
		a.Labels = map[string]string{networkingv1.LabelManagedBy: manager, networkingv1.LabelIPAddressFamily: family}
		world = append(world, a)
	}
	return world
}
