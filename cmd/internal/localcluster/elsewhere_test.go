package localcluster

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestFilesForAControlPlaneElsewhere(t *testing.T) {
	e := Elsewhere{Dir: t.TempDir(), Server: "https://kube-apiserver:6443"}
	if err := e.WriteFiles(); err != nil {
		t.Fatal(err)
	}
	read := func(path ...string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	block, _ := pem.Decode([]byte(read(e.Dir, "pki", "apiserver.crt")))
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(certificate.DNSNames, "kube-apiserver") {
		t.Errorf("the API server is called %v", certificate.DNSNames)
	}

	before := read(e.Dir, "pki", "ca.key")
	if err := e.WriteFiles(); err != nil {
		t.Fatal(err)
	}
	if read(e.Dir, "pki", "ca.key") != before {
		t.Error("the keys that were there are gone")
	}

	kubeconfig, err := e.Kubeconfig(Admin, "https://127.0.0.1:16443")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil || config.Host != "https://127.0.0.1:16443" || len(config.CertData) == 0 {
		t.Errorf("the administrator's kubeconfig leads to %v (%v)", config, err)
	}
}

func TestHandOutGivesNoOtherCredentials(t *testing.T) {
	e := Elsewhere{Dir: t.TempDir(), Server: "https://kube-apiserver:6443"}
	if err := e.WriteFiles(); err != nil {
		t.Fatal(err)
	}
	for user, want := range map[User][]string{Watcher: {"ca.crt", "kubeconfig"}, Writer: {"ca.crt", "kubeconfig", "sa.key"}, "": {"ca.crt"}} {
		dir := t.TempDir()
		if err := e.HandOut(user, dir); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q was given %v, not %v", user, got, want)
		}
	}
	if err := e.HandOut("stranger", t.TempDir()); err == nil {
		t.Error("a user who does not exist was given something")
	}
}
