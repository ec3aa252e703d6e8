package stream

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/certs"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// Options say which server to use, and how the streams are kept.
type Options struct {
	// URL is the address of the server, or several separated by commas. It is
	// not used when Server is set.
	URL string
	// Server is a server in this process ([embedded.Serve]).
	Server *embedded.Server
	// Name of the connection, as the server's monitoring shows it.
	Name string

	// Monitoring are the URLs of the servers' monitoring endpoints; only they tell when a
	// server syncs ([Bus.Audit]). Over https the bus sends them the user and password of this
	// connection, and trusts only the authorities that it trusts for NATS.
	Monitoring []string

	// User connects with the password in PasswordFile, which is read again for each connection;
	// empty: the URL names the user.
	User, PasswordFile string
	// Credentials is a file with the user's JWT and nkey seed; empty: none.
	Credentials string
	// CAFile holds the authorities of the server's certificate, as PEM; empty: those of the machine. CAData
	// is the same as text. Both require TLS. CertFile and KeyFile are the client's certificate and its key;
	// empty: the client has none. All files are read again for each connection.
	CAFile, CertFile, KeyFile string
	CAData                    []byte
	// InboxPrefix replaces "_INBOX" where users may subscribe to their own inbox only. For
	// [Users] the user of the URL determines it, and APIPrefix and Guest too.
	InboxPrefix string
	// Guest reads without consumers, which a read-only user must not create.
	Guest bool
	// Backups reads a stream from end to end from a backup, at a fraction of the cost of
	// reading it message by message. It needs a right that no service has, to
	// $JS.API.STREAM.SNAPSHOT.* and $JS.SNAPSHOT.ACK.>; a user without it reads as usual.
	Backups bool
	// APIPrefix replaces "$JS.API" where JetStream is imported from another
	// account.
	APIPrefix string

	// user is the connection's user. asks tells that the provisioner creates this process's
	// streams and consumers.
	user   string
	orders bool

	// AtOnce makes [natserr.ErrNoServer] the error of [Connect] when every address refuses the
	// connection or has an unknown name. Without it Connect retries until its context
	// ends.
	AtOnce bool

	// Replicas of every stream; 0 means 1.
	Replicas int
	// LogAge is how long logs, turns and outcomes are kept; 0 means 24 h.
	LogAge time.Duration
	// LogBytes bounds each of those streams; 0 means unbounded. The server reserves as much, so
	// the sum over all streams must fit its store.
	LogBytes int64
	// Retention overrides LogAge and LogBytes by name of a kind or controller; a zero field
	// means the default. A controller's retention holds for its turns and for its outcomes,
	// each.
	Retention map[string]bus.Retention
	// Began is when the process began; zero means now. When processes want different retentions
	// for a stream, that of the process that began last holds.
	Began time.Time

	// Timeout bounds requests whose context has no deadline; 0 means 5 s.
	Timeout time.Duration
	// Log receives disconnects and refusals; nil: nothing is logged.
	Log *slog.Logger
}

const (
	defaultLogAge  = 24 * time.Hour
	defaultTimeout = 5 * time.Second
	// connectTimeout bounds the first connection and each attempt afterwards.
	connectTimeout = 5 * time.Second
	// reconnectWait is short because a failover should take less than a second; the jitter
	// spreads the reconnects of many services.
	reconnectWait   = 100 * time.Millisecond
	reconnectJitter = 100 * time.Millisecond
)

func (o Options) withDefaults() (Options, error) {
	o.Replicas = cmp.Or(o.Replicas, 1)
	o.LogAge = cmp.Or(o.LogAge, defaultLogAge)
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Began = cmp.Or(o.Began, time.Now())
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(o.URL != "" || o.Server != nil, "neither a URL nor a server in this process")
	check(o.Replicas == 1 || o.Replicas == 3 || o.Replicas == 5, "%d replicas, not 1, 3 or 5", o.Replicas)
	check(o.LogAge >= time.Second, "a log age of %v, less than 1 s", o.LogAge)
	check(o.LogBytes >= 0, "%d log bytes", o.LogBytes)
	check(o.Timeout > 0, "a timeout of %v", o.Timeout)
	wrong = append(wrong, o.policy().CheckRetention())
	if err := errors.Join(wrong...); err != nil {
		return o, fmt.Errorf("stream options: %w", err)
	}
	return o.forUser(), nil
}

// policy is how the streams are kept.
func (o Options) policy() settings.Policy {
	return settings.Policy{Replicas: o.Replicas, Age: o.LogAge, Bytes: o.LogBytes, Retention: o.Retention, Began: o.Began}
}

// forUser fills in the options that follow from the connection's user, if it is one of
// [Users].
func (o Options) forUser() Options {
	o.user = o.User
	first, _, _ := strings.Cut(o.URL, ",")
	if u, err := url.Parse(strings.TrimSpace(first)); err == nil && u.User != nil && o.user == "" {
		o.user = u.User.Username()
	}
	login, ok := access.LoginOf(o.user)
	if !ok {
		return o
	}
	o.orders, o.Guest = login.Asks, o.Guest || login.Guest
	o.APIPrefix, o.InboxPrefix = cmp.Or(o.APIPrefix, login.API), cmp.Or(o.InboxPrefix, login.Inbox)
	return o
}

func (o Options) nats(on *conn.Conn) []nats.Option {
	options := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(embedded.PingEvery),
		nats.MaxPingsOutstanding(2),
		// No buffering while the connection is down: the publisher gets the error, and decides
		// anew.
		nats.ReconnectBufSize(-1),
		nats.SyncQueueLen(backlog), // the library makes room for so many at once, for each listener
		// The server refuses a password for a while during its rotation; that must not end the
		// connection for good.
		nats.IgnoreAuthErrorAbort(),
	}
	options = append(options, on.Handlers()...)
	if o.Server != nil {
		options = append(options, nats.InProcessServer(o.Server))
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.User != "" {
		options = append(options, nats.UserInfoHandler(o.login))
	}
	if len(o.CAData) > 0 {
		options = append(options, nats.ClientTLSConfig(nil, func() (*x509.CertPool, error) { return certs.Authorities(o.CAData, "the text") }))
	}
	if o.CAFile != "" {
		options = append(options, nats.RootCAs(o.CAFile))
	}
	if o.CertFile != "" {
		options = append(options, nats.ClientCert(o.CertFile, o.KeyFile))
	}
	if o.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	return options
}

// login reads the password. Without one it names no user, and a server with users refuses that.
func (o Options) login() (user, password string) {
	text, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		o.Log.Debug("there is no password for the bus", "error", err)
		return "", ""
	}
	return o.User, strings.TrimSpace(string(text))
}

// ownLogin is the user and password of this process on the bus, if it has them.
func (o Options) ownLogin() (user, password string) {
	if o.User != "" {
		return o.login()
	}
	first, _, _ := strings.Cut(o.URL, ",")
	if u, err := url.Parse(strings.TrimSpace(first)); err == nil && u.User != nil {
		password, _ = u.User.Password()
		return u.User.Username(), password
	}
	return "", ""
}
