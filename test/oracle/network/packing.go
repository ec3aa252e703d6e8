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
	before, after := map[string]*discoveryv1.EndpointSlice{}, map[string]packed{}
	for _, s := range slicesOf(world) {
		before[s.Name] = s
	}
	placed := false
	for name, s := range slicesAfter(world, effects) {
		after[name] = pack(before[name], s)
		placed = placed || len(after[name].got) > 0
	}
	state := func(format string, args ...any) {
		out = append(out, effect.Effect{Verb: effect.Create, Resource: "endpointslices", Body: fmt.Sprintf(format, args...)})
	}
	if placed {
		exemption.Uses("any-place")
	}
	for name, s := range after {
		notes := s.Annotations
		if placed && s.hinted {
			notes = before[name].Annotations
		}
		for _, e := range s.got {
			state("%s gets %s", s.ports, effect.JSON(e))
		}
		group := fmt.Sprintf("%s, %d kept, changed: %t", s.ports, len(s.kept), s.changed)
		state("%s: keeps %s, owner %s, labels %s", group, listed(s.kept), effect.JSON(s.OwnerReferences), effect.JSON(s.Labels))
		state("%s: gets %d, notes %s", group, len(s.got), effect.JSON(notes))
	}
	for _, e := range effects {
		if placed && e.Verb == effect.Update && after[e.Name].hinted {
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

// packed is a slice after the effects.
type packed struct {
	*discoveryv1.EndpointSlice
	ports     string                 // its family and ports
	kept, got []discoveryv1.Endpoint // those that it had before with these ports, and the others
	changed   bool                   // it had no endpoints with these ports, or they or its labels are others now, apart from hints
	hinted    bool                   // only hints have changed
}

// pack compares a slice with the one before it; nil if it is new.
func pack(before, s *discoveryv1.EndpointSlice) packed {
	p := packed{EndpointSlice: s, ports: string(s.AddressType) + " " + listed(s.Ports)}
	var had []discoveryv1.Endpoint
	if before != nil && string(before.AddressType)+" "+listed(before.Ports) == p.ports {
		had = before.Endpoints
	}
	for _, e := range s.Endpoints {
		if slices.ContainsFunc(had, func(o discoveryv1.Endpoint) bool {
			return o.TargetRef.Name == e.TargetRef.Name && slices.Equal(o.Addresses, e.Addresses) && ptr.Equal(o.Hostname, e.Hostname)
		}) {
			p.kept = append(p.kept, e)
		} else {
			p.got = append(p.got, e)
		}
	}
	p.changed = len(had) == 0 || listed(unhinted(p.kept)) != listed(unhinted(had)) || effect.JSON(s.Labels) != effect.JSON(before.Labels)
	p.hinted = !p.changed && len(p.got) == 0 && listed(p.kept) != listed(had)
	return p
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
