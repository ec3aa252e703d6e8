package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Token is a new secret for [Options.Token].
func Token() string { return rand.Text() }

// tokenWord is the token's query parameter in the address of the page.
const tokenWord = "token"

var errToken = errors.New("the token is missing or wrong: open the address that millrace ui printed when it began")

// identified passes on requests that have the token in a cookie or as a bearer token. A request
// for the page with the token in the address sets the cookie and reloads without the token.
func identified(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	sum := sha256.Sum256([]byte(token))
	cookie := "millrace-" + hex.EncodeToString(sum[:6]) // pages on other ports share the cookies of a host
	is := func(given string) bool {
		other := sha256.Sum256([]byte(given))
		return subtle.ConstantTimeCompare(other[:], sum[:]) == 1
	}
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if given := q.URL.Query().Get(tokenWord); q.URL.Path == "/" && is(given) {
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			goOn(w, q.URL.Query())
			return
		}
		bearer, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		if kept, err := q.Cookie(cookie); is(bearer) || err == nil && is(kept.Value) {
			next.ServeHTTP(w, q)
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		say(w, http.StatusUnauthorized, "token", errToken)
	})
}

// goOn has the browser load the page again without the token. It is no redirect, because after a
// link from another site a browser would follow a redirect without the SameSite cookie.
func goOn(w http.ResponseWriter, query url.Values) {
	query.Del(tokenWord)
	h := w.Header()
	h.Set("Refresh", "0; url="+(&url.URL{Path: "/", RawQuery: query.Encode()}).String())
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("The page opens.\n"))
}

const (
	// atOnce is how many requests are answered concurrently. Further ones wait.
	atOnce = 8
	// turn is how long a request waits at most.
	turn = 10 * time.Second
)

var errBusy = errors.New("too many questions at once: ask again")

// bounded limits concurrent requests to atOnce.
func (p *page) bounded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		waiting, cancel := context.WithTimeout(q.Context(), turn)
		defer cancel()
		select {
		case p.asked <- struct{}{}:
			defer func() { <-p.asked }()
			next(w, q)
		case <-waiting.Done():
			w.Header().Set("Retry-After", "1")
			say(w, http.StatusServiceUnavailable, "busy", errBusy)
		}
	}
}
