package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// bearers looks for whoever has borne a name in the state stream of its kind, which
// remembers the dead for as long as the record goes back. It may not know yet of
// what was born a moment ago.
func bearers(b bus.Bus) func(context.Context, events.Ref) (bool, error) {
	return func(ctx context.Context, ref events.Ref) (bool, error) {
		_, there, err := b.Last(ctx, subject.StateStream(ref.Kind), subject.Delta(ref))
		switch {
		case errors.Is(err, bus.ErrNoStream):
			return false, nil // nobody watches the kind
		case err != nil:
			return false, fmt.Errorf("look for %v in the record: %w", ref, err)
		}
		return there, nil
	}
}
