package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// signingOptions are the key flags of a service in a process of its own: a private key signs what
// the service stores, and public keys verify what it reads.
type signingOptions struct {
	own, theirs string // what the service stores, and what it reads: "turn" or "outcome"

	key, keys, kin string
	unsigned       bool
}

// add adds the flags, named after turns or outcomes.
func (o *signingOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.key, o.own+"-signing-key-file", o.key, "`file` with the private key that signs every "+o.own+", from millrace signing-keys; it is read again when it changes")
	f.StringVar(&o.keys, o.theirs+"-keys-file", o.keys, "`file` with the trusted public keys that verify a "+o.theirs+"; it is read again when it changes")
	f.StringVar(&o.kin, o.own+"-keys-file", o.kin, "`file` with the trusted public keys of all processes that sign "+o.own+"s (default: the key of this process)")
	f.BoolVar(&o.unsigned, "insecure-unsigned", o.unsigned, "do not sign and do not verify: any user of the bus that may publish turns can order writes")
}

// signed are the keys of a service; all are nil without signatures.
type signed struct {
	signer      *sign.Signer
	theirs, kin *sign.Trust
}

// load reads the keys. A service whose controllers are all in shadow needs none, because no
// service acts on what it stores.
func (o *signingOptions) load(acts bool) (s signed, err error) {
	if !acts && o.key+o.keys+o.kin == "" {
		return s, nil
	}
	if o.unsigned {
		if o.key+o.keys+o.kin != "" {
			return s, errors.New("read --insecure-unsigned: there are keys as well: leave out the one or the others")
		}
		klog.Background().Error(nil, "Signatures are off (--insecure-unsigned): any user that may publish turns on the bus orders writes", "stores", o.own)
		return s, nil
	}
	if o.key == "" || o.keys == "" {
		return s, fmt.Errorf("--%s-signing-key-file and --%s-keys-file are missing: millrace signing-keys makes a pair for each service; --insecure-unsigned does without", o.own, o.theirs)
	}
	if s.signer, err = sign.SignerFile(o.key, warn); err != nil {
		return s, fmt.Errorf("read --%s-signing-key-file: %w", o.own, err)
	}
	if s.theirs, err = sign.TrustFile(o.keys, warn); err != nil {
		return s, fmt.Errorf("read --%s-keys-file: %w", o.theirs, err)
	}
	if o.kin != "" {
		if s.kin, err = sign.TrustFile(o.kin, warn); err != nil {
			return s, fmt.Errorf("read --%s-keys-file: %w", o.own, err)
		}
	}
	return s, nil
}

func warn(err error) {
	klog.Background().Error(err, "Cannot reload a file of signing keys")
}

// unsignedCollector exports a metric if the service runs without signatures.
func unsignedCollector(signer *sign.Signer) []prometheus.Collector {
	if signer != nil {
		return nil
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millrace_insecure_unsigned", Help: "1 where turns and outcomes are accepted without a signature (--insecure-unsigned).",
	})
	g.Set(1)
	return []prometheus.Collector{g}
}

// deciding are the keys for reconcilers.
func (s signed) deciding() shell.Signatures {
	return shell.Signatures{Sign: s.signer, Outcomes: s.theirs, Turns: s.kin}
}

// signingDir is the directory of the keys of a process that runs all services. Processes on
// one bus need the same keys.
type signingDir string

func (d *signingDir) add(f *pflag.FlagSet) {
	f.StringVar((*string)(d), "signing-dir", string(*d), "`directory` of the keys that sign turns and outcomes, which are created at the first start; processes on one bus need the same keys (default: signing in --data-dir)")
}

// load reads the keys. At the first start it makes them, in a directory that only the user
// may read.
func (d signingDir) load(data string) (deciding shell.Signatures, writing signed, err error) {
	dir := string(d)
	if dir == "" {
		dir = filepath.Join(data, "signing")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return deciding, writing, fmt.Errorf("keep signing keys: %w", err)
	}
	keys, err := sign.Provide(dir)
	if err != nil {
		return deciding, writing, err
	}
	turns, err := opened(keys.Turns)
	if err != nil {
		return deciding, writing, fmt.Errorf("keep signing keys: %w", err)
	}
	outcomes, err := opened(keys.Outcomes)
	if err != nil {
		return deciding, writing, fmt.Errorf("keep signing keys: %w", err)
	}
	return shell.Signatures{Sign: turns.signer, Outcomes: outcomes.kin, Turns: turns.kin},
		signed{signer: outcomes.signer, theirs: turns.kin, kin: outcomes.kin}, nil
}

// opened loads a pair's private key, as signer, and its trust file, as kin.
func opened(p sign.Pair) (s signed, err error) {
	if s.signer, err = sign.SignerFile(p.Private, warn); err == nil {
		s.kin, err = sign.TrustFile(p.Public, warn)
	}
	return s, err
}

// newSigningKeys is the command that makes a key pair.
func newSigningKeys() *cobra.Command {
	var of []string
	cmd := &cobra.Command{
		Use: "signing-keys FILE", Short: "Create a key that signs turns or outcomes in FILE, and its public part in FILE.pub",
		Long: `Creates a new Ed25519 key. FILE is the secret of the service that signs with it: the
reconcilers (turns) or the writer (outcomes). FILE.pub is for the services that verify
its signatures. A trust file is several such files in one; the headers Not-Before,
Not-After and Revoked of a block (RFC 3339) limit when its key is valid. To change a key,
add the new one to the trust files, then give it to the service that signs, and then give
the old one a Not-After: its earlier signatures stay valid. With --controllers the key is
valid for these controllers only (the header Controllers), for split writers.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range of {
				if !slices.Contains(catalogued(), name) {
					return fmt.Errorf("read --controllers: %q is no controller of this version: %s", name, strings.Join(catalogued(), ", "))
				}
			}
			private, public, err := sign.Generate()
			if err == nil && len(of) > 0 {
				public, err = countFor(public, of)
			}
			if err != nil {
				return err
			}
			if err := create(args[0], string(private), 0o600); err != nil {
				return err
			}
			if err := create(args[0]+".pub", string(public), 0o644); err != nil {
				return err
			}
			fmt.Fprint(cmd.OutOrStdout(), string(public))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&of, "controllers", nil, "`names` of the controllers whose turns or outcomes the key may sign (default: all)")
	return cmd
}
