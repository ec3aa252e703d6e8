package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// ClusterOptions make a server one of several that hold the streams together. A stream with
// three replicas loses nothing and goes on when one of three servers is lost; when two are
// lost, it waits for one of them to come back.
type ClusterOptions struct {
	// Listen is a host:port for the other servers; empty: the server stands alone.
	Listen string
	// User and Password are the login of each server at the others; empty: a server needs
	// neither.
	User, Password string
	// TLS encrypts the connections between the servers, each of which checks the other's
	// certificate, so that there must be an authority; zero: no encryption.
	TLS TLSOptions
	// Name of the cluster, the same for all of its servers; empty: "millrace".
	Name string
	// Routes are the addresses at which the servers of the cluster listen for each other, as
	// host:port or as URLs. The server's own may be among them.
	Routes []string
	// NoAdvertise hides the other servers' addresses from clients, which then know only the
	// addresses in their own settings, as behind proxies.
	NoAdvertise bool
}

// PingEvery is the interval at which the servers of a cluster, and their clients, check on a connection. A
// stopped or cut-off server is detected after two unanswered pings: no later than the other servers elect
// a new leader.
const PingEvery = 2 * time.Second

// metaDir is the folder, in a data directory, of a server's cluster metadata.
var metaDir = filepath.Join("jetstream", server.DEFAULT_SYSTEM_ACCOUNT, "_js_", "_meta_")

// clustered reports whether the server is one of several.
func (o Options) clustered() bool { return o.Cluster.Listen != "" }

// join adds the settings of a server in a cluster.
func (o Options) join(settings *server.Options) error {
	if !o.clustered() {
		if len(o.Cluster.Routes) > 0 {
			return errors.New("routes without an address to listen on for the other servers of the cluster")
		}
		return nil
	}
	if o.Name == "" {
		return errors.New("a server of a cluster needs a name that no other has, and must keep it")
	}
	if len(o.Cluster.Routes) == 0 {
		return errors.New("a server of a cluster needs routes to the others")
	}
	listen, err := routeURL(o.Cluster.Listen)
	if err != nil {
		return fmt.Errorf("cluster listen address: %w", err)
	}
	cluster := server.ClusterOpts{Name: cmp.Or(o.Cluster.Name, defaultName), Host: listen.Hostname(), Username: o.Cluster.User, Password: o.Cluster.Password}
	if (cluster.Username == "") != (cluster.Password == "") {
		return errors.New("the servers of a cluster need both a user and a password for each other, or neither")
	}
	if o.Cluster.TLS.On() {
		if cluster.TLSConfig, err = o.Cluster.TLS.routes(o.Log); err != nil {
			return err
		}
		cluster.TLSTimeout = handshakeTimeout
	}
	if cluster.Port, err = strconv.Atoi(listen.Port()); err != nil || cluster.Port <= 0 {
		return fmt.Errorf("cluster listen address: port %q: want a number from 1", listen.Port())
	}
	cluster.NoAdvertise = o.Cluster.NoAdvertise
	cluster.PingInterval = PingEvery
	settings.Cluster = cluster
	for _, route := range o.Cluster.Routes {
		to, err := routeURL(route)
		if err != nil {
			return fmt.Errorf("route: %w", err)
		}
		if cluster.Username != "" {
			to.User = url.UserPassword(cluster.Username, cluster.Password)
		}
		settings.Routes = append(settings.Routes, to)
	}
	return nil
}

// routeURL reads host:port, or a URL of it.
func routeURL(text string) (*url.URL, error) {
	text = strings.TrimSpace(text)
	if !strings.Contains(text, "://") {
		text = "nats-route://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		// The parser repeats the text, which may hold a password.
		return nil, errors.New("not a host:port, nor a URL of one")
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return nil, err
	}
	if u.User != nil {
		return nil, errors.New("a user and a password stand in the address, where others can read them: give them beside it")
	}
	return u, nil
}

// checkDirectory refuses a directory that the other kind of server has used: a server of a
// cluster deletes streams that its cluster does not know, and a standalone server cannot serve
// streams with replicas elsewhere.
func (o Options) checkDirectory() error {
	_, err := os.Stat(filepath.Join(o.Dir, metaDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	switch alone := err != nil; {
	case !o.clustered() && !alone:
		return errors.New("it belongs to a server of a cluster; start that with its cluster's settings, or name another directory")
	case o.clustered() && alone:
		streams, err := o.store().Names()
		if err != nil {
			return err
		}
		if len(streams) > 0 {
			return fmt.Errorf("it belongs to a server that stood alone (streams %s), and a cluster would remove them; name an empty directory",
				strings.Join(streams, ", "))
		}
	}
	return nil
}

// Healthy is nil when the server can serve. A standalone server can as soon as it has started.
// A server of a cluster can when the cluster has a leader, which this server follows or is, and
// the server's replicas of streams and consumers have caught up. An operator that waits for
// that before stopping the next server never stops too many.
func (s *Server) Healthy() error {
	if !s.options.clustered() {
		return nil
	}
	if status := s.nats.Healthz(&server.HealthzOptions{JSMetaOnly: true}); status.Error != "" {
		others := strings.Join(s.others(), ", ")
		return fmt.Errorf("no cluster: %s; connected to %s", status.Error, cmp.Or(others, "no other server"))
	}
	if status := s.nats.Healthz(nil); status.Error != "" {
		return fmt.Errorf("catching up: %s", status.Error)
	}
	return nil
}

// others are the names of the servers of the cluster that this one is connected to, sorted.
func (s *Server) others() []string {
	routes, err := s.nats.Routez(nil)
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range routes.Routes { // several to each
		names = append(names, r.RemoteName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
