package busflags

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/cmd/internal/credentials"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/certs"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// server are the options of a bus, with a directory of its own for logins.
func server(t *testing.T, change func(*Server)) *Server {
	t.Helper()
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	o := NewServer()
	o.DataDir, o.Listen, o.Alone = t.TempDir(), "127.0.0.1:0", true
	change(&o)
	return &o
}

// TestABusBeyondLoopbackNeedsUsersAndTLS: a bus that other machines can reach does not start
// without them unless a flag allows it, and the error says what to set.
func TestABusBeyondLoopbackNeedsUsersAndTLS(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	ok(t, os.WriteFile(password, []byte("word"), 0o600))
	files := embedded.TLSOptions{CertFile: "a", KeyFile: "b", ClientCAFile: "c"}
	for name, k := range map[string]struct {
		change func(*Server)
		says   string
	}{
		"on loopback":                  {func(*Server) {}, ""},
		"no listener":                  {func(o *Server) { o.Listen, o.Alone = "", false }, ""},
		"no accounts":                  {func(o *Server) { o.Listen, o.secure.tls = "0.0.0.0:0", files }, "--nats-accounts"},
		"no TLS":                       {func(o *Server) { o.Listen, o.accounts = "0.0.0.0:0", "f" }, "--nats-tls-cert-file"},
		"all in one, no TLS":           {func(o *Server) { o.Listen, o.Alone = ":4222", false }, "--nats-tls-cert-file"},
		"both":                         {func(o *Server) { o.Listen, o.accounts, o.secure.tls = "10.0.0.1:0", "f", files }, ""},
		"insecure":                     {func(o *Server) { o.Listen, o.secure.insecure = "0.0.0.0:0", true }, ""},
		"a cluster without a password": {func(o *Server) { o.accounts, o.cluster.Listen = "f", "127.0.0.1:1" }, "--cluster-password-file"},
		"a cluster without accounts":   {func(o *Server) { o.secure.clusterPassword, o.cluster.Listen = password, "127.0.0.1:1" }, "same users"},
		"a cluster without TLS": {func(o *Server) {
			o.accounts, o.secure.clusterPassword, o.cluster.Listen = "f", password, "0.0.0.0:1"
		}, "--cluster-ca-file"},
		"a cluster with an absent secret": {func(o *Server) {
			o.accounts, o.secure.clusterPassword, o.cluster.Listen = "f", "absent", "127.0.0.1:1"
		}, "--cluster-password-file"},
		"a cluster on loopback": {func(o *Server) {
			o.accounts, o.secure.clusterPassword, o.cluster.Listen = "f", password, "127.0.0.1:1"
		}, ""},
	} {
		o := server(t, k.change)
		var options embedded.Options
		if err := o.protect(&options); k.says == "" && err != nil || k.says != "" && (err == nil || !strings.Contains(err.Error(), k.says)) {
			t.Errorf("%s: %v, want an error with %q", name, err, k.says)
		}
		if users := options.Password != "" && options.GuestPassword != ""; users != (name == "on loopback") {
			t.Errorf("%s: users are made: %t", name, users)
		}
		want := 0.0
		if o.secure.insecure {
			want = 1
		}
		if got := testutil.ToFloat64(o.Collectors()[0]); got != want {
			t.Errorf("%s: the metric is %v", name, got)
		}
	}
}

// TestCommandsFindTheLoginOfALocalBus: a command without a login finds the users of a bus on this
// machine by its address. They are the same after a restart; other logins are refused.
func TestCommandsFindTheLoginOfALocalBus(t *testing.T) {
	free := server(t, func(o *Server) { o.secure.insecure = true })
	probe, err := free.Start()
	ok(t, err)
	address := strings.TrimPrefix(probe.URL(), "nats://")
	ok(t, probe.Close())
	o := server(t, func(o *Server) { o.Listen = address })
	was := ""
	for range 2 {
		running, err := o.Start()
		ok(t, err)
		for _, name := range []string{"reader", "watcher"} {
			at := connect.Connection{URL: "nats://" + address}
			options, err := at.Options(name)
			ok(t, err)
			if guest := name == "reader"; options.Guest != guest || (options.User == embedded.GuestUser) != guest {
				t.Errorf("the %s comes as %q", name, options.User)
			}
			b, err := stream.Connect(t.Context(), options)
			ok(t, err)
			ok(t, b.Close())
		}
		if _, err := stream.Connect(t.Context(), stream.Options{URL: "nats://" + address}); err == nil {
			t.Error("who gives no name is let in")
		}
		if url := connect.BusURL(address); was != "" && was != url {
			t.Errorf("the login was %s and is %s", was, url)
		} else {
			was = url
		}
		ok(t, running.Close())
	}
	info, err := os.Stat(filepath.Join(o.DataDir, credentials.PasswordsFile))
	ok(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the passwords have mode %v", info.Mode())
	}
}

// TestTheLoginIsThatOfTheBusThatListens: a bus with port 0 saves its login under its actual port,
// and one that cannot listen does not overwrite the login of the bus that does.
func TestTheLoginIsThatOfTheBusThatListens(t *testing.T) {
	first, other := server(t, func(*Server) {}), server(t, func(*Server) {})
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	running, err := first.Start()
	ok(t, err)
	defer running.Close()
	address := strings.TrimPrefix(running.URL(), "nats://")
	other.Listen = address
	login := connect.BusURL(address)
	if !strings.Contains(login, "@") {
		t.Fatalf("no login is found for %s", address)
	}
	if second, err := other.Start(); err == nil {
		_ = second.Close()
		t.Fatal("two buses listen on one address")
	}
	if now := connect.BusURL(address); now != login {
		t.Errorf("the login was %s and is %s, of a bus that does not listen", login, now)
	}
}

// TestPrivateFilesStayPrivate: also if they existed with a looser mode.
func TestPrivateFilesStayPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, []byte("something longer"), 0o644))
	ok(t, connect.WritePrivate(file, []byte("secret")))
	info, err := os.Stat(file)
	ok(t, err)
	text, err := os.ReadFile(file)
	ok(t, err)
	if info.Mode().Perm() != 0o600 || string(text) != "secret" {
		t.Errorf("mode %v, %q", info.Mode(), text)
	}
}

// TestClientFilesAreCheckedFirst: an unreadable file is an error before connecting.
func TestClientFilesAreCheckedFirst(t *testing.T) {
	dir := t.TempDir()
	pair, err := certs.NewAuthority("a", 1)
	ok(t, err)
	ca := filepath.Join(dir, "ca.crt")
	ok(t, os.WriteFile(ca, pair.Certificate, 0o600))
	for says, c := range map[string]connect.Connection{
		"--nats-ca-file": {CAFile: "absent"}, "belong together": {CertFile: ca}, "--nats-key-file": {CertFile: ca, KeyFile: ca},
		"--nats-user and": {User: "writer"}, "--nats-password-file": {User: "writer", PasswordFile: "absent"},
	} {
		if _, err := c.Options("writer"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error with %q", err, says)
		}
	}
}

// ok fails the test on an error.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
