package story

import (
	"encoding/json"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Render writes a decision as YAML for people: "create pods:default/web-bcdfg"
// instead of five fields, the status alone where only the status is written,
// and a body that several commands share only once.
func Render(d reconcile.Decision) ([]byte, error) {
	page := struct {
		Because  string    `json:"because"`
		Commands []any     `json:"commands,omitempty"`
		WakeAt   time.Time `json:"wakeAt,omitzero"`
		Retry    bool      `json:"retry,omitempty"`
	}{Because: d.Because, WakeAt: d.WakeAt.UTC(), Retry: d.Retry}
	first := map[string]string{}
	for i, c := range d.Commands {
		shown, err := show(c, first)
		if err != nil {
			return nil, fmt.Errorf("render command %d: %w", i, err)
		}
		page.Commands = append(page.Commands, shown)
	}
	text, err := yaml.Marshal(page)
	if err != nil {
		return nil, fmt.Errorf("render a decision: %w", err)
	}
	return text, nil
}

type command struct {
	Do             string     `json:"do"`
	Of             string     `json:"of,omitempty"`
	If             *events.If `json:"if,omitempty"`
	Patch          string     `json:"patch,omitempty"`
	Body           any        `json:"body,omitempty"`
	SameBodyAs     string     `json:"sameBodyAs,omitempty"`
	Status         any        `json:"status,omitempty"`
	Propagation    string     `json:"propagation,omitempty"`
	GraceSeconds   *int64     `json:"graceSeconds,omitempty"`
	Note           any        `json:"note,omitempty"`
	Event          string     `json:"event,omitempty"`
	EventOnFailure string     `json:"eventOnFailure,omitempty"`
}

// show renders one command; first holds the name of the first command with each
// body.
func show(c events.Command, first map[string]string) (command, error) {
	target := c.Ref().String()
	if c.Subresource != "" {
		target += "/" + c.Subresource
	}
	l := command{
		Do: fmt.Sprintf("%s %s", c.Verb, target), If: c.If, Patch: string(c.PatchType),
		Propagation: string(c.Propagation), GraceSeconds: c.GraceSeconds,
		Event: say(c.OnApplied), EventOnFailure: say(c.OnFailed),
	}
	if c.Verb == events.VerbRecord {
		l.Do = string(c.Verb)
	}
	if c.Of != nil {
		l.Of = fmt.Sprintf("%s %s %s", c.Of.APIVersion, c.Of.Kind, c.Of.UID)
	}
	if len(c.Note) > 0 {
		if err := json.Unmarshal(c.Note, &l.Note); err != nil {
			return l, fmt.Errorf("the note of %s is no JSON: %w", target, err)
		}
	}
	if len(c.Body) == 0 {
		return l, nil
	}
	if seen, ok := first[string(c.Body)]; ok {
		l.SameBodyAs = seen
		return l, nil
	}
	first[string(c.Body)] = c.Name
	var body any
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return l, fmt.Errorf("the body of %s is no JSON: %w", target, err)
	}
	if whole, ok := body.(map[string]any); ok && c.Subresource == "status" && c.Verb == events.VerbUpdate {
		l.Status = whole["status"]
		return l, nil
	}
	l.Body = body
	return l, nil
}

func say(n *events.Notice) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%s %s on %s %s: %s", n.Type, n.Reason, n.About.Kind, n.About.Name, n.Message)
}
