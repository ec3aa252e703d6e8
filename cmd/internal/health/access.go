package health

import (
	"crypto/sha256"
	"crypto/subtle"
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
}

// open tells whether everyone is answered at a path.
func (a Access) open(path string) bool {
	for _, one := range a.Always {
		if prefix, all := strings.CutSuffix(one, "*"); path == one || all && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// known tells whether a request comes from this machine or has the token.
func (a Access) known(r *http.Request) bool {
	if text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && a.TokenFile != "" {
		return a.isToken(strings.TrimSpace(text))
	}
	return local(r)
}

func (a Access) isToken(text string) bool {
	want, err := os.ReadFile(a.TokenFile)
	if err != nil {
		klog.Background().Error(err, "Read --metrics-token-file: no token opens anything until it is there")
		return false
	}
	token := strings.TrimSpace(string(want))
	given, expected := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(token))
	return token != "" && subtle.ConstantTimeCompare(given[:], expected[:]) == 1
}

// local tells whether a program on this machine asks for this machine: not a proxy for
// someone else, and not a browser that was led here by another site's name.
func local(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() || r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// guard answers those who may ask.
func (a Access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.open(r.URL.Path) && !a.known(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "answered on this machine alone, or with the token of --metrics-token-file", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
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
