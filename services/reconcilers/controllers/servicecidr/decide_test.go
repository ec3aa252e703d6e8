package servicecidr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now, reconciletest.Content(2, applied),
		reconciletest.Law[View]{Name: "sure", Holds: sure}, reconciletest.Law[View]{Name: "truthful", Holds: truthful})
}

// anyView returns a ServiceCIDR that may be deleted, and needed.
func anyView(t *rapid.T) View {
	v := View{ServiceCIDR: serviceCIDR("a", "10.0.0.0/24")}
	v.ServiceCIDR.Finalizers = rapid.SampledFrom([][]string{nil, {query.RangeFinalizer}, {"x", query.RangeFinalizer}, {"x"}}).Draw(t, "finalizers")
	for _, c := range rapid.SampledFrom([][]metav1.Condition{nil, {ready}, {terminating}, {{Status: "Unknown"}}}).Draw(t, "said") {
		c.Type, c.LastTransitionTime = networkingv1.ServiceCIDRConditionReady, metav1.NewTime(now.Add(-time.Hour))
		v.ServiceCIDR.Status.Conditions = append(v.ServiceCIDR.Status.Conditions, c)
	}
	if rapid.Bool().Draw(t, "deleted") {
		ago := time.Duration(rapid.IntRange(-1, 20).Draw(t, "seconds ago")) * time.Second
		reconciletest.Deleted[*networkingv1.ServiceCIDR](now.Add(-ago))(v.ServiceCIDR)
		v.Address = rapid.SampledFrom([]string{"", "10.0.0.7"}).Draw(t, "address")
	}
	return v
}

// applied returns the view after a decision was carried out.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	next := View{ServiceCIDR: v.ServiceCIDR.DeepCopy(), Address: v.Address}
	for _, c := range d.Commands {
		var body struct {
			Metadata struct {
				Finalizers []string
				Removed    []string `json:"$deleteFromPrimitiveList/finalizers"`
			}
			Status networkingv1.ServiceCIDRStatus
		}
		if err := json.Unmarshal(c.Body, &body); err != nil {
			panic(err)
		}
		for _, said := range body.Status.Conditions {
			apimeta.SetStatusCondition(&next.ServiceCIDR.Status.Conditions, said)
		}
		gone := func(f string) bool { return slices.Contains(body.Metadata.Removed, f) }
		next.ServiceCIDR.Finalizers = slices.DeleteFunc(append(next.ServiceCIDR.Finalizers, body.Metadata.Finalizers...), gone)
	}
	return next
}

// sure: the finalizer is removed only from a ServiceCIDR that was deleted ten seconds ago
// and that no seen address needs, under the condition that no address needs it.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if !strings.Contains(string(command.Body), "deleteFromPrimitiveList") {
			continue
		}
		at := v.ServiceCIDR.DeletionTimestamp
		switch {
		case at == nil || now.Sub(at.Time) < 10*time.Second:
			return fmt.Errorf("it is let go, deleted at %v", at)
		case v.Address != "":
			return errors.New("it is let go, and an address needs it")
		case command.If == nil || !command.If.Unused:
			return errors.New("it is let go, and the writer does not look")
		}
	}
	return nil
}

// truthful: a written status says Ready exactly if the ServiceCIDR is not deleted, and not Ready
// only while an address needs it.
func truthful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Subresource != "status" {
			continue
		}
		said := applied(v, reconcile.Decision{Commands: []events.Command{command}}, now).ServiceCIDR.Status.Conditions
		switch is := apimeta.IsStatusConditionTrue(said, "Ready"); {
		case is != (v.ServiceCIDR.DeletionTimestamp == nil):
			return fmt.Errorf("it says that it is ready: %t", is)
		case !is && v.Address == "":
			return errors.New("it says that addresses need it, and none does")
		case is != (command.OnFailed != nil):
			return errors.New("an Event is about another condition than that it is ready")
		}
	}
	return nil
}

func serviceCIDR(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Finalizers: []string{query.RangeFinalizer}},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
	}
}

func deleted(c *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDR {
	reconciletest.Deleted[*networkingv1.ServiceCIDR](now)(c)
	return c
}

func address(name, manager string) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{networkingv1.LabelManagedBy: manager}}}
}

