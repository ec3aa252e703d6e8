package events

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubContents is the subresource of an ask for what a namespace holds. The API server
// has none of that name: the writer finds out, by discovery and a list of every kind,
// all live. The answer is [Contents], the body of the command a [ContentsQuestion].
//
// It is asked when everything that stands before it in its turn has been done.
const SubContents = "contents"

// ContentsQuestion is what is asked.
type ContentsQuestion struct {
	// First are kinds that are looked at before all others. When there is something of
	// them, the others are not looked at.
	First []kinds.Name `json:"first,omitempty"`
	// After are the last names of an answer before, by kind, where that named only some of
	// what stands: those behind them are named now. So objects that cannot be deleted keep
	// off no others.
	After map[kinds.Name]string `json:"after,omitempty"`
}

// Contents is what a namespace holds, of every kind that can be deleted and listed.
// The namespace itself was looked at after everything else, and had the uid that the
// ask insists on: what is in here was that one's.
type Contents struct {
	// Kinds are those of which there is something, or of which that is unknown, in the
	// order of their names.
	Kinds []Holding `json:"kinds,omitempty"`
	// Partial is true when kinds that come first have something, and no others were
	// looked at.
	Partial bool `json:"partial,omitempty"`
	// Undiscovered is why not all kinds are known, and Groups how many groups did not
	// say theirs, where it was only some.
	Undiscovered string `json:"undiscovered,omitempty"`
	Groups       int    `json:"groups,omitempty"`
	// Unparsed is why the name of a group cannot be read.
	Unparsed string `json:"unparsed,omitempty"`
}

// Holding is what a namespace holds of one kind.
type Holding struct {
	Kind    kinds.Name `json:"kind"`
	Version string     `json:"version"`
	// Count is how many there are; Finalizers is how many of them have each finalizer.
	Count      int            `json:"count,omitempty"`
	Finalizers map[string]int `json:"finalizers,omitempty"`
	// Grace is the longest time in seconds that one that is on its way out was given.
	Grace int64 `json:"grace,omitempty"`
	// Standing are those that a delete would do something about, at most
	// [MaxStanding] of all kinds together: they have not been deleted, or they wait for
	// their dependents. One that is served under two kinds is here once.
	Standing []Standing `json:"standing,omitempty"`
	// Part is true where only some of those that stand are named, and Again where none
	// stands behind the name that was asked for, and they are named from the first.
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

// MaxStanding bounds what of an answer is named.
const MaxStanding = 1000

// Limit names no more than [MaxStanding]: every kind has its share of that, and what it
// does not need is left to the others. Of a kind in after, those behind that name.
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

// begin leaves out those that stand up to a name; where none stands behind it, none.
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
