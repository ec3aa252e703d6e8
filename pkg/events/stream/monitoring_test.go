package stream_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/stream"
)

// TestServicesAskWithTheirLogin: where the monitoring page is for those with a login of the
// bus, a service shows its own, to a server that it trusts and over TLS alone.
func TestServicesAskWithTheirLogin(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.issue("server", time.Hour, "127.0.0.1")
	theirs.issue("server", time.Hour, "127.0.0.1")
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", SyncAlways: true, Accounts: accountsOf(t, access.New([]string{"c"})), TLS: ours.server()})
	all := connect(t, stream.Options{URL: as("millrace", strings.TrimPrefix(s.URL(), "tls://")), CAFile: ours.path("ca.crt")})
	if err := all.EnsureController(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	right := os.Getenv(access.PasswordOf("watcher"))
	for name, c := range map[string]struct {
		password  string
		shows     *authority // the certificate's; nil: there is no TLS
		want, say string
		logins    int32 // shown to the endpoint
	}{
		"its own password":             {right, ours, "replicas", "", 1},
		"another password":             {"wrong", ours, "replicas unseen", "401", 1},
		"without TLS":                  {right, nil, "replicas unseen", "401", 0},
		"a server that is not trusted": {right, theirs, "replicas unseen", "certificate", 0},
	} {
		var logins atomic.Int32
		page := s.Monitoring()["/varz"]
		endpoint := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, given := r.BasicAuth()
			if given {
				logins.Add(1)
			}
			if !s.Admits(user, password) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			page.ServeHTTP(w, r)
		}))
		if c.shows == nil {
			endpoint.Start()
		} else {
			pair, err := tls.LoadX509KeyPair(c.shows.path("server.crt"), c.shows.path("server.key"))
			if err != nil {
				t.Fatal(err)
			}
			endpoint.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			endpoint.StartTLS()
		}
		t.Cleanup(endpoint.Close)
		file := filepath.Join(t.TempDir(), "password")
		write := func(password string) {
			if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(right)
		b := connect(t, stream.Options{URL: s.URL(), User: "watcher", PasswordFile: file, CAFile: ours.path("ca.crt"), Monitoring: []string{endpoint.URL}})
		write(c.password)
		found, err := b.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var reasons, said []string
		for _, f := range found {
			reasons, said = append(reasons, f.Reason), append(said, f.String())
		}
		if strings.Join(reasons, " ") != c.want || !strings.Contains(strings.Join(said, "\n"), c.say) || logins.Load() != c.logins {
			t.Errorf("%s: %d logins, %v, want %d and %s, %s", name, logins.Load(), said, c.logins, c.want, c.say)
		}
	}
}

// TestWhoIsAdmitted: those whom the bus lets in, and in a server without accounts its two
// users.
func TestWhoIsAdmitted(t *testing.T) {
	t.Parallel()
	with := serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accountsOf(t, access.New([]string{"c"}))})
	without := serve(t, embedded.Options{Listen: "127.0.0.1:0", Password: "all", GuestPassword: "some"})
	open := serve(t, embedded.Options{})
	for _, c := range []struct {
		name           string
		server         *embedded.Server
		user, password string
		want           bool
	}{
		{"with accounts", with, "watcher", os.Getenv(access.PasswordOf("watcher")), true},
		{"with accounts", with, "watcher", os.Getenv(access.PasswordOf("writer")), false},
		{"with accounts", with, "watcher", "", false},
		{"with accounts", with, "", "", false},
		{"without accounts", without, embedded.MainUser, "all", true},
		{"without accounts", without, embedded.GuestUser, "some", true},
		{"without accounts", without, embedded.GuestUser, "all", false},
		{"without accounts", without, "", "", false},
		{"without users", open, embedded.MainUser, "", false},
		{"without users", open, "", "", false},
	} {
		if got := c.server.Admits(c.user, c.password); got != c.want {
			t.Errorf("%s: %q with %q: %t", c.name, c.user, c.password, got)
		}
	}
}
