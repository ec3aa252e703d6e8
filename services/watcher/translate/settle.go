package translate

import "github.com/millrace/millrace/pkg/events/kinds"

// Settle decides what to do when a kind is on the bus in another form or version than wanted: keep
// it as it is (use have), or recreate its streams (use want, remake).
//
// A kind that is there in full also serves readers that want its metadata, and metadata in one
// version is as good as in another. Otherwise two watchers with different settings, or with
// different API servers, would recreate the streams in turns.
func Settle(have, want kinds.Kind, served func(version string) bool) (use kinds.Kind, remake bool) {
	switch {
	case have.Name != want.Name, have.Kind != want.Kind, have.Namespaced != want.Namespaced, FormOf(have) != have.Form:
		return want, true
	case have.Form == want.Form && have.Version == want.Version:
		return have, false
	case FormOf(want) == kinds.Metadata && (have.Version == want.Version || served(have.Version)):
		return have, false
	default:
		return want, true
	}
}
