package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/pkg/events/stream/audit"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// leastBus is the oldest NATS server with all features that Millrace uses (docs/doctor.md). The
// inspection reports a server that is older than the tested ones as a shortcoming.
const leastBus = "2.14"

// BusChecks are the names of the checks of a connected bus.
var BusChecks = []string{CheckBusTLS, CheckBusVersion, CheckJetStream, CheckBusServers, CheckBusAccount, CheckBusStore, CheckBusPayload, CheckBusAudit, CheckClockBus}

// Wanted is what the flags expect of a bus.
type Wanted struct {
	// Address is the address of the bus, without passwords, and User the login; empty: not known.
	Address, User string
	// Replicas is the number of copies of each stream.
	Replicas int
	// AuditGrade is --require-audit-grade.
	AuditGrade bool
	// Streams is how many streams an installation has.
	Streams int
	// Near: only this machine can reach the bus.
	Near bool
}

// Unreached are the finding of a failed connection to the bus, and those of the checks that
// it prevents.
func Unreached(w Wanted, err error) []Finding {
	f := found(CheckBus, Failed, "no connection to the bus at %s: %v", w.Address, err)
	switch {
	case errors.Is(err, natserr.ErrUnauthorized):
		f = found(CheckBus, Failed, "the bus at %s does not let %s in: %v", w.Address, user(w.User), err).
			so("give the login of a user of the bus: --nats-user and --nats-password-file, --nats-credentials, or nats://USER:PASSWORD@HOST:4222")
	case errors.Is(err, natserr.ErrTLS): // the error says what to do
	case errors.Is(err, natserr.ErrNoServer):
		f = found(CheckBus, Failed, "no bus answers at %s: %v", w.Address, err).so("start NATS, or correct --nats-url")
	default:
		f = f.so("check that NATS runs, and --nats-url")
	}
	return append([]Finding{f}, Unchecked("the bus is not reached", BusChecks...)...)
}

func user(name string) string {
	if name == "" {
		return "one without a name"
	}
	return name
}

// Bus runs the checks of a connected bus.
func Bus(s audit.Inspection, w Wanted) []Finding {
	return []Finding{
		found(CheckBus, OK, "%s answers, and lets %s in", place(s, w), user(w.User)),
		busTLS(s, w), busVersion(s), jetStream(s, w), busServers(s, w), busAccount(s, w), busStore(s), busPayload(s), busAudit(s, w), BusClock(s.Told),
	}
}

func place(s audit.Inspection, w Wanted) string {
	if s.Inside {
		return "the NATS server in this process"
	}
	if s.Server != "" {
		return "NATS at " + s.Server
	}
	return "NATS at " + w.Address
}

func busTLS(s audit.Inspection, w Wanted) Finding {
	switch {
	case s.Inside:
		return found(CheckBusTLS, OK, "the bus is in this process")
	case s.Encrypted:
		return found(CheckBusTLS, OK, "the connection is encrypted, and the server's certificate is trusted")
	case w.Near:
		return found(CheckBusTLS, OK, "the connection is not encrypted, and does not leave this machine")
	}
	return found(CheckBusTLS, Warning, "the connection is not encrypted: passwords and the record cross the network as they are").
		so("give NATS a certificate, and name tls:// in --nats-url (millrace bus secrets makes one)")
}

func busVersion(s audit.Inspection) Finding {
	switch old := shortcoming(s, audit.ReasonVersion); {
	case audit.Older(s.Version, leastBus):
		return found(CheckBusVersion, Failed, "NATS %s is older than %s, and lacks what Millrace uses", s.Version, leastBus).so("upgrade NATS to %s or later", leastBus)
	case old != nil:
		return found(CheckBusVersion, Warning, "%s", old.What).so("%s", old.Cure)
	}
	return found(CheckBusVersion, OK, "NATS %s", s.Version)
}

func jetStream(s audit.Inspection, w Wanted) Finding {
	switch {
	case s.Silent != nil && !s.JetStream:
		return found(CheckJetStream, Failed, "JetStream is off: %v", s.Silent).so("turn it on: jetstream {store_dir: ...} in the configuration of NATS")
	case s.Silent != nil:
		return found(CheckJetStream, Failed, "JetStream does not answer %s: %v", user(w.User), s.Silent).
			so("let this user use JetStream (deployments/nats/accounts.conf), and look whether the bus has all its servers")
	case s.StreamsExist:
		return found(CheckJetStream, OK, "JetStream answers, and has the streams of Millrace")
	}
	return found(CheckJetStream, OK, "JetStream answers; the streams of Millrace are made when it starts")
}

