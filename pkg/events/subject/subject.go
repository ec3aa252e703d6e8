// Package subject defines the subjects of the bus: on which subject a message is published, and
// which stream stores it.
//
//	ev.<kind>.<slot>.<ns>.<name>                          deltas of objects
//	ev.<kind>._mark                                       marks and gaps
//	turn.<controller>.<lane>.<slot>.<kind>.<ns>.<name>    turns
//	outcome.<controller>.<lane>.<slot>.<kind>.<ns>.<name> outcomes
//	wake.<controller>.<slot>.<kind>.<ns>.<name>           wakes that have fired
//	sched.<controller>.<slot>.<kind>.<ns>.<name>          wakes that are set
//
// Names of objects may contain characters that a subject token may not, so they are
// percent-escaped; an empty token is "_".
package subject

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// WakeStream holds the wakes of all controllers, both scheduled and fired.
const WakeStream = "WAKE"

// StatusStream holds the reports of the reconcilers about their controllers, and of the watchers
// about kinds that they cannot watch, for [report.Age]. It is no part of the record.
const StatusStream = "STATUS"

// StatusSubject is the subject of the reconcilers' reports, WatcherStatusSubject that of the
// watchers'.
const (
	StatusSubject        = "status.reconcilers"
	WatcherStatusSubject = "status.watchers"
)

const (
	none = "_"
	mark = "_mark"
)

// LogStream is the stream that holds every delta of a kind.
func LogStream(kind kinds.Name) string { return "EV_" + kind.Token() }

// KindOfStream is the kind of a log, or of the stream beside it that triggers of earlier
// versions name (STATE_<kind>, with the log's sequences); ok is false for any other stream.
func KindOfStream(stream string) (kind kinds.Name, ok bool) {
	for _, prefix := range []string{"EV_", "STATE_"} {
		if token, found := strings.CutPrefix(stream, prefix); found {
			return kinds.ParseToken(token), true
		}
	}
	return "", false
}

// TurnStream is the stream that holds a controller's turns.
func TurnStream(controller string) string { return "TURN_" + controller }

// OutcomeStream is the stream that holds the outcomes of a controller's turns.
func OutcomeStream(controller string) string { return "OUTCOME_" + controller }

// Log is every subject of a kind's log.
func Log(kind kinds.Name) string { return "ev." + kind.Token() + ".>" }

// Delta is the subject of an object's deltas.
func Delta(ref events.Ref) string {
	return join("ev", ref.Kind.Token(), strconv.Itoa(ref.Slot()), escape(ref.Namespace), escape(ref.Name))
}

// DeltasIn is every subject of the deltas of a kind's objects in a namespace.
func DeltasIn(kind kinds.Name, namespace string) string {
	slot := "*" // the slots of cluster-scoped objects depend on their names
	if namespace != "" {
		slot = strconv.Itoa(events.SlotOf(namespace, ""))
	}
	return join("ev", kind.Token(), slot, escape(namespace), "*")
}

// Mark is the subject of a kind's marks and gaps.
func Mark(kind kinds.Name) string { return join("ev", kind.Token(), mark) }

// Of is the subject of a delta: that of its object, or for a mark or a gap that of its kind's marks.
func Of(d events.Delta) string {
	if d.Ref.Name == "" {
		return Mark(d.Kind)
	}
	return Delta(d.Ref)
}

// Message is the message of a delta: encoded, on its subject, and not yet sealed ([events.Seal]).
func Message(d events.Delta) events.Message {
	m := events.EncodeDelta(d)
	m.Subject = Of(d)
	return m
}

// Turns is every subject of a controller's turns.
func Turns(controller string) string { return "turn." + controller + ".>" }

// Turn is the subject of a key's turns in a lane.
func Turn(controller string, lane events.Lane, key events.Key) string {
	return join("turn", controller, string(lane), keyTokens(key))
}

// Parks is every subject of the turns that park a key.
func Parks(controller string) string { return join("turn", controller, string(events.LanePark), ">") }

// Outcomes is every subject of a controller's outcomes.
func Outcomes(controller string) string { return "outcome." + controller + ".>" }

// Outcome is the subject of the outcomes of a key's turns in a lane.
func Outcome(controller string, lane events.Lane, key events.Key) string {
	return join("outcome", controller, string(lane), keyTokens(key))
}

// Wake is the subject on which a key's wake fires.
func Wake(controller string, key events.Key) string {
	return join("wake", controller, keyTokens(key))
}

