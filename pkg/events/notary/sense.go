package notary

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

func kindOf(stream string) kinds.Name {
	kind, _ := subject.KindOfStream(stream)
	return kind
}

// sense checks a stream for internal consistency: sums, links, versions and the census. That
// detects accidents; a forger who changes a message can also change all of these.
type sense struct {
	log   bus.State
	isLog bool

	chain    events.Chain
	holes    []events.Hole
	recorded map[[2]uint64]bool // from and to of the recorded gaps
	gaps     int
	left     uint64 // number of versions left out
	tally    events.Tally
	agreed   bool // the census has matched since the last gap
	matched  int  // how many holes there were when the census last matched
	miscount []miscount
	versions map[types.UID]events.Delta
}

// miscount is a message whose census does not match.
type miscount struct {
	sequence uint64
	what     string
	holes    []events.Hole // those since the census last matched
}

type find func(sequence uint64, format string, args ...any)

func (s *sense) message(m events.Message, find find) {
	if err := events.Verify(m); err != nil {
		find(m.Sequence, "%v", err)
		return
	}
	if !s.isLog {
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
	s.delta(m, d, find)
}

func (s *sense) delta(m events.Message, d events.Delta, find find) {
	s.tally.Fold(d)
	if m.Sequence < s.log.Whole {
		return // part of the base: a message that was current when the stretch begins
	}
	s.left += d.Left.Versions
	if d.Op == events.Gap {
		s.gap(d)
	}
	if h, ok := s.chain.Next(m, d); !ok {
		s.holes = append(s.holes, h)
	}
	switch has := s.tally.Census(); {
	case !d.Census.Known:
	case d.Census == has:
		s.agreed, s.matched = true, len(s.holes)
	case s.agreed:
		s.agreed = false
		s.miscount = append(s.miscount, miscount{m.Sequence, fmt.Sprintf("it counts %d objects, and the log up to here has %d, or others", d.Census.Objects, has.Objects), s.holes[s.matched:]})
	}
	s.version(m, d, find)
}

func (s *sense) gap(d events.Delta) {
	s.gaps++
	s.agreed = false
	var h events.Hole
	if json.Unmarshal(d.Body, &h) == nil {
		if s.recorded == nil {
			s.recorded = map[[2]uint64]bool{}
		}
		s.recorded[[2]uint64{h.From, h.To}] = true
	}
}

// version checks that each version of an object occurs once, and in order.
func (s *sense) version(m events.Message, d events.Delta, find find) {
	if d.Op == events.Gone {
		delete(s.versions, d.UID)
	}
	if d.Op != events.Is {
		return
	}
	if s.versions == nil {
		s.versions = map[types.UID]events.Delta{}
	}
	before, there := s.versions[d.UID]
	if there && !d.Sync && before.Epoch == d.Epoch && kinds.CompareVersions(d.ResourceVersion, before.ResourceVersion) <= 0 {
		find(m.Sequence, "%v is at version %s, and was at %s before", d.Ref, d.ResourceVersion, before.ResourceVersion)
	}
	s.versions[d.UID] = events.Delta{ResourceVersion: d.ResourceVersion, Epoch: d.Epoch}
}

// conclude reports the holes that no recorded gap covers, and a wrong census unless messages were discarded
// before it.
func (s *sense) conclude(find find) {
	discarded := func(h events.Hole) bool { return h.To < s.log.First }
	for _, h := range s.holes {
		if !s.recorded[[2]uint64{h.From, h.To}] && !discarded(h) {
			find(max(h.From, s.log.First), "%s", fmt.Sprintf("%s: %d to %d", h.Reason, h.From, h.To))
		}
	}
	for _, c := range s.miscount {
		if !slices.ContainsFunc(c.holes, discarded) {
			find(c.sequence, "%s", c.what)
		}
	}
}
