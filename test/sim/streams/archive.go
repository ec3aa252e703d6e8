package streams

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Archive is the record of a world, as a bus gives it to readers of the past. It lacks what the
// simulated streams do not model.
func (b *Bus) Archive() bus.Archive { return past{bus: b} }

type past struct {
	bus.Archive // nil: replay and the questions about the past call no other methods
	bus         *Bus
}

// Kinds implements bus.Archive.
func (p past) Kinds(context.Context) ([]kinds.Kind, error) {
	var all []kinds.Kind
	for _, name := range slices.Sorted(maps.Keys(p.bus.Kinds)) {
		all = append(all, p.bus.Kinds[name].Kind)
	}
	return all, nil
}

// Controllers implements bus.Archive.
func (p past) Controllers(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(p.bus.Books)), nil
}

// Shadows implements bus.Archive.
func (p past) Shadows(context.Context) ([]string, error) { return nil, nil }

// StreamState implements bus.Archive.
func (p past) StreamState(_ context.Context, stream string) (bus.State, error) {
	all, err := p.stream(stream)
	return bus.State{First: 1, Last: uint64(len(all)), Messages: uint64(len(all)), Now: p.bus.now()}, err
}

// Consumers implements bus.Archive. The simulation's readers are not consumers of a server.
func (p past) Consumers(context.Context, string) ([]bus.Consumer, error) { return nil, nil }

// Read implements bus.Archive.
func (p past) Read(_ context.Context, passage bus.Passage, handle func([]events.Message) error) error {
	all, err := p.stream(passage.Stream)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m events.Message) bool {
		return m.Sequence < passage.From || passage.To > 0 && m.Sequence > passage.To || passage.From == 0 && m.Time.Before(passage.Since)
	})
	if len(all) == 0 {
		return nil
	}
	return handle(all)
}

// Next implements bus.Archive.
func (p past) Next(_ context.Context, stream, at string, from uint64) (events.Message, bool, error) {
	all, err := p.stream(stream)
	for _, m := range all {
		if m.Sequence >= from && m.Subject == at {
			return m, true, err
		}
	}
	return events.Message{}, false, err
}

// stream is all messages of a stream.
func (p past) stream(name string) (all []events.Message, err error) {
	for _, s := range p.bus.Kinds {
		if name == subject.LogStream(s.Kind.Name) {
			for _, m := range s.Log {
				all = append(all, m.wire)
			}
			return all, nil
		}
	}
	if name == subject.WakeStream {
		return nil, nil // timers are not messages here: a restart finds them in their turns
	}
	for controller, b := range p.bus.Books {
		switch name {
		case subject.TurnStream(controller):
			for i, t := range b.Turns {
				all = append(all, messageOf(t, name, subject.Turn(controller, t.Lane, t.Key), i, b.Stored[i]))
			}
			return all, nil
		case subject.OutcomeStream(controller):
			for i, o := range b.Outcomes {
				all = append(all, messageOf(o, name, subject.Outcome(controller, o.Lane, o.Key), i, b.SettledAt[i]))
			}
			return all, nil
		}
	}
	return nil, errors.Join(bus.ErrNoStream, errors.New(strings.TrimSpace(name)))
}

func messageOf(value any, stream, at string, place int, stored time.Time) events.Message {
	m, err := events.EncodeJSON(value, events.Trace{})
	if err != nil {
		panic(err) // a turn or outcome of ours always has a JSON form
	}
	m.Subject, m.Stream, m.Sequence, m.Time = at, stream, uint64(place+1), stored
	return m
}
