package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Encryption is the TLS configuration of the address; the zero value is no TLS. It has no HTTP/2,
// because one connection could carry many requests, which the bound on connections would not count.
type Encryption struct {
	// CertFile and KeyFile are the certificate and its key, as PEM, and are reloaded when they
	// change. If they are empty, Certificate and Key are served.
	CertFile, KeyFile string
	Certificate, Key  []byte
	// MinVersion and CipherSuites are as in crypto/tls; zero is its default.
	MinVersion   uint16
	CipherSuites []uint16
	// Curves are the key exchange mechanisms; nil is crypto/tls's default.
	Curves []tls.CurveID
	// Named are certificates for clients that ask for some names (SNI).
	Named []Named
	// PlainToo also answers clients without TLS, on the same port.
	PlainToo bool
}

// Named are the files of a certificate and its key for Names; without Names, for the names in the
// certificate. They are reloaded when they change.
type Named struct {
	CertFile, KeyFile string
	Names             []string
}

// on is whether the address has TLS at all.
func (e Encryption) on() bool { return e.CertFile != "" || e.KeyFile != "" || len(e.Certificate) > 0 }

// certificate is a source of a certificate for package dynamiccertificates.
type certificate interface {
	dynamiccertificates.CertKeyContentProvider
	dynamiccertificates.Notifier
}

// config is the listener's TLS configuration, reloaded until the context ends; nil: TLS is off.
// It requests a certificate of every client, and [Access] judges it with each request.
//
// Errors: the certificate cannot be read, or the key is not that of the certificate.
func (e Encryption) config(ctx context.Context) (*tls.Config, error) {
	var pair certificate
	switch {
	case e.CertFile != "" || e.KeyFile != "":
		files, err := dynamiccertificates.NewDynamicServingContentFromFiles("health", e.CertFile, e.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read --tls-cert-file %q and --tls-private-key-file %q: %w", e.CertFile, e.KeyFile, err)
		}
		pair = files
	case len(e.Certificate) > 0:
		fixed, err := dynamiccertificates.NewStaticCertKeyContent("health", e.Certificate, e.Key)
		if err != nil {
			return nil, fmt.Errorf("use the certificate of the health address: %w", err)
		}
		pair = fixed
	default:
		return nil, nil
	}
	config := &tls.Config{MinVersion: max(e.MinVersion, tls.VersionTLS12), CipherSuites: e.CipherSuites, CurvePreferences: e.Curves, ClientAuth: tls.RequestClientCert, NextProtos: []string{"http/1.1"}}
	named, err := e.named()
	if err != nil {
		return nil, err
	}
	newest := dynamiccertificates.NewDynamicServingCertificateController(config, nil, pair, named, nil)
	if err := newest.RunOnce(); err != nil {
		return nil, fmt.Errorf("use the certificate of the health address: %w", err)
	}
	watched := false
	for _, one := range append([]certificate{pair}, certificates(named)...) {
		one.AddListener(newest)
		if files, is := one.(dynamiccertificates.ControllerRunner); is {
			watched = true
			go files.Run(ctx, 1)
		}
	}
	if watched {
		go newest.Run(1, ctx.Done())
	}
	outer := config.Clone()
	outer.GetConfigForClient = newest.GetConfigForClient
	return outer, nil
}

// named reads the certificates for names.
//
// Errors: one cannot be read, or the key is not that of the certificate.
func (e Encryption) named() (all []dynamiccertificates.SNICertKeyContentProvider, err error) {
	for _, n := range e.Named {
		one, err := dynamiccertificates.NewDynamicSNIContentFromFiles("health-sni", n.CertFile, n.KeyFile, n.Names...)
		if err != nil {
			return nil, fmt.Errorf("read --tls-sni-cert-key %q and %q: %w", n.CertFile, n.KeyFile, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func certificates(named []dynamiccertificates.SNICertKeyContentProvider) (all []certificate) {
	for _, n := range named {
		all = append(all, n)
	}
	return all
}

const (
	// connections is the maximum of open connections, and ofOneHost that of one client address, so
	// that a pod that opens as many as it may leaves enough for the kubelet and Prometheus.
	connections, ofOneHost = 512, 64
	// Time-outs of the headers of a request, of the whole request, of its answer (profiles have
	// their own duration in addition), and of an idle connection.
	headersIn, requestIn, answerIn, restFor = 5 * time.Second, 15 * time.Second, time.Minute, time.Minute
)

// port is a listener that bounds the number of connections, and speaks TLS with clients that
// start with a TLS handshake.
type port struct {
	net.Listener
	config *tls.Config // nil: no TLS
	plain  bool        // also without TLS; true if config is nil

	taken  chan accepted
	closed context.Context
	close  context.CancelFunc

	mu   sync.Mutex
	open map[string]int // connections by the address of the client
	all  int
}

type accepted struct {
	conn net.Conn
	err  error
}

func listen(on net.Listener, config *tls.Config, plain bool) *port {
	p := &port{Listener: on, config: config, plain: plain || config == nil, taken: make(chan accepted), open: map[string]int{}}
	p.closed, p.close = context.WithCancel(context.Background())
	go p.take()
	return p
}

// take accepts connections until the listener is closed. It closes those above the bounds at once.
func (p *port) take() {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			if !p.hand(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if !p.admit(host) {
			_ = conn.Close()
			continue
		}
		go p.greet(&counted{Conn: conn, leave: sync.OnceFunc(func() { p.leave(host) })})
	}
}

// greet hands a connection on once it knows whether the client starts with TLS.
func (p *port) greet(conn net.Conn) {
	switch {
	case p.config == nil:
	case !p.plain:
		conn = tls.Server(conn, p.config)
	default:
		begun := &begun{Conn: conn}
		_ = conn.SetReadDeadline(time.Now().Add(headersIn))
		if _, err := io.ReadFull(conn, begun.first[:]); err != nil {
			_ = conn.Close()
			return
		}
		_ = conn.SetReadDeadline(time.Time{})
		conn = begun
		if begun.first[0] == recordHandshake {
			conn = tls.Server(begun, p.config)
		}
	}
	if !p.hand(accepted{conn: conn}) {
		_ = conn.Close()
	}
}

// recordHandshake is the first byte that a TLS client sends. No HTTP request begins with it.
const recordHandshake = 0x16

func (p *port) hand(a accepted) bool {
	select {
	case p.taken <- a:
		return true
	case <-p.closed.Done():
		return false
	}
}

// Accept is [net.Listener].
func (p *port) Accept() (net.Conn, error) {
	select {
	case a := <-p.taken:
		return a.conn, a.err
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close is [net.Listener].
func (p *port) Close() error {
	p.close()
	return p.Listener.Close()
}

func (p *port) admit(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= connections || p.open[host] >= ofOneHost {
		return false
	}
	p.all++
	p.open[host]++
	return true
}

func (p *port) leave(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.open[host]--; p.open[host] == 0 {
		delete(p.open, host)
	}
}

// counted is a connection that calls leave when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close is [net.Conn].
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// begun is a connection whose first byte has been read already, and is given to the first Read.
type begun struct {
	net.Conn
	first [1]byte
	given bool
}

// Read is [net.Conn].
func (b *begun) Read(into []byte) (int, error) {
	if b.given || len(into) == 0 {
		return b.Conn.Read(into)
	}
	b.given = true
	return copy(into, b.first[:]), nil
}
