package serviceflags

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// Signing are the key flags of a service in a process of its own: a private key signs what
// the service stores, and public keys verify what it reads.
type Signing struct {
	// Own is what the service stores, and Theirs what it reads: "turn" or "outcome".
	Own, Theirs string

	key, keys, kin string
	unsigned       bool
}

// Add adds the flags, named after turns or outcomes.
func (o *Signing) Add(f *pflag.FlagSet) {
	f.StringVar(&o.key, o.Own+"-signing-key-file", o.key, "`file` with the private key that signs every "+o.Own+", from millrace signing-keys; it is read again when it changes")
	f.StringVar(&o.keys, o.Theirs+"-keys-file", o.keys, "`file` with the trusted public keys that verify a "+o.Theirs+"; it is read again when it changes")
	f.StringVar(&o.kin, o.Own+"-keys-file", o.kin, "`file` with the trusted public keys of all processes that sign "+o.Own+"s (default: the key of this process)")
	f.BoolVar(&o.unsigned, "insecure-unsigned", o.unsigned, "do not sign and do not verify: any user of the bus that may publish turns can order writes")
}

// Signed are the keys of a service; all are nil without signatures.
type Signed struct {
	signer      *sign.Signer
	theirs, kin *sign.Trust
}

// Load reads the keys. A service whose controllers are all in shadow needs none, because no
// service acts on what it stores.
//
// Errors: a key is missing, cannot be read, or is given beside --insecure-unsigned.
func (o *Signing) Load(acts bool) (s Signed, err error) {
	if !acts && o.key+o.keys+o.kin == "" {
		return s, nil
	}
	if o.unsigned {
		if o.key+o.keys+o.kin != "" {
			return s, errors.New("read --insecure-unsigned: there are keys as well: leave out the one or the others")
		}
		klog.Background().Error(nil, "Signatures are off (--insecure-unsigned): any user that may publish turns on the bus orders writes", "stores", o.Own)
		return s, nil
	}
	if o.key == "" || o.keys == "" {
		return s, fmt.Errorf("--%s-signing-key-file and --%s-keys-file are missing: millrace signing-keys makes a pair for each service; --insecure-unsigned does without", o.Own, o.Theirs)
	}
	if s.signer, err = sign.SignerFile(o.key, warn); err != nil {
		return s, fmt.Errorf("read --%s-signing-key-file: %w", o.Own, err)
	}
	if s.theirs, err = sign.TrustFile(o.keys, warn); err != nil {
		return s, fmt.Errorf("read --%s-keys-file: %w", o.Theirs, err)
	}
	if o.kin != "" {
		if s.kin, err = sign.TrustFile(o.kin, warn); err != nil {
			return s, fmt.Errorf("read --%s-keys-file: %w", o.Own, err)
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

// Deciding are the keys for reconcilers.
func (s Signed) Deciding() shell.Signatures {
	return shell.Signatures{Sign: s.signer, Outcomes: s.theirs, Turns: s.kin}
}

// SigningDir is the directory of the keys of a process that runs all services. Processes on
// one bus need the same keys.
type SigningDir string

// Add adds the flag.
func (d *SigningDir) Add(f *pflag.FlagSet) {
	f.StringVar((*string)(d), "signing-dir", string(*d), "`directory` of the keys that sign turns and outcomes, which are created at the first start; processes on one bus need the same keys (default: signing in --data-dir)")
}

// Load reads the keys. At the first start it makes them, in a directory that only the user
// may read. data is the process's directory of streams, below which the keys are by default.
//
// Errors: a key cannot be made or read.
func (d SigningDir) Load(data string) (deciding shell.Signatures, writing Signed, err error) {
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
		Signed{signer: outcomes.signer, theirs: turns.kin, kin: outcomes.kin}, nil
}

// opened loads a pair's private key, as signer, and its trust file, as kin.
func opened(p sign.Pair) (s Signed, err error) {
	if s.signer, err = sign.SignerFile(p.Private, warn); err == nil {
		s.kin, err = sign.TrustFile(p.Public, warn)
	}
	return s, err
}
