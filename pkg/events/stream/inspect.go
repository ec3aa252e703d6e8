package stream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/access"
)

// Inspection describes a bus to one of its users: the facts to know before Millrace runs on it.
type Inspection struct {
	// Server is the address of the answering server, and Version its version.
	Server, Version string
	// Encrypted reports whether the connection is; Inside that the server runs in this process.
	Encrypted, Inside bool
	// JetStream reports whether the server announces it. Silent is the reason why JetStream's API
	// does not answer this user; nil: it does.
	JetStream bool
	Silent    error
	// StreamsExist reports whether Millrace's streams exist, Copies their number of replicas, now or
	// later, and Online how many replicas of a stream are online and current; 0: not known.
	StreamsExist   bool
	Copies, Online int
	// Servers is the number of servers of the bus, as far as this user can tell.
	Servers int
	// Payload is the size of the largest message.
	Payload int64
	// Told is the server's clock.
	Told ClockReading
	// Account is the limits of the account, valid if Unasked is nil.
	Account      Account
	AccountError error
	// Stores are those of the servers that report them.
	Stores []Store
	// Shortcomings are what [Bus.Audit] finds.
	Shortcomings []Shortcoming
}

// Account is the storage and streams that an account has and may have; a limit below 0 means
// none.
type Account struct {
	Stored, Reserved uint64
	MostStored       int64
	Streams          int
	MostStreams      int
}

// Store is the storage that a server uses and may use, in bytes.
type Store struct {
	Server     string
	Used, Most uint64
}

// accountTimeout bounds the request for the account's limits, which the server may leave
// unanswered.
const accountTimeout = 3 * time.Second

// errNoAccountInfo: the users of deployments/nats/accounts.conf import JetStream's API without the
// request for the account's limits.
var errNoAccountInfo = errors.New("this user of the bus may not ask for it")

// Inspect asks the bus, until the context ends. The inspection says what did not answer.
func (b *Bus) Inspect(ctx context.Context) Inspection {
	s := Inspection{Server: b.conn.ConnectedUrlRedacted(), Inside: b.options.Server != nil}
	s.JetStream, _ = b.conn.ConnectedServerJetStream()
	if _, err := b.conn.TLSConnectionState(); err == nil {
		s.Encrypted = true
	}
	seen, err := b.collectFacts(ctx)
	s.Silent = err
	s.Version, s.Payload, s.Told, s.Stores = seen.version, seen.payload, seen.serverTime, seen.stores
	s.StreamsExist, s.Copies, s.Online = seen.streamsExist, seen.replicas, seen.online
	s.Servers = max(b.servers(), seen.servers, seen.online)
	if s.Silent == nil {
		s.Shortcomings = seen.judge()
	}
	s.Account, s.AccountError = b.account(ctx)
	return s
}

// servers is the number of servers that the connection knows: each server announces those of
// its cluster, by their numeric addresses.
func (b *Bus) servers() int {
	if b.conn.ConnectedClusterName() == "" {
		return 1
	}
	all, heard := b.conn.Servers(), len(b.conn.DiscoveredServers())
	given := len(all) - heard
	for _, address := range all {
		u, err := url.Parse(address)
		if err != nil {
			continue
		}
		if _, err := netip.ParseAddr(u.Hostname()); err != nil {
			return max(given, heard) // the addresses with names are among the announced ones
		}
	}
	return given + heard
}

// account asks for the limits of the account. The server may refuse the request, and a refusal
// counts for the whole connection ([Bus.Healthy]): so account asks on a connection of its own.
func (b *Bus) account(ctx context.Context) (a Account, err error) {
	if _, ours := access.LoginOf(b.options.user); ours {
		return a, errNoAccountInfo
	}
	ctx, done := context.WithTimeout(ctx, accountTimeout)
	defer done()
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	conn, err := nats.Connect(b.options.URL, append(b.options.nats(b), nats.NoReconnect(), nats.Timeout(accountTimeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refuse(err) }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) {}))...)
	if err != nil {
		return a, fmt.Errorf("connect to ask about the account: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if b.options.APIPrefix != "" {
		js, err = jetstream.NewWithAPIPrefix(conn, b.options.APIPrefix)
	}
	if err != nil {
		return a, fmt.Errorf("ask about the account: %w", err)
	}
	info, err := js.AccountInfo(ctx)
	if errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) {
		return a, errNoAccountInfo
	}
	if err != nil {
		return a, fmt.Errorf("ask about the account: %w", err)
	}
	tier := info.Tier
	if of, tiered := info.Tiers[fmt.Sprintf("R%d", b.options.Replicas)]; tiered {
		tier = of
	}
	return Account{
		Stored: tier.Store, Reserved: tier.ReservedStore, MostStored: tier.Limits.MaxStore,
		Streams: tier.Streams, MostStreams: tier.Limits.MaxStreams,
	}, nil
}
