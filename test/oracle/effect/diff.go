package effect

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Diff marks upstream's extra effects with "- " and ours with "+ ", one line for each; for an effect that
// both have with different bodies, it shows only the fields that differ. "" means that there is no
// difference.
func Diff(theirs, ours []Effect) string {
	theirs, ours = without(theirs, ours), without(ours, theirs)
	var page strings.Builder
	for _, e := range theirs {
		at := slices.IndexFunc(ours, func(o Effect) bool { return o.Head() == e.Head() && e.Verb == Update })
		if at < 0 {
			fmt.Fprintln(&page, "-", e)
			continue
		}
		fmt.Fprintln(&page, " ", e.Head())
		fields(&page, "", Tree(e.Body), Tree(ours[at].Body))
		ours = slices.Delete(ours, at, at+1)
	}
	for _, e := range ours {
		fmt.Fprintln(&page, "+", e)
	}
	return page.String()
}

// without is the effects that are more often in a than in b.
func without(a, b []Effect) []Effect {
	there := map[Effect]int{}
	for _, e := range b {
		there[e]++
	}
	var left []Effect
	for _, e := range a {
		if there[e] > 0 {
			there[e]--
			continue
		}
		left = append(left, e)
	}
	return left
}

func fields(page *strings.Builder, path string, theirs, ours any) {
	if reflect.DeepEqual(theirs, ours) {
		return
	}
	x, isMap := theirs.(map[string]any)
	y, both := ours.(map[string]any)
	if isMap && both {
		all := maps.Clone(x)
		maps.Copy(all, y)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fields(page, path+"."+name, x[name], y[name])
		}
		return
	}
	fmt.Fprintf(page, "-   %s: %s\n+   %s: %s\n", path, JSON(theirs), path, JSON(ours))
}

// Tree is a body as JSON, or, if it is none, as it is: the body of a patch or an Event.
func Tree(body string) (value any) {
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		return body // no JSON: the body of a patch or an Event
	}
	return value
}

// Missing are the lines that are more often in a than in b.
func Missing(a, b []string) []string {
	left := slices.Clone(b)
	var out []string
	for _, line := range a {
		if at := slices.Index(left, line); at >= 0 {
			left = slices.Delete(left, at, at+1)
			continue
		}
		out = append(out, line)
	}
	return out
}

// EqualSets shows the lines that only one of two lists has, each line once.
func EqualSets(theirs, ours []string) (diff string) {
	a, b := map[string]bool{}, map[string]bool{}
	for _, line := range theirs {
		a[line] = true
	}
	for _, line := range ours {
		b[line] = true
	}
	for _, line := range slices.Sorted(maps.Keys(a)) {
		if !b[line] {
			diff += "- " + line + "\n"
		}
	}
	for _, line := range slices.Sorted(maps.Keys(b)) {
		if !a[line] {
			diff += "+ " + line + "\n"
		}
	}
	return diff
}
