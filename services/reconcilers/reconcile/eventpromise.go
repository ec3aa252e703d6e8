package reconcile

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// fit checks that the promise covers the Events of a command: their objects and their
// reasons.
func (w EventPromises) fit(owns *kinds.Kind, t events.Turn, c events.Command) error {
	for _, n := range []*events.Notice{t.NoticeAt(c.Applied), t.NoticeAt(c.Failed), c.OnApplied, c.OnFailed} {
		if n == nil {
			continue
		}
		if err := w.holds(owns, t, *n); err != nil {
			return err
		}
	}
	return nil
}

func (w EventPromises) holds(owns *kinds.Kind, t events.Turn, n events.Notice) error {
	var err error
	for _, p := range w {
		if !p.Any && (n.About.Kind != p.Kind.Kind || n.About.APIVersion != p.Kind.APIVersion()) {
			continue
		}
		if err = p.holds(owns, t, n); err == nil {
			return nil
		}
	}
	if err == nil {
		err = fmt.Errorf("the controller never promised an Event about a %.60q", n.About.Kind)
	}
	return err
}

func (p EventPromise) holds(owns *kinds.Kind, t events.Turn, n events.Notice) error {
	kind := p.Kind.Name
	if p.Any {
		kind = kindOf(owns, t) // the object reference has no resource name to compare
	}
	ref := events.Ref{Kind: kind, Namespace: n.About.Namespace, Name: n.About.Name}
	switch {
	case !p.On.holds(kindOf(owns, t), t.Key, ref), p.On == Itself && t.UID != "" && n.About.UID != t.UID:
		return fmt.Errorf("an Event is about %v, which is not %s, %v", ref, p.On, t.Key)
	case p.Any && !called(kind, n.About.Kind):
		return fmt.Errorf("an Event is about a %.60q, and the turn about one of %s", n.About.Kind, kind)
	case !reason(n.Reason) || p.Reasons != nil && !slices.Contains(p.Reasons, n.Reason):
		return fmt.Errorf("an Event has the reason %.60q, which is not promised", n.Reason)
	default:
		return nil
	}
}

// called reports whether name is the kind's name in the API, as far as the kind is known.
func called(kind kinds.Name, name string) bool {
	k, known := kinds.Lookup(kind)
	return !known || k.Kind == name
}

// reason reports whether a text can be an Event's reason: letters and digits, beginning
// with a capital.
func reason(text string) bool {
	for i, r := range text {
		capital, small, digit := 'A' <= r && r <= 'Z', 'a' <= r && r <= 'z', '0' <= r && r <= '9'
		if !capital && (i == 0 || !small && !digit) {
			return false
		}
	}
	return text != ""
}
