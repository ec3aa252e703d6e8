package notary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ErrGone: pages or lists that this notary has signed are missing from the bus. The notary signs
// nothing until it is told to begin anew: otherwise a record that was replaced together with its
// pages would verify.
var ErrGone = errors.New("what this notary has signed is there no more; it goes on when it is told to begin anew")

// Memory stores what a notary has signed outside of the bus, because an attacker who controls
// the bus can remove its pages.
type Memory interface {
	// Load gives the data saved last; empty if there is none.
	Load() ([]byte, error)
	Save([]byte) error
}

// remembered is the content of the Memory.
type remembered struct {
	// Made is the creation time of the notary's own stream.
	Made time.Time `json:"made,omitzero"`
	// Seen are the last known checkpoints, by stream.
	Seen map[string]Checkpoint `json:"seen"`
	// List is the last known list of streams.
	List listMemory `json:"list,omitzero"`
}

// listMemory identifies a list.
type listMemory struct {
	Number uint64    `json:"number"`
	Time   time.Time `json:"time"`
}

// recall reads the Memory, once.
func (n *Notary) recall() error {
	if n.Memory == nil || n.recalled {
		return nil
	}
	text, err := n.Memory.Load()
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &n.own)
	}
	if err != nil {
		return fmt.Errorf("read what this notary has signed: %w", err)
	}
	if n.own.Seen == nil {
		n.own.Seen = map[string]Checkpoint{}
	}
	n.recalled = true
	return nil
}

// remember saves the Memory if it has changed.
func (n *Notary) remember() error {
	if n.Memory == nil || !n.changed {
		return nil
	}
	text, err := json.MarshalIndent(n.own, "", "  ")
	if err == nil {
		err = n.Memory.Save(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save what this notary has signed: %w", err)
	}
	n.changed = false
	return nil
}

// present checks that the notary's own stream is still the same one. If the notary was told to
// begin anew, it forgets what it knew, and says so in the first page of each stream.
//
// Errors: ErrGone.
func (n *Notary) present(ctx context.Context) error {
	at, err := n.bus.StreamState(ctx, subject.NotaryStream)
	missing := errors.Is(err, bus.ErrNoStream)
	if err != nil && !missing {
		return fmt.Errorf("look at the stream of the pages: %w", err)
	}
	if missing {
		n.kept = -1 // the stream has to be created
	}
	if len(n.own.Seen) == 0 || !missing && (n.own.Made.IsZero() || n.own.Made.Equal(at.Created)) {
		return nil
	}
	if !n.BeginAnew {
		if missing {
			return fmt.Errorf("%w: the stream %s is not there", ErrGone, subject.NotaryStream)
		}
		return fmt.Errorf("%w: the stream %s was made anew on %s", ErrGone, subject.NotaryStream, at.Created.UTC().Format(time.RFC3339))
	}
	n.beginAnew(time.Now())
	return nil
}

func (n *Notary) beginAnew(now time.Time) {
	n.anew = fmt.Sprintf("begun on %s; nothing was vouched for before", now.UTC().Format(time.RFC3339))
	n.Log.Warn("restarting the record, as configured", "forgotten", len(n.own.Seen))
	n.own, n.heads, n.lists, n.changed, n.BeginAnew = remembered{Seen: map[string]Checkpoint{}}, map[string]*head{}, nil, true, false
}

// made records the creation time of the notary's own stream, and the current time.
func (n *Notary) made(ctx context.Context) error {
	at, err := n.bus.StreamState(ctx, subject.NotaryStream)
	if err != nil {
		return fmt.Errorf("look at the stream of the pages: %w", err)
	}
	n.now = at.Now
	if !at.Created.Equal(n.own.Made) {
		n.own.Made, n.changed = at.Created, true
	}
	return nil
}

// missing reports whether stored pages about a stream are gone although they cannot have expired.
func (n *Notary) missing(name string, h *head) bool {
	known, ok := n.own.Seen[name]
	if !ok || h.page != nil || h.breaks != "" {
		return false
	}
	return n.kept <= 0 || time.Since(known.Time) < n.kept
}
