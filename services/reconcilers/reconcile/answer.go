package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
)

// Read reads the answer to a question that the writer finds out, such as [events.Users],
// into a pointer to it. What an answer does not name may be let go of, so nothing is
// taken for an empty answer that does not look like one: a field that this code does
// not know is of another question, or of a writer that is newer.
//
// Errors: there is no answer, or it has another shape. It must not be used then.
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

// ReadNote reads the note of a command that came back with its result.
//
// Errors: there is none, or it has another shape.
func ReadNote(r events.Result, note any) error {
	if r.Answer == nil || len(r.Answer.Note) == 0 {
		return errors.New("the note cannot be read: there is none")
	}
	if err := json.Unmarshal(r.Answer.Note, note); err != nil {
		return fmt.Errorf("the note cannot be read: %w", err)
	}
	return nil
}

// ReadObject reads the answer to a question for an object of a kind. The API server may
// know fields that this code does not, so it is its kind, where it says one, and its uid
// that an object is told by.
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

// answered is what a question brought back.
func answered(r events.Result) (json.RawMessage, error) {
	if r.Status != events.Answered || r.Answer == nil {
		return nil, errors.New("the answer cannot be read: there is none")
	}
	body := bytes.TrimSpace(r.Answer.Body)
	if len(body) == 0 || body[0] != '{' { // null would be read as an empty one
		return nil, errors.New("the answer cannot be read: it is no object")
	}
	return r.Answer.Body, nil
}

// Unread is an answer that could not be read.
type Unread struct {
	Because string    `json:"because"`
	At      time.Time `json:"at"`
}

// patience is how long a key whose answer cannot be read waits before asking again. Only
// another version of writer or reconciler changes anything about it, and as many keys may
// ask as there are objects.
const patience = 30 * time.Second

// Ask is the decision to ask, because something is not known. Where that is so since the
// last answer could not be read, it says that instead, and the question waits; u is nil
// where it could, and where there was none.
func (u *Unread) Ask(now time.Time, because string, questions ...events.Command) Decision {
	if u == nil {
		return Do(because, questions...)
	}
	if at := u.At.Add(patience); now.Before(at) {
		return Wake(at, u.Because)
	}
	return Do("it is asked again, since "+u.Because, questions...)
}
