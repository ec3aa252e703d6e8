package embedded

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// What a server is told follows from its options; what makes no sense is refused.
func TestSettingsOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cluster := ClusterOptions{Listen: "127.0.0.1:6222", Routes: []string{" a:6222", "nats-route://b:6222"}}
	for name, c := range map[string]struct {
		options Options
		holds   func(s *server.Options) bool
	}{
		"of this process": {Options{}, func(s *server.Options) bool {
			return s.DontListen && s.ServerName == "millrace" && s.JetStream && s.MaxPending == 256<<20 && s.StoreDir == dir && s.JetStreamMaxStore > 0
		}},
		"with its limits": {Options{Name: "n", MaxStore: 7, MaxMemory: 8, MaxPayload: 9, SyncAlways: true, SyncInterval: time.Second}, func(s *server.Options) bool {
			return s.ServerName == "n" && s.JetStreamMaxStore == 7 && s.JetStreamMaxMemory == 8 && s.MaxPayload == 9 && s.SyncAlways && s.SyncInterval == time.Second
		}},
		"on a port":   {Options{Listen: "127.0.0.1:4222"}, func(s *server.Options) bool { return s.DontListen && s.Host == "127.0.0.1" && s.Port == 4222 }},
		"on any port": {Options{Listen: "127.0.0.1:0"}, func(s *server.Options) bool { return s.Port == server.RANDOM_PORT }},
		"of a cluster": {Options{Name: "n", Listen: "127.0.0.1:4222", Cluster: cluster}, func(s *server.Options) bool {
			return !s.DontListen && s.Cluster.Name == "millrace" && s.Cluster.Host == "127.0.0.1" && s.Cluster.Port == 6222 && len(s.Routes) == 2 && s.Routes[0].Host == "a:6222" && s.Routes[0].User == nil && s.Cluster.PingInterval == PingEvery
		}},
		"of a closed one": {Options{Name: "n", Listen: "127.0.0.1:4222", Cluster: ClusterOptions{Name: "c", Listen: "127.0.0.1:1", Routes: []string{"a:1"}, User: "u", Password: "p", NoAdvertise: true}}, func(s *server.Options) bool {
			return s.Cluster.Name == "c" && s.Cluster.NoAdvertise && s.Cluster.Username == "u" && s.Routes[0].User.String() == "u:p"
		}},
		"no port":            {Options{Listen: "127.0.0.1"}, nil},
		"a port that is no":  {Options{Listen: "127.0.0.1:x"}, nil},
		"no routes":          {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1"}}, nil},
		"no cluster":         {Options{Cluster: ClusterOptions{Routes: []string{"a:1"}}}, nil},
		"no name":            {Options{Cluster: cluster}, nil},
		"port 0":             {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:0", Routes: []string{"a:1"}}}, nil},
		"no cluster port":    {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1", Routes: []string{"a:1"}}}, nil},
		"half a login":       {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"a:1"}, User: "u"}}, nil},
		"the other half":     {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"a:1"}, Password: "p"}}, nil},
		"a login in routes":  {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"nats-route://u:p@a:1"}}}, nil},
		"a route to no port": {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"a"}}}, nil},
		"a route that is no": {Options{Name: "n", Cluster: ClusterOptions{Listen: "127.0.0.1:1", Routes: []string{"://p@ss"}}}, nil},
		"TLS without files":  {Options{TLS: TLSOptions{CertFile: "x"}}, nil},
		"accounts and users": {Options{Accounts: "x", Password: "p"}, nil},
		"no accounts file":   {Options{Accounts: dir + "/none"}, nil},
	} {
		c.options.Dir = dir
		s, err := c.options.server()
		if (err == nil) != (c.holds != nil) || err == nil && !c.holds(s) {
			t.Errorf("%s: the server's options are %+v, %v", name, s, err)
		}
		if err != nil && strings.Contains(err.Error(), "p@ss") {
			t.Errorf("%s: an error repeats an address: %v", name, err)
		}
	}
}

// The server's log is passed on by its levels. Why it gives up is its first word of that, and
// why it could not read a stream its last warning.
func TestTheServersLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	l := &serverLog{to: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	l.Noticef("notice %d\n", 1)
	l.Warnf("warning %d", 2)
	l.Warnf("warning %d ", 3)
	l.Errorf("error %d", 4)
	l.Debugf("debug %d", 5)
	l.Tracef("trace %d", 6)
	if l.fatalError() != nil {
		t.Errorf("the log counts errors below Fatalf as fatal: %v", l.fatalError())
	}
	l.Fatalf("fatal %d", 7)
	l.Fatalf("fatal %d", 8)
	for _, line := range []string{`INFO msg="notice 1"`, `WARN msg="warning 2"`, `ERROR msg="error 4"`, `DEBUG msg="debug 5"`} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%s is not in %s", line, out.String())
		}
	}
	if strings.Contains(out.String(), "trace") || strings.Contains(out.String(), "fatal") || l.lastWarning() != "warning 3" || l.fatalError().Error() != "fatal 7" {
		t.Errorf("the last warning is %q, and it gives up with %v", l.lastWarning(), l.fatalError())
	}
}

// A directory of a cluster's server is not one of a server that stands alone, nor the other way
// round, where it has streams.
func TestADirectoryIsUsedInOneWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		folder       string
		alone, three bool // who may use it
	}{"empty": {"", true, true}, "of a cluster": {metaDir, false, true}, "of one alone": {"jetstream/$G/streams/EV_pods", true, false}} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, c.folder), 0o700); err != nil {
			t.Fatal(err)
		}
		for clustered, may := range map[bool]bool{false: c.alone, true: c.three} {
			o := Options{Dir: dir}
			if clustered {
				o.Cluster.Listen = "127.0.0.1:1"
			}
			if err := o.checkDirectory(); (err == nil) != may {
				t.Errorf("%s, of a cluster: %t: %v", name, clustered, err)
			}
		}
	}
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(dir+"/jetstream/$G/streams/EV_pods", 0o700), os.WriteFile(dir+"/jetstream/$G/streams/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if names, err := (Options{Dir: dir}).store().Names(); err != nil || len(names) != 1 || names[0] != "EV_pods" {
		t.Errorf("on disk are %v, %v", names, err)
	}
}
