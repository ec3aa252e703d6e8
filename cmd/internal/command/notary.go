package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream"
)

// notaryOptions are the flags of the notary.
type notaryOptions struct {
	key   string
	known []string
	every time.Duration
	state notaryState
}

func newNotaryOptions() notaryOptions { return notaryOptions{every: 10 * time.Second} }

func (o *notaryOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.key, "notary-key", o.key, "`file` with the private key that signs the record, from millrace notary keys (default: the record is not signed)")
	f.StringSliceVar(&o.known, "notary-known", o.known, "`files` with public keys of earlier notaries, whose signatures this one continues, as after a change of the key")
	o.state.add(f)
	f.DurationVar(&o.every, "notary-interval", o.every, "interval at which new messages of the record are signed")
}

// part is the notary of this process; nil without a key.
func (o *notaryOptions) part(b *stream.Bus) ([]part, error) {
	if o.key == "" {
		return nil, nil
	}
	if o.every < time.Second {
		return nil, fmt.Errorf("read --notary-interval: %v is less than 1 s", o.every)
	}
	text, err := os.ReadFile(o.key)
	if err != nil {
		return nil, fmt.Errorf("read --notary-key: %w", err)
	}
	signer, own, err := notary.Signer(string(text))
	if err != nil {
		return nil, fmt.Errorf("read --notary-key: %s: %w", o.key, err)
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
	state, err := o.state.open(o.key)
	if err != nil {
		return nil, err
	}
	n := notary.New(b, notary.Options{
		Signer: signer, Known: known, Every: o.every, Log: logger("notary"), Memory: state, BeginAnew: o.state.begin,
	})
	return []part{{
		name: "notary", run: n.Run, checks: map[string]func() error{"notary": n.Healthy}, collectors: []prometheus.Collector{goneMetric(n), signedMetric{n.Signed}},
	}}, nil
}

// newNotary is the command that runs a notary in a process of its own.
func newNotary() *cobra.Command {
	bus, service, o := newBusOptions(), newServiceOptions(), newNotaryOptions()
	cmd := program{
		use: "notary", short: "Sign the record, so that millrace verify finds every change to it",
		long: `Follows every log and the streams of turns and outcomes, and stores signed checkpoints of
their content in a stream of its own. With the public key, millrace verify finds what was
changed, removed, inserted or reordered. Any number of notaries may run with the same key.
A notary needs the bus and its key, and no access to Kubernetes: run it where the
operators of the bus cannot read the key. millrace run does the same with --notary-key.`,
		flags: []func(*pflag.FlagSet){titled("bus", bus.add), titled("serving", service.add), titled("notary", o.add)},
		run: func(ctx context.Context) error {
			if o.key == "" {
				return errors.New("--notary-key is missing: name the file with the private key; millrace notary keys makes one")
			}
			bus.guest = true // a notary has no right to create consumers
			b, err := bus.open(ctx, "notary", nil)
			if err != nil {
				return err
			}
			defer b.Close()
			parts, err := o.part(b)
			if err != nil {
				return err
			}
			return service.run(ctx, append(parts, auditPart(b)))
		},
	}.cobra()
	cmd.AddCommand(newNotaryKeys())
	return cmd
}

func newNotaryKeys() *cobra.Command {
	return &cobra.Command{
		Use: "keys NAME FILE", Short: "Create the key of a notary in FILE, and its public part in FILE.pub",
		Long: `Creates a new Ed25519 key. NAME says whose key it is, such as notary.prod.example.com,
and is part of it. FILE is secret: its holder can sign a forged record. FILE.pub is for
verification, and is printed.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			private, public, err := notary.Generate(args[0])
			if err != nil {
				return err
			}
			if err := create(args[1], private, 0o600); err != nil {
				return err
			}
			if err := create(args[1]+".pub", public, 0o644); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), public)
			return nil
		},
	}
}

// create writes a new file. It never overwrites one, because a lost key cannot be recovered.
func create(name, text string, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists: name another file, or remove it if that key is not needed any more", name)
	}
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	_, err = fmt.Fprintln(f, text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	return nil
}
