package events_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// The fields of an object are those that encoding/json reads, in the form of the text.
func TestMembersAreAsTheyAreWritten(t *testing.T) {
	for _, text := range []string{`{}`, ` { "a" : 1 , "b": {"c": [ 1, 2 ]} , "\u0064" : "e\n" } `, `{"a":null}`} {
		found, err := events.MembersOf(json.RawMessage(text))
		var want map[string]json.RawMessage
		if e := json.Unmarshal([]byte(text), &want); err != nil || e != nil || len(found) != len(want) {
			t.Fatalf("%s is read as %v, %v", text, found, err)
		}
		for i, one := range found {
			if string(one.Value) != string(want[one.Name]) || string(found.Of(one.Name, i)) != string(one.Value) || string(found.Of(one.Name, i+1)) != string(one.Value) {
				t.Errorf("%s has %s at %q", text, one.Value, one.Name)
			}
		}
		if found.Of("x", 0) != nil {
			t.Errorf("%s has an x", text)
		}
	}
	for _, none := range []string{``, `null`} {
		if found, err := events.MembersOf(json.RawMessage(none)); found != nil || err != nil {
			t.Errorf("%q is read as %v, %v", none, found, err)
		}
	}
	for _, bad := range []string{`[]`, `{"a":1,"a":2}`, `{"a":1`, `{"a"}`, `{} {}`, `1`, "{\"a\":\"\xff\"}"} {
		if found, err := events.MembersOf(json.RawMessage(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, found)
		}
	}
	if v, err := events.ValueOf(json.RawMessage(`{"a":[1,"b",null]}`)); err != nil || !reflect.DeepEqual(v, map[string]any{"a": []any{1.0, "b", nil}}) {
		t.Errorf("the value is %v, %v; want a list", v, err)
	}
}
