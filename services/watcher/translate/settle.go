package translate

import "github.com/millrace/millrace/pkg/events/kinds"

// Settle decides what to do when a kind is on the bus otherwise than wanted:
// go on as it is (use have), or make its streams anew (use want, remake).
//
// A kind that is there in full also answers who wants its metadata, and metadata
// read in one version is as good as in another: so that two watchers with
// different settings, or beside different API servers, do not take turns at
// making streams anew.
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
