package command

import (
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/health"
)

// newAccess opens what kube-controller-manager opens.
func newAccess() health.Access {
	return health.Access{Always: []string{"/healthz", "/readyz", "/livez"}}
}

// addAccess adds the flags of who may see metrics and profiles.
func addAccess(f *pflag.FlagSet, a *health.Access) {
	f.StringSliceVar(&a.Always, "authorization-always-allow-paths", a.Always,
		"`paths` of the health address that everyone may ask for, * at the end for all below; all others but those of health are answered on this machine, and with the token of --metrics-token-file")
	f.StringVar(&a.TokenFile, "metrics-token-file", a.TokenFile,
		"`file` with a token: a request with it as its bearer token may see /metrics and, with --profiling, /debug/pprof from anywhere; it may be replaced at any time")
}
