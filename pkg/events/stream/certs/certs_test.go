package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/certs"
)

func read(t *testing.T, p certs.Pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(p.Certificate, p.Key); err != nil {
		t.Fatalf("the key is not the certificate's: %v", err)
	}
	block, _ := pem.Decode(p.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func authority(t *testing.T) certs.Pair {
	t.Helper()
	pair, err := certs.NewAuthority("an authority", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// A certificate is good for what it was issued for, under its own hosts and addresses, and
// for as long as it says; each has a number of its own.
func TestWhatACertificateIsGoodFor(t *testing.T) {
	ca := authority(t)
	roots := x509.NewCertPool()
	roots.AddCert(read(t, ca))
	numbers := map[string]bool{}
	for name, hosts := range map[string][]string{"a server": {"bus.example", "127.0.0.1"}, "a client": nil} {
		pair, err := ca.Issue(name, hosts, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		got, now := read(t, pair), time.Now()
		numbers[got.SerialNumber.String()] = true
		good := func(usage x509.ExtKeyUsage, host string, at time.Time) bool {
			_, err := got.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage}})
			return err == nil
		}
		server := hosts != nil
		for what, c := range map[string]struct{ got, want bool }{
			"for a client":               {good(x509.ExtKeyUsageClientAuth, "", now), true},
			"for a server":               {good(x509.ExtKeyUsageServerAuth, "", now), server},
			"for its host":               {good(x509.ExtKeyUsageServerAuth, "bus.example", now), server},
			"for its address":            {good(x509.ExtKeyUsageServerAuth, "127.0.0.1", now), server},
			"for another host":           {good(x509.ExtKeyUsageServerAuth, "else.example", now), false},
			"to signing code":            {good(x509.ExtKeyUsageCodeSigning, "", now), false},
			"by a clock that lags":       {good(x509.ExtKeyUsageClientAuth, "", now.Add(-30*time.Minute)), true},
			"by a clock of another time": {good(x509.ExtKeyUsageClientAuth, "", now.Add(-2*time.Hour)), false},
			"shortly before its end":     {good(x509.ExtKeyUsageClientAuth, "", now.Add(59*time.Minute)), true},
			"after its end":              {good(x509.ExtKeyUsageClientAuth, "", now.Add(time.Hour+time.Minute)), false},
		} {
			if c.got != c.want {
				t.Errorf("the certificate of %s is good %s: %t, want %t", name, what, c.got, c.want)
			}
		}
	}
	if len(numbers) != 2 {
		t.Errorf("two certificates have the numbers %v", numbers)
	}
}

// What is no authority issues nothing, and no certificate has a host that cannot be written.
func TestWhatIsNotIssued(t *testing.T) {
	ca := authority(t)
	for want, issue := range map[string]func() (certs.Pair, error){
		"read the authority": func() (certs.Pair, error) { return certs.Pair{}.Issue("x", nil, time.Hour) },
		"sign a certificate": func() (certs.Pair, error) { return ca.Issue("x", []string{"b\u00fccher.example"}, time.Hour) },
	} {
		if pair, err := issue(); err == nil || !strings.Contains(err.Error(), want) || pair.Certificate != nil || pair.Key != nil {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