// Schedule is the subject on which a key's wake is scheduled; the last one replaces earlier
// ones.
func Schedule(controller string, key events.Key) string {
	return join("sched", controller, keyTokens(key))
}

// ParseDelta is the inverse of [Delta]. For the subject of marks it gives only the kind.
func ParseDelta(subject string) (events.Ref, error) {
	t := strings.Split(subject, ".")
	switch {
	case len(t) == 3 && t[0] == "ev" && t[2] == mark:
		return events.Ref{Kind: kinds.ParseToken(t[1])}, nil
	case len(t) != 5 || t[0] != "ev":
		return events.Ref{}, fmt.Errorf("parse subject %q: not ev.<kind>.<slot>.<namespace>.<name>", subject)
	}
	key, err := parseKey(t[2], "_", t[3:])
	if err != nil {
		return events.Ref{}, fmt.Errorf("parse subject %q: %w", subject, err)
	}
	return events.Ref{Kind: kinds.ParseToken(t[1]), Namespace: key.Namespace, Name: key.Name}, nil
}

// ParseTurn is the inverse of [Turn] and of [Outcome].
func ParseTurn(subject string) (controller string, lane events.Lane, key events.Key, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 7 || (t[0] != "turn" && t[0] != "outcome") {
		return "", "", key, fmt.Errorf("parse subject %q: not turn|outcome.<controller>.<lane>.<slot>.<kind>.<namespace>.<name>", subject)
	}
	if key, err = parseKey(t[3], t[4], t[5:]); err != nil {
		return "", "", key, fmt.Errorf("parse subject %q: %w", subject, err)
	}
	return t[1], events.Lane(t[2]), key, nil
}

// ParseWake is the inverse of [Wake] and of [Schedule].
func ParseWake(subject string) (controller string, key events.Key, err error) {
	t := strings.Split(subject, ".")
	if len(t) != 6 || (t[0] != "wake" && t[0] != "sched") {
		return "", key, fmt.Errorf("parse subject %q: not wake|sched.<controller>.<slot>.<kind>.<namespace>.<name>", subject)
	}
	if key, err = parseKey(t[2], t[3], t[4:]); err != nil {
		return "", key, fmt.Errorf("parse subject %q: %w", subject, err)
	}
	return t[1], key, nil
}

func keyTokens(key events.Key) string {
	kind := none
	if key.Kind != "" {
		kind = key.Kind.Token()
	}
	return join(strconv.Itoa(key.Slot()), kind, escape(key.Namespace), escape(key.Name))
}

func parseKey(slot, kind string, names []string) (key events.Key, err error) {
	switch kind {
	case none:
	case "":
		return key, fmt.Errorf("the kind is empty: none is written %q", none)
	default:
		key.Kind = kinds.ParseToken(kind)
	}
	if key.Namespace, err = unescape(names[0]); err != nil {
		return key, err
	}
	if key.Name, err = unescape(names[1]); err != nil {
		return key, err
	}
	if want := strconv.Itoa(key.Slot()); slot != want {
		return key, fmt.Errorf("slot %s, but %v belongs in slot %s", slot, key, want)
	}
	return key, nil
}

func join(tokens ...string) string { return strings.Join(tokens, ".") }

// escape makes a name one token. Besides separators and wildcards, it escapes everything outside
// printable ASCII, and the bare "_" that stands for the empty name.
func escape(name string) string {
	if name == "" {
		return none
	}
	if name == none {
		return "%5F"
	}
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ' || c >= 0x7f || strings.IndexByte(".*>%", c) >= 0:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescape(token string) (string, error) {
	if token == none {
		return "", nil
	}
	name, err := url.PathUnescape(token)
	if err != nil {
		return "", fmt.Errorf("token %q: %w", token, err)
	}
	if escape(name) != token {
		return "", fmt.Errorf("token %q: the name %q is escaped as %q", token, name, escape(name))
	}
	return name, nil
}

// Matches reports whether a subject matches a filter; "" matches all.
func Matches(filter, subject string) bool {
	if filter == "" {
		return true
	}
	for {
		want, restWanted, moreWanted := strings.Cut(filter, ".")
		have, rest, more := strings.Cut(subject, ".")
		switch {
		case want == ">":
			return true
		case want != "*" && want != have:
			return false
		case !moreWanted || !more:
			return moreWanted == more
		}
		filter, subject = restWanted, rest
	}
}