func busServers(s audit.Inspection, w Wanted) Finding {
	switch {
	case s.Silent != nil:
		return found(CheckBusServers, NotChecked, "JetStream does not answer")
	case s.StreamsExist && s.Copies != w.Replicas:
		return found(CheckBusServers, Failed, "the streams have %s each, and --stream-replicas says %d", copies(s.Copies), w.Replicas).
			so("start with --stream-replicas=%d, or change the streams first (nats stream edit --replicas=%d)", s.Copies, w.Replicas)
	case s.Servers < w.Replicas:
		return found(CheckBusServers, Failed, "%s, and --stream-replicas=%d needs as many", servers(s.Servers), w.Replicas).
			so("start the others as one cluster, or take --stream-replicas=1")
	case s.Online > 0 && s.Online < s.Copies:
		return found(CheckBusServers, Warning, "%d of %d copies of the streams are there and complete", s.Online, s.Copies).so("bring the missing NATS servers back")
	}
	return found(CheckBusServers, OK, "%s, with %s of each stream", servers(s.Servers), copies(s.Copies))
}

func servers(n int) string {
	if n == 1 {
		return "the bus has 1 server"
	}
	return fmt.Sprintf("the bus has %d servers", n)
}

func copies(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}

func busAccount(s audit.Inspection, w Wanted) Finding {
	a := s.Account
	left := a.MostStored - int64(max(a.Stored, a.Reserved))
	switch {
	case s.AccountError != nil:
		return found(CheckBusAccount, NotChecked, "the limits of the account are not known: %v", s.AccountError)
	case a.MostStreams > 0 && !s.StreamsExist && a.Streams+w.Streams > a.MostStreams:
		return found(CheckBusAccount, Failed, "the account may have %d streams, of which it has %d, and Millrace makes about %d more", a.MostStreams, a.Streams, w.Streams).
			so("raise the limit of streams of the account, or run fewer --controllers")
	case a.MostStored >= 0 && left < LeastDisk:
		return found(CheckBusAccount, Failed, "the account may store %s, and has %s left", size(a.MostStored), size(max(left, 0))).
			so("raise its limit of stored bytes, or keep less (--stream-max-age, --retention)")
	case a.MostStored >= 0 && a.MostStored < GoodDisk:
		return found(CheckBusAccount, Warning, "the account may store %s, which is less than twice what etcd takes by default (%s)", size(a.MostStored), size(GoodDisk)).
			so("raise its limit of stored bytes, or keep less (--stream-max-age, --retention)")
	case a.MostStored >= 0:
		return found(CheckBusAccount, OK, "the account may store %s, and has %s left", size(a.MostStored), size(left))
	}
	return found(CheckBusAccount, OK, "the account has no limit of its own, and stores %s in %d streams", size(int64(a.Stored)), a.Streams)
}

func busStore(s audit.Inspection) Finding {
	if len(s.Stores) == 0 {
		return found(CheckBusStore, NotChecked, "only the monitoring addresses of the servers tell how much they may store: --nats-monitoring")
	}
	var all []string
	worst := OK
	for _, store := range s.Stores {
		left := int64(store.Most) - int64(store.Used)
		all = append(all, fmt.Sprintf("%s has %s of %s left", store.Server, size(max(left, 0)), size(int64(store.Most))))
		switch {
		case left < LeastDisk:
			worst = Failed
		case worst == OK && (store.Most < GoodDisk || left < int64(store.Most)/4):
			worst = Warning
		}
	}
	f := found(CheckBusStore, worst, "%s", strings.Join(all, ", "))
	if worst != OK {
		f = f.so("give NATS more disk (max_file_store, --nats-max-store), or keep less (--stream-max-age, --retention); docs/retention.md says what it takes up")
	}
	return f
}

func busPayload(s audit.Inspection) Finding {
	if short := shortcoming(s, audit.ReasonPayload); short != nil {
		return found(CheckBusPayload, Warning, "%s", short.What).so("%s", short.Cure)
	}
	return found(CheckBusPayload, OK, "a message holds up to %s", size(s.Payload))
}

// busAudit checks the bus for audit grade, without the shortcomings that have a check of their
// own.
func busAudit(s audit.Inspection, w Wanted) Finding {
	if s.Silent != nil {
		return found(CheckBusAudit, NotChecked, "JetStream does not answer")
	}
	var what, cures []string
	lasting := false
	for _, short := range s.Shortcomings {
		lasting = lasting || !short.Passing
		switch short.Reason {
		case audit.ReasonVersion, audit.ReasonPayload, audit.ReasonClock:
			if !w.AuditGrade {
				continue
			}
		}
		what, cures = append(what, short.What), append(cures, short.Cure)
	}
	switch {
	case len(what) == 0:
		return found(CheckBusAudit, OK, "nothing that is acknowledged can be lost with one server")
	case w.AuditGrade && lasting:
		return found(CheckBusAudit, Failed, "the bus is not audit grade, and --require-audit-grade asks for it: %s", strings.Join(what, "; ")).so("%s", strings.Join(cures, "; "))
	}
	return found(CheckBusAudit, Warning, "the bus is not audit grade: %s", strings.Join(what, "; ")).so("for an audit: %s", strings.Join(cures, "; "))
}

// shortcoming is the one with a reason; nil if there is none.
func shortcoming(s audit.Inspection, reason string) *audit.Shortcoming {
	for i := range s.Shortcomings {
		if s.Shortcomings[i].Reason == reason {
			return &s.Shortcomings[i]
		}
	}
	return nil
}
