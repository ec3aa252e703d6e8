package endpointslicemirroring

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	controller = New(Config{Max: 3})
	now        = reconciletest.Now
	key        = events.Key{Namespace: "shop", Name: "db"}
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now, reconciletest.Content(2, applied),
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Slices = rapid.Permutation(v.Slices).Draw(t, "slices")
			return v
		}),
		reconciletest.Law[View]{Name: "true to what it shows", Holds: faithful})
}

// faithful checks that, when the controller has nothing to do, every address of the
// Endpoints is in one mirror of its family and ports, with its readiness, up to the
// maximum, and that the mirrors have no other address.
func faithful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if _, never := v.unwanted(); never || v.Endpoints.DeletionTimestamp != nil {
		return nil
	}
	v = applied(v, c.Decide(v, now), now)
	shown := map[string]int{}
	for _, slice := range v.Slices {
		if len(slice.Endpoints) > v.Max {
			return fmt.Errorf("a mirror has %d addresses", len(slice.Endpoints))
		}
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				shown[fmt.Sprint(slice.AddressType, *p.Port, e.Addresses[0], *e.Conditions.Ready)]++
			}
		}
	}
	there := 0
	for _, subset := range endpoint.Repacked(v.Endpoints.Subsets) {
		there += min(len(subset.Addresses)+len(subset.NotReadyAddresses), v.Max) * len(subset.Ports)
		for _, a := range subset.Addresses[:min(len(subset.Addresses), v.Max)] {
			for _, p := range subset.Ports {
				if shown[fmt.Sprint(familyOf(a.IP), p.Port, a.IP, true)] != 1 {
					return fmt.Errorf("%s on %d is not shown once: %v", a.IP, p.Port, shown)
				}
			}
		}
	}
	if len(shown) != there {
		return errors.New("something is shown that is not there")
	}
	return nil
}

func familyOf(ip string) discoveryv1.AddressType {
	if slices.Contains([]byte(ip), ':') {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

func endpoints(subsets ...corev1.EndpointSubset) *corev1.Endpoints {
	return &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "e", ResourceVersion: "5"}, Subsets: subsets}
}

func anyView(t *rapid.T) View {
	v := View{Max: 3, Endpoints: endpoints(), Service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}}
	maybe := func(what string, do func()) {
		if rapid.IntRange(0, 9).Draw(t, what) == 0 {
			do()
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "subsets") {
		v.Endpoints.Subsets = append(v.Endpoints.Subsets, anySubset(t))
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
		v.Slices = append(v.Slices, v.anySlice(t, i))
	}
	maybe("selector", func() { v.Service.Spec.Selector = map[string]string{"a": "b"} })
	maybe("no service", func() { v.Service = nil })
	maybe("labelled", func() { v.Endpoints.Labels = map[string]string{discoveryv1.LabelManagedBy: "another", "team": "a"} })
	maybe("annotated", func() { v.Endpoints.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "x", "a": "b"} })
	maybe("leader", func() { v.Endpoints.Annotations = map[string]string{election: "me"} })
	maybe("skipped", func() { v.Endpoints.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} })
	maybe("deleted", func() { reconciletest.Deleted[*corev1.Endpoints](now)(v.Endpoints) })
	maybe("none", func() { v.Endpoints = nil })
	return v
}

func anySubset(t *rapid.T) corev1.EndpointSubset {
	var s corev1.EndpointSubset
	for _, ip := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1", "fd00::2"}), 0, 5, rapid.ID).Draw(t, "ips") {
		a := corev1.EndpointAddress{IP: ip}
		if rapid.Bool().Draw(t, "ready") {
			s.Addresses = append(s.Addresses, a)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, a)
		}
	}
	for _, port := range rapid.SliceOfNDistinct(rapid.SampledFrom([]int32{80, 443}), 1, 2, rapid.ID).Draw(t, "ports") {
		s.Ports = append(s.Ports, corev1.EndpointPort{Name: fmt.Sprint(port), Port: port, Protocol: corev1.ProtocolTCP})
	}
	return s
}

// anySlice returns an older mirror.
func (v View) anySlice(t *rapid.T, i int) *discoveryv1.EndpointSlice {
	before := View{Max: v.Max, Endpoints: endpoints(anySubset(t))}
	slice := v.fresh(discoveryv1.AddressTypeIPv4, before.Endpoints.Subsets[0].Ports, nil)
	if all, _ := before.mirrors(); len(all) > 0 && rapid.Bool().Draw(t, "filled") {
		slice = all[len(all)-1]
	}
	slice.Name, slice.UID, slice.ResourceVersion = fmt.Sprintf("db-%d", i), types.UID(fmt.Sprint("s", i)), "9"
	if rapid.IntRange(0, 4).Draw(t, "of before") == 0 {
		slice.OwnerReferences[0].UID = "before"
	}
	return slice
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v.Slices = slices.Clone(v.Slices)
	for _, c := range d.Commands {
		if c.Verb == events.VerbRecord {
			continue
		}
		v.Slices = slices.DeleteFunc(v.Slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == c.Name })
		if c.Verb == events.VerbDelete {
			continue
		}
		next := &discoveryv1.EndpointSlice{}
		if err := json.Unmarshal(c.Body, next); err != nil {
			panic(err)
		}
		next.Name, next.UID, next.ResourceVersion = c.Name, types.UID("uid-"+c.Name), "10"
		v.Slices = append(v.Slices, next)
	}
	return v
}

