package natserr

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// ErrTLS is the error of a connection whose two ends do not trust each other, or only one of
// which uses TLS.
var ErrTLS = errors.New("TLS")

// ExplainTLS adds to a TLS error what is wrong and how to fix it; it returns other errors
// unchanged.
func ExplainTLS(err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	say := func(text string) error { return fmt.Errorf("%w: %s (%w)", ErrTLS, text, err) }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return say("the server's certificate is not of an authority that is trusted here: name that authority's certificate with --nats-ca-file")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return say("the server's certificate has expired, or is not valid yet: renew it, and check the clocks")
	case errors.As(err, &name):
		return say("the server's certificate is for other names: use one of them in --nats-url, or make a certificate for this one")
	case errors.Is(err, nats.ErrSecureConnWanted):
		return say("the server has no TLS: start it with --nats-tls-cert-file and --nats-tls-key-file, or leave out tls:// and --nats-ca-file")
	// The alerts with which a server refuses a client have no type outside of crypto/tls.
	case strings.Contains(err.Error(), "remote error: tls: certificate required"):
		return say("the server asks for a certificate: give one with --nats-cert-file and --nats-key-file")
	case strings.Contains(err.Error(), "remote error: tls: expired certificate"):
		return say("the server finds that the certificate of --nats-cert-file has expired: renew it")
	case strings.Contains(err.Error(), "remote error: tls: unknown certificate authority"), strings.Contains(err.Error(), "remote error: tls: bad certificate"):
		return say("the server does not trust the certificate of --nats-cert-file: take one of the authority in its --nats-tls-client-ca-file")
	default:
		return err
	}
}
