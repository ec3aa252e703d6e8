package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/resolve"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// Session is one run of a command.
type Session struct {
	Options
	Bus   bus.Archive
	Paper *printer.Paper
	// Notes receives remarks that are not part of the answer.
	Notes io.Writer

	kinds     []kinds.Kind
	asked     events.Ref // the object that the arguments name
	askedKind kinds.Kind
}

// Given is the namespace of the flag; empty if it was not set.
func (s *Session) Given() string { return s.given }

// Now is the time that relative times count back from: for a file, its end.
func (s *Session) Now() time.Time {
	if f, is := s.Bus.(*archive.File); is {
		return f.About().Exported.Local()
	}
	return time.Now()
}

// Kinds are the kinds on record.
func (s *Session) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if s.kinds == nil {
		found, err := s.Bus.Kinds(ctx)
		if err != nil {
			return nil, fmt.Errorf("look which kinds are on record: %w", err)
		}
		s.kinds = found
	}
	return s.kinds, nil
}

// Controllers resolves words to names of controllers, by name or alias. It accepts controllers
// with turns on record, and others.
//
// Errors: a word names no controller, or one that has nothing on record; the error has similar
// names.
func (s *Session) Controllers(ctx context.Context, words []string, others ...string) (names []string, err error) {
	if len(words) == 0 {
		return nil, nil
	}
	have, err := s.Bus.Controllers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look which controllers are on record: %w", err)
	}
	have = append(have, others...)
	for _, word := range words {
		if slices.Contains(have, word) {
			names = append(names, word)
			continue
		}
		e, err := resolve.Controller(word)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read --controller: %w", err)
		case !slices.Contains(have, e.Name):
			return nil, fmt.Errorf("the record has nothing of %s: it has not run, or what it did is not kept any more; millrace lag --all lists the %d that are on record", e.Name, len(have))
		}
		names = append(names, e.Name)
	}
	return names, nil
}

// Kind finds the kind that a word names; see [resolve.Kind].
func (s *Session) Kind(ctx context.Context, word string) (kinds.Kind, error) {
	have, err := s.Kinds(ctx)
	if err != nil {
		return kinds.Kind{}, err
	}
	return resolve.Kind(word, have)
}

// Object finds the object that the arguments name: KIND/NAME or KIND NAME, in the
// session's namespace if the kind is namespaced.
func (s *Session) Object(ctx context.Context, args []string) (kinds.Kind, events.Ref, error) {
	word, name, slash := strings.Cut(strings.Join(args, "/"), "/")
	if !slash || name == "" || strings.Contains(name, "/") {
		example := "write KIND/NAME, such as deploy/web"
		if found := s.called(ctx, word); !slash && len(found) > 0 {
			example = "write KIND/NAME" + resolve.Meant(found)
		}
		return kinds.Kind{}, events.Ref{}, fmt.Errorf("%q names no object: %s", strings.Join(args, " "), example)
	}
	kind, err := s.Kind(ctx, word)
	if err != nil {
		return kinds.Kind{}, events.Ref{}, err
	}
	ref := events.Ref{Kind: kind.Name, Name: name}
	if kind.Namespaced {
		ref.Namespace = s.Namespace
	}
	s.asked, s.askedKind = ref, kind
	return kind, ref, nil
}

// Bound parses a flag with a moment that bounds a time range; zero if text is empty.
func (s *Session) Bound(flag, text string) (time.Time, error) {
	m, err := record.ParseMoment(text, s.Now())
	if err == nil && m.Version != "" {
		err = fmt.Errorf("%q is a resourceVersion, which means something else in each kind: name a time", text)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read %s: %w", flag, err)
	}
	return m.Time, nil
}

// Print writes an answer as JSON or YAML if --output asks for it, otherwise with people.
func (s *Session) Print(answer any, people func(*printer.Paper)) error {
	switch s.Output {
	case "json":
		text, err := json.MarshalIndent(answer, "", "  ")
		if err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		s.Paper.Line("%s", text)
	case "yaml":
		text, err := yaml.Marshal(answer)
		if err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		s.Paper.Line("%s", strings.TrimSuffix(string(text), "\n"))
	default:
		people(s.Paper)
	}
	return nil
}

// Note writes a remark that is not part of the answer.
func (s *Session) Note(format string, args ...any) {
	fmt.Fprintf(s.Notes, format+"\n", args...)
}
