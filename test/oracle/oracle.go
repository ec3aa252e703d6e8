// Package oracle compares our decisions with those of upstream's own
// controllers, which run here on a fake client in virtual time.
//
// Each comparison is one question: both see the same random but possible state of the cluster. Upstream's
// controller sees a frozen world: its writes are recorded and acknowledged but never come back, so that the
// record is exactly one sync. Ours makes one decision. Both are converted to one form ([Effect]) and must be
// equal.
//
// Each difference that the comparison leaves out, or that no world has, has a name in [Exemptions], and a
// comment where it is left out.
package oracle

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Effect is one write to the cluster, in the common form of both sides.
type Effect struct {
	Verb     string
	Resource string // with subresource: "deployments/status"
	Name     string // empty for created pods, whose names may differ
	Body     string // canonical JSON; "Type Reason Message" for an Event
}

// The verbs of effects.
const (
	create = "create"
	update = "update"
	patch  = "patch"
	remove = "delete"
	event  = "event"
)

// String formats an effect on one line.
func (e Effect) String() string {
	return strings.TrimSpace(strings.Join([]string{e.Verb, e.Resource, e.Name, e.Body}, " "))
}

func (e Effect) head() string { return e.Verb + " " + e.Resource + " " + e.Name }

// Normal sorts effects and merges several updates of one object into the last, which contains the earlier
// ones: upstream may write an object two or three times in a sync, ours writes it once. So two Events about
// steps of one set become one about both.
func Normal(effects []Effect) []Effect {
	effects = lets("scaled-in-one-event", effects, joined(effects))
	last := map[string]int{}
	for i, e := range effects {
		if e.Verb == update {
			last[e.head()] = i
		}
	}
	kept := make([]Effect, 0, len(effects))
	for i, e := range effects {
		if e.Verb != update || last[e.head()] == i {
			kept = append(kept, e)
		} else {
			Uses("one-update")
		}
	}
	slices.SortStableFunc(kept, func(a, b Effect) int { return strings.Compare(a.String(), b.String()) })
	return kept
}

// joined merges "from 3 to 2" and "from 2 to 0" into one Event.
func joined(effects []Effect) []Effect {
	var out []Effect
	for _, e := range effects {
		what, to, scaled := strings.Cut(e.Body, " to ")
		at := -1
		if scaled && e.Verb == event {
			what, from, _ := strings.Cut(what, " from ")
			at = slices.IndexFunc(out, func(was Effect) bool {
				return was.Verb == event && was.Name == e.Name &&
					strings.HasPrefix(was.Body, what+" from ") && strings.HasSuffix(was.Body, " to "+from)
			})
		}
		if at < 0 {
			out = append(out, e)
			continue
		}
		before, _, _ := strings.Cut(out[at].Body, " to ")
		out[at].Body = before + " to " + to
	}
	return out
}

// removed is a delete with its grace period, its propagation and its preconditions.
func removed(resource, name string, how metav1.DeleteOptions) Effect {
	var body []string
	if p := how.PropagationPolicy; p != nil {
		body = append(body, string(*p))
	}
	if how.GracePeriodSeconds != nil {
		body = append(body, fmt.Sprintf("grace %d", *how.GracePeriodSeconds))
	}
	if c := how.Preconditions; c != nil && c.UID != nil {
		body = append(body, fmt.Sprintf("uid %s", *c.UID))
	}
	if c := how.Preconditions; c != nil && c.ResourceVersion != nil {
		body = append(body, "version "+*c.ResourceVersion)
	}
	return Effect{Verb: remove, Resource: resource, Name: name, Body: strings.Join(body, " ")}
}

// conditions matches the preconditions of a delete.
var conditions = regexp.MustCompile(` ?\b(uid|version) \S+`)

// freer removes preconditions of our deletes that upstream's do not have. All of ours require the uid, so
// that none hits another object of the same name, and some also the version; a precondition of upstream's
// must be in ours.
func freer(theirs, ours []Effect) []Effect {
	asked := map[string]bool{}
	for _, e := range theirs {
		for _, c := range conditions.FindAllString(e.Body, -1) {
			asked[e.head()+strings.TrimSpace(c)] = e.Verb == remove
		}
	}
	return lets("delete-conditions", ours, rewritten(ours, func(e Effect) Effect {
		if e.Verb == remove {
			e.Body = strings.TrimSpace(conditions.ReplaceAllStringFunc(e.Body, func(c string) string {
				if asked[e.head()+strings.TrimSpace(c)] {
					return c
				}
				return ""
			}))
		}
		return e
	}))
}

// told is an Event about an object. Names of created pods are cut to the owner's name, because their suffixes
// are random in upstream and derived in ours.
func told(about, level, reason, message string) Effect {
	if before, pod, ok := strings.Cut(message, "Created pod: "); ok {
		message = before + "Created pod: " + pod[:strings.LastIndex(pod, "-")+1]
	}
	return Effect{Verb: event, Resource: "events", Name: about, Body: level + " " + reason + " " + message}
}

// patched is a patch of an object.
func patched(resource, name string, how types.PatchType, body []byte) Effect {
	return Effect{Verb: patch, Resource: resource, Name: name, Body: string(how) + " " + canonical(body)}
}

// created is the create of an object. A pod has no name, except for a StatefulSet, in which the name is also
// a label.
func created(resource, namespace, name string, body []byte) Effect {
	tree := parsed(body)
	meta, _ := tree["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		tree["metadata"] = meta
	}
	if resource == "pods" {
		Uses("any-name")
		name = ""
	}
	meta["name"], meta["namespace"] = name, namespace
	return Effect{Verb: create, Resource: resource, Name: name, Body: text(said(tree))}
}

// updated is an update of an object, or of its status. The API server takes the status only from updates of
// the status. The version must have been checked before: upstream's may be that of its own last update.
func updated(resource, name string, body []byte) Effect {
	tree := parsed(body)
	if meta, ok := tree["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
	}
	if !strings.HasSuffix(resource, "/status") {
		delete(tree, "status")
	}
	return Effect{Verb: update, Resource: resource, Name: name, Body: text(said(tree))}
}

// canonical is JSON in one form: sorted, without empty values.
func canonical(body []byte) string { return text(said(parsed(body))) }

func parsed(body []byte) map[string]any {
	tree := map[string]any{}
	if err := json.Unmarshal(body, &tree); err != nil {
		panic(fmt.Sprintf("an effect that is no JSON object: %v: %s", err, body))
	}
	delete(tree, "kind") // clients omit the type in requests
	delete(tree, "apiVersion")
	return tree
}

func text(tree any) string {
	out, err := json.Marshal(tree)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(out)
}

// said drops values that JSON can omit or write as empty: nulls, empty strings and empty maps.
func said(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, item := range v {
			if item = said(item); item != nil {
				out[key] = item
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		for i := range v {
			v[i] = said(v[i])
		}
	case string:
		if v == "" {
			return nil
		}
	}
	return value
}
