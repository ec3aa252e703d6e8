package process

import (
	"context"
	"runtime"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/cmd/internal/health/delegated"
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

// HealthServer configures the server of the health address with TLS, authentication and
// authorization from the flags. ctx ends with the process.
//
// Errors: a certificate cannot be read or made; the API server cannot be asked about users.
func (o *Options) HealthServer(ctx context.Context, server *health.Server, secure bool) (*health.Server, error) {
	encryption, err := o.tls.encryption(o.BusCert, o.BusKey)
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