func TestWhatNeedsADeletedServiceCIDR(t *testing.T) {
	a := deleted(serviceCIDR("a", "10.0.0.0/24", "fd00::/112"))
	unguarded := serviceCIDR("b", "10.0.0.0/16")
	unguarded.Finalizers = nil
	for what, c := range map[string]struct {
		own     *networkingv1.ServiceCIDR
		others  []*networkingv1.ServiceCIDR
		address *networkingv1.IPAddress
		needs   bool
	}{
		"an address in it":                 {a, nil, address("10.0.0.7", query.AddressManager), true},
		"one of its other family":          {a, nil, address("fd00::7", query.AddressManager), true},
		"one in another, too":              {a, []*networkingv1.ServiceCIDR{serviceCIDR("b", "10.0.0.0/16")}, address("10.0.0.7", query.AddressManager), false},
		"one in a smaller one, too":        {a, []*networkingv1.ServiceCIDR{serviceCIDR("b", "10.0.0.0/29")}, address("10.0.0.6", query.AddressManager), false},
		"another is deleted, too":          {a, []*networkingv1.ServiceCIDR{deleted(serviceCIDR("b", "10.0.0.0/16"))}, address("10.0.0.7", query.AddressManager), true},
		"another may go at any time":       {a, []*networkingv1.ServiceCIDR{unguarded}, address("10.0.0.7", query.AddressManager), true},
		"another is elsewhere":             {a, []*networkingv1.ServiceCIDR{serviceCIDR("b", "10.0.1.0/24")}, address("10.0.0.7", query.AddressManager), true},
		"an address of another manager":    {a, nil, address("10.0.0.7", "another"), false},
		"an address elsewhere":             {a, nil, address("10.0.1.7", query.AddressManager), false},
		"it is not deleted":                {serviceCIDR("a", "10.0.0.0/24"), nil, address("10.0.0.7", query.AddressManager), false},
		"the address of its network":       {a, nil, address("10.0.0.0", query.AddressManager), false},
		"its broadcast address":            {a, nil, address("10.0.0.255", query.AddressManager), false},
		"the broadcast address of another": {a, []*networkingv1.ServiceCIDR{serviceCIDR("b", "10.0.0.0/29")}, address("10.0.0.7", query.AddressManager), true},
	} {
		world := reconciletest.NewWorld(kinds.IPAddresses.Kind).Put(kinds.ServiceCIDRs.Kind, c.own).Put(kinds.IPAddresses.Kind, c.address)
		for _, other := range c.others {
			world.Put(kinds.ServiceCIDRs.Kind, other)
		}
		if v, ok := observe(world, events.Key{Name: "a"}); !ok || (v.Address == c.address.Name) != c.needs {
			t.Errorf("%s: it sees %+v, %t", what, v, ok)
		}
	}
	if _, ok := observe(reconciletest.NewWorld(), events.Key{Name: "a"}); ok {
		t.Error("observe finds a ServiceCIDR that is not there")
	}
}

// The keys to which a change of a ServiceCIDR, or of an address, maps.
func TestKeys(t *testing.T) {
	world := reconciletest.NewWorld(kinds.IPAddresses.Kind)
	for _, c := range []*networkingv1.ServiceCIDR{
		serviceCIDR("a", "10.0.0.0/16"), deleted(serviceCIDR("b", "10.0.0.0/24")), deleted(serviceCIDR("c", "10.0.1.0/24")), serviceCIDR("d", "fd00::/112"),
	} {
		world.Put(kinds.ServiceCIDRs.Kind, c)
	}
	named := func(keys []events.Key) (text string) {
		for _, k := range keys {
			text += k.Name
		}
		return text
	}
	for cidr, want := range map[string]string{"10.0.0.0/8": "xabc", "10.0.1.0/25": "xac", "10.0.2.0/24": "xa", "fd00::/120": "xd", "11.0.0.0/8": "x"} {
		c := serviceCIDR("x", cidr)
		if got := named(world.Keys(Controller, kinds.ServiceCIDRs.Kind, nil, c)); got != want {
			t.Errorf("%s comes: it is the turn of %s, want %s", cidr, got, want)
		}
		if got := named(world.Keys(Controller, kinds.ServiceCIDRs.Kind, c, nil)); got != want {
			t.Errorf("%s goes: it is the turn of %s, want %s", cidr, got, want)
		}
		if got := named(world.Keys(Controller, kinds.ServiceCIDRs.Kind, c, c)); got != want {
			t.Errorf("%s changes: it is the turn of %s, want %s", cidr, got, want)
		}
	}
	for a, want := range map[string]string{"10.0.0.7": "b", "10.0.1.7": "c", "10.0.2.7": "", "10.0.0.0": ""} {
		came, ours := address(a, query.AddressManager), address(a, "another")
		if got := named(world.Keys(Controller, kinds.IPAddresses.Kind, nil, came)); got != want {
			t.Errorf("%s comes: it is the turn of %s, want %s", a, got, want)
		}
		if got := named(world.Keys(Controller, kinds.IPAddresses.Kind, came, nil)); got != want {
			t.Errorf("%s goes: it is the turn of %s, want %s", a, got, want)
		}
		if got := named(world.Keys(Controller, kinds.IPAddresses.Kind, nil, ours)); got != "" {
			t.Errorf("%s comes, of another manager: it is the turn of %s", a, got)
		}
	}
}
