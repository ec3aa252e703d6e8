package events

import (
	"strconv"
	"strings"
)

// HeaderCovers says which messages of a stream a notary's page covers: the sequences of the
// first and the last one. It serves to find pages; the signed statement is in the body.
const HeaderCovers = "Millrace-Covers"

// Covers is the value of [HeaderCovers].
func Covers(first, last uint64) string {
	return strconv.FormatUint(first, 10) + " " + strconv.FormatUint(last, 10)
}

// CoveredBy reads [HeaderCovers]; ok is false when the header is missing or malformed.
func CoveredBy(m Message) (first, last uint64, ok bool) {
	from, to, _ := strings.Cut(m.Get(HeaderCovers), " ")
	first, failed := strconv.ParseUint(from, 10, 64)
	last, err := strconv.ParseUint(to, 10, 64)
	return first, last, failed == nil && err == nil
}
