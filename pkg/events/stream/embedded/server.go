package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/stream/embedded/datadir"
)

// Options are the settings of a server in this process.
type Options struct {
	// Dir holds the streams; the server creates it if it is missing.
	Dir string
	// Listen is a host:port for connections from other processes, with port 0 for any free
	// port; empty: only this process can connect.
	Listen string
	// Name of the server; empty: "millrace". A server of a cluster must have a unique name, and
	// keep it.
	Name string
	// Cluster makes the server one of several; zero: it stands alone.
	Cluster ClusterOptions
	// GuestPassword admits [GuestUser], who may only read, and Password admits [MainUser], who
	// may do everything; empty: no such user. With neither, and without Accounts, other
	// processes need no user and may do everything.
	GuestPassword, Password string
	// Accounts is a NATS configuration file with accounts and users only. The streams are those
	// of [MainAccount].
	Accounts string
	// TLS encrypts the connections of other processes; zero: they are not encrypted.
	TLS TLSOptions

	// SyncAlways makes every acknowledged message survive a power failure, at
	// a price. Otherwise the store is synced every SyncInterval; 0: 2 minutes.
	SyncAlways   bool
	SyncInterval time.Duration
	// MaxStore and MaxMemory bound JetStream's use of disk and memory, in bytes before
	// compression; 0: three quarters of the disk space that is free or used by the streams, and
	// the server's default for memory.
	MaxStore, MaxMemory int64
	// MaxPayload bounds a message; 0: 8 MiB, so that every object of the API server fits.
	MaxPayload int32

	// StartTimeout bounds the start, recovery of the streams included; 0: 1 min.
	StartTimeout time.Duration
	// StopTimeout bounds [Server.Close]; 0: 30 s.
	StopTimeout time.Duration
	// Log receives the server's log; nil: nothing is logged.
	Log *slog.Logger
}

const (
	defaultName         = "millrace"
	defaultMaxPayload   = 8 << 20
	defaultStartTimeout = time.Minute
	defaultStopTimeout  = 30 * time.Second
	// maxOutgoing lets a reader fall behind by a few requests' worth of large objects before
	// the server disconnects it.
	maxOutgoing = 256 << 20
)

// Server is a JetStream server in this process.
type Server struct {
	nats    *server.Server
	lock    *datadir.Lock
	options Options
	guests  atomic.Pointer[server.Account] // nil: there are none
	space   *storeSpace
	users   []*server.User // of the accounts
	local   local
}

// Serve starts a server on a data directory. When it returns, a standalone server has restored
// every stream. A server of a cluster listens, and waits for the others; see [Server.Healthy].
//
// Serve sets an unreadable log aside, and the watcher begins a new one; the server's
// log says so.
//
// Errors: the settings are invalid, the directory cannot be created or written, another process
// uses it, or its content is unreadable; the error says which, and the server is not running.
func Serve(options Options) (*Server, error) {
	options.MaxPayload = cmp.Or(options.MaxPayload, defaultMaxPayload)
	options.StartTimeout = cmp.Or(options.StartTimeout, defaultStartTimeout)
	options.StopTimeout = cmp.Or(options.StopTimeout, defaultStopTimeout)
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	lock, err := datadir.Acquire(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("use data directory %s: %w", options.Dir, err)
	}
	s := &Server{lock: lock, options: options}
	s.local.hub = options.hub()
	if err := s.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS on data directory %s: %w", options.Dir, err), s.lock.Release())
	}
	return s, nil
}

// start starts the server, and if that fails because of unreadable streams, once more without
// them.
func (s *Server) start() error {
	if err := s.options.store().CheckBlocks(s.options.clustered()); err != nil {
		return err
	}
	err := s.launch()
	if worthwhile, failed := s.options.store().QuarantineStreams(err); !worthwhile {
		return errors.Join(err, failed)
	}
	return s.launch()
}

func (s *Server) launch() error {
	settings, err := s.options.server()
	if err != nil {
		return err
	}
	if err := s.options.checkDirectory(); err != nil {
		return err
	}
	expected, err := s.options.store().Names()
	if err != nil {
		return err
	}
	if open := s.options.GuestPassword == "" && s.options.Password == ""; s.options.Accounts == "" && (!open || s.options.Listen != "") {
		settings.CustomClientAuthentication = &authenticator{
			main: s.options.Password, guest: s.options.GuestPassword, guests: s.guests.Load, open: open, outside: s.noteOutsider,
		}
	}
	s.users = settings.Users
	s.space = &storeSpace{options: s.options}
	s.space.addUser(settings)
	if s.nats, err = server.NewServer(settings); err != nil {
		return err
	}
	log := &serverLog{to: s.options.Log}
	s.nats.SetLoggerV2(log, false, false, false)
	s.nats.Start()
	if err = s.ready(log); err == nil {
		err = s.admitGuests()
	}
	if err == nil {
		err = s.open(expected, log)
	}
	if err != nil {
		return errors.Join(err, s.stop())
	}
	s.space.start(s.nats)
	return nil
}

