package page

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

func TestOnlyItsOwnPageIsAnswered(t *testing.T) {
	handler := New(memory.New(memory.Options{}), Options{Hosts: []string{"millrace.example"}})
	type headers map[string]string
	api, page := "/api/overview", "/"
	navigation := headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
	for _, c := range []struct {
		method, host, path string
		with               headers
		want               int
	}{
		{"GET", "127.0.0.1:8090", api, nil, http.StatusOK},
		{"GET", "localhost:8090", api, headers{"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8090"}, http.StatusOK},
		{"GET", "LocalHost", page, nil, http.StatusOK},
		{"GET", "[::1]:8090", page, nil, http.StatusOK},
		{"GET", "[::1]", page, nil, http.StatusOK},
		{"GET", "10.1.2.3:8090", page, nil, http.StatusOK},
		{"GET", "millrace.example", page, nil, http.StatusOK},
		{"HEAD", "127.0.0.1", page, nil, http.StatusOK},
		{"GET", "127.0.0.1", page, navigation, http.StatusOK}, // a link in a chat
		// Host names that an attacker resolves to this machine.
		{"GET", "evil.example:8090", page, nil, http.StatusForbidden},
		{"GET", "evil.example", api, headers{"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, http.StatusForbidden},
		{"GET", "127.evil.example", api, nil, http.StatusForbidden},
		{"GET", "127.0.0.1.evil.example:8090", api, nil, http.StatusForbidden},
		{"GET", "localhost.evil.example", api, nil, http.StatusForbidden},
		{"GET", "", api, nil, http.StatusForbidden},
		// Requests from other sites.
		{"GET", "127.0.0.1:8090", api, headers{"Origin": "http://evil.example"}, http.StatusForbidden},
		{"GET", "127.0.0.1:8090", api, headers{"Origin": "http://127.0.0.1:9999"}, http.StatusForbidden},
		{"GET", "127.0.0.1:8090", api, headers{"Origin": "null"}, http.StatusForbidden},
		{"GET", "127.0.0.1:8090", api, headers{"Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		{"GET", "127.0.0.1:8090", api, headers{"Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		{"GET", "127.0.0.1:8090", api, navigation, http.StatusForbidden},
		{"GET", "127.0.0.1:8090", page, headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, http.StatusForbidden},
		{"GET", "127.0.0.1:8090", "/main.js", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, http.StatusForbidden},
		// Requests that are no reads.
		{"POST", "127.0.0.1:8090", api, nil, http.StatusMethodNotAllowed},
		{"DELETE", "127.0.0.1:8090", page, nil, http.StatusMethodNotAllowed},
		{"OPTIONS", "127.0.0.1:8090", api, headers{"Origin": "http://evil.example"}, http.StatusMethodNotAllowed},
	} {
		q := httptest.NewRequest(c.method, "http://x"+c.path, nil)
		q.Host = c.host
		for name, value := range c.with {
			q.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, q); w.Code != c.want {
			t.Errorf("%s %s of %q with %v is answered with %d, want %d", c.method, c.path, c.host, c.with, w.Code, c.want)
		}
		h := w.Header()
		if !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s %s of %q: the browser is told too little: %v", c.method, c.path, c.host, h)
		}
		if h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s of %q: others may read it", c.method, c.path, c.host)
		}
	}
}

func TestOfASecretItsMetadataIsShownAndSaidToBeAll(t *testing.T) {
	visit(t, func(s *site) {
		secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "keys", Labels: map[string]string{"a": "b"}}}
		if err := s.Is(s.Context(), recordtest.Secrets, secret, "kubectl-create"); err != nil {
			s.Fatal(err)
		}
		var b body
		s.ask(http.StatusOK, "object", of("secret", "keys"), &b)
		if b.Form != kinds.Metadata || !strings.Contains(b.YAML, "a: b") || strings.Contains(b.YAML, "\ndata:") {
			s.Errorf("it is shown as %+v", b)
		}
		var now scene
		s.ask(http.StatusOK, "state", url.Values{"kind": {"secrets"}}, &now)
		if got := now.names(); got != "secrets: keys" {
			s.Errorf("there is %s", got)
		}
	})
}
