package plan

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// hostile has texts that are no path segment, or that lead to another path.
var hostile = []string{
	"..", ".", "/", "a/b", "../../kube-system/secrets/root", "%2f", "a%2e%2e", "",
}

// addressed returns a command with a text in one of the fields that make its path.
func addressed(verb events.Verb, field, text string) events.Command {
	c := events.Command{
		Verb: verb, Kind: "widgets.example.com", Version: "v1", Namespace: "ns", Name: "a", PatchType: "application/merge-patch+json",
		Body: json.RawMessage(`{}`), If: &events.If{UID: "u", Alive: &events.Alive{Kind: "pods", Version: "v1", Namespace: "ns", Name: "b", UID: "v"}},
	}
	switch field {
	case "group":
		c.Kind = kinds.Name("widgets." + text)
	case "resource":
		c.Kind = kinds.Name(text + ".example.com")
	case "version":
		c.Version = text
	case "namespace":
		c.Namespace = text
	case "name":
		c.Name = text
	case "subresource":
		c.Subresource = text
	case "alive kind":
		c.If.Alive.Kind = kinds.Name(text)
	case "alive version":
		c.If.Alive.Version = text
	case "alive namespace":
		c.If.Alive.Namespace = text
	case "alive name":
		c.If.Alive.Name = text
	}
	return c
}

// No text in a turn leads a request to another path than that of the object that the command
// names.
func TestTextIsNoPath(t *testing.T) {
	fields := []string{"group", "resource", "version", "namespace", "name", "subresource", "alive kind", "alive version", "alive namespace", "alive name"}
	for _, verb := range []events.Verb{events.VerbCreate, events.VerbUpdate, events.VerbPatch, events.VerbDelete, events.VerbAsk} {
		for _, field := range fields {
			texts := hostile
			if field != "name" && field != "alive name" { // names may have other characters: those of roles do
				texts = append([]string{"a\nb", "a\x00", "A B"}, hostile...)
			}
			for _, text := range texts {
				if text == "" && (strings.HasSuffix(field, "namespace") || field == "subresource") {
					continue // the request has none
				}
				p := New(events.Turn{Lane: events.LaneWrite, Commands: []events.Command{addressed(verb, field, text)}}, Options{})
				requests := p.Next()
				results, done := p.Results()
				if len(requests) > 0 || !done || results[0].Status != events.Refused || results[0].Reason != "Malformed" {
					t.Errorf("%s with the %s %q: requests %+v, results %+v", verb, field, text, requests, results)
				}
			}
		}
		if p := New(events.Turn{Lane: events.LaneWrite, Commands: []events.Command{addressed(verb, "", "")}}, Options{}); len(p.Next()) != 1 {
			t.Errorf("%s as it should be is refused", verb)
		}
	}
}

// An owner with an invalid name is absent without a request.
func TestAnImpossibleOwnerIsAbsent(t *testing.T) {
	for _, name := range hostile {
		w := newWorld()
		ref := events.Ref{Kind: "pods", Namespace: "ns", Name: "a"}
		w.put(ref, "u", `{}`)
		c := events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a", If: &events.If{
			UID:     "u",
			Absent:  []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "x"}, {APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "y"}},
			Leaving: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "z"}},
		}}
		p := New(events.Turn{Lane: events.LaneWrite, Commands: []events.Command{c}}, Options{})
		for _, done := p.Results(); !done; _, done = p.Results() {
			for _, r := range p.Next() {
				if r.Owner != nil && r.Owner.Name != "gone" || r.Fault() != "" {
					t.Errorf("the owner %q is asked about: %+v", name, r)
				}
				p.Answer(r.Command, w.do(r))
			}
		}
		if results, _ := p.Results(); results[0].Status != events.Applied {
			t.Errorf("the owner %q: %+v", name, results)
		}
		ask := events.Command{Verb: events.VerbAsk, Namespace: "ns", Subresource: "scale", Of: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}}
		p = New(events.Turn{Lane: events.LaneWrite, Commands: []events.Command{ask}}, Options{})
		if results, done := p.Results(); !done || results[0].Status != events.Absent {
			t.Errorf("the scale of %q: %+v", name, results)
		}
	}
}

