package oracle

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
)

// fairSliceEnds compares of slices that are alike but for what they show (whose they are, of
// which family and ports, and what they note) all that they show together, and how many they
// are: which endpoint is in which slice is chance, and so are the names of new ones. It leaves
// out:
//
//   - Everything, where upstream keeps the empty slice of an earlier service. What is done
//     where nothing is refused [fairSlices] compares.
//   - Which slice could not be written first.
//   - What there is, where several are to be written and one is refused for good: upstream
//     stops at it.
//   - What the slices show whose Endpoints are on their way out ([fairMirrors]).
func fairSliceEnds(rest Rest) func([]runtime.Object, Refusal, []Effect, []Effect) ([]Effect, []Effect) {
	return func(world []runtime.Object, r Refusal, theirs, ours []Effect) ([]Effect, []Effect) {
		ofPods := slices.ContainsFunc(rest.Kinds, func(k kinds.Kind) bool { return k.Name == kinds.Pods.Name })
		if ofPods && leftEmpty(world) != nil {
			Uses("left-empty")
			return nil, nil
		}
		theirs = lets("left-out-again", theirs, only(theirs, func(e Effect) bool {
			return slices.Contains(ours, e) || !says("TooManyAddressesToMirror")(e) && !says("InvalidIPAddress")(e)
		}))
		theirs, ours = lets("any-slice-refused", theirs, unnamedSlices(theirs)), unnamedSlices(ours)
		if r.Times > spentTries && rest.writes(world) > 1 {
			told := func(e Effect) bool { return e.Verb == event }
			return lets("other-slices-all-the-same", theirs, only(theirs, told)), only(ours, told)
		}
		if slices.ContainsFunc(world, leaving) {
			return lets("mirrors-that-leave", theirs, howManySlices(theirs)), howManySlices(ours)
		}
		return lets("any-place", theirs, together(theirs)), together(ours)
	}
}

// howManySlices are effects with the number of slices in the place of the slices.
func howManySlices(effects []Effect) []Effect {
	slice := func(e Effect) bool { return e.Resource == "endpointslices" }
	out := only(effects, func(e Effect) bool { return !slice(e) })
	return append(out, Effect{Verb: update, Resource: "endpointslices", Body: fmt.Sprint(len(effects)-len(out), " of them")})
}

// writes is how often our controller writes where nothing is refused.
func (c Rest) writes(world []runtime.Object) int {
	a, err := c.rested(copied(world), Refusal{})
	if err != nil {
		return 0
	}
	return len(a.Stage.Writes)
}

// aSlice is what a message says of the slice that it is about.
var aSlice = regexp.MustCompile(`(failed to|error) (update|delete|deleting) \S+ EndpointSlice`)

// unnamedSlices are effects without which slices Events are about; one about several is one
// about each.
func unnamedSlices(effects []Effect) (out []Effect) {
	for _, e := range effects {
		about, several, listed := strings.Cut(strings.TrimSuffix(e.Body, "]"), ": [")
		if e.Verb != event || !aSlice.MatchString(e.Body) {
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
	return unrepeated(out)
}

// together are the slices of some effects, those that are alike in one, and all other effects.
func together(effects []Effect) (out []Effect) {
	shown, count := map[string][]discoveryv1.Endpoint{}, map[string]int{}
	for _, e := range effects {
		if e.Resource != "endpointslices" {
			out = append(out, e)
			continue
		}
		s, tree := &discoveryv1.EndpointSlice{}, parsed([]byte(e.Body))
		delete(tree["metadata"].(map[string]any), "creationTimestamp")
		if err := json.Unmarshal([]byte(text(tree)), s); err != nil {
			panic(err) // it came from JSON
		}
		delete(s.Annotations, corev1.EndpointsLastChangeTriggerTime)
		Uses("remembered-times")
		notes, owners := text(s.Annotations), text(s.OwnerReferences)
		if len(s.Annotations) == 0 {
			notes = ""
		}
		key := fmt.Sprintf("%s %s %s %s %s", s.AddressType, listed(s.Ports), text(s.Labels), owners, notes)
		shown[key], count[key] = append(shown[key], s.Endpoints...), count[key]+1
	}
	for key, n := range count {
		out = append(out, Effect{Verb: update, Resource: "endpointslices", Name: key, Body: fmt.Sprintf("%d of them: %s", n, listed(shown[key]))})
	}
	slices.SortStableFunc(out, func(a, b Effect) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// overAnother tells whether upstream created a mirror under a name that it had given another.
func overAnother(writes []string) bool {
	if !slices.ContainsFunc(writes, another.MatchString) {
		return false
	}
	Uses("mirror-taken-twice")
	return true
}

// another is a create under a name that was not made for it.
var another = regexp.MustCompile(`create \S+ \S+-\d( |$)`)
