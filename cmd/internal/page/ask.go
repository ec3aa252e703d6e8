package page

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// ask is one request of the page, with the parameters of the commands.
type ask struct {
	*page
	values url.Values
}

func (a *ask) word(name string) string { return a.values.Get(name) }

// kind is the kind that a word names.
func (a *ask) kind(ctx context.Context, word string) (kinds.Kind, error) {
	have, err := a.record.Kinds(ctx)
	if err != nil {
		return kinds.Kind{}, err
	}
	kind, err := resolve.Kind(word, have)
	if err != nil {
		return kind, fmt.Errorf("%w: %w", record.ErrNotThere, err)
	}
	return kind, nil
}

// object is the object that the request names.
func (a *ask) object(ctx context.Context) (kinds.Kind, events.Ref, error) {
	kind, err := a.kind(ctx, a.word("kind"))
	if err != nil {
		return kind, events.Ref{}, err
	}
	ref := events.Ref{Kind: kind.Name, Name: a.word("name")}
	if kind.Namespaced {
		ref.Namespace = a.word("namespace")
	}
	if ref.Name == "" || kind.Namespaced && ref.Namespace == "" {
		return kind, ref, fmt.Errorf("%w: name an object: kind, name, and the namespace where it has one", errAsked)
	}
	return kind, ref, nil
}

// moment parses a moment, in the format of --at.
func (a *ask) moment(name string) (record.Moment, error) {
	when, err := record.ParseMoment(a.word(name), time.Now())
	if err != nil {
		return when, fmt.Errorf("%w: read %s: %w", errAsked, name, err)
	}
	return when, nil
}

// span is the time range between two moments. Neither may be a resourceVersion.
func (a *ask) span() (s record.Span, err error) {
	for name, end := range map[string]*time.Time{"from": &s.From, "to": &s.To} {
		when, err := a.moment(name)
		if err != nil {
			return s, err
		}
		if when.Version != "" {
			return s, fmt.Errorf("%w: %s is no time", errAsked, name)
		}
		*end = when.Time
	}
	return s, nil
}

// leases is the kind of heartbeats.
const leases kinds.Name = "leases.coordination.k8s.io"

// filter selects the happenings of the request; calm leaves out the Leases.
func (a *ask) filter(ctx context.Context) (record.Filter, error) {
	f := record.Filter{Namespace: a.word("namespace"), Name: a.word("name")}
	if a.word("calm") != "true" {
		return f, nil
	}
	have, err := a.record.Kinds(ctx)
	if err != nil {
		return f, err
	}
	for _, k := range have {
		if k.Name != leases {
			f.Kinds = append(f.Kinds, k.Name)
		}
	}
	f.Controllers, err = a.archive.Controllers(ctx)
	return f, err
}

// count parses a number from 1 to most; usual by default.
func (a *ask) count(name string, usual, most int) (int, error) {
	text := a.word(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%w: %s is %q, which is no number from 1 to %d", errAsked, name, text, most)
	}
	return n, nil
}
