package record

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Stock is how much of a stream is kept, and what that will come to.
type Stock struct {
	Stream string `json:"stream"`
	// Of is the kind or the controller that it is about; "" for the wakes of all.
	Of string `json:"of,omitempty"`
	// Keeps is how much is to be kept; a zero field is no bound. A state keeps the last
	// of each object for as long as that is there.
	Keeps    bus.Retention `json:"keeps"`
	Messages uint64        `json:"messages"`
	Bytes    uint64        `json:"bytes"`
	// Since is when the first message was stored that is there; zero when there is none.
	Since time.Time `json:"since,omitzero"`
	// PerDay are the bytes of a day, at the pace of what is there; 0 where that is not
	// known, since the stream is too young or is a state.
	PerDay uint64 `json:"bytesPerDay,omitempty"`
	// Reach is how far back the stream will reach at that pace, and Full what it will
	// take up then; 0 where that is not known.
	Reach time.Duration `json:"reach,omitempty"`
	Full  uint64        `json:"bytesWhenFull,omitempty"`
}

// young is how long a stream must have been in use to tell its pace.
const young = time.Minute

// Retention is how much is kept of every kind and controller: logs and states first,
// then turns and outcomes, then what was said in shadow, each sorted by name.
func (r *Record) Retention(ctx context.Context) ([]Stock, error) {
	all, err := r.bus.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	controllers, err := r.bus.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	shadows, err := r.bus.Shadows(ctx)
	if err != nil {
		return nil, err
	}
	var kept []Stock
	for _, kind := range all {
		of := string(kind.Name)
		kept = append(kept, Stock{Stream: subject.LogStream(kind.Name), Of: of}, Stock{Stream: subject.StateStream(kind.Name), Of: of})
	}
	for _, c := range controllers {
		kept = append(kept, Stock{Stream: subject.TurnStream(c), Of: c}, Stock{Stream: subject.OutcomeStream(c), Of: c})
	}
	for _, c := range shadows {
		kept = append(kept, Stock{Stream: subject.ShadowStream(c), Of: c})
	}
	kept = append(kept, Stock{Stream: subject.WakeStream})
	there := make([]bool, len(kept))
	err = each(ctx, len(kept), func(ctx context.Context, i int) error {
		s, err := r.bus.StreamState(ctx, kept[i].Stream)
		if errors.Is(err, bus.ErrNoStream) {
			return nil
		}
		there[i] = err == nil
		kept[i].take(s)
		return err
	})
	if err != nil {
		return nil, err
	}
	found := kept[:0]
	for i, k := range kept {
		if there[i] {
			found = append(found, k)
		}
	}
	return found, nil
}

// take takes in how a stream stands, and what follows from its pace.
func (k *Stock) take(s bus.State) {
	k.Keeps, k.Messages, k.Bytes, k.Since = s.Keeps, s.Messages, s.Bytes, s.Begins
	span := s.Now.Sub(s.Begins)
	if s.Begins.IsZero() || s.Keeps.Age == 0 || span < young {
		return
	}
	pace := float64(s.Bytes) / float64(span)
	k.PerDay = uint64(pace * float64(24*time.Hour))
	k.Reach, k.Full = s.Keeps.Age, uint64(pace*float64(s.Keeps.Age))
	if limit := s.Keeps.Bytes; limit > 0 && k.Full > uint64(limit) {
		k.Reach, k.Full = time.Duration(float64(limit)/pace), uint64(limit)
	}
}
