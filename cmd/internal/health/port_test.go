package health_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/pkg/events/stream/certs"
)

const patience = 30 * time.Second

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin serves a server on loopback until the test ends.
func begin(t *testing.T, s *health.Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeOn(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		ok(t, <-ended)
	})
	return listener.Addr().String()
}

// from is a client with a source address of this machine that accepts any certificate. Each
// request has a connection of its own.
func from(host string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// get is the status code of a page, and the serial number of the server's certificate.
func get(t *testing.T, client *http.Client, url string) (code int, serial string, err error) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if response.TLS != nil {
		serial = response.TLS.PeerCertificates[0].SerialNumber.String()
	}
	return response.StatusCode, serial, err
}

func newPair(t *testing.T) certs.Pair {
	t.Helper()
	authority, err := certs.NewAuthority("an authority", time.Hour)
	ok(t, err)
	pair, err := authority.Issue("health", []string{"127.0.0.1"}, time.Hour)
	ok(t, err)
	return pair
}

// TestThePortSpeaksBoth: the port answers probes over HTTP and requests with a token over HTTPS, or
// HTTPS only.
func TestThePortSpeaksBoth(t *testing.T) {
	pair := newPair(t)
	both := health.Encryption{Certificate: pair.Certificate, Key: pair.Key, PlainToo: true}
	alone := both
	alone.PlainToo = false
	for name, c := range map[string]struct {
		e           health.Encryption
		http, https int
	}{"neither": {health.Encryption{}, 200, 0}, "both": {both, 200, 200}, "HTTPS alone": {alone, 400, 200}} {
		address := begin(t, health.New(nil, nil, prometheus.NewRegistry()).Encrypts(c.e))
		for scheme, want := range map[string]int{"http": c.http, "https": c.https} {
			if got, _, err := get(t, from("127.0.0.1"), scheme+"://"+address+"/healthz"); got != want || (err != nil) != (want == 0) {
				t.Errorf("%s: %s: got %d, %v, want %d", name, scheme, got, err, want)
			}
		}
	}
}

// TestANewCertificateIsServed: without a restart; an unusable one is not served.
func TestANewCertificateIsServed(t *testing.T) {
	dir := t.TempDir()
	e := health.Encryption{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	write := func(pair certs.Pair) {
		ok(t, os.WriteFile(e.KeyFile, pair.Key, 0o600))
		ok(t, os.WriteFile(e.CertFile, pair.Certificate, 0o600))
	}
	first, second := newPair(t), newPair(t)
	write(first)
	address := begin(t, health.New(nil, nil, prometheus.NewRegistry()).Encrypts(e))
	_, before, err := get(t, from("127.0.0.1"), "https://"+address+"/healthz")
	ok(t, err)
	write(certs.Pair{Certificate: second.Certificate, Key: first.Key})
	if _, now, err := get(t, from("127.0.0.1"), "https://"+address+"/healthz"); err != nil || now != before {
		t.Errorf("with a key of another certificate: %v, %v", now, err)
	}
	write(second)
	for until := time.Now().Add(patience); ; {
		if _, now, err := get(t, from("127.0.0.1"), "https://"+address+"/healthz"); err == nil && now != before {
			return
		}
		if time.Now().After(until) {
			t.Fatal("the new certificate is not served")
		}
	}
}

// TestACertificateThatIsNoneIsSaid: an invalid certificate is an error at the start.
func TestACertificateThatIsNoneIsSaid(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	err = health.New(nil, nil, prometheus.NewRegistry()).Encrypts(health.Encryption{CertFile: "/there/is/none", KeyFile: "/there/is/none"}).ServeOn(t.Context(), listener)
	if err == nil || !strings.Contains(err.Error(), "--tls-cert-file") {
		t.Errorf("got %v", err)
	}
}

// TestSlowConnectionsAreBounded: a host that opens a thousand connections and sends nothing or half
// a request gets a bounded number of them, and other hosts are served meanwhile.
func TestSlowConnectionsAreBounded(t *testing.T) {
	pair := newPair(t)
	address := begin(t, health.New(nil, nil, prometheus.NewRegistry()).Encrypts(health.Encryption{Certificate: pair.Certificate, Key: pair.Key, PlainToo: true}))
	before := runtime.NumGoroutine()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	var open []net.Conn
	for i := range 1000 {
		conn, err := dialer.Dial("tcp", address)
		ok(t, err)
		open = append(open, conn)
		_, _ = io.WriteString(conn, []string{"", "GET /healthz HTTP/1.1\r\nHost: a", "\x16\x03\x01"}[i%3]) // it may be closed by now
	}
	code, _, err := get(t, from("127.0.0.3"), "http://"+address+"/healthz")
	if err != nil || code != http.StatusOK {
		t.Errorf("another host is answered %d, %v", code, err)
	}
	if more := runtime.NumGoroutine() - before; more > 3*64 {
		t.Errorf("1000 connections cost %d goroutines", more)
	}
	turned := 0
	for _, conn := range open {
		ok(t, conn.SetReadDeadline(time.Now().Add(time.Millisecond)))
		if _, err := bufio.NewReader(conn).ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
			turned++
		}
		ok(t, conn.Close())
	}
	if turned < 900 {
		t.Errorf("%d of 1000 connections were turned away", turned)
	}
	for until := time.Now().Add(patience); ; {
		if code, _, err := get(t, from("127.0.0.2"), "http://"+address+"/healthz"); err == nil && code == http.StatusOK {
			return
		}
		if time.Now().After(until) {
			t.Fatal("a host whose connections are closed is not answered again")
		}
	}
}

// TestNamesHaveCertificatesOfTheirOwn: a client that asks for a name gets the certificate of that
// name, and others the default one; a client without a common curve gets none.
func TestNamesHaveCertificatesOfTheirOwn(t *testing.T) {
	dir, own, named := t.TempDir(), newPair(t), newPair(t)
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ok(t, os.WriteFile(cert, named.Certificate, 0o600))
	ok(t, os.WriteFile(key, named.Key, 0o600))
	e := health.Encryption{Certificate: own.Certificate, Key: own.Key, Curves: []tls.CurveID{tls.CurveP256}, Named: []health.Named{{CertFile: cert, KeyFile: key, Names: []string{"a.example"}}}}
	address := begin(t, health.New(nil, nil, prometheus.NewRegistry()).Encrypts(e))
	serial := func(name string, curve tls.CurveID) (string, error) {
		conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: name, InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{curve}})
		if err != nil {
			return "", err
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
	}
	other, err := serial("b.example", tls.CurveP256)
	ok(t, err)
	asked, err := serial("a.example", tls.CurveP256)
	ok(t, err)
	if again, err := serial("b.example", tls.CurveP256); err != nil || again != other || asked == other {
		t.Errorf("a.example is %s, and b.example %s and then %s (%v)", asked, other, again, err)
	}
	if _, err := serial("a.example", tls.X25519); err == nil {
		t.Error("another way to agree on a key is taken than those that were named")
	}
	e.Named[0].KeyFile = filepath.Join(dir, "none")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	if err := health.New(nil, nil, prometheus.NewRegistry()).Encrypts(e).ServeOn(t.Context(), listener); err == nil || !strings.Contains(err.Error(), "--tls-sni-cert-key") {
		t.Errorf("a certificate without a key: %v", err)
	}
}
