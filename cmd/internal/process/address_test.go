package process

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/health"
)

// served parses the flags of a service.
func served(t *testing.T, args ...string) *Options {
	t.Helper()
	o, flags := NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Add(flags)
	ok(t, flags.Parse(args))
	return &o
}

// TestWhereItIsServed: at --health-address, unless kube-controller-manager's flags set an address,
// and then by HTTPS only.
func TestWhereItIsServed(t *testing.T) {
	for args, c := range map[string]struct {
		address string
		secure  bool
		says    string
	}{
		"":                                       {"127.0.0.1:10260", false, ""},
		"--health-address=:1":                    {":1", false, ""},
		"--health-address=":                      {"", false, ""},
		"--bind-address=127.0.0.1":               {"127.0.0.1:10257", true, ""},
		"--bind-address=::":                      {"[::]:10257", true, ""},
		"--secure-port=7":                        {"0.0.0.0:7", true, ""},
		"--secure-port=0":                        {"", true, ""},
		"--secure-port=65536":                    {"", false, "must be between 0 and 65535, inclusive. 0 for turning off secure port"},
		"--secure-port=-1":                       {"", false, "must be between"},
		"--secure-port=7 --health-address=:1":    {"", false, "read --health-address: --bind-address and --secure-port say"},
		"--bind-address=::1 --secure-port=7":     {"[::1]:7", true, ""},
		"--show-hidden-metrics-for-version=1.34": {"", false, "must be omitted or have the value 1.35"},
		"--show-hidden-metrics-for-version=1.35": {"127.0.0.1:10260", false, ""},
	} {
		o := served(t, strings.Fields(args)...)
		if err := o.Check(); c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", args, err, c.says)
			}
			continue
		} else if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if address, secure, err := o.Address(); err != nil || address != c.address || secure != c.secure {
			t.Errorf("%s: it is served at %q, TLS alone: %t (%v), want %q, %t", args, address, secure, err, c.address, c.secure)
		}
	}
	for args, plain := range map[string]bool{"": true, "--secure-port=7": false} {
		o := served(t, args)
		if args == "" {
			o = served(t)
		}
		_, secure, err := o.Address()
		ok(t, err)
		made, err := o.HealthServer(t.Context(), health.New(nil, nil, prometheus.NewRegistry()), secure)
		ok(t, err)
		if made.Plain() != plain {
			t.Errorf("with %q plain HTTP is answered: %t", args, !plain)
		}
	}
}
