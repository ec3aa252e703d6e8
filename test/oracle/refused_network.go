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

// fairSliceEnds groups slices that are alike except for their endpoints (with the same owner, family, ports
// and annotations), and compares the endpoints of each group and the number of its slices: which endpoint is
// in which slice is chance, and so are the names of new ones. It leaves out:
//
//   - Everything, if upstream keeps the empty slice of an earlier service. [fairSlices]
//     compares that case without refusals.
//   - Which slice could not be written first.
//   - The slices, if several must be written and one is refused for good: upstream stops
//     at that one.
//   - The content of slices whose Endpoints are being deleted ([fairMirrors]).
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

// howManySlices are effects with the number of slices in place of the slices.
func howManySlices(effects []Effect) []Effect {
	slice := func(e Effect) bool { return e.Resource == "endpointslices" }
	out := only(effects, func(e Effect) bool { return !slice(e) })
	return append(out, Effect{Verb: update, Resource: "endpointslices", Body: fmt.Sprint(len(effects)-len(out), " of them")})
}

// writes is how often our controller writes without refusals.
func (c Rest) writes(world []runtime.Object) int {
	a, err := c.rested(copied(world), Refusal{})
	if err != nil {
		return 0
	}
	return len(a.Stage.Writes)
}

// aSlice matches the part of a message that names the slice.
var aSlice = regexp.MustCompile(`(failed to|error) (update|delete|deleting) \S+ EndpointSlice`)

// unnamedSlices are effects whose Events do not name slices; an Event about several slices becomes one for
// each.
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

// together are the effects with groups of similar slices merged into one.
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

// overAnother reports whether upstream created a mirror under the name of another one.
func overAnother(writes []string) bool {
	if !slices.ContainsFunc(writes, another.MatchString) {
		return false
	}
	Uses("mirror-taken-twice")
	return true
}

// another matches a create under a name that was not generated for it.
var another = regexp.MustCompile(`create \S+ \S+-\d( |$)`)