// Addresses that cannot be mirrored are reported once, with a change.
func TestWhatIsLeftOutIsTold(t *testing.T) {
	var all []corev1.EndpointAddress
	for i := range 5 {
		all = append(all, corev1.EndpointAddress{IP: fmt.Sprintf("10.0.0.%d", i)})
	}
	all[1].IP = "nowhere"
	v := View{Max: 3, Endpoints: endpoints(corev1.EndpointSubset{Addresses: all, Ports: []corev1.EndpointPort{{Port: 80}}}), Service: &corev1.Service{}}
	d := decide(v, now)
	var said []string
	for _, c := range d.Commands {
		if c.OnApplied != nil {
			said = append(said, c.OnApplied.Reason+": "+c.OnApplied.Message)
		}
	}
	want := []string{"TooManyAddressesToMirror: A max of 3 addresses can be mirrored to EndpointSlices per Endpoints subset. 2 addresses were skipped"}
	if !slices.Equal(said, want) && (len(said) != 2 || said[1] != want[0]) {
		t.Errorf("the Events are %q", said)
	}
	figures := map[string]float64{}
	for _, f := range d.Figures {
		figures[f.Metric] += f.Value
	}
	for metric, want := range map[string]float64{addedPerSync: 3, skippedPerSync: 2, desired: 3, actualSlices: 1, changed: 1, removedPerSync: 0} {
		if figures[metric] != want {
			t.Errorf("%s is %v, want %v", metric, figures[metric], want)
		}
	}
	if d := decide(applied(v, d, now), now); len(d.Commands) > 0 {
		t.Errorf("and then it wants %d more: %s", len(d.Commands), d.Because)
	}
}

// Invalid addresses do not count towards the maximum.
func TestWhatIsNoAddress(t *testing.T) {
	v := View{Max: 2, Endpoints: endpoints(corev1.EndpointSubset{
		Addresses: []corev1.EndpointAddress{{IP: "x"}, {IP: "010.0.0.1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.2"}},
	})}
	wanted, left := v.mirrors()
	if len(wanted) != 1 || len(wanted[0].Endpoints) != 2 || wanted[0].Endpoints[0].Addresses[0] != "10.0.0.1" || left != (leftOut{1, 1}) {
		t.Errorf("the mirrors are %+v, and %+v are left out", wanted, left)
	}
}

func TestObserve(t *testing.T) {
	world := reconciletest.NewWorld(kinds.Endpoints.Kind, kinds.Services.Kind, kinds.EndpointSlices.Kind)
	if _, ok := controller.Observe(world, key); ok {
		t.Error("there is a view of nothing")
	}
	mirror := (View{Endpoints: endpoints()}).fresh(discoveryv1.AddressTypeIPv4, nil, nil)
	mirror.Name = "db-1"
	stranger, leaving := mirror.DeepCopy(), mirror.DeepCopy()
	stranger.Name, leaving.Name = "db-2", "db-3"
	stranger.Labels[discoveryv1.LabelManagedBy] = "another"
	reconciletest.Deleted[*discoveryv1.EndpointSlice](now)(leaving)
	world.Put(kinds.EndpointSlices.Kind, mirror, stranger, leaving)
	if v, ok := controller.Observe(world, key); !ok || len(v.Slices) != 1 || v.Slices[0] != mirror || v.Endpoints != nil {
		t.Errorf("of a mirror that shows nothing the view has %+v, found: %v", v, ok)
	}
	world.Put(kinds.Endpoints.Kind, endpoints()).Put(kinds.Services.Kind, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}})
	if v, _ := controller.Observe(world, key); v.Endpoints == nil || v.Service == nil || v.Max != 3 {
		t.Errorf("the view has %+v", v)
	}
	for what, keys := range map[string][]events.Key{
		"a slice":   world.Keys(controller, kinds.EndpointSlices.Kind, mirror, nil),
		"a service": world.Keys(controller, kinds.Services.Kind, nil, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}),
		"endpoints": world.Keys(controller, kinds.Endpoints.Kind, endpoints(), nil),
	} {
		if !slices.Equal(keys, []events.Key{key}) {
			t.Errorf("%s makes it the turn of %v", what, keys)
		}
	}
	if keys := world.Keys(controller, kinds.EndpointSlices.Kind, stranger, stranger); len(keys) > 0 {
		t.Errorf("a slice of another manager makes it the turn of %v", keys)
	}
}
