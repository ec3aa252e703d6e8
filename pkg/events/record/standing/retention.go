package standing

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record/internal/parallel"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Stock is the size and retention of a stream, with a forecast.
type Stock struct {
	Stream string `json:"stream"`
	// Of is the stream's kind or controller; "" for the wake stream.
	Of string `json:"of,omitempty"`
	// Keeps is the stream's retention; a zero field is no limit.
	Keeps    bus.Retention `json:"keeps"`
	Messages uint64        `json:"messages"`
	Bytes    uint64        `json:"bytes"`
	// Since is when the first stored message was stored; zero when there is none.
	Since time.Time `json:"since,omitzero"`
	// PerDay is the growth in bytes a day, at the current average rate; 0 when not known,
	// because the stream is too young.
	PerDay uint64 `json:"bytesPerDay,omitempty"`
	// Reach is how far back the stream will reach at that rate, and Full the size that it will
	// have then; 0 when not known.
	Reach time.Duration `json:"reach,omitempty"`
	Full  uint64        `json:"bytesWhenFull,omitempty"`
}

// young is the age that a stream must have before its rate is known.
const young = time.Minute

// Retention gives the streams of every kind and controller: logs first, then turns
// and outcomes, then shadows, each sorted by name, and the wake stream.
func (r *Reader) Retention(ctx context.Context) ([]Stock, error) {
	streams, err := r.streams(ctx)
	if err != nil {
		return nil, err
	}
	shadows, err := r.bus.Shadows(ctx)
	if err != nil {
		return nil, err
	}
	var kept []Stock
	for _, s := range streams {
		kept = append(kept, Stock{Stream: s.name, Of: s.of})
	}
	for _, c := range shadows {
		kept = append(kept, Stock{Stream: subject.ShadowStream(c), Of: c})
	}
	kept = append(kept, Stock{Stream: subject.WakeStream})
	there := make([]bool, len(kept))
	err = parallel.Each(ctx, len(kept), func(ctx context.Context, i int) error {
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

// take copies the state of a stream, and computes the forecast.
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
