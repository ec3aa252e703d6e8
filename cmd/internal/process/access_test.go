package process

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestNothingConfidentialIsServedUnasked: without flags there are no profiles, and an unknown client
// gets only health, as from kube-controller-manager.
func TestNothingConfidentialIsServedUnasked(t *testing.T) {
	o := NewOptions()
	o.Add(pflag.NewFlagSet("", pflag.ContinueOnError))
	if o.profiling || o.access.TokenFile != "" || !slices.Equal(o.access.Always, []string{"/healthz", "/readyz", "/livez"}) {
		t.Errorf("without flags it serves profiles (%v) and %+v", o.profiling, o.access)
	}
}

var (
	openedPaths = regexp.MustCompile(`(?i)authorization[-_]always[-_]allow[-_]paths["=:\s]+([^\s"]+)`)
	monitored   = regexp.MustCompile(`(?i)nats[-_]monitoring["=:\s]+([^\s"]+)`)
)

// TestManifestsOpenHealthAlone: no shipped file opens a page of the bus to all clients, and services
// ask the embedded bus for its sync settings over TLS, so that they can send their login.
func TestManifestsOpenHealthAlone(t *testing.T) {
	root := filepath.Dir(deployments)
	files := []string{filepath.Join(root, "docker-compose.yaml")}
	ok(t, filepath.WalkDir(deployments, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		ok(t, err)
		for _, m := range openedPaths.FindAllStringSubmatch(string(text), -1) {
			found++
			for path := range strings.SplitSeq(m[1], ",") {
				// Prometheus in docker compose has no credential, and a network of its own.
				if metrics := path == "/metrics" && filepath.Base(file) == "docker-compose.yaml"; !metrics && !slices.Contains(newAccess().Always, path) {
					t.Errorf("%s opens %s to everyone", file, path)
				}
			}
		}
		for _, m := range monitored.FindAllStringSubmatch(string(text), -1) {
			found++
			for address := range strings.SplitSeq(m[1], ",") {
				if strings.Contains(address, ":10260") && !strings.HasPrefix(address, "https://") {
					t.Errorf("%s: services ask %s how it syncs, to which they can show no login", file, address)
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d settings were found", found)
	}
}

// TestHowTheHealthAddressSpeaksTLS: it also serves HTTP until a certificate is given, uses the bus's
// certificate if there is one, and never allows an unsafe version.
func TestHowTheHealthAddressSpeaksTLS(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		args     []string
		bus      string
		file     string // of the certificate; "" where it is made
		plainToo bool
		says     string
	}{
		"by default":             {nil, "", "", true, ""},
		"by default, with a bus": {nil, "bus", "bus.crt", true, ""},
		"a certificate":          {[]string{"--tls-cert-file=a.crt", "--tls-private-key-file=a.key"}, "bus", "a.crt", false, ""},
		"a directory":            {[]string{"--cert-dir=" + dir}, "bus", "", false, ""},
		"no key":                 {[]string{"--tls-cert-file=a.crt"}, "", "", false, "--tls-private-key-file"},
		"an old version":         {[]string{"--tls-min-version=VersionTLS10"}, "", "", false, "VersionTLS12"},
		"no version":             {[]string{"--tls-min-version=1.2"}, "", "", false, "--tls-min-version"},
		"no cipher":              {[]string{"--tls-cipher-suites=ROT13"}, "", "", false, "--tls-cipher-suites"},
	} {
		o, f := tlsOptions{}, pflag.NewFlagSet(name, pflag.ContinueOnError)
		o.add(f)
		ok(t, f.Parse(c.args))
		cert, key := "", ""
		if c.bus != "" {
			cert, key = c.bus+".crt", c.bus+".key"
		}
		e, err := o.encryption(cert, key)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %s", name, err, c.says)
			}
			continue
		}
		if err != nil || e.CertFile != c.file || e.PlainToo != c.plainToo || (len(e.Certificate) > 0) != (c.file == "") {
			t.Errorf("%s: %v, %q, plain %t", name, err, e.CertFile, e.PlainToo)
		}
	}
	first, err := (&tlsOptions{certDir: dir}).encryption("", "")
	ok(t, err)
	again, err := (&tlsOptions{certDir: dir}).encryption("", "")
	ok(t, err)
	if string(first.Certificate) != string(again.Certificate) {
		t.Error("a directory with a certificate gets another one")
	}
}

// TestHealthcheckAsksOverTLS: on this machine it accepts any certificate.
func TestHealthcheckAsksOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "https://")
	ok(t, askHealth(t.Context(), "https", address, "/readyz"))
	for _, c := range []struct {
		o    tlsOptions
		want bool
	}{{tlsOptions{}, false}, {tlsOptions{certFile: "a"}, true}, {tlsOptions{certDir: "a"}, true}} {
		if c.o.alone() != c.want {
			t.Errorf("%+v: HTTPS alone is %t", c.o, !c.want)
		}
	}
}

// deployments is the directory of the manifests.
const deployments = "../../../deployments"

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
