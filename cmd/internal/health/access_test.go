package health_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/cmd/internal/health"
)

func ask(handler http.Handler, from, path string, headers ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr, r.Host = from, "10.0.0.9:10260"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	handler.ServeHTTP(w, r)
	return w
}

const here, elsewhere = "127.0.0.1:4000", "10.1.2.3:4000"

// TestWhatIsConfidentialIsForThisMachine: metrics, profiles and the bus's own pages are served only
// to this machine, with the token, or on paths that are always allowed.
func TestWhatIsConfidentialIsForThisMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := func(a health.Access) http.Handler {
		pages := map[string]http.Handler{"/varz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})}
		return health.New(nil, nil, prometheus.NewRegistry()).Profile().Serves(pages).Tells(health.About{Config: map[string]any{"x": 1}, Status: true, Version: "1.36"}).Guard(a).Handler()
	}
	alone, token := server(health.Access{}), server(health.Access{TokenFile: file})
	opened, missing := server(health.Access{Always: []string{"/metrics", "/debug/*"}}), server(health.Access{TokenFile: file + "-"})
	for name, tc := range map[string]struct {
		handler    http.Handler
		from, path string
		headers    []string
		want       int
	}{
		"metrics here":              {alone, here, "/metrics", nil, 200},
		"metrics here, by IPv6":     {alone, "[::1]:4000", "/metrics", nil, 200},
		"metrics here, mapped":      {alone, "[::ffff:127.0.0.1]:4000", "/metrics", nil, 200},
		"metrics elsewhere":         {alone, elsewhere, "/metrics", nil, 401},
		"metrics by a proxy":        {alone, here, "/metrics", []string{"X-Forwarded-For", "10.1.2.3"}, 401},
		"metrics by another's name": {alone, here, "/metrics", []string{"Host", "evil.example"}, 401},
		"profiles elsewhere":        {alone, elsewhere, "/debug/pprof/goroutine", nil, 401},
		"profiles here":             {alone, here, "/debug/pprof/goroutine", nil, 200},
		"status elsewhere":          {alone, elsewhere, "/statusz", nil, 401},
		"status here":               {alone, here, "/statusz", nil, 200},
		"settings elsewhere":        {alone, elsewhere, "/configz", nil, 401},
		"settings here":             {alone, here, "/configz", nil, 200},
		"the bus elsewhere":         {alone, elsewhere, "/varz", nil, 401},
		"health elsewhere":          {alone, elsewhere, "/healthz", nil, 200},
		"with the token":            {token, elsewhere, "/metrics", []string{"Authorization", "Bearer s3cret"}, 200},
		"with another token":        {token, elsewhere, "/metrics", []string{"Authorization", "Bearer s3cre"}, 401},
		"with another token, here":  {token, here, "/metrics", []string{"Authorization", "Bearer x"}, 401},
		"with an empty token":       {token, elsewhere, "/metrics", []string{"Authorization", "Bearer "}, 401},
		"without the token's file":  {missing, elsewhere, "/metrics", []string{"Authorization", "Bearer "}, 401},
		"what was opened":           {opened, elsewhere, "/metrics", nil, 200},
		"all below what was opened": {opened, elsewhere, "/debug/pprof/goroutine", nil, 200},
		"what was not opened":       {opened, elsewhere, "/varz", nil, 401},
	} {
		if w := ask(tc.handler, tc.from, tc.path, tc.headers...); w.Code != tc.want {
			t.Errorf("%s: got %d %.100q, want %d", name, w.Code, w.Body, tc.want)
		}
	}
}

// verdict is a reviewer with one verdict for every credential.
type verdict struct {
	is    error
	asked int
}

func (v *verdict) May(*http.Request) error { v.asked++; return v.is }

