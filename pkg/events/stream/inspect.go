package stream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/audit"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Audit checks the bus, and returns the reasons why an audit cannot rest on its record; none
// when all is well. The metric millrace_bus_audit_grade has the last result.
//
// A server reports only to its monitoring endpoint when it syncs, so without
// [Options.Monitoring], and without a server in this process, that is unknown and a
// shortcoming.
func (b *Bus) Audit(ctx context.Context) ([]audit.Shortcoming, error) {
	seen, err := b.collectFacts(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the bus: %w", err)
	}
	found := seen.Judge()
	for _, reason := range audit.Reasons {
		good := 1.0
		if slices.ContainsFunc(found, func(s audit.Shortcoming) bool { return s.Reason == reason }) {
			good = 0
		}
		b.on.Stats.Audit.WithLabelValues(reason).Set(good)
	}
	return found, nil
}

func (b *Bus) collectFacts(ctx context.Context) (audit.Facts, error) {
	seen := audit.Facts{
		Replicas: b.options.Replicas, Version: b.on.NATS.ConnectedServerVersion(), Payload: b.on.NATS.MaxPayload(),
		Sync: map[string]time.Duration{},
	}
	if s := b.options.Server; s != nil {
		v, err := s.Varz()
		if err != nil {
			return seen, err
		}
		seen.Add(v)
	}
	monitor := audit.Monitor{CAFile: b.options.CAFile, CAData: b.options.CAData, Login: b.options.ownLogin}
	for _, endpoint := range b.options.Monitoring {
		v, err := monitor.Varz(ctx, endpoint)
		if err != nil {
			seen.SilentEndpoints = append(seen.SilentEndpoints, err.Error())
			continue
		}
		seen.Add(v)
	}
	var asked time.Time
	var info *jetstream.StreamInfo
	err := natserr.Retry(ctx, b.on.Log, "look at its settings", func() (err error) { // the servers may be electing a leader
		asked = time.Now()
		info, err = b.on.Info(ctx, subject.WakeStream) // every installation has it
		return err
	})
	switch {
	case errors.Is(err, bus.ErrNoStream):
		return seen, nil // the streams will be created with our settings
	case err != nil:
		return seen, err
	}
	seen.StreamsExist, seen.Replicas = true, info.Config.Replicas
	seen.ServerTime = audit.ClockReading{At: info.TimeStamp, Asked: asked, Answered: time.Now()}
	if info.Cluster != nil && info.Config.Replicas > 1 {
		seen.Online = 1
		for _, peer := range info.Cluster.Replicas {
			if peer.Current && !peer.Offline {
				seen.Online++
			}
		}
	}
	return seen, nil
}

// accountTimeout bounds the request for the account's limits, which the server may leave
// unanswered.
const accountTimeout = 3 * time.Second

// errNoAccountInfo: the users of deployments/nats/accounts.conf import JetStream's API without the
// request for the account's limits.
var errNoAccountInfo = errors.New("this user of the bus may not ask for it")

// Inspect asks the bus, until the context ends. The inspection says what did not answer.
func (b *Bus) Inspect(ctx context.Context) audit.Inspection {
	s := audit.Inspection{Server: b.on.NATS.ConnectedUrlRedacted(), Inside: b.options.Server != nil}
	s.JetStream, _ = b.on.NATS.ConnectedServerJetStream()
	if _, err := b.on.NATS.TLSConnectionState(); err == nil {
		s.Encrypted = true
	}
	seen, err := b.collectFacts(ctx)
	s.Silent = err
	s.Version, s.Payload, s.Told, s.Stores = seen.Version, seen.Payload, seen.ServerTime, seen.Stores
	s.StreamsExist, s.Copies, s.Online = seen.StreamsExist, seen.Replicas, seen.Online
	s.Servers = max(b.servers(), seen.Servers, seen.Online)
	if s.Silent == nil {
		s.Shortcomings = seen.Judge()
	}
	s.Account, s.AccountError = b.account(ctx)
	return s
}

// servers is the number of servers that the connection knows: each server announces those of
// its cluster, by their numeric addresses.
func (b *Bus) servers() int {
	if b.on.NATS.ConnectedClusterName() == "" {
		return 1
	}
	all, heard := b.on.NATS.Servers(), len(b.on.NATS.DiscoveredServers())
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
func (b *Bus) account(ctx context.Context) (a audit.Account, err error) {
	if _, ours := access.LoginOf(b.options.user); ours {
		return a, errNoAccountInfo
	}
	ctx, done := context.WithTimeout(ctx, accountTimeout)
	defer done()
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	conn, err := nats.Connect(b.options.URL, append(b.options.nats(b.on), nats.NoReconnect(), nats.Timeout(accountTimeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refuse(err) }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) {}))...)
	if err != nil {
		return a, fmt.Errorf("connect to ask about the account: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if b.on.APIPrefix != "" {
		js, err = jetstream.NewWithAPIPrefix(conn, b.on.APIPrefix)
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
	return audit.Account{
		Stored: tier.Store, Reserved: tier.ReservedStore, MostStored: tier.Limits.MaxStore,
		Streams: tier.Streams, MostStreams: tier.Limits.MaxStreams,
	}, nil
}
