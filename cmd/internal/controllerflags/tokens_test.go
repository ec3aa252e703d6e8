package controllerflags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// The flag turns the controller on in each service, and only the writer reads the file. The error
// for an invalid key names the flag, and does not quote the file.
func TestTheKeyForTokens(t *testing.T) {
	none := filepath.Join(t.TempDir(), "sa.key")
	if err := os.WriteFile(none, []byte("canary-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"":                    "",
		none:                  "is no private key in PEM",
		"/nonexistent/sa.key": "no such file",
	} {
		o := New()
		o.KeyFile = file
		config, err := o.Config()
		if err != nil || config.Tokens != (file != "") {
			t.Errorf("%q: a service that does not sign is told %v, %v", file, config.Tokens, err)
		}
		if lacking := controllers.Lacking([]string{"serviceaccount-token"}, config); (len(lacking) == 1) != (file == "") {
			t.Errorf("%q: lacking are %v", file, lacking)
		}
		m, err := o.mint()
		switch {
		case want == "" && (m != nil || err != nil):
			t.Errorf("%q: there is a mint, %v", file, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--service-account-private-key-file") || strings.Contains(err.Error(), "canary")):
			t.Errorf("%q: %v, want an error with %q", file, err, want)
		}
	}
}
