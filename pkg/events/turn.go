package events

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Turn is one question to one controller and its answer.
type Turn struct {
	Controller string `json:"controller"`
	Key        Key    `json:"key"`
	Lane       Lane   `json:"lane"`

	// UID, ResourceVersion and Generation identify the key's own object as the
	// decision saw it; empty when the key is no object or the object is gone.
	Kind            kinds.Name `json:"kind,omitempty"`
	UID             types.UID  `json:"uid,omitempty"`
	ResourceVersion string     `json:"resourceVersion,omitempty"`
	Generation      int64      `json:"generation,omitempty"`

	// Triggers are the messages that asked for the turn, newest last, at most
	// MaxTriggers of them.
	Triggers []Trigger `json:"triggers,omitempty"`
	// Seen is how far each kind's log had been read.
	Seen Position `json:"seen,omitempty"`
	// Epochs are the epochs of the kinds that the decision rests on.
	Epochs Epochs `json:"epochs,omitempty"`
	// Now is the time that was passed to the decision.
	Now time.Time `json:"now"`
	// Digest is the digest of the objects that existed at Seen: the sum of [Census.Of] of each
	// kind. A reader that folds the logs up to Seen and gets the same digest sees what the
	// decision saw. 0: there were no objects, or an older version decided, which recorded
	// neither Digest nor Heard.
	Digest uint64 `json:"digest,omitempty,string"`
	// Heard are the newest outcomes of the key that the decision knew, by lane; lanes without a
	// known outcome are left out.
	Heard map[Lane]Heard `json:"heard,omitempty"`
	// Settings is the configuration of the controller; empty for a controller without settings.
	Settings json.RawMessage `json:"settings,omitempty"`

	Because  string            `json:"because"`
	Commands []Command         `json:"commands,omitempty"`
	Shapes   []json.RawMessage `json:"shapes,omitempty"`
	Notices  []Notice          `json:"notices,omitempty"`
	WakeAt   *time.Time        `json:"wakeAt,omitempty"`

	// Code is the version of the program that decided.
	Code string `json:"code,omitempty"`
	// Token is the fencing token of the Lease with which the controller moves between Millrace and
	// kube-controller-manager ([report.Heartbeat].Leads); 0 for a controller that does not.
	Token uint64 `json:"token,omitempty"`
	// Attempt counts, from 1, the turns of this key and lane that followed a failed one without
	// a success in between.
	Attempt int `json:"attempt,omitempty"`
	// Repeats is the sequence of the earlier turn of this key and lane that this one repeats
	// word for word, because it had no outcome; 0 for a turn of its own. The commands of a
	// repeated turn may have been carried out already.
	Repeats uint64 `json:"repeats,omitempty"`

	Trace Trace `json:"trace,omitzero"`
}

// MaxTriggers bounds Turn.Triggers.
const MaxTriggers = 32

// Position is how far each kind's log has been read, as stream sequences.
type Position map[kinds.Name]uint64

// Heard identifies an outcome among all of its key and lane.
type Heard struct {
	// Turn is the turn that the outcome was matched to. It is less than the outcome's own turn
	// if that turn was lost and another one took its place.
	Turn uint64    `json:"turn"`
	At   time.Time `json:"at"`
	// Answers is [Outcome.Answers]: a turn that is carried out twice may have two different
	// answers at the same moment of the bus's clock.
	Answers uint64 `json:"answers,omitempty"`
	// By is when the outcome was known, on the clock of Now, if the outcome is [Outcome.Ahead]
	// of it: the decision then saw the outcome as [Outcome.KnownBy] gives it.
	By time.Time `json:"by,omitzero"`
}

// Trigger is a message that asked for a turn.
type Trigger struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	Ref      Ref    `json:"ref,omitzero"`
	Trace    Trace  `json:"trace,omitzero"`
}

// Pack moves bodies that several commands share, and all notices, into the turn's tables, so
// that 500 creates from one template store it once.
func (t *Turn) Pack() {
	uses := map[string]int{}
	if len(t.Commands) > 1 { // a single command shares nothing
		for _, c := range t.Commands {
			uses[string(c.Body)]++
		}
	}
	shapes, notices := map[string]int{}, map[Notice]int{}
	for i := range t.Commands {
		c := &t.Commands[i]
		if len(c.Body) > 0 && uses[string(c.Body)] > 1 {
			c.Shape = t.shape(c.Body, shapes)
			c.Body = nil
		}
		c.Applied, c.OnApplied = t.notice(c.OnApplied, notices), nil
		c.Failed, c.OnFailed = t.notice(c.OnFailed, notices), nil
	}
}

func (t *Turn) shape(body json.RawMessage, known map[string]int) int {
	at, ok := known[string(body)]
	if !ok {
		t.Shapes = append(t.Shapes, body)
		at = len(t.Shapes)
		known[string(body)] = at
	}
	return at
}

func (t *Turn) notice(n *Notice, known map[Notice]int) int {
	if n == nil {
		return 0
	}
	at, ok := known[*n]
	if !ok {
		t.Notices = append(t.Notices, *n)
		at = len(t.Notices)
		known[*n] = at
	}
	return at
}

// BodyOf is the body of a command of this turn, whether shared or its own.
func (t Turn) BodyOf(c Command) json.RawMessage {
	if c.Shape > 0 && c.Shape <= len(t.Shapes) {
		return t.Shapes[c.Shape-1]
	}
	return c.Body
}

// NoticeAt is the notice at a position from 1, nil for 0 and for a position
// outside the table.
func (t Turn) NoticeAt(at int) *Notice {
	if at < 1 || at > len(t.Notices) {
		return nil
	}
	return &t.Notices[at-1]
}

// SameDecision reports whether two turns decided the same, byte for byte: reason, commands and
// wake time. The time and the inputs of the decisions may differ, and so may the zone of the
// wake time.
func (t Turn) SameDecision(other Turn) bool {
	if t.plainlySame(other) {
		return true
	}
	mine, err := t.decision()
	if err != nil {
		return false // a decision without a JSON form equals no other
	}
	others, err := other.decision()
	return err == nil && bytes.Equal(mine, others)
}

// plainlySame avoids encoding two turns that are equal in memory, which most are.
func (t Turn) plainlySame(other Turn) bool {
	return t.Controller == other.Controller && t.Key == other.Key && t.Lane == other.Lane && t.Because == other.Because &&
		(t.WakeAt == nil) == (other.WakeAt == nil) && (t.WakeAt == nil || t.WakeAt.Equal(*other.WakeAt)) &&
		slices.Equal(t.Notices, other.Notices) && reflect.DeepEqual(t.Shapes, other.Shapes) && reflect.DeepEqual(t.Commands, other.Commands)
}

// Errors: the wake time in UTC is in a year that JSON cannot represent.
func (t Turn) decision() ([]byte, error) {
	same := Turn{
		Controller: t.Controller, Key: t.Key, Lane: t.Lane,
		Because: t.Because, Commands: t.Commands, Shapes: t.Shapes, Notices: t.Notices,
	}
	if t.WakeAt != nil {
		at := t.WakeAt.UTC()
		same.WakeAt = &at
	}
	return json.Marshal(same)
}

// Wake asks for a turn of a key at a moment. The key's last wake replaces earlier ones.
type Wake struct {
	Controller string    `json:"controller"`
	Key        Key       `json:"key"`
	At         time.Time `json:"at"`
	Because    string    `json:"because,omitempty"`
	Trace      Trace     `json:"trace,omitzero"`
}
