package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
)

// elsewhere adds to the error of an object that is not on record where an object with the same
// or a similar name is.
func (s *Session) elsewhere(ctx context.Context, err error) error {
	if s.asked.Name == "" || !errors.Is(err, record.ErrNotThere) {
		return err
	}
	kind, ref := s.askedKind, s.asked
	m, known, lookErr := s.newest(ctx, ref)
	switch {
	case lookErr != nil:
		return err
	case known && m.Get(events.HeaderOp) == string(events.Gone):
		return fmt.Errorf("%w; millrace history %s shows its past", err, printer.ArgumentOf(ref))
	case known:
		return err // the error is about a moment, or about something else
	}
	there, lookErr := s.objects(ctx, kind)
	if lookErr != nil {
		return err
	}
	var namespaces, names []string
	for _, o := range there {
		switch {
		case o.Name == ref.Name:
			namespaces = append(namespaces, o.Namespace)
		case o.Namespace == ref.Namespace:
			names = append(names, o.Name)
		}
	}
	switch near := resolve.Meant(resolve.Near(ref.Name, names)); {
	case len(namespaces) > 0:
		return fmt.Errorf("%w; there is one in namespace %s: -n %s", err, strings.Join(namespaces[:min(resolve.MostNear, len(namespaces))], ", "), namespaces[0])
	case near != "":
		return fmt.Errorf("%w%s", err, near)
	default:
		return fmt.Errorf("%w%s", err, s.NoNamespace(ctx, ref.Namespace))
	}
}

// NoNamespace is a message, after a semicolon, that a namespace does not exist; empty if it does,
// or if namespaces are not on record.
func (s *Session) NoNamespace(ctx context.Context, namespace string) string {
	if namespace == "" {
		return ""
	}
	have, err := s.Kinds(ctx)
	if err != nil || !slices.ContainsFunc(have, func(k kinds.Kind) bool { return k.Name == kinds.Namespaces.Name }) {
		return ""
	}
	m, found, err := s.newest(ctx, events.Ref{Kind: kinds.Namespaces.Name, Name: namespace})
	switch {
	case err != nil || found && m.Get(events.HeaderOp) == string(events.Is):
		return ""
	case found:
		return fmt.Sprintf("; namespace %s is gone since %s", namespace, printer.Time(m.Time))
	}
	all, err := s.objects(ctx, kinds.Namespaces.Kind)
	if err != nil {
		return ""
	}
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = o.Name
	}
	return fmt.Sprintf("; there is no namespace %s on record%s", namespace, resolve.Meant(resolve.Near(namespace, names)))
}

// objects are the existing objects of a kind, of all namespaces.
func (s *Session) objects(ctx context.Context, kind kinds.Kind) ([]events.Ref, error) {
	state, err := record.New(s.Bus).At(ctx, kind, "", record.Moment{})
	if err != nil {
		return nil, err
	}
	there := make([]events.Ref, len(state.Entries))
	for i, e := range state.Entries {
		there[i] = e.Ref
	}
	return there, nil
}

// newest is the last delta of an object; found is false if the record has none.
func (s *Session) newest(ctx context.Context, ref events.Ref) (m events.Message, found bool, err error) {
	return s.Bus.Last(ctx, subject.LogStream(ref.Kind), subject.Delta(ref))
}

// called are the objects of some usual kinds with that name, as KIND/NAME.
func (s *Session) called(ctx context.Context, name string) (found []string) {
	have, err := s.Kinds(ctx)
	if err != nil {
		return nil
	}
	for _, word := range []string{"deploy", "sts", "ds", "job", "cj", "rs", "po", "svc", "cm", "pvc", "no", "ns"} {
		kind, err := resolve.Kind(word, have)
		if err != nil {
			continue
		}
		ref := events.Ref{Kind: kind.Name, Name: name}
		if kind.Namespaced {
			ref.Namespace = s.Namespace
		}
		if _, there, err := s.newest(ctx, ref); err == nil && there && len(found) < resolve.MostNear {
			found = append(found, word+"/"+name)
		}
	}
	return found
}
