package command

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/cmd/internal/health/delegated"
	"github.com/millrace/millrace/pkg/events/stream/certs"
)

// newAccess has the always-allowed paths of kube-controller-manager.
func newAccess() health.Access {
	return health.Access{Always: []string{"/healthz", "/readyz", "/livez"}}
}

// addAccess adds the flags for access to metrics and profiles.
func addAccess(f *pflag.FlagSet, a *health.Access) {
	f.StringSliceVar(&a.Always, "authorization-always-allow-paths", a.Always,
		"`paths` of the health address that are served without authorization, with * at the end for all paths below; all other paths, except health checks, need a request from this machine, the token of --metrics-token-file, or a user whom the API server authorizes")
	f.StringVar(&a.TokenFile, "metrics-token-file", a.TokenFile,
		"`file` with a token: a request with it as its bearer token may see /metrics and, with --profiling, /debug/pprof from anywhere; it may be replaced at any time")
	f.BoolVar(&a.Strict, "authorization-of-loopback", a.Strict,
		"ask for a token or certificate on this machine, too, as kube-controller-manager does")
}

// addDelegation adds the flags of delegated authentication and authorization:
// kube-controller-manager's, with its defaults.
func addDelegation(f *pflag.FlagSet, o *delegated.Options) {
	const account = " (default the service account of the pod; without one no token of the API server is known)"
	f.StringVar(&o.Authentication, "authentication-kubeconfig", o.Authentication, "kubeconfig `file` of a user that may create TokenReviews"+account)
	f.BoolVar(&o.SkipLookup, "authentication-skip-lookup", o.SkipLookup, "do not look up the authorities of client certificates in the cluster")
	f.BoolVar(&o.TolerateLookupFailure, "authentication-tolerate-lookup-failure", o.TolerateLookupFailure,
		"with --authentication-kubeconfig, start even if that lookup fails; client certificates are then not accepted")
	f.DurationVar(&o.TokenTTL, "authentication-token-webhook-cache-ttl", o.TokenTTL, "how long the user of a token is cached")
	f.StringVar(&o.Authorization, "authorization-kubeconfig", o.Authorization, "kubeconfig `file` of a user that may create SubjectAccessReviews"+account)
	f.DurationVar(&o.AllowTTL, "authorization-webhook-cache-authorized-ttl", o.AllowTTL, "how long the answer that a user may get a path is cached")
	f.DurationVar(&o.DenyTTL, "authorization-webhook-cache-unauthorized-ttl", o.DenyTTL, "how long the answer that a user may not get a path is cached")
	f.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "`file` with the authorities of client certificates, in place of those in the cluster; the common name is the user")
	front := &o.Front
	f.StringVar(&front.CAFile, "requestheader-client-ca-file", front.CAFile, "`file` with the authorities of a proxy that names the user of a request in headers (default there is no such proxy)")
	f.StringSliceVar(&front.Names, "requestheader-allowed-names", front.Names, "common `names` of that proxy's certificate (default any)")
	f.StringSliceVar(&front.UserHeaders, "requestheader-username-headers", front.UserHeaders, "`headers` with the user's name")
	f.StringSliceVar(&front.UIDHeaders, "requestheader-uid-headers", front.UIDHeaders, "`headers` with the user's UID")
	f.StringSliceVar(&front.GroupHeaders, "requestheader-group-headers", front.GroupHeaders, "`headers` with the user's groups")
	f.StringSliceVar(&front.Extra, "requestheader-extra-headers-prefix", front.Extra, "`prefixes` of headers with extra attributes of the user")
}

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
		authority, err := certs.NewAuthority("millrace-health", serverAge)
		if err != nil {
			return authority, err
		}
		hosts := []string{"localhost", "127.0.0.1", "::1"}
		if name, err := os.Hostname(); err == nil {
			hosts = append(hosts, name)
		}
		return authority.Issue("millrace-health", hosts, serverAge)
	}
	if o.certDir == "" {
		return make()
	}
	if err := os.MkdirAll(o.certDir, 0o700); err != nil {
		return certs.Pair{}, fmt.Errorf("make --cert-dir: %w", err)
	}
	return keepPair(o.certDir, "health", make)
}

// healthServer configures the server of the health address with TLS, authentication and
// authorization from the flags. ctx ends with the process.
func (o *serviceOptions) healthServer(ctx context.Context, server *health.Server, secure bool) (*health.Server, error) {
	encryption, err := o.tls.encryption(o.busCert, o.busKey)
	if err != nil {
		return nil, err
	}
	if secure {
		encryption.PlainToo = false
	}
	reviewer, err := delegated.Begin(ctx, o.delegated)
	if err != nil {
		return nil, err
	}
	access := o.access
	if reviewer != nil {
		access.Reviewer = reviewer
	}
	if o.profiling {
		if server.Profile(); o.contention {
			runtime.SetBlockProfileRate(1) // Upstream: k8s.io/controller-manager/app, NewBaseHandler
		}
	}
	o.metrics.apply()
	return server.Guard(access).Encrypts(encryption).Withholds(o.metrics.disabled).Tells(o.pages()), nil
}
