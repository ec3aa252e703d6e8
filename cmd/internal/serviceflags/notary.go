package serviceflags

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/process"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream"
)

// Notary are the flags of the notary.
type Notary struct {
	// Key is the file with the private key; empty: there is no notary.
	Key   string
	known []string
	every time.Duration
	state notaryState
}

// NewNotary has the defaults of the flags.
func NewNotary() Notary { return Notary{every: 10 * time.Second} }

// Add adds the flags.
func (o *Notary) Add(f *pflag.FlagSet) {
	f.StringVar(&o.Key, "notary-key", o.Key, "`file` with the private key that signs the record, from millrace notary keys (default: the record is not signed)")
	f.StringSliceVar(&o.known, "notary-known", o.known, "`files` with public keys of earlier notaries, whose signatures this one continues, as after a change of the key")
	o.state.add(f)
	f.DurationVar(&o.every, "notary-interval", o.every, "interval at which new messages of the record are signed")
}

// Part is the notary of this process; nil without a key.
//
// Errors: a key or the file of --notary-state cannot be read; the interval is less than 1 s.
func (o *Notary) Part(b *stream.Bus) ([]process.Part, error) {
	if o.Key == "" {
		return nil, nil
	}
	if o.every < time.Second {
		return nil, fmt.Errorf("read --notary-interval: %v is less than 1 s", o.every)
	}
	text, err := os.ReadFile(o.Key)
	if err != nil {
		return nil, fmt.Errorf("read --notary-key: %w", err)
	}
	signer, own, err := notary.Signer(string(text))
	if err != nil {
		return nil, fmt.Errorf("read --notary-key: %s: %w", o.Key, err)
	}
	known := &notary.Keys{}
	known.Add(own)
	for _, file := range o.known {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read --notary-known: %w", err)
		}
		if err := known.Read(string(text)); err != nil {
			return nil, fmt.Errorf("read --notary-known: %s: %w", file, err)
		}
	}
	state, err := o.state.open(o.Key)
	if err != nil {
		return nil, err
	}
	n := notary.New(b, notary.Options{
		Signer: signer, Known: known, Every: o.every, Log: program.Logger("notary"), Memory: state, BeginAnew: o.state.begin,
	})
	return []process.Part{{
		Name: "notary", Run: n.Run, Checks: map[string]func() error{"notary": n.Healthy}, Collectors: []prometheus.Collector{goneMetric(n), signedMetric{n.Signed}},
	}}, nil
}
