package controllerflags

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/writer/apply/authority"
)

// signerFlags are kube-controller-manager's flags of each signer, without the prefix
// --cluster-signing-.
var signerFlags = []struct{ flag, signer string }{
	{"kubelet-serving", csr.KubeletServing},
	{"kubelet-client", csr.KubeletClient},
	{"kube-apiserver-client", csr.KubeAPIServerClient},
	{"legacy-unknown", csr.LegacyUnknown},
}

// certificateOptions are the flags for the keys that sign certificates.
//
// Upstream: cmd/kube-controller-manager/app/options, CSRSigningControllerOptions.
type certificateOptions struct {
	// shared are the files of all signers, own those of single ones, in the order of signerFlags.
	shared  authority.Files
	own     []authority.Files
	longest time.Duration
}

func newCertificateOptions() certificateOptions {
	return certificateOptions{own: make([]authority.Files, len(signerFlags)), longest: authority.Longest}
}

func (o *certificateOptions) add(f *pflag.FlagSet) {
	const certificate, key = "cert-file", "key-file"
	add := func(to *authority.Files, flag, signer, but string) {
		f.StringVar(&to.Certificate, flag+certificate, to.Certificate, "`file` with the certificate of "+signer+", with which certificates are signed that are asked for; "+but)
		f.StringVar(&to.Key, flag+key, to.Key, "`file` with the key of that certificate. Only the writer reads it")
	}
	add(&o.shared, "cluster-signing-", "all signers", "without it, and without those of single signers, certificatesigningrequest-signing-controller is off")
	for i, s := range signerFlags {
		add(&o.own[i], "cluster-signing-"+s.flag+"-", "the signer "+s.signer, "then signers without such a file sign nothing")
	}
	f.DurationVar(&o.longest, "cluster-signing-duration", o.longest, "maximum lifetime of signed certificates; a request can ask for less")
}

// files are the certificate and key files of each active signer.
//
// Errors: the flags contradict each other.
//
// Upstream: cmd/kube-controller-manager/app, certificates.go: of the files of all signers one
// alone turns nothing on.
func (o *certificateOptions) files() (map[string]authority.Files, error) {
	files := map[string]authority.Files{}
	for i, s := range signerFlags {
		switch own := o.own[i]; {
		case own == authority.Files{}:
		case own.Certificate == "" || own.Key == "":
			return nil, fmt.Errorf("read --cluster-signing-%s-cert-file and --cluster-signing-%s-key-file: they belong together: name both or neither", s.flag, s.flag)
		default:
			files[s.signer] = own
		}
	}
	switch {
	case len(files) > 0 && o.shared != authority.Files{}:
		return nil, errors.New("read --cluster-signing-cert-file and --cluster-signing-key-file: they are of all signers, and there are files of single signers, too; take one or the other out")
	case o.longest <= 0:
		return nil, fmt.Errorf("read --cluster-signing-duration: %v is no time", o.longest)
	case len(files) > 0 || o.shared.Certificate == "" || o.shared.Key == "":
		return files, nil
	}
	for _, s := range signerFlags {
		files[s.signer] = o.shared
	}
	return files, nil
}

// signers are the active signers, in the order of package csr.
//
// Errors: as files.
func (o *certificateOptions) signers() (signers []string, err error) {
	files, err := o.files()
	for _, signer := range csr.Signers() {
		if _, ok := files[signer]; ok {
			signers = append(signers, signer)
		}
	}
	return signers, err
}

// authority makes the authority that signs certificates; nil without a key.
//
// Errors: the flags contradict each other; a key cannot be read, or is not a key.
func (o *certificateOptions) authority() (*authority.Authority, error) {
	files, err := o.files()
	if err != nil || len(files) == 0 {
		return nil, err
	}
	a, err := authority.New(files, o.longest)
	if err != nil {
		return nil, fmt.Errorf("read --cluster-signing-cert-file and the like: %w", err)
	}
	return a, nil
}
