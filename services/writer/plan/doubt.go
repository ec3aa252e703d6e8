package plan

import (
	"cmp"
	"strconv"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Doubt is the evidence about a create that may have happened before: its answer was lost, or
// another writer had the turn. The created object may have been deleted since, so that the name is
// free again.
type Doubt struct {
	// There is true when the API server has an object of the name. At is the version at which the
	// API server was asked, and Newest the newest version of the kind's objects.
	There      bool
	At, Newest string
	Known
	// Lasts is how long the create has been in doubt.
	Lasts time.Duration
}

// Known is what the record has on a name.
type Known struct {
	// Created is true when the record has had an object of the name, existing or deleted.
	Created bool
	// Told is the version up to which the record of the kind is complete; empty if unknown.
	Told string
	// Since is a version that the kind had when the create was decided; empty if unknown.
	Since string
	// Hidden is true when the record may lack the object's creation and deletion: it has a gap
	// since the create was decided, or cannot tell.
	Hidden bool
	// Unwatched is true when there is no record of the kind.
	Unwatched bool
}

// Verdict is the conclusion about a create in doubt.
type Verdict int

const (
	// Unclear: the record may not have caught up yet. The writer asks again.
	Unclear Verdict = iota
	// NotCreated: the create had not happened when the API server was asked.
	NotCreated
	// Unheard: no watcher has seen the create, and no later change of the kind proves that one
	// would have. The create did not happen unless the API server's watch history has it.
	Unheard
	// Happened: the create must not be repeated. This is also the verdict if it may have happened
	// and the record can never tell.
	Happened
)

// Quiet is how long a create is in doubt before the writer reads the API server's watch history.
// If nothing of the kind changes, no delta comes that would show that the record is complete. A
// delta of a change mostly comes sooner. The watch history is proof, however short the silence
// was.
const Quiet = 100 * time.Millisecond

// Believed is how long a create must be in doubt if the watch history does not reach back either:
// by then another watcher takes over from one that is cut off (docs/reliability.md).
const Believed = 5 * time.Second

// Unfollowed is how long a create must be in doubt if the kind has changed in other namespaces and
// the record does not have that: perhaps no watcher watches the kind. A record of some namespaces
// only never has the changes of the others.
const Unfollowed = time.Minute

// Verdict judges the evidence. An object that the API server has, or that the record has had, was
// created. One that neither has was not created if the record is complete up to the moment when
// the API server was asked; before that it may have been created and deleted unseen. If the record
// has a gap it can never tell, and the next decision begins anew.
func (d Doubt) Verdict() Verdict {
	switch {
	case d.There || d.Created:
		return Happened
	case d.Unwatched || d.At == "":
		return NotCreated // nothing can tell: the conditions of the turn must suffice
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

// told reports whether the record is complete up to the version at which the API server was asked.
func (d Doubt) told() bool { return d.Told != "" && kinds.CompareVersions(d.Told, d.At) >= 0 }

// quiet reports whether the create has been in doubt for [Quiet], and the record has the newest
// version of the existing objects.
func (d Doubt) quiet() bool {
	return d.Told != "" && d.Lasts >= Quiet && kinds.CompareVersions(d.Told, cmp.Or(d.Newest, d.Told)) >= 0
}

// Readable is how many versions of the API server a writer reads one by one to settle a doubt. A
// kind that is quiet in a busy cluster is further behind: there the writer waits for [Quiet].
const Readable = 128

// Unread returns the versions in which the object may have lived unseen, both included: those that
// the record does not reach, up to the one at which the API server was asked. ok is false if it may
// also have lived at other versions, or if there are more than [Readable].
func (d Doubt) Unread() (from, to uint64, ok bool) {
	told, err := strconv.ParseUint(d.Told, 10, 64)
	if err != nil || d.Hidden {
		return 0, 0, false
	}
	at, err := strconv.ParseUint(d.At, 10, 64)
	if err != nil || at <= told || at-told > Readable {
		return 0, 0, false
	}
	return told + 1, at, true
}
