package stream

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
)

// Options say which server to use, and how the streams are kept.
type Options struct {
	// URL is the address of the server, or several separated by commas. It is
	// not used when Server is set.
	URL string
	// Server is a server in this process ([Serve]).
	Server *Server
	// Name of the connection, as the server's operator sees it.
	Name string

	// Monitoring are the URLs of the servers' monitoring endpoints; only they tell
	// when a server syncs ([Bus.Audit]). With https the user and password of this
	// connection are shown, to a server of the authorities that the bus is trusted by.
	Monitoring []string

	// User comes with the password in PasswordFile, which is read again at each
	// connection; empty: the URL says who comes.
	User, PasswordFile string
	// Credentials is a file with the user's JWT and nkey seed; empty: none.
	Credentials string
	// CAFile holds the authorities of the server's certificate, as PEM; empty: those of
	// the machine. CAData is the same as text. Both require TLS. CertFile and KeyFile are the client's certificate and
	// its key; empty: it has none. All are read again at each connection.
	CAFile, CertFile, KeyFile string
	CAData                    []byte
	// InboxPrefix replaces "_INBOX" where users may listen to their own inbox
	// only. For [Users] it is chosen by the user of the URL, as APIPrefix and Guest are.
	InboxPrefix string
	// Guest reads without consumers, which a user that may only read must not make.
	Guest bool
	// Backups has streams that are read from end to end be read from a backup of them, at a
	// fraction of what it costs to have them message by message. It takes a right that no
	// service has, to $JS.API.STREAM.SNAPSHOT.* and $JS.SNAPSHOT.ACK.>; who is refused it
	// reads as the others do.
	Backups bool
	// APIPrefix replaces "$JS.API" where JetStream is imported from another
	// account.
	APIPrefix string

	// user is the one of the URL, and asks tells that the provisioner makes its streams
	// and consumers.
	user string
	asks bool

	// AtOnce makes [ErrNoServer] the error of [Connect] when every address refuses the
	// connection or has an unknown name. Without it Connect retries until its context
	// ends.
	AtOnce bool

	// Replicas of every stream; 0 means 1.
	Replicas int
	// LogAge is how long logs, turns and outcomes are kept; 0 means 24 h.
	LogAge time.Duration
	// LogBytes bounds each of those streams; 0 means unbounded. The server sets
	// as much aside, so the sum over all streams must fit its store.
	LogBytes int64
	// Retention is how much is kept of what belongs to a kind or a controller, by its
	// name, where that is not LogAge and LogBytes, as a zero field means. A
	// controller's is that of its turns and of its outcomes, each.
	Retention map[string]bus.Retention
	// Began is when the process began; zero means now. Of those who want a stream
	// kept otherwise, the one that began last is heard.
	Began time.Time

	// Timeout bounds requests whose context has no deadline; 0 means 5 s.
	Timeout time.Duration
	// Log tells of disconnects and refusals; nil: nothing is logged.
	Log *slog.Logger
}

const (
	defaultLogAge  = 24 * time.Hour
	defaultTimeout = 5 * time.Second
	// connectTimeout bounds the first connection and each attempt afterwards.
	connectTimeout = 5 * time.Second
	// reconnectWait is short because a failover is meant to take less than a
	// second; the jitter keeps a fleet of services from arriving at once.
	reconnectWait   = 100 * time.Millisecond
	reconnectJitter = 100 * time.Millisecond
	// pingEvery notices a connection to a server that was stopped or cut off after
	// two unanswered pings: no later than the others choose a new leader.
	pingEvery = 2 * time.Second
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
	wrong = append(wrong, o.checkRetention())
	if err := errors.Join(wrong...); err != nil {
		return o, fmt.Errorf("stream options: %w", err)
	}
	return o.introduced(), nil
}

// introduced are the options for the user that comes, where that is one of [Users].
func (o Options) introduced() Options {
	o.user = o.User
	first, _, _ := strings.Cut(o.URL, ",")
	if u, err := url.Parse(strings.TrimSpace(first)); err == nil && u.User != nil && o.user == "" {
		o.user = u.User.Username()
	}
	login, ok := access.LoginOf(o.user)
	if !ok {
		return o
	}
	o.asks, o.Guest = login.Asks, o.Guest || login.Guest
	o.APIPrefix, o.InboxPrefix = cmp.Or(o.APIPrefix, login.API), cmp.Or(o.InboxPrefix, login.Inbox)
	return o
}

func (o Options) nats(b *Bus) []nats.Option {
	options := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(2),
		// Nothing is kept for later while the connection is down: the
		// publisher is told, and decides anew.
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(b.onError),
		nats.DisconnectErrHandler(b.onDisconnect),
		nats.ReconnectHandler(b.onReconnect),
		// A password that is being changed is refused for a while; that must
		// not end the connection for good.
		nats.IgnoreAuthErrorAbort(),
	}
	if o.Server != nil {
		options = append(options, nats.InProcessServer(o.Server.nats))
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.User != "" {
		options = append(options, nats.UserInfoHandler(o.login))
	}
	if len(o.CAData) > 0 {
		options = append(options, nats.ClientTLSConfig(nil, func() (*x509.CertPool, error) { return authorities(o.CAData, "the text") }))
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

// login reads the password. Without one no user is named, which a server with users refuses.
func (o Options) login() (user, password string) {
	text, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		o.Log.Debug("there is no password for the bus", "error", err)
		return "", ""
	}
	return o.User, strings.TrimSpace(string(text))
}

// seconds writes a time to live as the server wants it, rounded up.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%ds", int64(math.Ceil(max(d, time.Second).Seconds())))
}
