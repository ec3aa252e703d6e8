package page

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy: the page loads resources only from this server, and
// the browser never turns text into markup or code.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard passes on only GET and HEAD requests, under an allowed host name, from the page that
// this server has served or from no page.
func guard(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		switch err := refusal(names, q); {
		case q.Method != http.MethodGet && q.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			say(w, http.StatusMethodNotAllowed, "method", fmt.Errorf("%s: the page only reads", q.Method))
		case err != nil:
			say(w, http.StatusForbidden, "refused", err)
		default:
			next.ServeHTTP(w, q)
		}
	})
}

// refusal is why a request is not answered; nil: it is. An unknown host name that resolves to
// this server may be an attacker's, which makes a browser take this server for the attacker's
// site (DNS rebinding). IP addresses and localhost cannot be.
func refusal(names []string, q *http.Request) error {
	if host := hostOf(q.Host); !own(names, host) {
		return fmt.Errorf("this page is not at %q: ask for it by its address, or allow the name with --host", host)
	}
	if origin := q.Header.Get("Origin"); origin != "" {
		if from, err := url.Parse(origin); err != nil || from.Host != q.Host {
			return errors.New("another site asked for this")
		}
	}
	switch q.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // programs, addresses that a user opens, and this page
		return nil
	}
	if q.URL.Path == "/" && q.Header.Get("Sec-Fetch-Mode") == "navigate" && q.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil // a user follows a link; the other site cannot read the answer
	}
	return errors.New("another site asked for this")
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func own(names []string, host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) })
}
