package subject

import "strings"

// NotaryStream holds the pages and lists that notaries sign:
//
//	notary.<stream>
const NotaryStream = "NOTARY"

// Notary is the subject of the pages about a stream.
func Notary(stream string) string { return join("notary", stream) }

// ParseNotary is the inverse of [Notary]; ok is false for another subject.
func ParseNotary(subject string) (stream string, ok bool) {
	return strings.CutPrefix(subject, "notary.")
}

// Notarized reports whether notaries sign a stream: a log, the turns or the outcomes of a
// controller, or its shadow stream.
func Notarized(stream string) bool {
	for _, prefix := range []string{LogStream(""), TurnStream(""), OutcomeStream(""), ShadowStream("")} {
		if strings.HasPrefix(stream, prefix) {
			return true
		}
	}
	return false
}
