package authority

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// pair is a signer's certificate and key, read from files.
type pair struct {
	files Files

	mu               sync.Mutex
	certificate, key []byte // the pair in force, as read
	own              *x509.Certificate
	signer           crypto.Signer
	several          bool // the certificate file has several: nothing is signed
}

// open reads the files for the first time.
func open(files Files) (*pair, error) {
	p := &pair{files: files}
	if err := p.read(); err != nil {
		return nil, err
	}
	_, _, err := p.force()
	return p, err
}

// current reads the files again and returns the pair in force. It keeps the previous pair if the
// files cannot be read, or if only one of them has been replaced yet.
//
// Upstream: k8s.io/apiserver/pkg/server/dynamiccertificates, which watches them, and
// pkg/controller/certificates/signer, currentCA.
func (p *pair) current() (*x509.Certificate, crypto.Signer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.read() // on an error the previous pair stays in force
	return p.force()
}

// read puts the content of the files in force, if it is a certificate and its key.
func (p *pair) read() error {
	certificate, err := os.ReadFile(p.files.Certificate)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.files.Key)
	if err != nil {
		return err
	}
	if bytes.Equal(certificate, p.certificate) && bytes.Equal(key, p.key) {
		return nil
	}
	both, err := tls.X509KeyPair(certificate, key)
	if err != nil { // its message may repeat the content of the files
		return fmt.Errorf("%s and %s are no certificate in PEM and its key", p.files.Certificate, p.files.Key)
	}
	signer, ok := both.PrivateKey.(crypto.Signer)
	if !ok {
		return fmt.Errorf("the key in %s does not sign", p.files.Key)
	}
	p.certificate, p.key, p.own, p.signer, p.several = certificate, key, both.Leaf, signer, len(both.Certificate) != 1
	return nil
}

// force returns the pair in force.
func (p *pair) force() (*x509.Certificate, crypto.Signer, error) {
	if p.several {
		return nil, nil, errors.New(p.files.Certificate + " has several certificates, and the signer has one")
	}
	return p.own, p.signer, nil
}
