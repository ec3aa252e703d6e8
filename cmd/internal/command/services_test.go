package command

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/certs"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// A process with a kubeconfig runs the publisher without the flag; the reconcilers have no
// kubeconfig.
func TestWhoHasTheRootCertificate(t *testing.T) {
	authority, err := certs.NewAuthority("a", time.Hour)
	ok(t, err)
	certificate := authority.Certificate
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "` + base64.StdEncoding.EncodeToString(certificate) + `"}}],
		"users": [{"name": "x", "user": {"token": "x"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, service := range []struct {
		connects bool
		want     bool
	}{{true, true}, {false, false}} {
		s := newLone()
		s.connects, s.cluster.File = service.connects, kubeconfig
		chosen, err := s.choose()
		if err != nil {
			t.Fatal(err)
		}
		runs := slices.ContainsFunc(chosen.All(), func(c reconcile.Any) bool { return c.Describe().Name == "root-ca-certificate-publisher-controller" })
		if runs != service.want {
			t.Errorf("with a kubeconfig %v: it runs: %v", service.connects, runs)
		}
	}
}
