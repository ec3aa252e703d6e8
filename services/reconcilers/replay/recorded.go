package replay

import (
	"bytes"
	"encoding/json"
	"io"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// recorded is a turn as it was stored. What was decided is most of it, and mostly this
// code decides the same: then the bytes are, and need not be read. So at first only the
// rest is.
type recorded struct {
	controller string
	sequence   uint64
	stored     time.Time
	lane       events.Lane
	turn       events.Turn
	text       []byte // the whole turn, of which decided is still to be read; nil when turn is complete
	decided    int    // where that begins
	wanted     bool
	err        error
}

// decision is how what was decided begins in a turn's JSON. Quotation marks cannot be
// inside of a string, but what comes before may have such a member of its own.
const decision = `,"because":`

// read reads a turn as far as it has to be.
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

// undecided tells whether nothing of what was decided has been read: it would be said
// twice.
func undecided(t events.Turn) bool {
	return t.Because == "" && t.Commands == nil && t.Shapes == nil && t.Notices == nil && t.WakeAt == nil
}

// says tells whether a decision stands in the recorded turn word for word, and
// completes that with it.
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

// ends reads what comes behind the decision; false when that is more than it should be,
// or something else.
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

// complete reads the rest of the recorded turn.
//
// Errors: it cannot be read.
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

// compare holds what is decided now against what was decided then.
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

// differs says that this code gives no decision.
func (c *pending) differs() {
	c.Verdict = Differs
	if err := c.complete(); err != nil {
		c.Verdict, c.Why, c.Detail = Unjudged, Unread, err.Error()
	}
}
