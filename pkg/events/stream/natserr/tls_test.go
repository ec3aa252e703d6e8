package natserr

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// What is wrong with TLS is said with what to do about it; the rest stays as it is.
func TestErrorsOfTLSAreExplained(t *testing.T) {
	t.Parallel()
	for says, err := range map[string]error{
		"not of an authority": x509.UnknownAuthorityError{}, "has expired, or is not valid yet": x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired},
		"for other names": x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}, "the server has no TLS": nats.ErrSecureConnWanted,
		"asks for a certificate": errors.New("remote error: tls: certificate required"), "--nats-cert-file has expired": errors.New("remote error: tls: expired certificate"),
		"does not trust": errors.New("remote error: tls: unknown certificate authority"), "does not trust the certificate": errors.New("remote error: tls: bad certificate"),
	} {
		err = fmt.Errorf("connect: %w", err)
		if got := ExplainTLS(err); !errors.Is(got, ErrTLS) || !errors.Is(got, err) || !strings.Contains(got.Error(), says) {
			t.Errorf("%v is explained as %v, want %q", err, got, says)
		}
	}
	for _, err := range []error{nil, nats.ErrTimeout, x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.NotAuthorizedToSign}} {
		if got := ExplainTLS(err); got != err {
			t.Errorf("%v is explained as %v", err, got)
		}
	}
}
