package plan

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Doubt is what can be found out about a create that may have happened before: the
// answer to it was lost, or another writer had the turn. What was created may have been
// deleted since, and the name is free again.
type Doubt struct {
	// There is true when the API server has an object of the name; At is the version
	// at which it was asked, and Newest the newest of what there is of the kind.
	There      bool
	At, Newest string
	Known
	// Lasts is for how long there has been a doubt.
	Lasts time.Duration
}

// Known is what the record knows of a name.
type Known struct {
	// Created is true when it has known an object of the name, living or dead.
	Created bool
	// Told is the version up to which it has been told of everything of the kind;
	// empty: it is unknown.
	Told string
	// Since is a version that was there when the create was decided, of the kind; empty: it is
	// unknown.
	Since string
	// Hidden is true when it may have lived and died in a gap of the record, of which no
	// reader was told: one has come since the create was decided, or it cannot be said.
	Hidden bool
	// Unwatched is true when there is no record of the kind.
	Unwatched bool
}

// Verdict is what follows for a create in doubt.
type Verdict int

const (
	// Unclear: the record may not have been told yet. It is asked again.
	Unclear Verdict = iota
	// NotCreated: it never happened, as of the moment when the API server was asked.
	NotCreated
	// Unheard: no watcher has heard of it, and nothing else has changed of which one would have.
	// NotCreated, unless the API server remembers better.
	Unheard
	// Happened: it must not be made again. Nor must what may have, and will never be known.
	Happened
)

// Quiet is for how long a kind must be silent before the API server is asked what it
// remembers: where nothing changes, no word comes to the record that would say that it has
// been told of everything. The watcher's word of a change mostly comes sooner. What the API
// server remembers is proof, however short the silence was.
const Quiet = 100 * time.Millisecond

// Believed is for how long it must be silent where the API server does not remember either:
// from a watcher that is cut off another one takes over by then (docs/reliability.md).
const Believed = 5 * time.Second

// Unfollowed is for how long it must be silent where the kind has changed elsewhere, of which
// the record was not told: perhaps no watcher watches. A record of some namespaces only is never
// told of the others.
const Unfollowed = time.Minute

// Verdict judges. What the API server has, or the record has known, was created. What
// neither has was not, if the record was told of everything up to the moment when the
// API server was asked; until then it may have been created and deleted unheard. Where the
// record has a gap it never will be told, and the next decision begins anew.
func (d Doubt) Verdict() Verdict {
	switch {
	case d.There || d.Created:
		return Happened
	case d.Unwatched || d.At == "":
		return NotCreated // it cannot be told: the conditions of the turn must do
	case !d.told() && !d.quiet():
		return Unclear
	case d.Hidden:
		return Happened
	case d.told():
		return NotCreated
	default:
		return Unheard
	}
}

// told tells whether the record has come as far as the API server was when it was asked.
func (d Doubt) told() bool { return d.Told != "" && kinds.CompareVersions(d.Told, d.At) >= 0 }

// quiet tells whether nothing that is there has changed for some time that the record was
// not told of.
func (d Doubt) quiet() bool {
	return d.Told != "" && d.Lasts >= Quiet && kinds.CompareVersions(d.Told, cmp.Or(d.Newest, d.Told)) >= 0
}
