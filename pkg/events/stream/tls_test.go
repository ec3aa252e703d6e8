package stream_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/certs"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// authority signs certificates in a directory.
type authority struct {
	t    *testing.T
	dir  string
	pair certs.Pair
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	pair, err := certs.NewAuthority("an authority", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t, t.TempDir(), pair}
	a.write("ca.crt", pair.Certificate)
	return a
}

func (a *authority) write(name string, text []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), text, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.crt and NAME.key.
func (a *authority) issue(name string, valid time.Duration, hosts ...string) {
	a.t.Helper()
	pair, err := a.pair.Issue(name, hosts, valid)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", pair.Certificate)
	a.write(name+".key", pair.Key)
}

func (a *authority) server() embedded.TLSOptions {
	return embedded.TLSOptions{CertFile: a.path("server.crt"), KeyFile: a.path("server.key")}
}

// try connects once.
func try(t *testing.T, o stream.Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	o.AtOnce = true
	b, err := stream.Connect(ctx, o)
	if err == nil {
		_ = b.Close()
	}
	return err
}

// TestTLS: a server with certificates talks to no one without TLS, and who is not trusted
// is told once what to do.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.issue("server", time.Hour, "127.0.0.1")
	ours.issue("client", time.Hour)
	ours.issue("old", -time.Minute)
	ours.issue("elsewhere", time.Hour, "nats.example.com")
	ours.issue("expired", -time.Minute, "127.0.0.1")
	theirs.issue("client", time.Hour)
	mutual := ours.server()
	mutual.ClientCAFile = ours.path("ca.crt")
	files := func(name string) embedded.TLSOptions {
		return embedded.TLSOptions{CertFile: ours.path(name + ".crt"), KeyFile: ours.path(name + ".key")}
	}
	with := func(from *authority, name string) stream.Options {
		return stream.Options{CAFile: ours.path("ca.crt"), CertFile: from.path(name + ".crt"), KeyFile: from.path(name + ".key")}
	}
	for name, k := range map[string]struct {
		server embedded.TLSOptions
		client stream.Options
		says   string
	}{
		"trusted":                     {ours.server(), stream.Options{CAFile: ours.path("ca.crt")}, ""},
		"trusted by text":             {ours.server(), stream.Options{CAData: ours.pair.Certificate}, ""},
		"another authority":           {ours.server(), stream.Options{CAFile: theirs.path("ca.crt")}, "--nats-ca-file"},
		"no authority":                {ours.server(), stream.Options{}, "--nats-ca-file"},
		"a server without TLS":        {embedded.TLSOptions{}, stream.Options{CAFile: ours.path("ca.crt")}, "the server has no TLS"},
		"another name":                {files("elsewhere"), stream.Options{CAFile: ours.path("ca.crt")}, "other names"},
		"an expired server":           {files("expired"), stream.Options{CAFile: ours.path("ca.crt")}, "has expired"},
		"both with certificates":      {mutual, with(ours, "client"), ""},
		"no certificate":              {mutual, stream.Options{CAFile: ours.path("ca.crt")}, "--nats-cert-file"},
		"an expired certificate":      {mutual, with(ours, "old"), "has expired"},
		"a certificate of another CA": {mutual, with(theirs, "client"), "does not trust the certificate"},
	} {
		s := serve(t, embedded.Options{Listen: "127.0.0.1:0", TLS: k.server})
		k.client.URL = strings.Replace(s.URL(), "tls://", "nats://", 1)
		err := try(t, k.client)
		if k.says == "" && err != nil || k.says != "" && (!errors.Is(err, natserr.ErrTLS) || !strings.Contains(err.Error(), k.says)) {
			t.Errorf("%s: %v, want an error with %q", name, err, k.says)
		}
		if err := try(t, stream.Options{Server: s}); err != nil {
			t.Errorf("%s: from within the process: %v", name, err)
		}
	}
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", TLS: mutual})
	if !strings.HasPrefix(s.URL(), "tls://") {
		t.Errorf("the server is at %s", s.URL())
	}
	_, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "tls://"), &tls.Config{MaxVersion: tls.VersionTLS11})
	if err == nil {
		t.Error("TLS 1.1 will do")
	}
}

// TestCertificatesAreReadAgain: a server shows the newest certificate, and the one before
// while the newest cannot be used.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", time.Hour, "127.0.0.1")
	log := &heard{}
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", TLS: a.server(), Log: slog.New(slog.NewTextHandler(log, nil))})
	shown := func() string {
		t.Helper()
		conn, err := nats.Connect(s.URL(), nats.RootCAs(a.path("ca.crt")), nats.Timeout(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		state, err := conn.TLSConnectionState()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(state.PeerCertificates[0].SerialNumber)
	}
	// later makes a change visible to who looks at times.
	moment := time.Now()
	later := func() {
		t.Helper()
		moment = moment.Add(time.Minute)
		for _, file := range []string{"server.crt", "server.key"} {
			if err := os.Chtimes(a.path(file), moment, moment); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := shown()
	a.issue("server", time.Hour, "127.0.0.1")
	later()
	second := shown()
	if first == second {
		t.Error("the certificate is still that of the start")
	}
	a.write("server.key", []byte("no key"))
	later()
	if got := shown(); got != second || !strings.Contains(log.String(), "keeping the previous one") {
		t.Errorf("with a broken file the certificate is %s, want %s still; the log has %s", got, second, log.String())
	}
}

// TestFilesOfTLS: a server does not start on files that cannot be used, and names them.
func TestFilesOfTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", time.Hour, "127.0.0.1")
	noCA, noKey, wrong := a.server(), a.server(), a.server()
	noCA.ClientCAFile = a.path("server.key")
	noKey.KeyFile = ""
	wrong.KeyFile = a.path("ca.crt")
	for says, o := range map[string]embedded.TLSOptions{"holds no certificate": noCA, "both": noKey, "ca.crt": wrong} {
		if _, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", TLS: o}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error with %q", err, says)
		}
	}
}

