package command

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/cmd/internal/process"
)

// asked is the answer of the health address to a program on the same machine.
func asked(t *testing.T, o *process.Options, path, accept string) (int, string) {
	t.Helper()
	made, err := o.HealthServer(t.Context(), health.New(nil, nil, prometheus.NewRegistry()), false)
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
		return asked(t, &o.service, path, accept)
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
