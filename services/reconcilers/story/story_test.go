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

// A story is the same after it has been written and read again.
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
		t.Errorf("the story is read as %+v", read)
	}
	if _, err := story.Of("", at, json.RawMessage(`{`), reconcile.Decision{}); err == nil {
		t.Error("a view that is no JSON is told")
	}
}

// The error names the part that a story lacks.
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
			t.Errorf("%q is read with %v, want %q", text, err, want)
		}
	}
}

// Commands are written for people: a body that repeats is written once, a status update has only
// the status, and an object that a command is about (of) has its uid.
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
  event: 'Normal Made on Pod a: made it'
  note:
    seen: 1
`
	if err != nil || string(got) != want {
		t.Errorf("the decision is written (%v)\n%swant\n%s", err, got, want)
	}
	for what, c := range map[string]events.Command{"the body of pods:shop/a": command(events.VerbCreate, "a", "", "{"), "the note of": {Verb: events.VerbRecord, Note: json.RawMessage("{")}} {
		if _, err := story.Render(reconcile.Decision{Commands: []events.Command{c}}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s is no JSON: %v", what, err)
		}
	}
}

// A decision that waits, retries or warns says so, and a patch of a status is written as it is.
func TestADecisionThatWaitsIsWritten(t *testing.T) {
	failure := &events.Notice{Type: "Warning", Reason: "Failed", Message: "no"}
	failure.About.Kind, failure.About.Name = "Pod", "a"
	grace := int64(30)
	got, err := story.Render(reconcile.Decision{
		Because: "so", Retry: true, WakeAt: time.Date(2030, 1, 1, 13, 0, 0, 0, time.FixedZone("", 3600)), Commands: []events.Command{
			{Verb: events.VerbPatch, Kind: "pods", Name: "a", Subresource: "status", PatchType: "application/merge-patch+json", Body: json.RawMessage(`{"status":1}`), OnFailed: failure},
			{Verb: events.VerbUpdate, Kind: "pods", Name: "b", Subresource: "status", Body: json.RawMessage(`[1]`)},
			{Verb: events.VerbUpdate, Kind: "pods", Name: "c", Body: json.RawMessage(`{"status":2}`), If: &events.If{UID: "u"}},
			{Verb: events.VerbDelete, Kind: "pods", Name: "d", Propagation: "Orphan", GraceSeconds: &grace},
		},
	})
	want := `because: so
commands:
- body:
    status: 1
  do: patch pods:a/status
  eventOnFailure: 'Warning Failed on Pod a: no'
  patch: application/merge-patch+json
- body:
  - 1
  do: update pods:b/status
- body:
    status: 2
  do: update pods:c
  if:
    uid: u
- do: delete pods:d
  graceSeconds: 30
  propagation: Orphan
retry: true
wakeAt: "2030-01-01T12:00:00Z"
`
	if err != nil || string(got) != want {
		t.Errorf("the decision is written (%v)\n%swant\n%s", err, got, want)
	}
}

// A decision that cannot be rendered is an error, and no story.
func TestADecisionThatCannotBeWritten(t *testing.T) {
	far := reconcile.Wake(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), "later")
	if text, err := story.Render(far); err == nil || !strings.Contains(err.Error(), "render a decision") || text != nil {
		t.Errorf("a wake that has no form is written as %s, %v", text, err)
	}
	torn := reconcile.Do("so", events.Command{Verb: events.VerbCreate, Kind: "pods", Body: json.RawMessage("{")})
	if _, err := story.Of("words", time.Now(), json.RawMessage("{}"), torn); err == nil {
		t.Error("a story is told of a body that is no JSON")
	}
}
