package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// Read decodes the writer's answer to a question, such as [query.Users], into the value
// that answer points to. Controllers may let go of an object that an answer does not
// name. So Read refuses a body that could pass for an empty answer by mistake: an unknown
// field means that the answer belongs to another question or comes from a newer writer.
//
// Errors: there is no answer, or it has another shape. The caller must not use the value
// then.
func Read(r events.Result, answer any) error {
	body, err := answered(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(answer); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return nil
}

// ReadNote decodes the note of a command, which came back with the command's result.
//
// Errors: there is no note, or it has another shape.
func ReadNote(r events.Result, note any) error {
	if r.Answer == nil || len(r.Answer.Note) == 0 {
		return errors.New("the note cannot be read: there is none")
	}
	if err := json.Unmarshal(r.Answer.Note, note); err != nil {
		return fmt.Errorf("the note cannot be read: %w", err)
	}
	return nil
}

// ReadObject decodes the answer to a question for an object of a kind. The API server may
// send fields that this code does not know. ReadObject therefore identifies the object by
// its kind, where the answer has one, and by its uid.
//
// Errors: as [Read].
func ReadObject(r events.Result, kind string, obj interface {
	runtime.Object
	metav1.Object
}) error {
	body, err := answered(r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, obj); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if is := obj.GetObjectKind().GroupVersionKind().Kind; is != "" && is != kind || obj.GetUID() == "" {
		return fmt.Errorf("the answer cannot be read: it is no %s", kind)
	}
	return nil
}

// answered returns the body of an answer.
func answered(r events.Result) (json.RawMessage, error) {
	if r.Status != events.Answered || r.Answer == nil {
		return nil, errors.New("the answer cannot be read: there is none")
	}
	body := bytes.TrimSpace(r.Answer.Body)
	if len(body) == 0 || body[0] != '{' { // encoding/json would read null as an empty object
		return nil, errors.New("the answer cannot be read: it is no object")
	}
	return r.Answer.Body, nil
}

// Unread is an answer that could not be read.
type Unread struct {
	Because string    `json:"because"`
	At      time.Time `json:"at"`
}

// patience is how long a key waits before it asks again after an answer that it could not
// read. Only another version of the writer or of the reconcilers can change the result,
// and every object may have a key that asks.
const patience = 30 * time.Second

// Ask returns the decision to ask questions, because something is not known. u is the
// last answer if that could not be read, and nil otherwise. Until patience has passed
// since u, Ask waits and gives u's reason.
func (u *Unread) Ask(now time.Time, because string, questions ...events.Command) Decision {
	if u == nil {
		return Do(because, questions...)
	}
	if at := u.At.Add(patience); now.Before(at) {
		return Wake(at, u.Because)
	}
	return Do("it is asked again, since "+u.Because, questions...)
}

// LastOf returns the newest outcome of a lane if its turn was about own, the key's object as
// it is seen now, by uid. An outcome about a deleted object of the same name says nothing
// about this one. ok is false when no such outcome is remembered, and when own is nil.
func LastOf(s Snapshot, k events.Key, lane events.Lane, own metav1.Object) (o events.Outcome, ok bool) {
	o, ok = LastOfAny(s, k, lane)
	if !ok || uidOf(own) == "" || o.UID != uidOf(own) {
		return events.Outcome{}, false
	}
	return o, true
}

// Answers returns the newest outcome of the write lane if its turn was decided on own as it is
// seen now: the same uid and the same resourceVersion. It is for answers that must be
// compared with the object's own fields; a controller asks again when those have changed.
// metadata.generation cannot serve here: the API server keeps none for most kinds, and it
// does not change with finalizers.
func Answers(s Snapshot, k events.Key, own metav1.Object) (o events.Outcome, ok bool) {
	o, ok = LastOf(s, k, events.LaneWrite, own)
	if !ok || !IsCurrent(o, own) {
		return events.Outcome{}, false
	}
	return o, true
}

// IsCurrent reports whether the turn of an outcome of own was decided on own as it is seen now,
// by resourceVersion. It is for outcomes of which a part is valid for all versions; see [Answers]
// for the others.
func IsCurrent(o events.Outcome, own metav1.Object) bool {
	return o.ResourceVersion != "" && o.ResourceVersion == own.GetResourceVersion()
}

// LastOfAny returns the newest outcome of a lane, of any object with the key's name. It is
// for keys that are not objects, and for work about a deleted object. If the writer's clock
// is behind, LastOfAny raises the outcome's time to that of its turn, because otherwise a
// new answer would be too old at once.
func LastOfAny(s Snapshot, k events.Key, lane events.Lane) (o events.Outcome, ok bool) {
	if o, ok = s.Last(k, lane); o.At.Before(o.Decided) {
		o.At = o.Decided
	}
	return o, ok
}

// uidOf returns the uid of an object that may be nil.
func uidOf(own metav1.Object) types.UID {
	if own == nil {
		return ""
	}
	return own.GetUID()
}

// apart is the largest clock difference that is tolerated where times of objects are
// compared.
const apart = 10 * time.Second

// Ahead reports whether a time of an object lies so far in the future that one of the two
// clocks was or is wrong. Such a time says nothing about what came first. Times of the key's
// own outcomes and notes need no such check, because they are never later than the moment at
// which the service received them ([events.Outcome.KnownBy]).
func Ahead(at, now time.Time) bool { return at.After(now.Add(apart)) }
