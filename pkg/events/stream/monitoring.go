package stream

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

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/stream/certs"
)

// varz asks a monitoring endpoint of NATS. It sends the login of this process only over https,
// where no other program can read it.
func (b *Bus) varz(ctx context.Context, endpoint string) (*server.Varz, error) {
	ctx, done := context.WithTimeout(ctx, fetchTimeout)
	defer done()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint, "/")+"/varz", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if request.URL.Scheme == "https" {
		if client.Transport, err = b.options.verified(); err != nil {
			return nil, err
		}
		if user, password := b.options.ownLogin(); user != "" {
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
func (o Options) verified() (http.RoundTripper, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	text, from := o.CAData, "the text"
	if o.CAFile != "" {
		var err error
		if text, err = os.ReadFile(o.CAFile); err != nil {
			return nil, fmt.Errorf("read the authorities of the bus: %w", err)
		}
		from = o.CAFile
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

// ownLogin is the user and password of this process on the bus, if it has them.
func (o Options) ownLogin() (user, password string) {
	if o.User != "" {
		return o.login()
	}
	first, _, _ := strings.Cut(o.URL, ",")
	if u, err := url.Parse(strings.TrimSpace(first)); err == nil && u.User != nil {
		password, _ = u.User.Password()
		return u.User.Username(), password
	}
	return "", ""
}
