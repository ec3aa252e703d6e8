package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/certs"
)

// TLSOptions are the files with a server's certificate, and with the authorities of its
// clients' certificates. The server reads them again when they change, so that a certificate
// can be replaced without a restart; if the new files are unusable, the server logs that and
// keeps the old ones.
type TLSOptions struct {
	// CertFile and KeyFile hold the server's certificate chain and key, as PEM; empty:
	// connections are not encrypted.
	CertFile, KeyFile string
	// ClientCAFile holds the authorities of clients' certificates, as PEM: then every client
	// must have one. Empty: clients need none.
	ClientCAFile string
}

// On reports whether connections are encrypted.
func (o TLSOptions) On() bool { return o != TLSOptions{} }

// handshakeTimeout bounds the TLS handshake, in seconds.
const handshakeTimeout = 5

// config is the TLS configuration of a listener, which checks for changed files at each
// connection.
//
// Errors: a file is missing, cannot be read, or does not hold what it should.
func (o TLSOptions) config(log *slog.Logger) (*tls.Config, error) {
	if o.CertFile == "" || o.KeyFile == "" {
		return nil, errors.New("TLS needs both a certificate and its key: name the two files")
	}
	f := &reloadingTLS{files: o, log: log}
	config, err := f.read()
	if err != nil {
		return nil, err
	}
	f.config = config
	outer := config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.now(), nil }
	return outer, nil
}

// routes is the TLS configuration of a listener between servers with the same files, which are
// clients of each other. For a route that this server opens, the authorities are those of its
// start; the certificate is always the newest.
//
// Errors: those of config; or there is no authority.
func (o TLSOptions) routes(log *slog.Logger) (*tls.Config, error) {
	if o.ClientCAFile == "" {
		return nil, errors.New("TLS between the servers of a cluster needs the authority of their certificates: name the file of client authorities")
	}
	config, err := o.config(log)
	if err != nil {
		return nil, err
	}
	config.RootCAs = config.ClientCAs
	newest := config.GetConfigForClient
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		now, err := newest(nil)
		if err != nil {
			return nil, err
		}
		return &now.Certificates[0], nil
	}
	return config, nil
}

// reloadingTLS is a TLS configuration that follows its files.
type reloadingTLS struct {
	files TLSOptions
	log   *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	// seen is when each file was modified, as of the last check.
	seen [3]time.Time
}

func (f *reloadingTLS) now() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed() == f.seen {
		return f.config
	}
	config, err := f.read()
	if err != nil {
		f.log.Error("cannot use the new TLS certificate; keeping the previous one", "error", err)
		return f.config
	}
	f.log.Info("reloaded the TLS certificate", "file", f.files.CertFile)
	f.config = config
	return config
}

// changed is when each file was modified; zero for a missing file.
func (f *reloadingTLS) changed() (times [3]time.Time) {
	for i, file := range []string{f.files.CertFile, f.files.KeyFile, f.files.ClientCAFile} {
		if info, err := os.Stat(file); err == nil {
			times[i] = info.ModTime()
		}
	}
	return times
}

func (f *reloadingTLS) read() (*tls.Config, error) {
	f.seen = f.changed()
	own, err := tls.LoadX509KeyPair(f.files.CertFile, f.files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the TLS certificate %s and its key %s: %w", f.files.CertFile, f.files.KeyFile, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	if f.files.ClientCAFile == "" {
		return config, nil
	}
	if config.ClientCAs, err = certs.ReadAuthorities(f.files.ClientCAFile); err != nil {
		return nil, fmt.Errorf("read the authorities of clients: %w", err)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config, nil
}