// TestRoutesWithPasswordAndCertificate: servers that have both are a cluster.
func TestRoutesWithPasswordAndCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", time.Hour, "127.0.0.1")
	files := a.server()
	files.ClientCAFile = a.path("ca.crt")
	c := newCluster(t)
	c.secure = embedded.ClusterOptions{User: "route", Password: "word", TLS: files}
	for i := range c.servers {
		c.start(i)
	}
	c.await()
	theirs := newAuthority(t)
	theirs.issue("server", time.Hour, "127.0.0.1")
	for name, k := range map[string]struct {
		from  *authority
		login string
		in    bool
	}{
		"both":                  {a, `"user":"route","pass":"word",`, true},
		"another password":      {a, `"user":"route","pass":"guess",`, false},
		"no password":           {a, "", false},
		"another's certificate": {theirs, `"user":"route","pass":"word",`, false},
	} {
		if said := route(t, c.routes[0], a, k.from, k.login); strings.Contains(said, "PONG") != k.in {
			t.Errorf("%s: the server says %q", name, said)
		}
	}
}

// route is what a server answers to one that wants to join, until it hangs up or pongs.
func route(t *testing.T, address string, trusted, from *authority, login string) (said string) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted.pair.Certificate)
	own, err := tls.LoadX509KeyPair(from.path("server.crt"), from.path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT {%s\"verbose\":false,\"pedantic\":false,\"name\":\"stranger\",\"cluster\":\"millrace\"}\r\nPING\r\n", login)
	for lines := bufio.NewScanner(conn); lines.Scan() && !strings.Contains(said, "PONG"); {
		said += lines.Text() + "\n"
	}
	return said
}

// TestRoutesNeedAnAuthority: without one a server would talk to any other.
func TestRoutesNeedAnAuthority(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", time.Hour, "127.0.0.1")
	c := newCluster(t)
	for says, o := range map[string]embedded.ClusterOptions{
		"authority": {TLS: a.server()}, "both a user and a password": {User: "route"},
		"give them beside it": {Listen: "nats://u:secret@127.0.0.1:1"},
	} {
		options := c.options(0)
		if o.Listen == "" {
			o.Listen = options.Cluster.Listen
		}
		o.Routes = options.Cluster.Routes
		options.Cluster = o
		if _, err := embedded.Serve(options); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want an error with %q", err, says)
		}
	}
}

// TestNoNameNoEntry: as soon as anyone has a password, who gives none is sent away, but for
// this process; and the user of a password file comes with what stands in it.
func TestNoNameNoEntry(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]embedded.Options{
		"readers": {GuestPassword: "look"}, "all": {Password: "all"}, "both": {GuestPassword: "look", Password: "all"},
	} {
		o.Listen = "127.0.0.1:0"
		s := serve(t, o)
		at := strings.TrimPrefix(s.URL(), "nats://")
		for login, in := range map[string]bool{
			"": false, "millrace@": false, "millrace:@": false, "reader:@": false, "millrace:look@": false, "reader:all@": false,
			"reader:look@": o.GuestPassword != "", "millrace:all@": o.Password != "",
		} {
			if err := try(t, stream.Options{URL: "nats://" + login + at}); (err == nil) != in {
				t.Errorf("%s: %q is let in: %t (%v)", name, login, err == nil, err)
			}
		}
		if err := try(t, stream.Options{URL: s.URL(), User: embedded.MainUser, PasswordFile: file}); (err == nil) != (o.Password != "") {
			t.Errorf("%s: with the password file: %v", name, err)
		}
		if err := try(t, stream.Options{Server: s}); err != nil {
			t.Errorf("%s: from within the process: %v", name, err)
		}
	}
}

// TestNothingInAnAccountsFileIsDropped: what is not taken over is named, and the limits of
// accounts hold.
func TestNothingInAnAccountsFileIsDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "words.conf"), []byte("WORD: \"abc\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const main = `accounts { MILLRACE { jetstream: {max_streams: 1}, limits: {max_connections: 2}, users: [{user: millrace, password: $WORD}] } }
`
	start := func(text string) (*embedded.Server, error) {
		file := filepath.Join(dir, "accounts.conf")
		if err := os.WriteFile(file, []byte("include \"words.conf\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return embedded.Serve(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Accounts: file})
	}
	for name, text := range map[string]string{
		"tls": "tls { cert_file: a, key_file: b }", "authorization": "authorization { users: [] }", "jetstream": "jetstream { max_file: 1 }",
		"max_payload": "max_payload: 1", "max_connections": "max_connections: 3", "listen": "listen: 4222", "no_auth_user": "no_auth_user: millrace",
		"mx_payload": "mx_payload: 1", "cluster": "cluster { name: a }",
	} {
		s, err := start(main + text)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%s: the server starts: %v, want an error that names it", name, err)
		}
	}
	s, err := start(main)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	address := "nats://millrace:abc@" + strings.TrimPrefix(s.URL(), "nats://")
	js := admin(t, address)
	for i, want := range []bool{true, false} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: fmt.Sprint("S", i), Subjects: []string{fmt.Sprint("s", i)}})
		if (err == nil) != want {
			t.Errorf("stream %d of at most 1: %v", i+1, err)
		}
	}
	admin(t, address)
	if conn, err := nats.Connect(address); err == nil {
		conn.Close()
		t.Error("a third connection is let in")
	}
}
