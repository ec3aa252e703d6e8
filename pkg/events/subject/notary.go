package subject

import "strings"

// NotaryStream holds what notaries sign about other streams:
//
//	notary.<stream>
const NotaryStream = "NOTARY"

// Notary is the subject of what is signed about a stream.
func Notary(stream string) string { return join("notary", stream) }

// ParseNotary is the inverse of [Notary]; ok is false for another subject.
func ParseNotary(subject string) (stream string, ok bool) {
	return strings.CutPrefix(subject, "notary.")
}

// Notarized tells whether a stream is one that a notary vouches for: a log, the turns
// or the outcomes of a controller, or what it said in shadow.
func Notarized(stream string) bool {
	for _, prefix := range []string{LogStream(""), TurnStream(""), OutcomeStream(""), ShadowStream("")} {
		if strings.HasPrefix(stream, prefix) {
			return true
		}
	}
	return false
}
