package command

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/health"
)

// served parses the flags of a service.
func served(t *testing.T, args ...string) *serviceOptions {
	t.Helper()
	o, flags := newServiceOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.add(flags)
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
		if err := o.check(); c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", args, err, c.says)
			}
			continue
		} else if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if address, secure, err := o.address(); err != nil || address != c.address || secure != c.secure {
			t.Errorf("%s: it is served at %q, TLS alone: %t (%v), want %q, %t", args, address, secure, err, c.address, c.secure)
		}
	}
	for args, plain := range map[string]bool{"": true, "--secure-port=7": false} {
		o := served(t, args)
		if args == "" {
			o = served(t)
		}
		_, secure, err := o.address()
		ok(t, err)
		made, err := o.healthServer(t.Context(), health.New(nil, nil, prometheus.NewRegistry()), secure)
		ok(t, err)
		if made.Plain() != plain {
			t.Errorf("with %q plain HTTP is answered: %t", args, !plain)
		}
	}
}

// asked is the answer of the health address to a program on the same machine.
func (o *serviceOptions) asked(t *testing.T, path, accept string) (int, string) {
	t.Helper()
	made, err := o.healthServer(t.Context(), health.New(nil, nil, prometheus.NewRegistry()), false)
	ok(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4000", "127.0.0.1:10260"
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	made.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestAProcessTellsItsFlags: /flagz has all flags without passwords, in the format of upstream's
// components; feature gates turn the pages off.
func TestAProcessTellsItsFlags(t *testing.T) {
	o := newEverything()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, add := range o.flags() {
		add(flags)
	}
	ok(t, flags.Parse([]string{"--nats-url=nats://me:s3cret@a:1,nats://me:s3cret@b:2", "--terminated-pod-gc-threshold=7", "--profiling"}))
	ask := func(path, accept string) (int, string) {
		t.Helper()
		return o.service.asked(t, path, accept)
	}
	code, text := ask("/flagz", "text/plain")
	// Upstream: what is between name and value is another each time, so that no program relies on it.
	for _, want := range []string{"millrace flagz", `terminated-pod-gc-threshold[:= ]+7\n`, "xxxxx@a:1,nats://me:xxxxx@b:2", `leader-elect[:= ]+false\n`} {
		if code != http.StatusOK || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("/flagz (%d) does not tell %s:\n%s", code, want, text)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Error("/flagz tells a password")
	}
	code, text = ask("/flagz", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")
	if code != http.StatusOK || !strings.Contains(text, `"terminated-pod-gc-threshold":"7"`) {
		t.Errorf("/flagz as JSON (%d):\n%s", code, text)
	}
	code, text = ask("/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz")
	for _, want := range []string{`"binaryVersion":"1.36"`, `"/configz"`, `"/debug"`, `"/flagz"`, `"/metrics"`} {
		if code != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("/statusz (%d) does not tell %s:\n%s", code, want, text)
		}
	}
	ok(t, flags.Parse([]string{"--feature-gates=ComponentFlagz=false,ComponentStatusz=false"}))
	for _, path := range []string{"/flagz", "/statusz"} {
		if code, _ := ask(path, ""); code != http.StatusNotFound {
			t.Errorf("%s is served although its gate is off: %d", path, code)
		}
	}
}

// TestVersionOfAService: each service has --version, as kube-controller-manager has.
func TestVersionOfAService(t *testing.T) {
	for _, name := range []string{"run", "writer"} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{name, "--version"})
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), Version) {
			t.Errorf("millrace %s --version: %v, %q", name, err, out.String())
		}
	}
}

// TestRatesOfRequests: rates that allow no request are refused.
func TestRatesOfRequests(t *testing.T) {
	for args, says := range map[string]string{
		"--kube-api-qps=0": "--kube-api-qps", "--kube-api-qps=20 --kube-api-burst=0": "--kube-api-burst", "--kube-api-burst=0": "", "--kube-api-qps=0.5": "", "--kube-api-qps=-7": "", "--mode=perhaps": "--mode",
	} {
		o, flags := newWriterOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.add(flags)
		ok(t, flags.Parse(strings.Fields(args)))
		if err := o.check(); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", args, err, says)
		}
	}
}
