package page

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// TestThePageIsForWhoHasTheToken: the page answers requests with the token in the address, in
// the cookie that this sets, or as a bearer token, and no others.
func TestThePageIsForWhoHasTheToken(t *testing.T) {
	token := Token()
	handler := New(memory.New(memory.Options{}), Options{Token: token})
	get := func(path string, change func(q *http.Request)) *httptest.ResponseRecorder {
		q, w := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8090"+path, nil), httptest.NewRecorder()
		change(q)
		handler.ServeHTTP(w, q)
		return w
	}
	plain := func(*http.Request) {}
	opened := get("/?token="+token+"&ns=shop", plain)
	cookies := opened.Result().Cookies()
	if opened.Code != http.StatusOK || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || opened.Header().Get("Refresh") != "0; url=/?ns=shop" {
		t.Fatalf("the printed address is answered with %d, %v", opened.Code, opened.Header())
	}
	with := func(c *http.Cookie) func(q *http.Request) { return func(q *http.Request) { q.AddCookie(c) } }
	wrong := *cookies[0]
	wrong.Value = Token()
	bearer := func(text string) func(q *http.Request) {
		return func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+text) }
	}
	for name, tc := range map[string]struct {
		path   string
		change func(q *http.Request)
		want   int
	}{
		"nothing":                   {"/api/overview", plain, 401},
		"nothing, for the page":     {"/", plain, 401},
		"nothing, for a file":       {"/main.js", plain, 401},
		"a wrong token":             {"/?token=" + Token(), plain, 401},
		"an empty token":            {"/?token=", plain, 401},
		"a token for a question":    {"/api/overview?token=" + token, plain, 401},
		"the cookie":                {"/api/overview", with(cookies[0]), 200},
		"the cookie, for the page":  {"/", with(cookies[0]), 200},
		"a wrong cookie":            {"/api/overview", with(&wrong), 401},
		"a bearer token":            {"/api/overview", bearer(token), 200},
		"a wrong bearer token":      {"/api/overview", bearer(token[1:]), 401},
		"the cookie, from a site":   {"/api/overview", func(q *http.Request) { with(cookies[0])(q); q.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"the cookie, under a name":  {"/api/overview", func(q *http.Request) { with(cookies[0])(q); q.Host = "evil.example" }, 403},
		"the address, under a name": {"/?token=" + token, func(q *http.Request) { q.Host = "evil.example" }, 403},
	} {
		w := get(tc.path, tc.change)
		if w.Code != tc.want || strings.Contains(w.Body.String(), token) {
			t.Errorf("%s: got %d %.100q, want %d", name, w.Code, w.Body, tc.want)
		}
	}
}

// TestOnlyAFewQuestionsAreAnsweredAtOnce: further requests wait, and are refused in the end.
func TestOnlyAFewQuestionsAreAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{asked: make(chan struct{}, atOnce)}
		var running, most atomic.Int32
		handler := p.bounded(func(http.ResponseWriter, *http.Request) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(turn + time.Second) // of virtual time
			running.Add(-1)
		})
		var refused atomic.Int32
		for range 3 * atOnce {
			go func() {
				w := httptest.NewRecorder()
				if handler(w, httptest.NewRequest(http.MethodGet, "/api/lag", nil)); w.Code == http.StatusServiceUnavailable {
					refused.Add(1)
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if most.Load() != atOnce || refused.Load() != 2*atOnce || len(p.asked) != 0 {
			t.Errorf("%d were answered at once, %d turned away", most.Load(), refused.Load())
		}
	})
}