// ready waits until the server has started. The server only logs that it never will.
func (s *Server) ready(log *serverLog) error {
	const look = 50 * time.Millisecond
	for deadline := time.Now().Add(s.options.StartTimeout); ; {
		ready := s.nats.ReadyForConnections(look)
		switch {
		case log.fatalError() != nil:
			return log.fatalError()
		case ready && !s.nats.JetStreamEnabled():
			return errors.New("JetStream is not enabled")
		case ready:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %v", s.options.StartTimeout)
		}
	}
}

// open admits clients when the streams are restored. A server of a cluster admits them at once,
// answers when the cluster has a leader, and restores lost streams from the other servers.
func (s *Server) open(expected []string, log *serverLog) error {
	if s.options.clustered() {
		return nil
	}
	if err := s.complete(expected, log); err != nil || s.options.Listen == "" {
		return err
	}
	s.nats.AcceptLoop(make(chan struct{})) // closed when listening; the server insists on one
	if s.nats.Addr() == nil {
		return cmp.Or(log.fatalError(), errors.New("not listening"))
	}
	return nil
}

func (o Options) server() (*server.Options, error) {
	settings := &server.Options{
		ServerName: cmp.Or(o.Name, defaultName), StoreDir: o.Dir, JetStream: true,
		JetStreamMaxStore: cmp.Or(o.MaxStore, datadir.DefaultLimit(o.Dir)), JetStreamMaxMemory: o.MaxMemory,
		SyncAlways: o.SyncAlways, SyncInterval: o.SyncInterval,
		MaxPayload: o.MaxPayload, MaxPending: maxOutgoing,
		NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		// Until everything is restored.
		DontListen: o.Listen == "" || !o.clustered(),
	}
	if err := errors.Join(o.admit(settings), o.join(settings), o.encrypt(settings)); err != nil || o.Listen == "" {
		return settings, err
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen address: %w", err)
	}
	settings.Host = host
	if settings.Port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("listen address: port %q: %w", port, err)
	}
	if settings.Port == 0 {
		settings.Port = server.RANDOM_PORT
	}
	return settings, nil
}

// encrypt sets TLS for the connections of other processes.
func (o Options) encrypt(settings *server.Options) (err error) {
	if !o.TLS.On() {
		return nil
	}
	if settings.TLSConfig, err = o.TLS.config(o.Log); err != nil {
		return err
	}
	settings.TLS, settings.TLSTimeout = true, handshakeTimeout
	settings.TLSVerify = o.TLS.ClientCAFile != ""
	return nil
}

// complete compares the restored streams with those on disk: the server omits an unreadable
// stream, and only logs that.
func (s *Server) complete(expected []string, log *serverLog) error {
	streams, err := s.streams()
	if err != nil {
		return err
	}
	var served []string
	for _, stream := range streams {
		served = append(served, stream.Name)
		if lost := stream.State.Lost; lost != nil {
			s.options.Log.Error("messages are lost", "stream", stream.Name, "messages", len(lost.Msgs), "bytes", lost.Bytes)
		}
	}
	damaged := slices.DeleteFunc(expected, func(name string) bool { return slices.Contains(served, name) })
	if len(damaged) == 0 {
		return nil
	}
	return &datadir.UnreadableStreamsError{Streams: damaged, Why: log.lastWarning()}
}

// streams are the streams that the server has; none before it has created the first one.
func (s *Server) streams() ([]server.StreamDetail, error) {
	account, err := s.nats.JszAccount(&server.JSzOptions{Account: s.options.account(), Streams: true})
	if err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	return account.Streams, nil
}

// store is the streams in the data directory.
func (o Options) store() *datadir.Store {
	return &datadir.Store{Dir: o.Dir, Streams: o.streams(), Log: o.Log}
}

// URL is the address for other processes; empty if the server listens to this process only.
func (s *Server) URL() string {
	if s.options.Listen == "" {
		return ""
	}
	if s.options.TLS.On() {
		return "tls://" + s.nats.Addr().String()
	}
	return "nats://" + s.nats.Addr().String()
}

// Close stops the server, which takes about 10 ms for each durable consumer, and releases the
// data directory. All acknowledged messages are on disk then.
func (s *Server) Close() error {
	s.stopChecks()
	if err := s.stop(); err != nil {
		// The server still writes: no other process may get the directory.
		return err
	}
	return errors.Join(s.options.store().MarkClosed(), s.lock.Release())
}

func (s *Server) stop() error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.space.stop()
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}()
	timer := time.NewTimer(s.options.StopTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
		return nil
	case <-timer.C:
		return fmt.Errorf("stop NATS: still running after %v", s.options.StopTimeout)
	}
}
