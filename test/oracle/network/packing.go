package network

import (
	"encoding/json"
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
)

// packing is the slices of a world after the effects, each as a create, and the number of effects of each
// verb.
//
// Upstream iterates over maps: by chance it chooses the slice with room for each endpoint without a place,
// and it fills any of equally full slices. So the comparison covers which endpoints each slice kept; among
// slices that kept as many, how many each got; and for each list of ports which endpoints got a place. Names
// are not compared. Hints are given when all endpoints have places: if these are chance, they decide which
// slices are updated only for hints, and such updates are not counted.
func packing(world []runtime.Object, effects []effect.Effect) (out []effect.Effect) {
	were, hinted, placed := map[string]*discoveryv1.EndpointSlice{}, map[string]bool{}, false
	for _, s := range slicesOf(world) {
		were[s.Name] = s
	}
	state := func(format string, args ...any) {
		out = append(out, effect.Effect{Verb: effect.Create, Resource: "endpointslices", Body: fmt.Sprintf(format, args...)})
	}
	for name, s := range slicesAfter(world, effects) {
		ports := string(s.AddressType) + " " + listed(s.Ports)
		was := were[name]
		if was == nil || string(was.AddressType)+" "+listed(was.Ports) != ports {
			was = &discoveryv1.EndpointSlice{}
		}
		var kept, got []discoveryv1.Endpoint
		for _, e := range s.Endpoints {
			had := slices.ContainsFunc(was.Endpoints, func(o discoveryv1.Endpoint) bool {
				return o.TargetRef.Name == e.TargetRef.Name && slices.Equal(o.Addresses, e.Addresses) && ptr.Equal(o.Hostname, e.Hostname)
			})
			if had {
				kept = append(kept, e)
			} else {
				state("%s gets %s", ports, effect.JSON(e))
				got = append(got, e)
			}
		}
		if len(got) > 0 {
			exemption.Uses("any-place")
			placed = true
		}
		changed := listed(unhinted(kept)) != listed(unhinted(was.Endpoints)) || effect.JSON(s.Labels) != effect.JSON(was.Labels)
		if !changed && len(got) == 0 && listed(kept) != listed(was.Endpoints) {
			hinted[name] = true
		}
		group := fmt.Sprintf("%s, %d kept, changed: %t", ports, len(kept), changed)
		state("%s: keeps %s, owner %s, labels %s", group, listed(kept), effect.JSON(s.OwnerReferences), effect.JSON(s.Labels))
		state("%s: gets %d, notes %s", group, len(got), effect.JSON(s.Annotations))
	}
	for _, e := range effects {
		if placed && e.Verb == effect.Update && hinted[e.Name] {
			exemption.Uses("hints-by-chance")
			continue
		}
		if e.Verb != effect.Event {
			e = effect.Effect{Verb: effect.Patch, Resource: e.Resource, Name: "counted as " + e.Verb}
		}
		out = append(out, e)
	}
	return out
}

// slicesAfter are the slices of a world after effects, keyed by name; new ones get names.
func slicesAfter(world []runtime.Object, effects []effect.Effect) map[string]*discoveryv1.EndpointSlice {
	after := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range slicesOf(world) {
		after[s.Name] = s
	}
	for i, e := range effects {
		s, name := &discoveryv1.EndpointSlice{}, e.Name
		switch e.Verb {
		case effect.Remove:
			delete(after, name)
			continue
		case effect.Create:
			name = fmt.Sprint("new ", i)
		case effect.Update:
		default:
			continue
		}
		if err := json.Unmarshal([]byte(e.Body), s); err != nil {
			panic(err) // it came from JSON
		}
		after[name] = s
	}
	return after
}

// unhinted are endpoints without zone hints.
func unhinted(endpoints []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	all := slices.Clone(endpoints)
	for i := range all {
		all[i].Hints = nil
	}
	return all
}

// listed is a sorted list as text.
func listed[T any](all []T) string {
	lines := make([]string, 0, len(all))
	for _, item := range all {
		lines = append(lines, effect.JSON(item))
	}
	slices.Sort(lines)
	return effect.JSON(lines)
}
