package serviceflags

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// TestRatesOfRequests: rates that allow no request are refused.
func TestRatesOfRequests(t *testing.T) {
	for args, says := range map[string]string{
		"--kube-api-qps=0": "--kube-api-qps", "--kube-api-qps=20 --kube-api-burst=0": "--kube-api-burst", "--kube-api-burst=0": "", "--kube-api-qps=0.5": "", "--kube-api-qps=-7": "", "--mode=perhaps": "--mode",
	} {
		o, flags := NewWriter(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Add(flags)
		ok(t, flags.Parse(strings.Fields(args)))
		if err := o.Check(); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", args, err, says)
		}
	}
}

func TestConcurrencyIsOfControllersThatAreThere(t *testing.T) {
	var known []string
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			known = append(known, e.Name)
		}
	}
	for name, n := range NewWriter().concurrent.byName() {
		if !slices.Contains(known, name) || n <= 0 {
			t.Errorf("%d turns at once for %q, which must be one of %v", n, name, known)
		}
	}
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
