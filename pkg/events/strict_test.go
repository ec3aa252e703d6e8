package events_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// Two readers of one record must not disagree about what it says.
func TestAmbiguousBodiesAreRefused(t *testing.T) {
	const delete = `{"verb":"delete","kind":"pods","name":"a"}`
	for what, text := range map[string]string{
		"commands twice":                     `{"lane":"act","commands":[],"commands":[` + delete + `]}`,
		"commands in two cases":              `{"lane":"act","commands":[],"Commands":[` + delete + `]}`,
		"commands in one case":               `{"lane":"act","Commands":[` + delete + `]}`,
		"a key of a command":                 `{"lane":"act","commands":[{"Verb":"delete"}]}`,
		"a key of the key":                   `{"key":{"Name":"a"}}`,
		"a key twice, escaped":               `{"lane":"act","l\u0061ne":"tell"}`,
		"a kind twice":                       `{"seen":{"pods":1,"pods":2}}`,
		"a key twice in a body":              `{"commands":[{"verb":"create","body":{"spec":{"a":1,"a":2}}}]}`,
		"a key twice in a shape":             `{"shapes":[{"a":1,"a":2}]}`,
		"an owner in another case":           `{"commands":[{"if":{"absent":[{"Name":"a"}]}}]}`,
		"text behind":                        `{"lane":"act"}{"lane":"tell"}`,
		"another case beside an unknown key": `{"unknown":1,"Lane":"act"}`,
	} {
		var turn events.Turn
		if err := events.DecodeJSON(events.Message{Data: []byte(text)}, &turn); err == nil {
			t.Errorf("%s: it is decoded as the turn %+v", what, turn)
		}
	}
	for what, text := range map[string]string{
		"results twice":           `{"results":[],"results":[{"status":"applied"}]}`,
		"results in another case": `{"Results":[{"status":"applied"}]}`,
		"a turn twice":            `{"turn":1,"Turn":2}`,
	} {
		var outcome events.Outcome
		if err := events.DecodeJSON(events.Message{Data: []byte(text)}, &outcome); err == nil {
			t.Errorf("%s: it is decoded as the outcome %+v", what, outcome)
		}
	}
}

// A newer version writes keys that this one does not know.
func TestUnknownKeysArePassedOver(t *testing.T) {
	text := `{"controller":"c","lane":"act","future":{"deep":[1]},"commands":[{"verb":"delete","name":"a","since":7}]}`
	var turn events.Turn
	if err := events.DecodeJSON(events.Message{Data: []byte(text)}, &turn); err != nil {
		t.Fatal(err)
	}
	if turn.Controller != "c" || len(turn.Commands) != 1 || turn.Commands[0].Name != "a" {
		t.Errorf("the turn is decoded as %+v, want controller c with one command", turn)
	}
}
