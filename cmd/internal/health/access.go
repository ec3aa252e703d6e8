package health

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Access are the rules for who may request which path. The zero value answers only this machine.
type Access struct {
	// Always are the paths that every client may request; a * at the end stands for all paths with
	// that prefix. Upstream: --authorization-always-allow-paths.
	Always []string
	// TokenFile is a file with a token: a request with that bearer token is answered from
	// anywhere. The file is read for each request, so that it may be replaced.
	TokenFile string
	// Strict requires a credential on this machine, too.
	Strict bool
	// Reviewer judges other credentials, over TLS or from this machine; nil: they are unknown.
	Reviewer Reviewer
}

// Reviewer authenticates and authorizes a request: nil admits it. Its errors are [ErrUnknown],
// [ErrForbidden] and [ErrUnanswered], or wrap them.
type Reviewer interface {
	May(r *http.Request) error
}

// Why a request is refused.
var (
	ErrUnknown    = errors.New("unknown: answered on this machine, with the token of --metrics-token-file, and with a token or certificate of the API server's that may get this path")
	ErrForbidden  = errors.New("forbidden")
	ErrUnanswered = errors.New("the API server does not say who asks: this service's log has the reason")
	errPlain      = errors.New("a token of the API server is taken over TLS alone: ask this port with https")
)

// Login is whether a user with a password may see a page.
type Login func(user, password string) bool

// open is whether every client may request a path.
func (a Access) open(path string) bool {
	for _, one := range a.Always {
		if prefix, all := strings.CutSuffix(one, "*"); path == one || all && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// known is whether a request comes from this machine or has the token. It does not ask the API
// server.
func (a Access) known(r *http.Request) bool {
	if text, ok := bearer(r); ok {
		return a.isToken(text)
	}
	return !a.Strict && local(r)
}

// bearer is the bearer token of a request.
func bearer(r *http.Request) (string, bool) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return strings.TrimSpace(text), ok
}

// judge is why a request is refused; nil: it is admitted.
func (a Access) judge(r *http.Request, login Login) error {
	if a.open(r.URL.Path) || a.known(r) {
		return nil
	}
	if user, password, ok := r.BasicAuth(); ok && r.TLS != nil && login != nil && login(user, password) {
		return nil
	}
	_, token := bearer(r)
	switch {
	case a.Reviewer == nil || !token && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0):
		return ErrUnknown
	case r.TLS == nil && !loopback(r):
		return errPlain
	}
	return a.Reviewer.May(r)
}

func (a Access) isToken(text string) bool {
	if a.TokenFile == "" {
		return false
	}
	want, err := os.ReadFile(a.TokenFile)
	if err != nil {
		if a.Reviewer == nil || !errors.Is(err, fs.ErrNotExist) { // otherwise the token may be one for the API server
			klog.Background().Error(err, "Read --metrics-token-file: no token opens anything until it is there")
		}
		return false
	}
	token := strings.TrimSpace(string(want))
	given, expected := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(token))
	return token != "" && subtle.ConstantTimeCompare(given[:], expected[:]) == 1
}

// loopback is whether a request comes from a loopback address.
func loopback(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// local is whether a program on this machine requests an address of this machine. It excludes
// proxies that forward requests, and browsers that reach this machine by the name of another
// site (DNS rebinding).
func local(r *http.Request) bool {
	if !loopback(r) || r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// guard passes on requests that judge admits.
func (a Access) guard(next http.Handler, login Login) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.judge(r, login)
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
			return
		case errors.Is(err, ErrForbidden):
			http.Error(w, err.Error(), http.StatusForbidden)
		case errors.Is(err, ErrUnanswered):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	})
}

// fresh is how long the result of a check is cached.
const fresh = time.Second

// cached runs a check at most once a second, regardless of the number of requests.
func cached(check Check) Check {
	var mu sync.Mutex
	var at time.Time
	var verdict error
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); at.IsZero() || now.Sub(at) >= fresh {
			verdict = check()
			at = time.Now()
		}
		return verdict
	}
}

func cachedAll(checks map[string]Check) map[string]Check {
	out := make(map[string]Check, len(checks))
	for name, check := range checks {
		out[name] = cached(check)
	}
	return out
}
