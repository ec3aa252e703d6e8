// Package health serves the health and metrics of a process.
//
// /healthz and /readyz run every named check, /livez only those that a restart
// would mend. All three answer 200 "ok" or 500 with the checks that failed, and
// take ?verbose and ?exclude=NAME as Kubernetes' own components do; a check is
// also served alone, as /readyz/NAME. With profiling on, the server has /debug/pprof too.
//
// /flagz, /configz and /statusz show the flags and settings of a process, its version and its
// start time, as in Kubernetes' own components.
//
// The first three answer every client, and a check runs once a second at most. The reason why
// a check fails, metrics, profiles and all other pages need authorization; see [Access].
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // registers the metrics of client-go's requests
	"k8s.io/klog/v2"
)

// Check is one named check: nil if healthy, otherwise the reason.
type Check func() error

// Server serves the checks and metrics of one process.
type Server struct {
	live, ready map[string]Check
	notes       map[string]Check
	registry    *prometheus.Registry
	profiling   bool
	access      Access
	encryption  Encryption
	pages       map[string]http.Handler
	logins      map[string]Login
	withheld    []string
	about       About
}

// New makes a server. live are the checks that a restart would mend; ready are
// all others. Names must be distinct.
func New(live, ready map[string]Check, registry *prometheus.Registry) *Server {
	return &Server{live: cachedAll(live), ready: cachedAll(ready), registry: registry, pages: map[string]http.Handler{}, logins: map[string]Login{}}
}

// Notes adds checks that ?verbose shows and that do not make the process unready. Alone, as
// /readyz/NAME, such a check fails as any other does.
func (s *Server) Notes(notes map[string]Check) *Server {
	s.notes = cachedAll(notes)
	return s
}

// Guard sets the access rules; without it, only requests from this machine are answered.
func (s *Server) Guard(a Access) *Server {
	s.access = a
	return s
}

// Profile makes the server serve /debug/pprof too.
func (s *Server) Profile() *Server {
	s.profiling = true
	return s
}

// Serves makes the server serve more pages, by path.
func (s *Server) Serves(pages map[string]http.Handler) *Server {
	maps.Copy(s.pages, pages)
	return s
}

// Admits lets logins see single pages, by path, in addition to [Access].
func (s *Server) Admits(logins map[string]Login) *Server {
	maps.Copy(s.logins, logins)
	return s
}

// Encrypts sets the server's TLS; without it, the server has none.
func (s *Server) Encrypts(e Encryption) *Server {
	s.encryption = e
	return s
}

// Plain is whether the server answers clients without TLS.
func (s *Server) Plain() bool { return !s.encryption.on() || s.encryption.PlainToo }

// Withholds leaves metrics out of /metrics, by name.
func (s *Server) Withholds(metrics []string) *Server {
	s.withheld = metrics
	return s
}

// Tells makes the server serve /flagz, /configz and /statusz.
func (s *Server) Tells(a About) *Server {
	s.about = a
	return s
}

// Handler serves /healthz, /livez, /readyz (and each check below them), /metrics and
// the further pages.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	all := map[string]Check{}
	for _, part := range []map[string]Check{s.live, s.ready} {
		maps.Copy(all, part)
	}
	for path, checks := range map[string]map[string]Check{"/healthz": all, "/readyz": all, "/livez": s.live} {
		notes := s.notes
		if path == "/livez" {
			notes = nil
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, path[1:], checks, notes) })
		for name, check := range checks {
			mux.HandleFunc("GET "+path+"/"+name, func(w http.ResponseWriter, r *http.Request) {
				s.answer(w, r, name, map[string]Check{name: check}, nil)
			})
		}
		for name, note := range notes {
			mux.HandleFunc("GET "+path+"/"+name, func(w http.ResponseWriter, r *http.Request) {
				s.answer(w, r, name, map[string]Check{name: note}, nil)
			})
		}
	}
	mux.Handle("GET /metrics", s.access.guard(s.metrics(), nil))
	for path, page := range s.pages {
		mux.Handle("GET "+path, s.access.guard(page, s.logins[path]))
	}
	for path, page := range s.about.pages(s.paths()) {
		mux.Handle("GET "+path, s.access.guard(page, nil))
	}
	if s.profiling {
		for path, page := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
			mux.Handle("/debug/pprof/"+path, s.access.guard(page, nil))
		}
	}
	return mux
}

// metrics serves the metrics of the parts, and those that every Kubernetes component
// has: of the process, the Go runtime and client-go. They have exemplars in the OpenMetrics
// format, which a scraper has to request.
func (s *Server) metrics() http.Handler {
	all := prometheus.Gatherers{s.registry, prometheus.GathererFunc(common)}
	told := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := all.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return slices.Contains(s.withheld, f.GetName()) }), err
	})
	return promhttp.HandlerFor(told, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// common are the metrics that every component has, without those of the API server's libraries:
// the writer links them for the type checker, and they count nothing in this process.
func common() ([]*dto.MetricFamily, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	idle := func(f *dto.MetricFamily) bool { return strings.HasPrefix(f.GetName(), "apiserver_") }
	return slices.DeleteFunc(families, idle), err
}

// Serve listens on address until the context ends.
//
// Errors: the address cannot be listened on, or the certificate cannot be used.
func (s *Server) Serve(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve health and metrics: %w; choose another --health-address", err)
	}
	return s.ServeOn(ctx, listener)
}

// ServeOn serves on a listener, which it closes, until the context ends.
//
// Errors: as [Server.Serve].
func (s *Server) ServeOn(ctx context.Context, listener net.Listener) error {
	config, err := s.encryption.config(ctx)
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("serve health and metrics: %w", err)
	}
	server := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: 64 << 10,
		// At -v=2, because any client on the network can cause failed handshakes.
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(klog.Background().WithName("health").V(2)), slog.LevelInfo),
		ReadHeaderTimeout: headersIn, ReadTimeout: requestIn, WriteTimeout: answerIn, IdleTimeout: restFor,
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listen(listener, config, s.encryption.PlainToo)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health and metrics on %s: %w", listener.Addr(), err)
	}
	return nil
}

// answer runs the checks and notes, and writes the result in the format of Kubernetes'
// components. Upstream: apiserver/pkg/server/healthz. Only the checks decide the status code.
// The answer has the reasons of failures only for clients that are known.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, what string, checks, notes map[string]Check) {
	excluded := r.URL.Query()["exclude"]
	_, verbose := r.URL.Query()["verbose"]
	var report strings.Builder
	known := s.access.known(r)
	failed := tell(&report, checks, excluded, "[-]%s failed: %v\n", known)
	tell(&report, notes, excluded, "[!]%s: %v\n", known)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", report.String(), what)
	case verbose:
		fmt.Fprintf(w, "%s%s check passed\n", report.String(), what)
	default:
		fmt.Fprint(w, "ok")
	}
}

var errWithheld = errors.New("reason withheld")

// tell runs checks and writes their results; failing is the format of a failed one.
func tell(report *strings.Builder, checks map[string]Check, excluded []string, failing string, known bool) (failed bool) {
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if slices.Contains(excluded, name) {
			fmt.Fprintf(report, "[+]%s excluded: ok\n", name)
			continue
		}
		if err := checks[name](); err != nil {
			if failed = true; !known {
				err = errWithheld
			}
			fmt.Fprintf(report, failing, name, err)
			continue
		}
		fmt.Fprintf(report, "[+]%s ok\n", name)
	}
	return failed
}
