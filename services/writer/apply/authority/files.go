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

// pair is the certificate of a signer and its key, as they are in files.
type pair struct {
	files Files

	mu               sync.Mutex
	certificate, key []byte // what is in force, as it was read
	own              *x509.Certificate
	signer           crypto.Signer
	several          bool // what is in force are several certificates: nothing is signed
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

// current is what is in the files now. Files that cannot be read, or of which one has been
// replaced and the other one not yet, leave in force what was.
//
// Upstream: k8s.io/apiserver/pkg/server/dynamiccertificates, which watches them, and
// pkg/controller/certificates/signer, currentCA.
func (p *pair) current() (*x509.Certificate, crypto.Signer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.read() // what was read before is still in force
	return p.force()
}

// read takes over what is in the files, if it is a certificate and its key.
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
	if err != nil { // its words may repeat what is in the files
		return fmt.Errorf("%s and %s are no certificate in PEM and its key", p.files.Certificate, p.files.Key)
	}
	signer, ok := both.PrivateKey.(crypto.Signer)
	if !ok {
		return fmt.Errorf("the key in %s does not sign", p.files.Key)
	}
	p.certificate, p.key, p.own, p.signer, p.several = certificate, key, both.Leaf, signer, len(both.Certificate) != 1
	return nil
}

// force is what is in force.
func (p *pair) force() (*x509.Certificate, crypto.Signer, error) {
	if p.several {
		return nil, nil, errors.New(p.files.Certificate + " has several certificates, and the signer has one")
	}
	return p.own, p.signer, nil
}
