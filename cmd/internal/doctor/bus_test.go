package doctor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/audit"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// TestBus: each property in which a bus can differ from the wanted one has a finding.
func TestBus(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		name  string
		spoil func(*audit.Inspection, *Wanted)
		check string
		state State
		says  string
	}{
		{"well", nil, CheckBus, OK, "tls://a:4222…lets millrace in"},
		{"encrypted", nil, CheckBusTLS, OK, ""},
		{"in this process", func(s *audit.Inspection, _ *Wanted) { s.Inside, s.Encrypted = true, false }, CheckBusTLS, OK, "this process"},
		{"on this machine", func(s *audit.Inspection, w *Wanted) { s.Encrypted, w.Near = false, true }, CheckBusTLS, OK, "this machine"},
		{"not encrypted", func(s *audit.Inspection, _ *Wanted) { s.Encrypted = false }, CheckBusTLS, Warning, "passwords…tls://"},
		{"new enough", nil, CheckBusVersion, OK, "2.15.2"},
		{"too old", func(s *audit.Inspection, _ *Wanted) { s.Version = "2.11.4" }, CheckBusVersion, Failed, "2.11.4…2.14"},
		{"not tested", func(s *audit.Inspection, _ *Wanted) {
			s.Version, s.Shortcomings = "2.14.0", []audit.Shortcoming{{Reason: audit.ReasonVersion, What: "NATS 2.14.0 is older", Cure: "upgrade"}}
		}, CheckBusVersion, Warning, "older…upgrade"},
		{"JetStream with streams", nil, CheckJetStream, OK, "has the streams"},
		{"JetStream without", func(s *audit.Inspection, _ *Wanted) { s.StreamsExist = false }, CheckJetStream, OK, "are made"},
		{"no JetStream", func(s *audit.Inspection, _ *Wanted) { s.JetStream, s.Silent = false, errors.New("no responders") }, CheckJetStream, Failed, "off…store_dir"},
		{"not for this user", func(s *audit.Inspection, _ *Wanted) { s.Silent = errors.New("no responders") }, CheckJetStream, Failed, "does not answer millrace…accounts.conf"},
		{"servers of a silent bus", func(s *audit.Inspection, _ *Wanted) { s.Silent = errors.New("no responders") }, CheckBusServers, NotChecked, ""},
		{"three servers", nil, CheckBusServers, OK, "3 servers, with 3 copies"},
		{"one server", func(s *audit.Inspection, w *Wanted) { s.Servers, s.Copies, s.Online, w.Replicas = 1, 1, 0, 1 }, CheckBusServers, OK, "1 server, with 1 copy"},
		{"too few", func(s *audit.Inspection, _ *Wanted) { s.StreamsExist, s.Servers = false, 1 }, CheckBusServers, Failed, "1 server…--stream-replicas=1"},
		{"other copies", func(s *audit.Inspection, w *Wanted) { w.Replicas = 1 }, CheckBusServers, Failed, "3 copies…--stream-replicas=3"},
		{"one is away", func(s *audit.Inspection, _ *Wanted) { s.Online = 2 }, CheckBusServers, Warning, "2 of 3"},
		{"no limit", nil, CheckBusAccount, OK, "no limit"},
		{"a limit", func(s *audit.Inspection, _ *Wanted) {
			s.Account = audit.Account{MostStored: 20 * gib, Stored: gib, Reserved: 2 * gib}
		}, CheckBusAccount, OK, "20 GiB…18 GiB left"},
		{"a low limit", func(s *audit.Inspection, _ *Wanted) { s.Account = audit.Account{MostStored: gib} }, CheckBusAccount, Warning, "1 GiB"},
		{"a limit that is reached", func(s *audit.Inspection, _ *Wanted) {
			s.Account = audit.Account{MostStored: 20 * gib, Stored: 20 * gib}
		}, CheckBusAccount, Failed, "0 B left"},
		{"too few streams", func(s *audit.Inspection, _ *Wanted) {
			s.StreamsExist, s.Account = false, audit.Account{MostStored: -1, MostStreams: 10}
		}, CheckBusAccount, Failed, "10 streams…about 90"},
		{"streams that are made", func(s *audit.Inspection, _ *Wanted) {
			s.Account = audit.Account{MostStored: -1, MostStreams: 95, Streams: 90}
		}, CheckBusAccount, OK, "90 streams"},
		{"may not ask", func(s *audit.Inspection, _ *Wanted) { s.AccountError = errors.New("may not") }, CheckBusAccount, NotChecked, "may not"},
		{"no store tells", nil, CheckBusStore, NotChecked, "--nats-monitoring"},
		{"a store", func(s *audit.Inspection, _ *Wanted) { s.Stores = []audit.Store{store("a", gib)} }, CheckBusStore, OK, "a has 19 GiB of 20 GiB left"},
		{"a store that fills up", func(s *audit.Inspection, _ *Wanted) { s.Stores = []audit.Store{store("a", gib), store("b", 18*gib)} }, CheckBusStore, Warning, "b has 2 GiB"},
		{"a store that is full", func(s *audit.Inspection, _ *Wanted) {
			s.Stores = []audit.Store{store("a", 21*gib), store("b", 18*gib)}
		}, CheckBusStore, Failed, "a has 0 B…more disk"},
		{"large messages", nil, CheckBusPayload, OK, "8 MiB"},
		{"small messages", func(s *audit.Inspection, _ *Wanted) {
			s.Shortcomings = []audit.Shortcoming{{Reason: audit.ReasonPayload, What: "small", Cure: "set max_payload"}}
		}, CheckBusPayload, Warning, "max_payload"},
		{"audit grade", nil, CheckBusAudit, OK, "nothing"},
		{"not audit grade", func(s *audit.Inspection, _ *Wanted) {
			s.Shortcomings = []audit.Shortcoming{{Reason: audit.ReasonReplicas, What: "one copy", Cure: "run three"}, {Reason: audit.ReasonClock, What: "clocks", Cure: "NTP", Passing: true}}
		}, CheckBusAudit, Warning, "one copy…run three"},
		{"not audit grade, which is asked for", func(s *audit.Inspection, w *Wanted) {
			w.AuditGrade, s.Shortcomings = true, []audit.Shortcoming{{Reason: audit.ReasonPayload, What: "small", Cure: "set max_payload"}}
		}, CheckBusAudit, Failed, "--require-audit-grade…small"},
		{"not audit grade for the moment", func(s *audit.Inspection, w *Wanted) {
			w.AuditGrade, s.Shortcomings = true, []audit.Shortcoming{{Reason: audit.ReasonServers, What: "one is away", Cure: "bring it back", Passing: true}}
		}, CheckBusAudit, Warning, "away"},
		{"what has a check of its own", func(s *audit.Inspection, _ *Wanted) {
			s.Shortcomings = []audit.Shortcoming{{Reason: audit.ReasonClock, What: "clocks", Cure: "NTP", Passing: true}}
		}, CheckBusAudit, OK, ""},
		{"a clock", nil, CheckClockBus, OK, ""},
		{"a clock that is ahead", func(s *audit.Inspection, _ *Wanted) { s.Told.At = now.Add(time.Minute) }, CheckClockBus, Warning, "ahead"},
	} {
		s := audit.Inspection{
			Server: "tls://a:4222", Version: "2.15.2", Encrypted: true, JetStream: true, StreamsExist: true, Copies: 3, Online: 3, Servers: 3, Payload: 8 << 20,
			Told: audit.ClockReading{At: now, Asked: now, Answered: now}, Account: audit.Account{MostStored: -1, MostStreams: -1},
		}
		w := Wanted{Address: "tls://a:4222", User: "millrace", Replicas: 3, Streams: 90}
		if c.spoil != nil {
			c.spoil(&s, &w)
		}
		all := Bus(s, w)
		if len(all) != 1+len(BusChecks) {
			t.Errorf("%s: %d findings, want one of each check", c.name, len(all))
		}
		for _, f := range all {
			if f.Check == c.check {
				expect(t, []expectation{{c.name, f, c.state, c.says}})
			}
		}
	}
}

// store is a store of 20 GiB.
func store(server string, used uint64) audit.Store {
	return audit.Store{Server: server, Used: used, Most: 20 << 30}
}

func TestUnreached(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"nothing listens": {fmt.Errorf("connect: %w", natserr.ErrNoServer), "start NATS…--nats-url"},
		"not let in":      {fmt.Errorf("connect: %w", natserr.ErrUnauthorized), "does not let me in…--nats-password-file"},
		"not trusted":     {fmt.Errorf("%w: name the authority with --nats-ca-file", natserr.ErrTLS), "--nats-ca-file"},
		"silent":          {errors.New("i/o timeout"), "timeout…--nats-url"},
	} {
		all := Unreached(Wanted{Address: "nats://a:4222", User: "me"}, c.err)
		expect(t, []expectation{{name, all[0], Failed, c.says}})
		if len(all) != 1+len(BusChecks) {
			t.Errorf("%s: %d findings, want one of each check", name, len(all))
		}
		for _, f := range all[1:] {
			if f.State != NotChecked {
				t.Errorf("%s: %s is %s", name, f.Check, f.State)
			}
		}
	}
}
