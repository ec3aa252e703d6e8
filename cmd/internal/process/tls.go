package process

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/pkg/events/stream/certs"
)

// tlsOptions are the TLS flags of the health address.
type tlsOptions struct {
	certFile, keyFile, certDir string
	minVersion                 string
	ciphers                    []string
	curves                     []int32
	named                      []cliflag.NamedCertKey
}

func (o *tlsOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.certFile, "tls-cert-file", o.certFile,
		"`file` with the certificate of the health address, which is read again when it changes; the address then serves HTTPS only (default: HTTP, and HTTPS with a self-signed certificate)")
	f.StringVar(&o.keyFile, "tls-private-key-file", o.keyFile, "`file` with the key of --tls-cert-file")
	f.StringVar(&o.certDir, "cert-dir", o.certDir, "`directory` of the self-signed certificate, health.crt and health.key, that the health address uses without --tls-cert-file; it is created if it does not exist")
	f.StringVar(&o.minVersion, "tls-min-version", o.minVersion, "minimum TLS `version` of the health address (default VersionTLS12): VersionTLS12 or VersionTLS13")
	f.StringSliceVar(&o.ciphers, "tls-cipher-suites", o.ciphers, "TLS 1.2 `cipher` suites of the health address (default Go's): "+strings.Join(cliflag.PreferredTLSCipherNames(), ", "))
	f.Int32SliceVar(&o.curves, "tls-curve-preferences", o.curves, "`numbers` (CurveID of crypto/tls) of the key exchange mechanisms of the health address, in any order (default Go's)")
	f.Var(cliflag.NewNamedCertKeyArray(&o.named), "tls-sni-cert-key",
		"`files` with a certificate and its key, and the server names (SNI) for which they are used, such as a.crt,a.key:a.example,*.b.example (default: the names in the certificate); may be repeated")
}

// alone is whether the health address serves HTTPS only.
func (o *tlsOptions) alone() bool { return o.certFile != "" || o.keyFile != "" || o.certDir != "" }

// encryption translates the flags. If they name no certificate, the health address serves that
// of the NATS server in this process, if there is one.
//
// Errors: a flag is invalid, or a certificate cannot be made.
func (o *tlsOptions) encryption(busCert, busKey string) (e health.Encryption, err error) {
	if (o.certFile == "") != (o.keyFile == "") {
		return e, errors.New("--tls-cert-file and --tls-private-key-file belong together: name both or neither")
	}
	if e.MinVersion, err = cliflag.TLSVersion(o.minVersion); err != nil {
		return e, fmt.Errorf("read --tls-min-version: %w", err)
	}
	if o.minVersion == "VersionTLS10" || o.minVersion == "VersionTLS11" {
		return e, fmt.Errorf("read --tls-min-version: %s is not safe; take VersionTLS12 or VersionTLS13", o.minVersion)
	}
	if e.CipherSuites, err = cliflag.TLSCipherSuites(o.ciphers); err != nil {
		return e, fmt.Errorf("read --tls-cipher-suites: %w", err)
	}
	for _, c := range o.curves {
		if c < 1 || c > math.MaxUint16 {
			return e, fmt.Errorf("read --tls-curve-preferences: %d is no number of crypto/tls's", c)
		}
		e.Curves = append(e.Curves, tls.CurveID(c))
	}
	for _, n := range o.named {
		e.Named = append(e.Named, health.Named{CertFile: n.CertFile, KeyFile: n.KeyFile, Names: n.Names})
	}
	switch {
	case o.certFile != "":
		e.CertFile, e.KeyFile = o.certFile, o.keyFile
		return e, nil
	case o.certDir == "" && busCert != "":
		e.CertFile, e.KeyFile, e.PlainToo = busCert, busKey, true
		return e, nil
	}
	pair, err := o.makePair()
	e.Certificate, e.Key, e.PlainToo = pair.Certificate, pair.Key, o.certDir == ""
	return e, err
}

// makePair makes a certificate of an authority that no client knows. With --cert-dir, it makes
// it once and keeps it there.
func (o *tlsOptions) makePair() (certs.Pair, error) {
	make := func() (certs.Pair, error) {
		authority, err := certs.NewAuthority("millrace-health", credentials.ServerAge)
		if err != nil {
			return authority, err
		}
		hosts := []string{"localhost", "127.0.0.1", "::1"}
		if name, err := os.Hostname(); err == nil {
			hosts = append(hosts, name)
		}
		return authority.Issue("millrace-health", hosts, credentials.ServerAge)
	}
	if o.certDir == "" {
		return make()
	}
	if err := os.MkdirAll(o.certDir, 0o700); err != nil {
		return certs.Pair{}, fmt.Errorf("make --cert-dir: %w", err)
	}
	return credentials.KeepPair(o.certDir, "health", make)
}

// CheckTLS validates the flags and files of the health address's certificate, without making
// a certificate.
func (o *Options) CheckTLS() error { return o.tls.check() }

func (o *tlsOptions) check() error {
	if o.certFile != "" && o.keyFile != "" {
		if _, err := tls.LoadX509KeyPair(o.certFile, o.keyFile); err != nil {
			return fmt.Errorf("read --tls-cert-file and --tls-private-key-file: %w", err)
		}
	}
	if o.certDir != "" {
		return nil
	}
	_, err := o.encryption("", "")
	return err
}
