package replay

import (
	"bytes"
	"encoding/json"
	"io"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// recorded is a turn as it was stored. The decision is most of it, and mostly this code
// decides the same bytes, so that it need not be decoded. At first only the rest is
// decoded.
type recorded struct {
	controller string
	sequence   uint64
	stored     time.Time
	lane       events.Lane
	turn       events.Turn
	text       []byte // the whole turn, whose decision is not decoded yet; nil when turn is complete
	decided    int    // where the decision begins
	wanted     bool
	err        error
}

// decision is the beginning of the decision in a turn's JSON. The quotation marks
// cannot be part of a string, but an earlier field may have such a member of its own.
const decision = `,"because":`

// read decodes a turn: without its decision if possible, unless all is set.
//
// Errors: those of [events.DecodeJSON].
func (t *recorded) read(m events.Message, all bool) error {
	if at := bytes.Index(m.Data, []byte(decision)); at > 0 && !all {
		head := append(append(make([]byte, 0, at+1), m.Data[:at]...), '}')
		var turn events.Turn
		if json.Unmarshal(head, &turn) == nil && undecided(turn) {
			t.turn, t.text, t.decided = turn, m.Data, at+1
			return events.Verify(m)
		}
	}
	return events.DecodeJSON(m, &t.turn)
}

// undecided reports whether no field of the decision has been decoded, because otherwise
// it would be there twice.
func undecided(t events.Turn) bool {
	return t.Because == "" && t.Commands == nil && t.Shapes == nil && t.Notices == nil && t.WakeAt == nil
}

// says reports whether the recorded turn contains a decision byte for byte, and if so
// completes turn with it.
func (t *recorded) says(now *events.Turn, turn *events.Turn) bool {
	if t.text == nil {
		return false
	}
	rest, same := bytes.CutPrefix(t.text[t.decided:], now.AppendDecision(make([]byte, 0, len(t.text)-t.decided)))
	if !same || !t.ends(rest, turn) {
		return false
	}
	turn.Because, turn.Commands, turn.Shapes, turn.Notices, turn.WakeAt = now.Because, now.Commands, now.Shapes, now.Notices, now.WakeAt
	t.text = nil
	return true
}

// ends decodes the rest after the decision; false if it has unexpected content.
func (t *recorded) ends(rest []byte, turn *events.Turn) bool {
	if string(rest) == "}" {
		return true
	}
	if len(rest) == 0 || rest[0] != ',' {
		return false
	}
	var end struct {
		Code    string
		Token   uint64
		Attempt int
		Repeats uint64
		Trace   events.Trace
	}
	d := json.NewDecoder(bytes.NewReader(append([]byte{'{'}, rest[1:]...)))
	d.DisallowUnknownFields()
	if d.Decode(&end) != nil {
		return false
	}
	if _, err := d.Token(); err != io.EOF {
		return false
	}
	turn.Code, turn.Token, turn.Attempt, turn.Repeats, turn.Trace = end.Code, end.Token, end.Attempt, end.Repeats, end.Trace
	return true
}

// complete decodes the whole recorded turn.
//
// Errors: it cannot be decoded.
func (c *pending) complete() error {
	t := c.recorded
	if t.text == nil {
		return nil
	}
	c.Turn = events.Turn{}
	err := json.Unmarshal(t.text, &c.Turn)
	t.text = nil
	return err
}

// compare compares the present decision with the recorded one.
func (c *pending) compare(d reconcile.Decision) {
	now := c.rebuilt(d)
	if c.recorded.says(now, &c.Turn) {
		c.Verdict = Same
		return
	}
	if err := c.complete(); err != nil {
		c.Verdict, c.Why, c.Detail = Unjudged, Unread, err.Error()
		return
	}
	switch {
	case now.SameDecision(c.Turn):
		c.Verdict = Same
	case c.Turn.Digest == 0:
		c.Verdict, c.Why, c.Now = Unjudged, Older, now
	case c.earlier:
		c.Verdict, c.Why, c.Now = Unjudged, Earlier, now
	default:
		c.Verdict, c.Now = Differs, now
	}
}

// differs sets the verdict for code that gives no decision.
func (c *pending) differs() {
	c.Verdict = Differs
	if err := c.complete(); err != nil {
		c.Verdict, c.Why, c.Detail = Unjudged, Unread, err.Error()
	}
}
