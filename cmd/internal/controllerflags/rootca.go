package controllerflags

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

func (o *Options) addRootCA(f *pflag.FlagSet) {
	f.StringVar(&o.RootCAFile, "root-ca-file", o.RootCAFile,
		"`file` with the root certificates that root-ca-certificate-publisher-controller publishes and that service account tokens contain (default: those of the kubeconfig). Reconcilers in a separate process have no kubeconfig: without this flag that controller is off there")
}

// Trust remembers the kubeconfig's certificate-authority as the root certificates, unless
// --root-ca-file names a file. A kubeconfig that relies on the system's roots has none.
//
// Errors: the certificates cannot be read, or other data is among them.
//
// Upstream: cmd/kube-controller-manager/app, getKubeAPIServerCAFileContents.
func (o *Options) Trust(config *rest.Config) error {
	const advice = "; name the certificates to publish with --root-ca-file"
	if o.RootCAFile != "" && !absent(o.RootCAFile) {
		return nil
	}
	bundle := config.CAData
	if len(bundle) == 0 && config.CAFile != "" {
		var err error
		if bundle, err = os.ReadFile(config.CAFile); err != nil {
			return fmt.Errorf("read the kubeconfig's certificate-authority: %w"+advice, err)
		}
	}
	if len(bundle) == 0 {
		return nil
	}
	if err := onlyCertificates(bundle); err != nil {
		return fmt.Errorf("read the kubeconfig's certificate-authority: %w"+advice, err)
	}
	o.trusted = bundle
	return nil
}

// rootCA gives the root certificates in PEM: those of the flag's file, or else those of
// the kubeconfig; none is no error.
//
// Errors: the file cannot be read, or has anything but certificates. Its content is checked,
// because it is published in every namespace.
func (o *Options) rootCA() ([]byte, error) {
	if o.RootCAFile == "" || absent(o.RootCAFile) {
		return o.trusted, nil
	}
	bundle, err := os.ReadFile(o.RootCAFile)
	if err != nil {
		return nil, fmt.Errorf("read --root-ca-file: %w", err)
	}
	if err := onlyCertificates(bundle); err != nil {
		return nil, fmt.Errorf("read --root-ca-file %s: %w; name the file with the certificate of the cluster's authority, as a rule /etc/kubernetes/pki/ca.crt", o.RootCAFile, err)
	}
	return bundle, nil
}

// absent is whether a path is a device, such as /dev/null, which compose files mount in
// place of an optional file.
func absent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

// onlyCertificates is an error if a bundle has anything but certificates and comments. The error
// names the kind of content, and never quotes it.
//
// Upstream: readCA, which asks for one certificate and lets everything else pass.
func onlyCertificates(bundle []byte) error {
	if len(bytes.TrimSpace(bundle)) == 0 {
		return errors.New("it is empty")
	}
	blocks, left := 0, bundle
	for {
		block, after := pem.Decode(left)
		if block == nil {
			break
		}
		if bytes.Count(left[:len(left)-len(after)], []byte("-----BEGIN ")) != 1 {
			return errors.New("it has a PEM block that is cut off")
		}
		switch {
		case block.Type == "CERTIFICATE":
			if _, err := x509.ParseCertificate(block.Bytes); err != nil {
				return errors.New("it has a block of type CERTIFICATE that cannot be read as one")
			}
			blocks++
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			return fmt.Errorf("it holds a private key (%s), which must not be published", block.Type)
		default:
			return fmt.Errorf("it holds a PEM block %q, which is no certificate", block.Type)
		}
		left = after
	}
	switch {
	case bytes.Contains(left, []byte("-----BEGIN ")):
		return errors.New("it has a PEM block that is cut off")
	case blocks == 0:
		return errors.New("it holds no certificate in PEM (if it is one in DER, convert it: openssl x509 -inform der -in FILE -out FILE.pem)")
	}
	return nil
}
