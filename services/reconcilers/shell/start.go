package shell

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// errSkippedObjects ends a reading that did not begin with the first message, and found fewer objects
// than the census.
var errSkippedObjects = errors.New("not everything has been said since the message that the last mark names")

// startSequence returns the sequence of the state stream to begin with: the one behind what has been
// folded. A follower that has folded nothing begins at the sequence since which, by the last
// mark, every object has been reported, and so skips a day's deletions. If the census then
// shows that objects are missing, or if there is trouble already, it reads the whole stream.
func (f *Follower) startSequence(ctx context.Context) (uint64, error) {
	if at := f.Memory.Position(f.Kind.Name); at > 0 {
		return at + 1, nil
	}
	f.skipping = false
	if f.mustReadAll || f.trouble.current() != nil {
		return 1, nil
	}
	m, there, err := f.Bus.Last(ctx, subject.StateStream(f.Kind.Name), subject.Mark(f.Kind.Name))
	if err != nil {
		return 0, fmt.Errorf("look where to begin with %s: %w", f.Kind.Name, err)
	}
	mark := read(f.Kind, m).delta
	if !there || mark.Op != events.Mark || mark.Since <= 1 {
		return 1, nil
	}
	f.skipping = true
	return mark.Since, nil
}
