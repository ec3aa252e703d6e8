package manifests

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/port"
)

const patience = 30 * time.Second

// credentials are the files that millrace bus secrets writes, one directory for each Secret.
func credentials(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "run", "github.com/millrace/millrace/cmd/millrace", "bus", "secrets", "--dir="+t.TempDir(), "--files="+dir).CombinedOutput()
	if err != nil {
		t.Fatalf("make credentials: %v\n%s", err, out)
	}
	return dir
}

// trio are three stock NATS servers, started as deployments/nats/nats.conf says.
type trio struct {
	files   string // the credentials
	servers []*server.Server
	routes  []string
	https   int // of the first server
	refusals
}

func startTrio(t *testing.T) *trio {
	t.Helper()
	all := &trio{files: credentials(t)}
	etc := filepath.Join(all.files, "millrace-bus")
	passwords, err := os.ReadFile(filepath.Join(etc, "passwords"))
	ok(t, err)
	for line := range strings.Lines(string(passwords)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t.Setenv(name, value)
	}
	cluster, err := os.ReadFile(filepath.Join(etc, "cluster-password"))
	ok(t, err)
	t.Setenv("CLUSTER_PASSWORD", string(cluster))
	accounts, err := os.ReadFile(filepath.Join(deployments, "nats", "accounts.conf"))
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(etc, "accounts.conf"), accounts, 0o600))
	for i := range 3 {
		all.routes = append(all.routes, fmt.Sprintf("127.0.0.1:%d", free(t)))
		t.Setenv(fmt.Sprintf("ROUTE_%d", i), fmt.Sprintf("nats-route://route:%s@%s", cluster, all.routes[i]))
	}
	for i := range 3 {
		all.servers = append(all.servers, all.start(t, i, func(*server.Options) {}))
	}
	return all
}

func free(t *testing.T) int {
	t.Helper()
	n, err := port.Free()
	ok(t, err)
	return n
}

// options are the options of one server from the file, with addresses of this machine and no other change.
func (all *trio) options(t *testing.T, i int) *server.Options {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployments, "nats", "nats.conf"))
	ok(t, err)
	etc, https := filepath.Join(all.files, "millrace-bus"), free(t)
	if all.https == 0 {
		all.https = https
	}
	words := []string{
		"/etc/nats/", etc + "/", `"/data"`, fmt.Sprintf("%q", t.TempDir()), "0.0.0.0:4222", fmt.Sprintf("127.0.0.1:%d", free(t)),
		"0.0.0.0:8222", fmt.Sprintf("127.0.0.1:%d", https), "0.0.0.0:6222", all.routes[i%3],
	}
	file := filepath.Join(etc, fmt.Sprintf("nats-%d.conf", i))
	ok(t, os.WriteFile(file, []byte(strings.NewReplacer(words...).Replace(string(text))), 0o600))
	o, err := server.ProcessConfigFile(file)
	ok(t, err)
	o.ServerName, o.NoSigs, o.NoLog = fmt.Sprintf("nats-%d", i), true, true
	return o
}

