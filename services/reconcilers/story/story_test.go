package story_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/story"
)

// A story is the same once it has been written and read again.
func TestAStoryIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2030, 1, 1, 12, 0, 0, 5, time.UTC)
	s, err := story.Of("a pod too few", at, json.RawMessage(`{"want":2}`), reconcile.Nothing("there are enough"))
	if err != nil {
		t.Fatal(err)
	}
	read, err := story.Parse(s.Format())
	if err != nil {
		t.Fatal(err)
	}
	if read.Words != "a pod too few" || !read.Now.Equal(at) || strings.TrimSpace(string(read.View)) != "want: 2" ||
		strings.TrimSpace(string(read.Decision)) != "because: there are enough" || !bytes.Equal(read.View, s.View) {
		t.Errorf("it is read as %+v", read)
	}
	if _, err := story.Of("", at, json.RawMessage(`{`), reconcile.Decision{}); err == nil {
		t.Error("a view that is no JSON is told")
	}
}

// What a story lacks is named.
func TestNoStories(t *testing.T) {
	const when, seen = "-- now --\n2030-01-01T12:00:00Z\n", "-- view.yaml --\na: 1\n"
	for text, want := range map[string]string{
		when + seen:                           "no words",
		"words\n" + seen:                      "does not say when",
		"words\n-- now --\nnoon\n" + seen:     "read now",
		"words\n" + when:                      "does not say what is seen",
		"words\n" + when + seen + "-- a --\n": "no file a",
	} {
		if _, err := story.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %q: %v, want %q", text, err, want)
		}
	}
}

// Commands are written as people say them: a body once, of a status only that, and what of an
// object is written with its uid.
func TestADecisionIsWritten(t *testing.T) {
	command := func(verb events.Verb, name, subresource, body string) events.Command {
		return events.Command{Verb: verb, Kind: "pods", Namespace: "shop", Name: name, Subresource: subresource, Body: json.RawMessage(body)}
	}
	record := events.Command{Verb: events.VerbRecord, Note: json.RawMessage(`{"seen":1}`), OnApplied: &events.Notice{Type: "Normal", Reason: "Made", Message: "made it"}}
	record.OnApplied.About.Kind, record.OnApplied.About.Name = "Pod", "a"
	child := command(events.VerbCreate, "a", "", `{"spec":1}`)
	if err := json.Unmarshal([]byte(`{"of":{"apiVersion":"v1","kind":"Pod","uid":"u"}}`), &child); err != nil {
		t.Fatal(err)
	}
	got, err := story.Render(reconcile.Decision{Because: "so", Commands: []events.Command{
		child, command(events.VerbCreate, "b", "", `{"spec":1}`), command(events.VerbUpdate, "c", "status", `{"spec":1,"status":2}`),
		command(events.VerbDelete, "d", "", ""), record,
	}})
	want := `because: so
commands:
- body:
    spec: 1
  do: create pods:shop/a
  of: v1 Pod u
- do: create pods:shop/b
  sameBodyAs: a
- do: update pods:shop/c/status
  status: 2
- do: delete pods:shop/d
- do: record
  note:
    seen: 1
  tell: 'Normal Made on Pod a: made it'
`
	if err != nil || string(got) != want {
		t.Errorf("it is written, %v,\n%swant\n%s", err, got, want)
	}
	for what, c := range map[string]events.Command{"the body of pods:shop/a": command(events.VerbCreate, "a", "", "{"), "the note of": {Verb: events.VerbRecord, Note: json.RawMessage("{")}} {
		if _, err := story.Render(reconcile.Decision{Commands: []events.Command{c}}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s is no JSON: %v", what, err)
		}
	}
}
