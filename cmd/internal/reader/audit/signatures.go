package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
)

// signatures are the trust files with which verify checks the signatures of turns and outcomes.
type signatures struct{ turns, outcomes string }

func (o *signatures) add(f *pflag.FlagSet) {
	f.StringVar(&o.turns, "turn-keys-file", o.turns, "`file` with the public keys that may sign turns, to verify the signature of each")
	f.StringVar(&o.outcomes, "outcome-keys-file", o.outcomes, "`file` with the public keys that may sign outcomes, to verify the signature of each")
}

// Signatures counts the signatures of all turns or of all outcomes.
type Signatures struct {
	Of string `json:"of"` // "turns" or "outcomes"
	// Signed have a valid signature. Unsigned have none, and were stored before signatures were
	// required. Bad are the rest.
	Signed   int `json:"signed"`
	Unsigned int `json:"unsigned"`
	Bad      int `json:"bad"`
	// By is how many messages each key has signed.
	By map[string]int `json:"by,omitempty"`
}

// check verifies the signatures of turns and outcomes with the given keys.
func (o *signatures) check(ctx context.Context, b bus.Archive) (all []Signatures, found []notary.Finding, err error) {
	for _, sort := range []struct {
		of, flag, file string
		stream         func(controller string) string
		counts         func(*sign.Trust, events.Message) error
	}{
		{"turns", "turn-keys-file", o.turns, subject.TurnStream, func(t *sign.Trust, m events.Message) error { return t.Turn(m, sign.TurnWithin) }},
		{"outcomes", "outcome-keys-file", o.outcomes, subject.OutcomeStream, (*sign.Trust).Outcome},
	} {
		if sort.file == "" {
			continue
		}
		trust, err := sign.TrustFile(sort.file, nil)
		if err != nil {
			return nil, nil, fmt.Errorf("read --%s: %w", sort.flag, err)
		}
		controllers, err := b.Controllers(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("check signatures: %w", err)
		}
		sum := Signatures{Of: sort.of, By: map[string]int{}}
		for _, controller := range controllers {
			bad, err := sum.read(ctx, b, sort.stream(controller), trust, sort.counts)
			if err != nil {
				return nil, nil, fmt.Errorf("check signatures: %w", err)
			}
			found = append(found, bad...)
		}
		all = append(all, sum)
	}
	return all, found, nil
}

// read counts the signatures of a stream, and returns a finding for each bad one and each revoked key.
func (s *Signatures) read(ctx context.Context, b bus.Archive, stream string, trust *sign.Trust, counts func(*sign.Trust, events.Message) error) (found []notary.Finding, err error) {
	revoked := map[string]time.Time{}
	err = b.Read(ctx, bus.Passage{Stream: stream}, func(batch []events.Message) error {
		for _, m := range batch {
			switch err := counts(trust, m); {
			case err != nil:
				s.Bad++
				found = append(found, notary.Finding{Stream: stream, Sequence: m.Sequence, What: err.Error()})
			case !sign.Signed(m) || trust.History(m):
				s.Unsigned++
			default:
				s.Signed++
				s.By[sign.By(m)]++
				if at := trust.Revoked(m); !at.IsZero() {
					revoked[sign.By(m)] = at
				}
			}
		}
		return nil
	})
	if errors.Is(err, bus.ErrNoStream) || errors.Is(err, events.ErrDamaged) { // other checks of verify find this
		err = nil
	}
	for _, key := range slices.Sorted(maps.Keys(revoked)) {
		found = append(found, notary.Finding{Stream: stream, What: fmt.Sprintf(
			"there are messages of key %s, which has been revoked; they were stored before %s", key, printer.Time(revoked[key]))})
	}
	return found, err
}

func drawSignatures(p *printer.Paper, all []Signatures) {
	for _, s := range all {
		p.Line("of the %s %d bear a signature that counts, %d are older than the first key, and %d bear none that counts", s.Of, s.Signed, s.Unsigned, s.Bad)
		for _, key := range slices.Sorted(maps.Keys(s.By)) {
			p.Line("  %d are of key %s", s.By[key], key)
		}
	}
}
