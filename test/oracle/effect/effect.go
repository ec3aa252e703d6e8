package effect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/test/oracle/exemption"
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
	Create = "create"
	Update = "update"
	Patch  = "patch"
	Remove = "delete"
	Event  = "event"
)

// String formats an effect on one line.
func (e Effect) String() string {
	return strings.TrimSpace(strings.Join([]string{e.Verb, e.Resource, e.Name, e.Body}, " "))
}

// Head is the effect without its body.
func (e Effect) Head() string { return e.Verb + " " + e.Resource + " " + e.Name }

// Normal sorts effects and merges several updates of one object into the last, which contains the earlier
// ones: upstream may write an object two or three times in a sync, ours writes it once. So two Events about
// steps of one set become one about both.
func Normal(effects []Effect) []Effect {
	effects = exemption.Lets("scaled-in-one-event", effects, Joined(effects))
	last := map[string]int{}
	for i, e := range effects {
		if e.Verb == Update {
			last[e.Head()] = i
		}
	}
	kept := make([]Effect, 0, len(effects))
	for i, e := range effects {
		if e.Verb != Update || last[e.Head()] == i {
			kept = append(kept, e)
		} else {
			exemption.Uses("one-update")
		}
	}
	slices.SortStableFunc(kept, func(a, b Effect) int { return strings.Compare(a.String(), b.String()) })
	return kept
}

// Joined merges "from 3 to 2" and "from 2 to 0" into one Event.
func Joined(effects []Effect) []Effect {
	var out []Effect
	for _, e := range effects {
		what, to, scaled := strings.Cut(e.Body, " to ")
		at := -1
		if scaled && e.Verb == Event {
			what, from, _ := strings.Cut(what, " from ")
			at = slices.IndexFunc(out, func(was Effect) bool {
				return was.Verb == Event && was.Name == e.Name &&
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

// Removed is a delete with its grace period, its propagation and its preconditions.
func Removed(resource, name string, how metav1.DeleteOptions) Effect {
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
	return Effect{Verb: Remove, Resource: resource, Name: name, Body: strings.Join(body, " ")}
}

// conditions matches the preconditions of a delete.
var conditions = regexp.MustCompile(` ?\b(uid|version) \S+`)

// WithoutExtraConditions removes preconditions of our deletes that upstream's do not have. All of ours require the uid, so
// that none hits another object of the same name, and some also the version; a precondition of upstream's
// must be in ours.
func WithoutExtraConditions(theirs, ours []Effect) []Effect {
	asked := map[string]bool{}
	for _, e := range theirs {
		for _, c := range conditions.FindAllString(e.Body, -1) {
			asked[e.Head()+strings.TrimSpace(c)] = e.Verb == Remove
		}
	}
	return exemption.Lets("delete-conditions", ours, Rewritten(ours, func(e Effect) Effect {
		if e.Verb == Remove {
			e.Body = strings.TrimSpace(conditions.ReplaceAllStringFunc(e.Body, func(c string) string {
				if asked[e.Head()+strings.TrimSpace(c)] {
					return c
				}
				return ""
			}))
		}
		return e
	}))
}

// Told is an Event about an object. Names of created pods are cut to the owner's name, because their suffixes
// are random in upstream and derived in ours.
func Told(about, level, reason, message string) Effect {
	if before, pod, ok := strings.Cut(message, "Created pod: "); ok {
		message = before + "Created pod: " + pod[:strings.LastIndex(pod, "-")+1]
	}
	return Effect{Verb: Event, Resource: "events", Name: about, Body: level + " " + reason + " " + message}
}

// Patched is a patch of an object.
func Patched(resource, name string, how types.PatchType, body []byte) Effect {
	return Effect{Verb: Patch, Resource: resource, Name: name, Body: string(how) + " " + JSON(Parse(body))}
}

// Created is the create of an object. A pod has no name, except for a StatefulSet, in which the name is also
// a label.
func Created(resource, namespace, name string, body []byte) Effect {
	tree := Parse(body)
	meta, _ := tree["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		tree["metadata"] = meta
	}
	if resource == "pods" {
		exemption.Uses("any-name")
		name = ""
	}
	meta["name"], meta["namespace"] = name, namespace
	return Effect{Verb: Create, Resource: resource, Name: name, Body: JSON(NonEmpty(tree))}
}

// Updated is an update of an object, or of its status. The API server takes the status only from updates of
// the status. The version must have been checked before: upstream's may be that of its own last update.
func Updated(resource, name string, body []byte) Effect {
	tree := Parse(body)
	if meta, ok := tree["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
	}
	if !strings.HasSuffix(resource, "/status") {
		delete(tree, "status")
	}
	return Effect{Verb: Update, Resource: resource, Name: name, Body: JSON(NonEmpty(tree))}
}

// Unique removes repeated effects.
func Unique(effects []Effect) []Effect {
	var out []Effect
	for _, e := range effects {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// Rewritten returns the effects as another function makes them.
func Rewritten(effects []Effect, as func(Effect) Effect) []Effect {
	out := make([]Effect, len(effects))
	for i, e := range effects {
		out[i] = as(e)
	}
	return out
}

// WithoutUID is the effect of a patch without the uid in its metadata, with which ours makes sure that it is
// the same object, and without an empty list of rules, which upstream does not send.
func WithoutUID(e Effect) Effect {
	how, body, _ := strings.Cut(e.Body, " ")
	tree := Parse([]byte(body))
	if meta, ok := tree["metadata"].(map[string]any); ok {
		delete(meta, "uid")
	}
	if rules, ok := tree["rules"].([]any); ok && len(rules) == 0 {
		delete(tree, "rules")
	}
	e.Body = how + " " + JSON(NonEmpty(tree))
	return e
}

// Only returns the effects of which is is true.
func Only(effects []Effect, is func(Effect) bool) []Effect {
	return slices.DeleteFunc(slices.Clone(effects), func(e Effect) bool { return !is(e) })
}