func (all *trio) start(t *testing.T, i int, change func(*server.Options)) *server.Server {
	t.Helper()
	o := all.options(t, i)
	change(o)
	s, err := server.NewServer(o)
	ok(t, err)
	if i < 3 {
		s.SetLogger(&all.refusals, false, false)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// password is the path of a user's password file.
func (all *trio) password(user string) string {
	return filepath.Join(all.files, "millrace-"+user+"-bus", "password")
}

// TestStockServers: three stock servers with our configuration and credentials form a cluster with three
// replicas. They refuse a client without TLS, name or password, and a server without the cluster's password,
// and have the settings that the record needs.
func TestStockServers(t *testing.T) {
	all := startTrio(t)
	eventually.True(t, patience, "three servers find each other", func() bool {
		for _, s := range all.servers {
			if s.NumRoutes() == 0 || !s.JetStreamIsCurrent() {
				return false
			}
		}
		return true
	})
	o := all.options(t, 0)
	if !o.JetStream || !o.SyncAlways || o.MaxPayload < 8<<20 || o.MaxPending < 256<<20 || len(o.Routes) != 3 {
		t.Errorf("JetStream %t, sync always %t, payload %d, pending %d, routes %v", o.JetStream, o.SyncAlways, o.MaxPayload, o.MaxPending, o.Routes)
	}
	ca := filepath.Join(all.files, "millrace-bus", "ca.crt")
	address := strings.Replace(all.servers[0].ClientURL(), "nats://", "tls://", 1)
	provisioner, err := stream.Connect(t.Context(), stream.Options{URL: address, User: access.Provisioner, PasswordFile: all.password(access.Provisioner), CAFile: ca, Replicas: 3})
	ok(t, err)
	defer provisioner.Close()
	ok(t, provisioner.EnsureController(t.Context(), "job-controller"))
	secret, err := os.ReadFile(all.password(access.Reader))
	ok(t, err)
	bare := strings.TrimPrefix(address, "tls://")
	for who, options := range map[string][]nats.Option{
		"a client with no name":  {nats.RootCAs(ca)},
		"a name with no word":    {nats.RootCAs(ca), nats.UserInfo(access.Reader, "")},
		"a name with a guess":    {nats.RootCAs(ca), nats.UserInfo(access.Writer, string(secret))},
		"one who trusts another": {nats.UserInfo(access.Reader, string(secret))},
	} {
		c, err := nats.Connect("nats://"+bare, options...)
		if err == nil {
			c.Close()
			t.Errorf("%s is let in", who)
		}
	}
	if text := plain(t, bare, access.Reader, string(secret)); strings.Contains(text, "PONG") {
		t.Errorf("a reader without TLS is let in: %q", text)
	}
	c, err := nats.Connect("tls://"+bare, nats.RootCAs(ca), nats.UserInfo(access.Reader, string(secret)))
	ok(t, err)
	c.Close()
	all.monitored(t, ca)
}

// plain returns a server's response to a user that continues without TLS.
func plain(t *testing.T, address, user, password string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	ok(t, err)
	defer c.Close()
	ok(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(c, "CONNECT {\"user\":%q,\"pass\":%q,\"verbose\":false}\r\nPING\r\n", user, password)
	ok(t, err)
	text, _ := io.ReadAll(c) // until the server closes the connection
	if !strings.Contains(string(text), `"tls_required":true`) {
		t.Errorf("it does not ask for TLS: %q", text)
	}
	return string(text)
}

// monitored: the page that tells services how the server syncs is served over TLS only.
func (all *trio) monitored(t *testing.T, ca string) {
	t.Helper()
	text, err := os.ReadFile(ca)
	ok(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	client := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	response, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/varz", all.https))
	ok(t, err)
	ok(t, response.Body.Close())
	if response.StatusCode != http.StatusOK {
		t.Errorf("monitoring answers %s", response.Status)
	}
	response, err = client.Get(fmt.Sprintf("http://127.0.0.1:%d/varz", all.https))
	if err == nil {
		ok(t, response.Body.Close())
		if response.StatusCode == http.StatusOK {
			t.Error("monitoring answers without TLS")
		}
	}
}

// TestNoStrangeServerJoins: a server without the cluster's password, or without a certificate of its
// authority, cannot join the cluster.
func TestNoStrangeServerJoins(t *testing.T) {
	all := startTrio(t)
	eventually.True(t, patience, "three servers find each other", func() bool { return all.servers[0].NumRoutes() > 0 && all.servers[1].NumRoutes() > 0 })
	known := func() (names []string) {
		for _, s := range all.servers {
			routes, err := s.Routez(&server.RoutezOptions{})
			ok(t, err)
			for _, r := range routes.Routes {
				names = append(names, r.RemoteName)
			}
		}
		return names
	}
	for name, change := range map[string]func(*server.Options){
		"without the password": func(o *server.Options) {
			for _, r := range o.Routes {
				r.User = url.UserPassword("route", "guess")
			}
		},
		"without a certificate": func(o *server.Options) { o.Cluster.TLSConfig.Certificates = nil },
	} {
		before := all.refusals.Load()
		s := all.start(t, 3, func(o *server.Options) {
			o.ServerName, o.Cluster.Port, o.JetStream = "stranger", server.RANDOM_PORT, false
			change(o)
		})
		eventually.True(t, patience, "a server "+name+" is refused, and refused again", func() bool { return all.refusals.Load() >= before+2 })
		if found := strings.Join(known(), " "); strings.Contains(found, "stranger") {
			t.Errorf("a server %s has joined: %s", name, found)
		}
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// refusals counts the servers' log messages about refused connections.
type refusals struct{ atomic.Int64 }

func (r *refusals) Errorf(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); strings.Contains(text, "TLS route handshake error") || strings.Contains(text, "authentication error") {
		r.Add(1)
	}
}

func (r *refusals) Noticef(string, ...any) {}
func (r *refusals) Warnf(string, ...any)   {}
func (r *refusals) Fatalf(string, ...any)  {}
func (r *refusals) Debugf(string, ...any)  {}
func (r *refusals) Tracef(string, ...any)  {}
