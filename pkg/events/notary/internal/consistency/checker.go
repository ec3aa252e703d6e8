// Package consistency holds the messages of one stream against each other: their sums and links,
// the versions of each object, and the census. It knows no signature: it detects accidents, and a
// forger who changes a message can also change all of these.
package consistency

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Checker checks one stream, whose messages it is given in order.
type Checker struct {
	// Gaps counts the gaps in the log, and Left the versions that its watcher left out.
	Gaps int
	Left uint64

	state bus.State
	isLog bool

	chain    events.Chain
	holes    []events.Hole
	recorded map[[2]uint64]bool // from and to of the recorded gaps
	tally    events.Tally
	agreed   bool // the census has matched since the last gap
	matched  int  // how many holes there were when the census last matched
	miscount []miscount
	versions map[types.UID]events.Delta
}

// New begins to check a stream in a state; isLog is true for the log of a kind, which is checked
// for more.
func New(state bus.State, isLog bool) Checker { return Checker{state: state, isLog: isLog} }

// miscount is a message whose census does not match.
type miscount struct {
	sequence uint64
	what     string
	holes    []events.Hole // those since the census last matched
}

// Find reports a problem at a message.
type Find func(sequence uint64, format string, args ...any)

// Message checks the next message.
func (c *Checker) Message(m events.Message, find Find) {
	if err := events.Verify(m); err != nil {
		find(m.Sequence, "%v", err)
		return
	}
	if !c.isLog {
		if !json.Valid(m.Data) {
			find(m.Sequence, "its body is not JSON")
		}
		return
	}
	ref, err := subject.ParseDelta(m.Subject)
	var d events.Delta
	if err == nil {
		d, err = events.DecodeDelta(ref, m)
	}
	if err != nil {
		find(m.Sequence, "%v", err)
		return
	}
	c.delta(m, d, find)
}

func (c *Checker) delta(m events.Message, d events.Delta, find Find) {
	c.tally.Fold(d)
	if m.Sequence < c.state.Whole {
		return // part of the base: a message that was current when the stretch begins
	}
	c.Left += d.Left.Versions
	if d.Op == events.Gap {
		c.gap(d)
	}
	if h, ok := c.chain.Next(m, d); !ok {
		c.holes = append(c.holes, h)
	}
	switch has := c.tally.Census(); {
	case !d.Census.Known:
	case d.Census == has:
		c.agreed, c.matched = true, len(c.holes)
	case c.agreed:
		c.agreed = false
		c.miscount = append(c.miscount, miscount{m.Sequence, fmt.Sprintf("it counts %d objects, and the log up to here has %d, or others", d.Census.Objects, has.Objects), c.holes[c.matched:]})
	}
	c.version(m, d, find)
}

func (c *Checker) gap(d events.Delta) {
	c.Gaps++
	c.agreed = false
	var h events.Hole
	if json.Unmarshal(d.Body, &h) == nil {
		if c.recorded == nil {
			c.recorded = map[[2]uint64]bool{}
		}
		c.recorded[[2]uint64{h.From, h.To}] = true
	}
}

// version checks that each version of an object occurs once, and in order.
func (c *Checker) version(m events.Message, d events.Delta, find Find) {
	if d.Op == events.Gone {
		delete(c.versions, d.UID)
	}
	if d.Op != events.Is {
		return
	}
	if c.versions == nil {
		c.versions = map[types.UID]events.Delta{}
	}
	before, there := c.versions[d.UID]
	if there && !d.Sync && before.Epoch == d.Epoch && kinds.CompareVersions(d.ResourceVersion, before.ResourceVersion) <= 0 {
		find(m.Sequence, "%v is at version %s, and was at %s before", d.Ref, d.ResourceVersion, before.ResourceVersion)
	}
	c.versions[d.UID] = events.Delta{ResourceVersion: d.ResourceVersion, Epoch: d.Epoch}
}

// Holes is the number of holes in the log so far.
func (c *Checker) Holes() int { return len(c.holes) }

// BeginsAt says that the stream has lost the messages before a sequence since New; a lower one
// than that of the state changes nothing.
func (c *Checker) BeginsAt(sequence uint64) { c.state.First = max(c.state.First, sequence) }

// Conclude reports the holes that no recorded gap covers, and a wrong census unless messages were
// discarded before it.
func (c *Checker) Conclude(find Find) {
	discarded := func(h events.Hole) bool { return h.To < c.state.First }
	for _, h := range c.holes {
		if !c.recorded[[2]uint64{h.From, h.To}] && !discarded(h) {
			find(max(h.From, c.state.First), "%s", fmt.Sprintf("%s: %d to %d", h.Reason, h.From, h.To))
		}
	}
	for _, m := range c.miscount {
		if !slices.ContainsFunc(m.holes, discarded) {
			find(m.sequence, "%s", m.what)
		}
	}
}
