package query

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubContents is the subresource of an ask for the contents of a namespace. The API server has
// no such subresource: the writer runs discovery and lists every kind, all live. The answer is
// [Contents]; the body of the command is a [ContentsQuestion].
//
// The writer asks after all commands before it in the turn have been carried out.
const SubContents = "contents"

// ContentsQuestion is the body of a [SubContents] ask.
type ContentsQuestion struct {
	// First are kinds that the writer lists before all others. If the namespace holds objects of
	// these kinds, the writer does not list the others.
	First []kinds.Name `json:"first,omitempty"`
	// After holds, by kind, the last name of an earlier answer that named only some objects: the
	// next answer continues behind that name. So objects that cannot be deleted do not hide the
	// others.
	After map[kinds.Name]string `json:"after,omitempty"`
}

// Contents lists the objects of a namespace, of every kind that can be deleted and listed. The
// writer read the namespace itself after everything else, and it had the uid that the ask
// requires: so the contents belong to that namespace.
type Contents struct {
	// Kinds are the kinds of which the namespace holds objects, or may hold some, sorted by
	// name.
	Kinds []Holding `json:"kinds,omitempty"`
	// Partial is true when the First kinds have objects, so that the writer listed no others.
	Partial bool `json:"partial,omitempty"`
	// Undiscovered is the reason why discovery did not give all kinds. Groups is how many groups
	// failed, when only some did.
	Undiscovered string `json:"undiscovered,omitempty"`
	Groups       int    `json:"groups,omitempty"`
	// Unparsed is the reason why the name of a group cannot be parsed.
	Unparsed string `json:"unparsed,omitempty"`
}

// Holding describes the objects of one kind in a namespace.
type Holding struct {
	Kind    kinds.Name `json:"kind"`
	Version string     `json:"version"`
	// Count is the number of objects; Finalizers is how many of them have each finalizer.
	Count      int            `json:"count,omitempty"`
	Finalizers map[string]int `json:"finalizers,omitempty"`
	// Grace is the longest grace period, in seconds, among the objects that are being deleted.
	Grace int64 `json:"grace,omitempty"`
	// Standing are the objects on which a delete would still have an effect: they are not being
	// deleted yet, or they wait for their dependents. There are at most [MaxStanding] over all
	// kinds together. An object that is served under two kinds appears once.
	Standing []Standing `json:"standing,omitempty"`
	// Part is true when Standing names only some of the objects. Again is true when no object
	// follows the name in After, so that Standing begins again with the first one.
	Part  bool `json:"part,omitempty"`
	Again bool `json:"again,omitempty"`
	// Failure is why the kind could not be listed.
	Failure string `json:"failure,omitempty"`
}

// Standing is an object that a namespace holds.
type Standing struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// MaxStanding bounds how many objects an answer names.
const MaxStanding = 1000

// Limit reduces the answer to [MaxStanding] names. Each kind gets an equal share; kinds that
// need less leave the rest to the others. For a kind in after, the names begin behind that name.
func (c *Contents) Limit(after map[kinds.Name]string) {
	rest := make([]*Holding, 0, len(c.Kinds))
	for i := range c.Kinds {
		h := &c.Kinds[i]
		slices.SortFunc(h.Standing, func(a, b Standing) int { return cmp.Compare(a.Name, b.Name) })
		h.begin(after[h.Kind])
		rest = append(rest, h)
	}
	slices.SortStableFunc(rest, func(a, b *Holding) int { return cmp.Compare(len(a.Standing), len(b.Standing)) })
	left := MaxStanding
	for i, h := range rest {
		if share := left / (len(rest) - i); len(h.Standing) > share {
			h.Standing, h.Part = h.Standing[:share], true
		}
		left -= len(h.Standing)
	}
}

// begin drops the names up to and including after; if none follows, it keeps all and sets Again.
func (h *Holding) begin(after string) {
	if after == "" || len(h.Standing) == 0 {
		return
	}
	at, found := slices.BinarySearchFunc(h.Standing, after, func(s Standing, name string) int { return cmp.Compare(s.Name, name) })
	if found {
		at++
	}
	if at == len(h.Standing) {
		h.Again = true
		return
	}
	h.Part, h.Standing = at > 0, h.Standing[at:]
}
