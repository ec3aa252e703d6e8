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

// Access says who may ask for what. The zero value answers this machine alone.
type Access struct {
	// Always are the paths that are answered to everyone; one that ends with * is all that
	// begin so. Upstream: --authorization-always-allow-paths.
	Always []string
	// TokenFile is a file with a token: a request that has it as its bearer token is
	// answered wherever it comes from. It is read for each, so that it may be replaced.
	TokenFile string
	// Strict asks for a credential on this machine, too.
	Strict bool
	// Reviewer judges the other credentials that come over TLS or from this machine; nil:
	// they are unknown.
	Reviewer Reviewer
}

// Reviewer judges who sends a request: nil lets it in. Its errors are [ErrUnknown],
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

// Login tells whether a user and a password are those of a login that may see a page.
type Login func(user, password string) bool

// open tells whether everyone is answered at a path.
func (a Access) open(path string) bool {
	for _, one := range a.Always {
		if prefix, all := strings.CutSuffix(one, "*"); path == one || all && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// known tells whether a request comes from this machine or has the token. The API server is
// not asked.
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

// judge says why a request is refused; nil: it is let in.
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
		if a.Reviewer == nil || !errors.Is(err, fs.ErrNotExist) { // else it may be one for the API server
			klog.Background().Error(err, "Read --metrics-token-file: no token opens anything until it is there")
		}
		return false
	}
	token := strings.TrimSpace(string(want))
	given, expected := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(token))
	return token != "" && subtle.ConstantTimeCompare(given[:], expected[:]) == 1
}

// loopback tells whether a request comes from this machine's own address.
func loopback(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// local tells whether a program on this machine asks for this machine: not a proxy for
// someone else, and not a browser that was led here by another site's name.
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

// guard answers those who may ask, and those with a login of the page.
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

// fresh is for how long a check's verdict is told again without another check.
const fresh = time.Second

// cached makes a check one that runs once a second at most, however often it is asked for.
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