// A command that no honest reconciler stores is refused without a request.
func TestMalformedCommandsAreRefused(t *testing.T) {
	owner := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	for what, c := range map[string]events.Command{
		"readings of nothing":      {Verb: events.VerbAsk, Namespace: "ns", Subresource: query.SubReadings, Kind: "pods", Version: "v1", Name: "a"},
		"contents of an owner":     {Verb: events.VerbAsk, Namespace: "ns", Subresource: query.SubContents, Of: owner},
		"a delete of an owner":     {Verb: events.VerbDelete, Namespace: "ns", Of: owner, If: &events.If{UID: "u"}},
		"an unknown patch":         {Verb: events.VerbPatch, Kind: "pods", Version: "v1", Name: "a", PatchType: "text/html\r\nX: y", Body: []byte(`{}`)},
		"a patch without a type":   {Verb: events.VerbPatch, Kind: "pods", Version: "v1", Name: "a", Body: []byte(`{}`)},
		"an unknown propagation":   {Verb: events.VerbDelete, Kind: "pods", Version: "v1", Name: "a", Propagation: "Everywhere", If: &events.If{UID: "u"}},
		"an unknown verb":          {Verb: "connect", Kind: "pods", Version: "v1", Name: "a"},
		"a Secret of an owner":     {Verb: events.VerbAsk, Namespace: "ns", Of: &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "a"}},
		"a body that is no object": {Verb: events.VerbCreate, Kind: "pods", Version: "v1", Name: "a", Body: []byte(`[1]`)},
	} {
		p := New(events.Turn{Lane: events.LaneWrite, Commands: []events.Command{c}}, Options{})
		if results, done := p.Results(); !done || results[0].Status != events.Refused {
			t.Errorf("%s: the results are %+v, want a refusal", what, results)
		}
	}
}

func TestATurnIsChecked(t *testing.T) {
	act := events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Name: "a", If: &events.If{UID: "u"}}
	fine := func() events.Turn {
		return events.Turn{
			Lane: events.LaneWrite, Key: events.Key{Namespace: "ns", Name: "web"}, Kind: "replicasets.apps", UID: "rs", Commands: []events.Command{act},
			Notices: []events.Notice{{Type: "Normal", Reason: "Done", Message: "done"}}, Shapes: []json.RawMessage{[]byte(`{}`)},
		}
	}
	turn := fine()
	turn.Notices[0].About.Namespace, turn.Notices[0].About.Name = "ns", "web"
	if err := Check(turn, "replicasets.apps"); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*events.Turn){
		"no lane":             func(t *events.Turn) { t.Lane = "" },
		"another lane":        func(t *events.Turn) { t.Lane = "whatever" },
		"acts that are told":  func(t *events.Turn) { t.Lane = events.LaneStatus },
		"reports that act":    func(t *events.Turn) { t.Commands[0].Subresource = "status" },
		"another kind":        func(t *events.Turn) { t.Kind = "pods" },
		"a kind without uid":  func(t *events.Turn) { t.UID = "" },
		"a uid without kind":  func(t *events.Turn) { t.Kind = "" },
		"a kind not its own":  func(t *events.Turn) { t.Key.Kind, t.Kind = "pods", "nodes" },
		"a shape before":      func(t *events.Turn) { t.Commands[0].Shape = -1 },
		"a shape behind":      func(t *events.Turn) { t.Commands[0].Shape = 2 },
		"a shape and a body":  func(t *events.Turn) { t.Commands[0].Shape, t.Commands[0].Body = 1, []byte(`{}`) },
		"a notice before":     func(t *events.Turn) { t.Commands[0].Applied = -1 },
		"a notice behind":     func(t *events.Turn) { t.Commands[0].Failed = 2 },
		"a notice elsewhere":  func(t *events.Turn) { t.Notices[0].About.Namespace = "../x" },
		"a notice of nothing": func(t *events.Turn) { t.Notices[0].About.Name = "" },
		"a notice's type":     func(t *events.Turn) { t.Notices[0].Type = "Other" },
		"a long notice":       func(t *events.Turn) { t.Notices[0].Message = strings.Repeat("x", maxNotice+1) },
		"a long reason":       func(t *events.Turn) { t.Notices[0].Reason = strings.Repeat("x", 129) },
		"a long body":         func(t *events.Turn) { t.Commands[0].Body = make([]byte, MaxBody+1) },
		"a long shape":        func(t *events.Turn) { t.Shapes[0] = make([]byte, MaxBody+1) },
		"too many commands":   func(t *events.Turn) { t.Commands = make([]events.Command, MaxCommands+1) },
	} {
		turn := fine()
		turn.Notices[0].About.Namespace, turn.Notices[0].About.Name = "ns", "web"
		if change(&turn); Check(turn, "replicasets.apps") == nil {
			t.Errorf("%s is let through", what)
		}
	}
}

// A request that made the writer panic is not repeated, and may have had its effect.
func TestAFaultOfTheDoorIsAnAnswer(t *testing.T) {
	p := New(events.Turn{Lane: events.LaneWrite, Commands: []events.Command{addressed(events.VerbCreate, "", "")}}, Options{})
	p.Answer(p.Next()[0].Command, Response{Code: 200, Object: Object{UID: "v"}}) // what it relies on exists
	p.Answer(p.Next()[0].Command, Response{Reason: ReasonPanicked})
	results, done := p.Results()
	if !done || results[0].Status != events.Failed || results[0].Reason != ReasonPanicked || !results[0].Unsure {
		t.Errorf("the results are %+v, want Panicked, failed and unsure", results)
	}
}
