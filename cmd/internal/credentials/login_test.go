package credentials

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/settings"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/spf13/pflag"
)

// TestEachUserOfTheBusHasHisPassword: a bus with the filled-in accounts admits each user with the
// login that was written for it, and no client without a login. A second start changes nothing.
func TestEachUserOfTheBusHasHisPassword(t *testing.T) {
	keys, filled := t.TempDir(), t.TempDir()
	o := KeyOptions{accounts: filepath.Join(deployments, "nats") + "=" + filled, bus: "nats:4222"}
	dirs := map[string]string{}
	for _, user := range embedded.Users {
		dirs[user] = t.TempDir()
		o.logins = append(o.logins, user+"="+dirs[user])
	}
	var was string
	for range 2 {
		ok(t, o.Write(keys))
		text, err := os.ReadFile(filepath.Join(dirs["watcher"], LoginFile))
		ok(t, err)
		if was != "" && was != string(text) {
			t.Error("the second start made another password")
		}
		was = string(text)
	}

	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Accounts: filepath.Join(filled, "accounts.conf"),
		TLS: embedded.TLSOptions{CertFile: filepath.Join(filled, "tls.crt"), KeyFile: filepath.Join(filled, "tls.key")}})
	ok(t, err)
	t.Cleanup(func() { ok(t, server.Close()) })
	at := strings.TrimPrefix(server.URL(), "tls://")
	seen := map[string]bool{at: true}
	for user, dir := range dirs {
		address, ca, err := busAddress(filepath.Join(dir, LoginFile), at)
		ok(t, err)
		b, err := stream.Connect(t.Context(), stream.Options{URL: address, CAData: []byte(ca)})
		if err != nil || seen[address] {
			t.Errorf("%s comes with %s: %v", user, address, err)
			continue
		}
		ok(t, b.Close())
		seen[address] = true
	}
	if _, err := stream.Connect(t.Context(), stream.Options{URL: server.URL()}); err == nil {
		t.Error("a client without a name is let in")
	}

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&connect.Connection{}).Add(flags) // a service takes the file as it is
	ok(t, settings.Fill(flags, filepath.Join(dirs["reconcilers"], LoginFile), func(string) (string, bool) { return "", false }))
	if got := flags.Lookup("nats-url").Value.String(); !strings.HasPrefix(got, "tls://reconcilers:") || !strings.HasSuffix(got, "@nats:4222") {
		t.Errorf("the reconcilers would go to %s", got)
	}
}

// TestLoginsThatMakeNoSense: the errors name them.
func TestLoginsThatMakeNoSense(t *testing.T) {
	dir := t.TempDir()
	accounts := filepath.Join(deployments, "nats") + "=" + dir
	for says, o := range map[string]KeyOptions{
		"without --bus-accounts": {logins: []string{"reader=" + dir}},
		"one of the users":       {accounts: accounts, logins: []string{"stranger=" + dir}},
		"is not USER=DIRECTORY":  {accounts: accounts, logins: []string{dir}},
		"is one directory":       {accounts: dir},
		"no such file":           {accounts: t.TempDir() + "=" + dir},
	} {
		if err := o.Write(t.TempDir()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error with %q: %v", says, err)
		}
	}
	file := filepath.Join(dir, "none.yaml")
	ok(t, os.WriteFile(file, []byte("flags: {nats-url: nats://nats:4222}"), 0o600))
	for says, login := range map[string]string{"--login is empty": "", "no nats-url with a user": file, "no such file": file + "x"} {
		if _, _, err := busAddress(login, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error with %q: %v", says, err)
		}
	}
}

// deployments is the directory of the manifests.
const deployments = "../../../deployments"

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
