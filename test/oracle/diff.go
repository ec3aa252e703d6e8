package oracle

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
		at := slices.IndexFunc(ours, func(o Effect) bool { return o.head() == e.head() && e.Verb == update })
		if at < 0 {
			fmt.Fprintln(&page, "-", e)
			continue
		}
		fmt.Fprintln(&page, " ", e.head())
		fields(&page, "", tree(e.Body), tree(ours[at].Body))
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
	fmt.Fprintf(page, "-   %s: %s\n+   %s: %s\n", path, text(theirs), path, text(ours))
}

func tree(body string) (value any) {
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		return body // no JSON: the body of a patch or an Event
	}
	return value
}