// TestOthersAreReviewed: the API server judges other credentials if no third party can have read
// them in transit; health is open regardless of the verdict.
func TestOthersAreReviewed(t *testing.T) {
	login := func(user, password string) bool { return user == "watcher" && password == "pw" }
	page := map[string]http.Handler{"/varz": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "/jsz": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	allow, unknown, forbid, away := error(nil), health.ErrUnknown, health.ErrForbidden, health.ErrUnanswered
	for name, c := range map[string]struct {
		says              error
		strict            bool
		from, path, token string
		tls               bool
		want, asked       int
	}{
		"allowed":                       {allow, false, elsewhere, "/metrics", "Bearer t", true, 200, 1},
		"unknown":                       {unknown, false, elsewhere, "/metrics", "Bearer t", true, 401, 1},
		"forbidden":                     {forbid, false, elsewhere, "/metrics", "Bearer t", true, 403, 1},
		"unanswered":                    {away, false, elsewhere, "/metrics", "Bearer t", true, 503, 1},
		"no token":                      {allow, false, elsewhere, "/metrics", "", true, 401, 0},
		"over plain HTTP":               {allow, false, elsewhere, "/metrics", "Bearer t", false, 401, 0},
		"over plain HTTP, here":         {allow, false, here, "/metrics", "Bearer t", false, 200, 1},
		"wrong token, here":             {unknown, false, here, "/metrics", "Bearer t", false, 401, 1},
		"no token, here":                {unknown, false, here, "/metrics", "", false, 200, 0},
		"no token, here, strict":        {allow, true, here, "/metrics", "", false, 401, 0},
		"token, here, strict":           {allow, true, here, "/metrics", "Bearer t", false, 200, 1},
		"health":                        {away, true, elsewhere, "/readyz?verbose", "Bearer t", true, 200, 0},
		"login of the bus":              {unknown, true, elsewhere, "/varz", basic("watcher:pw"), true, 200, 0},
		"login of the bus, plain":       {unknown, true, elsewhere, "/varz", basic("watcher:pw"), false, 401, 0},
		"login of the bus, wrong":       {unknown, true, elsewhere, "/varz", basic("watcher:p"), true, 401, 0},
		"login of the bus, other page":  {unknown, true, elsewhere, "/jsz", basic("watcher:pw"), true, 401, 0},
		"login of the bus, for metrics": {unknown, true, elsewhere, "/metrics", basic("watcher:pw"), true, 401, 0},
	} {
		v := &verdict{is: c.says}
		handler := health.New(nil, nil, prometheus.NewRegistry()).Serves(page).Admits(map[string]health.Login{"/varz": login}).Guard(health.Access{Reviewer: v, Strict: c.strict}).Handler()
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, c.path, nil)
		if r.RemoteAddr, r.Host = c.from, "10.0.0.9:10260"; c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if c.token != "" {
			r.Header.Set("Authorization", c.token)
		}
		if handler.ServeHTTP(w, r); w.Code != c.want || v.asked != c.asked {
			t.Errorf("%s: got %d %.80q and %d reviews, want %d and %d", name, w.Code, w.Body, v.asked, c.want, c.asked)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.RemoteAddr, r.TLS = elsewhere, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	v := &verdict{}
	if health.New(nil, nil, prometheus.NewRegistry()).Guard(health.Access{Reviewer: v}).Handler().ServeHTTP(w, r); w.Code != http.StatusOK || v.asked != 1 {
		t.Errorf("with a certificate: %d, and %d reviews", w.Code, v.asked)
	}
}

// TestAFloodOfProbesCausesOneCheck: a check runs once a second at most.
func TestAFloodOfProbesCausesOneCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		handler := health.New(nil, map[string]health.Check{"api": func() error { runs++; return errors.New("down") }}, prometheus.NewRegistry()).Handler()
		for range 1000 {
			for _, path := range []string{"/readyz", "/healthz", "/readyz/api", "/readyz?verbose"} {
				if w := ask(handler, elsewhere, path); w.Code != http.StatusInternalServerError {
					t.Fatalf("got %d", w.Code)
				}
			}
		}
		if runs != 1 {
			t.Errorf("it ran %d times", runs)
		}
		time.Sleep(time.Second) // of virtual time
		ask(handler, elsewhere, "/readyz")
		if runs != 2 {
			t.Errorf("a second later it has run %d times", runs)
		}
	})
}

// TestStrangersAreToldNoReasons: unknown clients do not get the reason of a failed check, because it
// may have addresses.
func TestStrangersAreToldNoReasons(t *testing.T) {
	handler := health.New(nil, map[string]health.Check{"api": func() error { return errors.New("dial 10.9.8.7") }}, prometheus.NewRegistry()).
		Notes(map[string]health.Check{"late": func() error { return errors.New("pods/secret-name") }}).Handler()
	for _, path := range []string{"/readyz", "/readyz?verbose", "/readyz?verbose&exclude=api", "/healthz", "/readyz/api", "/readyz/late"} {
		text := ask(handler, elsewhere, path).Body.String()
		if strings.Contains(text, "10.9.8.7") || strings.Contains(text, "secret-name") {
			t.Errorf("%s tells a stranger %q", path, text)
		}
	}
	if text := ask(handler, elsewhere, "/readyz").Body.String(); !strings.Contains(text, "[-]api failed: reason withheld") {
		t.Errorf("a stranger is told %q", text)
	}
	if text := ask(handler, here, "/readyz").Body.String(); !strings.Contains(text, "10.9.8.7") {
		t.Errorf("who asks on this machine is told %q", text)
	}
}
