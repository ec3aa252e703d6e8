package network

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
)

// fairSliceEnds groups slices that are alike except for their endpoints (with the same owner, family, ports
// and annotations), and compares the endpoints of each group and the number of its slices: which endpoint is
// in which slice is chance, and so are the names of new ones. It leaves out:
//
//   - Everything, if upstream keeps the empty slice of an earlier service. [fairSlices]
//     compares that case without refusals.
//   - Which slice could not be written first.
//   - A refused update of the empty slice that a service without endpoints keeps: upstream writes it as it is if
//     it deletes other slices as well.
//   - The slices, if several must be written and one is refused for good: upstream stops
//     at that one.
//   - The content of slices whose Endpoints are being deleted ([fairMirrors]).
func fairSliceEnds(rest stage.Rest) func([]runtime.Object, stage.Refusal, []effect.Effect, []effect.Effect) ([]effect.Effect, []effect.Effect) {
	return func(world []runtime.Object, r stage.Refusal, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
		ofPods := slices.ContainsFunc(rest.Kinds, func(k kinds.Kind) bool { return k.Name == kinds.Pods.Name })
		if ofPods && leftEmpty(world) != nil {
			exemption.Uses("left-empty")
			return nil, nil
		}
		theirs = exemption.Lets("left-out-again", theirs, effect.Only(theirs, func(e effect.Effect) bool {
			return slices.Contains(ours, e) || !stage.Says("TooManyAddressesToMirror")(e) && !stage.Says("InvalidIPAddress")(e)
		}))
		theirs, ours = exemption.Lets("any-slice-refused", theirs, unnamedSlices(theirs)), unnamedSlices(ours)
		if ofPods && slices.ContainsFunc(slicesOf(world), emptySlice(world)) {
			theirs = exemption.Lets("update-without-change", theirs, effect.Only(theirs, func(e effect.Effect) bool {
				return slices.Contains(ours, e) || !stage.Says("cannot update a slice")(e)
			}))
		}
		if r.Times > stage.TriesUntilSpent && rest.Writes(world) > 1 {
			told := func(e effect.Effect) bool { return e.Verb == effect.Event }
			return exemption.Lets("other-slices-all-the-same", theirs, effect.Only(theirs, told)), effect.Only(ours, told)
		}
		if slices.ContainsFunc(world, leaving) {
			return exemption.Lets("mirrors-that-leave", theirs, howManySlices(theirs)), howManySlices(ours)
		}
		return exemption.Lets("any-place", theirs, together(theirs)), together(ours)
	}
}

// emptySlice reports whether a slice is the one of a service without endpoints.
func emptySlice(world []runtime.Object) func(*discoveryv1.EndpointSlice) bool {
	return func(s *discoveryv1.EndpointSlice) bool {
		return len(s.Endpoints)+len(s.Ports) == 0 && s.OwnerReferences[0].UID == uidOf(world, s.OwnerReferences[0].Name)
	}
}

// howManySlices are effects with the number of slices in place of the slices.
func howManySlices(effects []effect.Effect) []effect.Effect {
	slice := func(e effect.Effect) bool { return e.Resource == "endpointslices" }
	out := effect.Only(effects, func(e effect.Effect) bool { return !slice(e) })
	return append(out, effect.Effect{Verb: effect.Update, Resource: "endpointslices", Body: fmt.Sprint(len(effects)-len(out), " of them")})
}

// aSlice matches the part of a message that names the slice.
var aSlice = regexp.MustCompile(`(failed to|error) (update|delete|deleting) \S+ EndpointSlice`)

// unnamedSlices are effects whose Events do not name slices; an Event about several slices becomes one for
// each.
func unnamedSlices(effects []effect.Effect) (out []effect.Effect) {
	for _, e := range effects {
		about, several, listed := strings.Cut(strings.TrimSuffix(e.Body, "]"), ": [")
		if e.Verb != effect.Event || !aSlice.MatchString(e.Body) {
			out = append(out, e)
			continue
		}
		messages := []string{e.Body}
		if listed {
			messages = strings.Split(several, ", ")
			for i := range messages {
				messages[i] = about + ": " + messages[i]
			}
		}
		for _, message := range messages {
			e.Body = strings.ReplaceAll(aSlice.ReplaceAllString(message, "cannot $2 a slice"), "deleting", "delete")
			out = append(out, e)
		}
	}
	return effect.Unique(out)
}

