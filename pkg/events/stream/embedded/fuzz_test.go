package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// FuzzAccounts: a file of accounts changes nothing but who has a login.
func FuzzAccounts(f *testing.F) {
	f.Add([]byte("accounts {\n MILLRACE { jetstream: enabled, users: [{user: a, password: b}] }\n}\n"))
	f.Add([]byte("PASSWORD: x\naccounts { MILLRACE { users: [{user: a, password: $PASSWORD}] }, SYS {} }\nsystem_account: SYS\n"))
	f.Add([]byte("tls { verify: true }\nmax_payload: 1\naccounts { MILLRACE {} }\n"))
	f.Add([]byte("accounts: [[[{{{"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Contains(string(text), "include") || strings.Contains(string(text), "$") {
			return // it would read other files, and the environment
		}
		file := filepath.Join(dir, "accounts.conf")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var settings server.Options
		err := Options{Accounts: file}.admit(&settings)
		if err != nil {
			if !strings.Contains(err.Error(), "read the accounts") {
				t.Errorf("a refusal that does not say of what: %v", err)
			}
			return
		}
		if !slices.ContainsFunc(settings.Accounts, func(a *server.Account) bool { return a.Name == MainAccount }) {
			t.Errorf("%q is taken without the account that has the streams", text)
		}
		if settings.TLSConfig != nil || settings.MaxPayload != 0 || settings.Port != 0 || settings.Cluster.Port != 0 || settings.NoAuthUser != "" {
			t.Errorf("%q sets more than who has a login: %+v", text, settings)
		}
	})
}
