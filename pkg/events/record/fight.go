package record

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events/record/fields"
)

// Fight describes two managers that overwrite each other's changes of an object: its desired
// state returns, again and again, to an earlier one. The watcher raises the alarm
// (services/watcher); here a user who asks why gets to see it.
type Fight struct {
	// Hands are who made the last two of the versions, the newest last.
	Hands []Hand `json:"hands"`
	// Fields are the contested fields.
	Fields []string `json:"fields"`
	// Times is how often in a row the state returned, within the versions read, and Since when
	// the first of these versions was made.
	Times int       `json:"times"`
	Since time.Time `json:"since"`
}

const (
	// fightTimes is how often the state must return: once may be a mistake that was corrected.
	fightTimes = 3
	// fightLook limits how many versions are read.
	fightLook = 128
	// fightPause is the longest time between two such versions.
	fightPause = 10 * time.Minute
)

// wish is a version with a new generation: it changes the desired state.
type wish struct {
	entry Entry
	tree  fields.Tree
}

// fight looks back from a version for a fight that it is part of; nil: there is none.
func (x *explanation) fight(ctx context.Context, e Entry) (*Fight, error) {
	if e.Generation <= fightTimes {
		return nil, nil
	}
	var wishes []wish // newest first
	for range fightLook {
		before, ok, err := x.before(ctx, e)
		if err != nil {
			return nil, err
		}
		if ok = ok && before.UID == e.UID; !ok || before.Generation != e.Generation {
			tree, err := fields.Of(x.kinds[e.Kind], e.Delta)
			if err != nil {
				return nil, err
			}
			if wishes = append(wishes, wish{e, tree}); !goesOn(wishes) {
				wishes = wishes[:len(wishes)-1]
				break
			}
		}
		if !ok || len(wishes) > 0 && wishes[len(wishes)-1].entry.At.Sub(before.At) > fightPause {
			break
		}
		e = before
	}
	if len(wishes) < fightTimes+2 {
		return nil, nil
	}
	return x.between(ctx, wishes)
}

// goesOn reports whether the oldest of the wishes belongs to a fight with the others.
func goesOn(wishes []wish) bool {
	n := len(wishes)
	if n < 2 {
		return true
	}
	oldest, after := wishes[n-1], wishes[n-2]
	return after.entry.At.Sub(oldest.entry.At) <= fightPause && len(apart(oldest, after)) > 0 &&
		(n == 2 || len(apart(oldest, wishes[n-3])) == 0)
}

// apart are the fields of the desired state in which two wishes differ.
func apart(a, b wish) (paths []string) {
	for _, c := range fields.Diff(a.tree, b.tree) {
		if c.Within("spec") {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// between names the two parties; nil if both versions have the same author.
func (x *explanation) between(ctx context.Context, wishes []wish) (*Fight, error) {
	f := &Fight{Fields: apart(wishes[1], wishes[0]), Times: len(wishes) - 2, Since: wishes[len(wishes)-1].entry.At}
	for _, w := range wishes[:2] {
		v, _, err := x.version(ctx, w.entry)
		if err != nil {
			return nil, err
		}
		if v.origin, err = x.origin(ctx, w.entry, w.tree); err != nil {
			return nil, err
		}
		f.Hands = append(f.Hands, handOf(v, v.origin))
	}
	slices.Reverse(f.Hands)
	if f.Hands[0].String() == f.Hands[1].String() {
		return nil, nil
	}
	return f, nil
}
