package busflags

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// Server are the flags of the embedded NATS server.
type Server struct {
	// DataDir is the directory of the streams.
	DataDir string
	// Listen is the address for other processes; empty: none.
	Listen string
	sync   time.Duration // 0: after every write
	guests string        // file with the readers' password
	// Store is the maximum size of all streams.
	Store StoreSize
	// accounts, name and cluster are for a server in a process of its own; see AddCluster.
	accounts string // file with accounts and users
	name     string
	cluster  embedded.ClusterOptions
	// Alone is true for a server in a process of its own.
	Alone  bool
	secure securityOptions
}

// NewServer has the defaults of the flags.
func NewServer() Server {
	return Server{DataDir: defaultDataDir(), sync: 2 * time.Minute}
}

// Add adds the flags that every process with an embedded server has.
func (o *Server) Add(f *pflag.FlagSet) {
	f.StringVar(&o.DataDir, "data-dir", o.DataDir, "`directory` of the streams")
	f.StringVar(&o.Listen, "nats-listen", o.Listen, "`address` on which the embedded NATS server also serves other processes, such as 127.0.0.1:4222 (default none)")
	f.StringVar(&o.guests, "reader-password-file", o.guests,
		"`file` with the password of the user reader, who can only read the record (nats://reader:PASSWORD@...); by default one is created in the data directory")
	o.Store.Add(f)
	o.secure.add(f)
	f.Var((*syncInterval)(&o.sync), "sync-interval", "interval at which streams are synced to disk; 'always' syncs after every write, so that a power failure loses nothing")
}

func defaultDataDir() string {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "millrace-data"
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "millrace")
}

// AddCluster adds the flags for accounts and clustering of a server in a process of its own, in NATS' terms.
func (o *Server) AddCluster(f *pflag.FlagSet) {
	f.StringVar(&o.accounts, "nats-accounts", o.accounts,
		"NATS configuration `file` with the accounts and users of the bus, such as deployments/nats/accounts.conf; without it the bus has two users: millrace, with all permissions, and reader. Streams created without it are not visible with it")
	f.StringVar(&o.name, "name", o.name, "name of the server, unique in its cluster; it must not change")
	f.StringVar(&o.cluster.Listen, "cluster-listen", o.cluster.Listen,
		"`address` for the other servers of the cluster (default: the server is standalone)")
	o.secure.addCluster(f)
	f.StringVar(&o.cluster.Name, "cluster-name", "millrace", "name of the cluster, the same on all its servers")
	f.StringSliceVar(&o.cluster.Routes, "routes", o.cluster.Routes,
		"cluster `addresses` of the servers; that of this server may be included")
	f.BoolVar(&o.cluster.NoAdvertise, "no-advertise", o.cluster.NoAdvertise,
		"do not advertise the addresses of the other servers to clients, which then use only those in their --nats-url, such as proxies")
}

// syncInterval is a duration or, as in NATS' configuration, "always".
type syncInterval time.Duration

const always = "always"

// Set parses the flag; 0 is the same as always.
func (s *syncInterval) Set(text string) error {
	if text == always {
		*s = 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is neither %q nor a time such as 2m", text, always)
	}
	*s = syncInterval(d)
	return nil
}

// String formats the flag's value.
func (s *syncInterval) String() string {
	if *s == 0 {
		return always
	}
	return time.Duration(*s).String()
}

// Type is the value's name in the help.
func (s *syncInterval) Type() string { return "duration" }

// Check refuses flags that contradict each other.
func (o *Server) Check() error {
	switch {
	case o.DataDir == "":
		return errors.New("--data-dir is empty; name the directory of the streams")
	case o.cluster.Listen == "" && len(o.cluster.Routes) > 0:
		return errors.New("--routes without --cluster-listen: name the address on which this server listens for the others")
	case o.cluster.Listen != "" && (o.name == "" || len(o.cluster.Routes) == 0):
		return errors.New("--cluster-listen needs a --name of its own for each server, and --routes to the others")
	}
	return nil
}

// Start runs the embedded server.
//
// Errors: as Check and Exposed; a file cannot be read; the server does not start.
func (o *Server) Start() (*embedded.Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	guests, err := o.guestPassword()
	if err != nil {
		return nil, err
	}
	options := embedded.Options{
		GuestPassword: guests, Accounts: o.accounts, Dir: o.DataDir, Listen: o.Listen, Name: o.name, Cluster: o.cluster, SyncAlways: o.sync == 0, SyncInterval: o.sync,
		MaxStore: int64(o.Store),
		Log:      slog.New(logr.ToSlogHandler(klog.Background().WithName("nats").V(2))),
	}
	if err := o.protect(&options); err != nil {
		return nil, err
	}
	running, err := embedded.Serve(options)
	if err == nil {
		o.leaveLogins(options, running)
	}
	return running, err
}

// guestPassword reads the password of the readers; "" admits no reader.
func (o *Server) guestPassword() (string, error) {
	if o.guests == "" {
		return "", nil
	}
	text, err := os.ReadFile(o.guests)
	if err != nil {
		return "", fmt.Errorf("read --reader-password-file: %w", err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", fmt.Errorf("read --reader-password-file: %s is empty", o.guests)
	}
	return password, nil
}
