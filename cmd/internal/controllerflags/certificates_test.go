package controllerflags

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// The flags are kube-controller-manager's: for all signers or for single ones, each with both
// files. A process that does not sign knows which signers do, and reads no file.
func TestWhoSignsCertificates(t *testing.T) {
	const none = "/nonexistent/"
	for flags, want := range map[string]struct {
		signers []string
		wrong   string
	}{
		"": {},
		"--cluster-signing-cert-file=" + none + "ca.crt":                                                                   {}, // as upstream
		"--cluster-signing-key-file=" + none + "ca.key":                                                                    {},
		"--cluster-signing-cert-file=" + none + "ca.crt --cluster-signing-key-file=" + none + "ca.key":                     {signers: csr.Signers()},
		"--cluster-signing-kubelet-client-cert-file=" + none + "a --cluster-signing-kubelet-client-key-file=" + none + "b": {signers: []string{csr.KubeletClient}},
		"--cluster-signing-legacy-unknown-cert-file=" + none + "a --cluster-signing-legacy-unknown-key-file=" + none + "b --cluster-signing-kubelet-serving-cert-file=" + none + "a --cluster-signing-kubelet-serving-key-file=" + none + "b": {
			signers: []string{csr.KubeletServing, csr.LegacyUnknown},
		},
		"--cluster-signing-kube-apiserver-client-cert-file=" + none + "a --cluster-signing-kube-apiserver-client-key-file=" + none + "b": {signers: []string{csr.KubeAPIServerClient}},
		"--cluster-signing-kubelet-client-cert-file=" + none + "a":                                                                       {wrong: "--cluster-signing-kubelet-client-cert-file and --cluster-signing-kubelet-client-key-file: they belong together"},
		"--cluster-signing-kubelet-serving-key-file=" + none + "a":                                                                       {wrong: "they belong together"},
		"--cluster-signing-cert-file=a --cluster-signing-kubelet-client-cert-file=a --cluster-signing-kubelet-client-key-file=b":         {wrong: "files of single signers, too"},
		"--cluster-signing-duration=0s": {wrong: "--cluster-signing-duration: 0s is no time"},
	} {
		o := New()
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Add(f)
		if err := f.Parse(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		config, err := o.Config()
		if want.wrong != "" {
			if _, other := o.Secrets(); err == nil || !strings.Contains(err.Error(), want.wrong) || other == nil {
				t.Errorf("%q: %v and %v, want an error with %q", flags, err, other, want.wrong)
			}
			continue
		}
		if err != nil || !slices.Equal(config.Signers, want.signers) {
			t.Errorf("%q: who does not sign is told of %v, %v", flags, config.Signers, err)
		}
		if lacking := controllers.Lacking([]string{"csrsigning"}, config); (len(lacking) == 1) != (len(want.signers) == 0) {
			t.Errorf("%q: lacking are %v", flags, lacking)
		}
		s, err := o.Secrets()
		if (err != nil) != (len(want.signers) > 0) || err != nil && !strings.Contains(err.Error(), "no such file") || s.Certificates != nil {
			t.Errorf("%q: the writer has %v, %v", flags, s.Certificates, err)
		}
	}
	if o := New(); o.certificates.longest != 365*24*time.Hour {
		t.Errorf("certificates are good for %v where nothing is said", o.certificates.longest)
	}
}

// The writer has an authority if the files are a certificate and its key; the error for other
// files does not quote them.
func TestTheKeysOfSigners(t *testing.T) {
	certificate, key := authorityOf(t)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	o := New()
	o.certificates.shared.Certificate, o.certificates.shared.Key = write("ca.crt", certificate), write("ca.key", key)
	if s, err := o.Secrets(); err != nil || s.Certificates == nil || s.Tokens != nil {
		t.Errorf("there is %v, %v", s, err)
	}
	write("ca.key", []byte("canary-key"))
	if s, err := o.Secrets(); err == nil || s.Certificates != nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "--cluster-signing-cert-file") {
		t.Errorf("with a key that is none there is %v, %v", s, err)
	}
}
