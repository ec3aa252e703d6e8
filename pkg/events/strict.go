package events

import (
	"errors"
	"reflect"

	quick "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Bodies are decoded by the designated successor of encoding/json, which takes half the time.
// They are not encoded by it, because its output differs in some bytes. Values are decoded as
// encoding/json does, but not keys, and not times outside RFC 3339: a time in a zone of 24 hours
// could not be written again.
var (
	unique  = quick.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.AllowDuplicateNames(false), jsonv1.ParseTimeWithLooseRFC3339(false))
	lenient = quick.JoinOptions(unique, quick.MatchCaseInsensitiveNames(false))
	strict  = quick.JoinOptions(lenient, quick.RejectUnknownMembers(true))
)

// unmarshal decodes a body only if every reader understands it in the same way. Most bodies have
// no unknown key and are decoded once.
func unmarshal(body []byte, value any) error {
	into := reflect.ValueOf(value).Elem()
	before := reflect.New(into.Type()).Elem()
	before.Set(into)
	if quick.Unmarshal(body, value, strict) == nil {
		return nil
	}
	into.Set(before)
	if err := quick.Unmarshal(body, value, lenient); err != nil {
		return err
	}
	// A reader that ignores the case of keys must understand the same.
	if err := quick.Unmarshal(body, before.Addr().Interface(), unique); err != nil {
		return err
	}
	if !reflect.DeepEqual(before.Interface(), into.Interface()) {
		return errors.New("a key is written in another case than it should be")
	}
	return nil
}