// together are the effects with groups of similar slices merged into one.
func together(effects []effect.Effect) (out []effect.Effect) {
	shown, count := map[string][]discoveryv1.Endpoint{}, map[string]int{}
	for _, e := range effects {
		if e.Resource != "endpointslices" {
			out = append(out, e)
			continue
		}
		s, tree := &discoveryv1.EndpointSlice{}, effect.Parse([]byte(e.Body))
		delete(tree["metadata"].(map[string]any), "creationTimestamp")
		if err := json.Unmarshal([]byte(effect.JSON(tree)), s); err != nil {
			panic(err) // it came from JSON
		}
		delete(s.Annotations, corev1.EndpointsLastChangeTriggerTime)
		exemption.Uses("remembered-times")
		notes, owners := effect.JSON(s.Annotations), effect.JSON(s.OwnerReferences)
		if len(s.Annotations) == 0 {
			notes = ""
		}
		key := fmt.Sprintf("%s %s %s %s %s", s.AddressType, listed(s.Ports), effect.JSON(s.Labels), owners, notes)
		shown[key], count[key] = append(shown[key], s.Endpoints...), count[key]+1
	}
	for key, n := range count {
		out = append(out, effect.Effect{Verb: effect.Update, Resource: "endpointslices", Name: key, Body: fmt.Sprintf("%d of them: %s", n, listed(shown[key]))})
	}
	slices.SortStableFunc(out, func(a, b effect.Effect) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// overAnother reports whether upstream created a mirror under the name of another one.
func overAnother(writes []string) bool {
	if !slices.ContainsFunc(writes, another.MatchString) {
		return false
	}
	exemption.Uses("mirror-taken-twice")
	return true
}

// another matches a create under a name that was not generated for it.
var another = regexp.MustCompile(`create \S+ \S+-\d( |$)`)

// EndpointsAtRest runs undisturbed on an API server that refuses some of its writes.
var EndpointsAtRest = stage.Rest{Theirs: Endpoints.Theirs, Ours: Endpoints.Ours, Kinds: stage.Served(kinds.Services.Kind, kinds.Pods.Kind, kinds.Endpoints.Kind), Lines: fairEndpointsEnds}

// EndpointSliceAtRest runs undisturbed on an API server that refuses some of its writes.
var EndpointSliceAtRest = fairAmongSlices(stage.Rest{Theirs: EndpointSlice.Theirs, Ours: EndpointSlice.Ours, Kinds: stage.Served(kinds.Services.Kind, kinds.Nodes.Kind, kinds.Pods.Kind, kinds.EndpointSlices.Kind)})

// MirrorsAtRest runs undisturbed on an API server that refuses some of its writes.
var MirrorsAtRest = fairAmongSlices(stage.Rest{Theirs: EndpointSliceMirroring.Theirs, Ours: EndpointSliceMirroring.Ours, Kinds: stage.Served(kinds.Services.Kind, kinds.Endpoints.Kind, kinds.EndpointSlices.Kind), Chance: overAnother})

// ServiceCIDRsAtRest runs undisturbed on an API server that refuses some of its writes.
var ServiceCIDRsAtRest = stage.Rest{Theirs: ServiceCIDRs.Theirs, Ours: ServiceCIDRs.Ours, Kinds: stage.Served(kinds.ServiceCIDRs.Kind, kinds.IPAddresses.Kind), Door: stage.Look}

// fairAmongSlices makes [fairSliceEnds] compare the ends of controllers of slices.
func fairAmongSlices(rest stage.Rest) stage.Rest {
	rest.Fair = fairSliceEnds(rest)
	return rest
}

// fairEndpointsEnds leaves out the trigger time of a change: upstream remembers the time of a change that it
// has seen and not published.
func fairEndpointsEnds(_ stage.Refusal, theirs, ours []string) ([]string, []string) {
	return exemption.LetLines("remembered-times", theirs, sinceEver), exemption.Relined(ours, sinceEver)
}

// sinceNote matches the trigger time annotation of published objects.
var sinceNote = regexp.MustCompile(`("annotations":\{)?"` + regexp.QuoteMeta(corev1.EndpointsLastChangeTriggerTime) + `":"[^"]*"(\},)?,?`)

func sinceEver(line string) string { return sinceNote.ReplaceAllString(line, "") }
