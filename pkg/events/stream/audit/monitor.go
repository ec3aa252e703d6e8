package audit

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/stream/certs"
)

// fetchTimeout bounds one request to a monitoring endpoint.
const fetchTimeout = 5 * time.Second

// Monitor asks the monitoring endpoints of NATS servers.
type Monitor struct {
	// CAFile and CAData hold the authorities of the endpoints' certificates, as PEM; both empty: those of the
	// machine.
	CAFile string
	CAData []byte
	// Login is the user and password of this process on the bus; an empty user: it has none.
	Login func() (user, password string)
}

// Varz asks an endpoint for its server's settings and counters. It sends the login of this process only over
// https, where no other program can read it. It takes 5 s at most.
//
// Errors: the authorities cannot be read; the endpoint does not answer, or not as NATS does.
func (m Monitor) Varz(ctx context.Context, endpoint string) (*server.Varz, error) {
	ctx, done := context.WithTimeout(ctx, fetchTimeout)
	defer done()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint, "/")+"/varz", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if request.URL.Scheme == "https" {
		if client.Transport, err = m.verified(); err != nil {
			return nil, err
		}
		if user, password := m.Login(); user != "" {
			request.SetBasicAuth(user, password)
		}
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusUnauthorized && request.URL.Scheme != "https" && !isLocal(request.URL):
		return nil, fmt.Errorf("%s answers %s: name it with https, over which this service says who it is", request.URL.Redacted(), response.Status)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", request.URL.Redacted(), response.Status)
	}
	v := &server.Varz{}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(v); err != nil {
		return nil, fmt.Errorf("%s does not answer as NATS does: %w", request.URL.Redacted(), err)
	}
	return v, nil
}

// isLocal reports whether a URL points to this machine.
func isLocal(u *url.URL) bool {
	at, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && at.IsLoopback()
}

// verified is a transport that trusts the authorities of the bus. It is for one use, since it
// reads the authorities only once.
func (m Monitor) verified() (http.RoundTripper, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	text, from := m.CAData, "the text"
	if m.CAFile != "" {
		var err error
		if text, err = os.ReadFile(m.CAFile); err != nil {
			return nil, fmt.Errorf("read the authorities of the bus: %w", err)
		}
		from = m.CAFile
	}
	if len(text) > 0 {
		pool, err := certs.Authorities(text, from)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the bus: %w", err)
		}
		config.RootCAs = pool
	}
	return &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}, nil
}
