package embedded

import (
	"crypto/subtle"
	"net"
	"net/http"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// Monitoring answers /varz and /jsz as NATS' own monitoring endpoint does, for the option Monitoring of package
// stream and for exporters.
func (s *Server) Monitoring() map[string]http.Handler {
	return map[string]http.Handler{"/varz": http.HandlerFunc(s.nats.HandleVarz), "/jsz": http.HandlerFunc(s.nats.HandleJsz)}
}

// Admits checks a user's password, for HTTP pages beside the bus. A server without users admits
// none. Admits cannot check a password of which the accounts have only a hash.
func (s *Server) Admits(user, password string) bool {
	known := authenticator{main: s.options.Password, guest: s.options.GuestPassword}.verify(user, password)
	for _, u := range s.users {
		if u.Username == user && u.Password != "" && !strings.HasPrefix(u.Password, hashed) {
			known = known || subtle.ConstantTimeCompare([]byte(password), []byte(u.Password)) == 1
		}
	}
	return known
}

// hashed is the prefix of a password hash in the accounts.
const hashed = "$2"

// Varz has the server's settings and counters, as /varz has them.
//
// Errors: those of the server.
func (s *Server) Varz() (*server.Varz, error) { return s.nats.Varz(nil) }

// Compact removes a stream's journal of the cluster up to now, as the server does by itself after some time:
// a copy that lacks messages cannot be completed from it.
//
// Errors: those of the server.
func (s *Server) Compact(stream string) error {
	return s.nats.JetStreamSnapshotStream(s.options.account(), stream)
}

// Clustered reports whether the server is one of several.
func (s *Server) Clustered() bool { return s.options.clustered() }

// InProcessConn makes a Server a [nats.InProcessConnProvider].
//
// Errors: the server is stopping.
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.InProcessConn() }
