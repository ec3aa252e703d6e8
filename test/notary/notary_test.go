package notary

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/port"
	"github.com/millrace/millrace/pkg/events/subject"
)

// patience is the time-out of every step, even on a slow machine.
const patience = time.Minute

// site is a NATS server with the accounts of deployments/nats/accounts.conf.
type site struct {
	*testing.T
	options *server.Options
	server  *server.Server
	signer  note.Signer
	known   note.Verifiers
	signing []*notary.Notary
}

func start(t *testing.T) *site {
	for _, user := range embedded.Users {
		t.Setenv(embedded.PasswordOf(user), user)
	}
	s := &site{T: t}
	var err error
	s.options, err = server.ProcessConfigFile(filepath.Join("..", "..", "deployments", "nats", "accounts.conf"))
	must(t, err)
	s.options.Host, s.options.JetStream, s.options.StoreDir = "127.0.0.1", true, t.TempDir()
	s.options.Port, err = port.Free() // no other process takes it while the server is away
	must(t, err)
	s.options.NoLog, s.options.NoSigs = true, true
	private, _, err := notary.Generate("notary.test")
	must(t, err)
	signer, verifier, err := notary.Signer(private)
	must(t, err)
	s.signer, s.known = signer, note.VerifierList(verifier)
	s.serve()
	t.Cleanup(s.stop)
	s.provide()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// provide runs the provisioner, which creates the notary's stream, until the test ends.
func (s *site) provide() {
	b := s.as("provisioner")
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Provide(ctx, []string{"c"}); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(func() { cancel(); running.Wait() })
}

// serve starts the server, each time on the same port.
func (s *site) serve() {
	s.Helper()
	var err error
	s.server, err = server.NewServer(s.options)
	must(s.T, err)
	s.server.Start()
	if !s.server.ReadyForConnections(patience) {
		s.Fatal("the server does not listen")
	}
}

func (s *site) stop() { s.server.Shutdown(); s.server.WaitForShutdown() }

func (s *site) as(user string) *stream.Bus {
	s.Helper()
	b, err := stream.Connect(s.Context(), stream.Options{URL: "nats://" + user + ":" + user + "@" + s.server.Addr().String()})
	must(s.T, err)
	s.Cleanup(func() { _ = b.Close() })
	return b
}

// sign runs a notary until the test ends, or until the test calls stop.
func (s *site) sign(b *stream.Bus) (stop func()) {
	n := notary.New(b, notary.Options{Signer: s.signer, Known: s.known, Every: 50 * time.Millisecond})
	s.signing = append(s.signing, n)
	return servicetest.Run(s, "notary", n.Run)
}

// tell stores n deltas of pods, and turns.
func tell(t *testing.T, b *stream.Bus, from, n int) {
	t.Helper()
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	must(t, err)
	defer a.Close()
	for i := from; i < from+n; i++ {
		ref := events.Ref{Kind: "pods", Namespace: "default", Name: fmt.Sprint("pod-", i)}
		m := subject.Message(events.Delta{Kind: "pods", Ref: ref, Op: events.Is, UID: "uid", ResourceVersion: fmt.Sprint(i + 1), Form: kinds.Full, ContentType: kinds.JSON, Body: []byte("{}"), At: time.Now(), Epoch: uint64(i)})
		must(t, a.Append(t.Context(), m))
		turn, err := events.EncodeJSON(events.Turn{Controller: "c", Because: "it is time"}, events.Trace{})
		must(t, err)
		turn.Subject = subject.Turn("c", events.LaneWrite, events.Key{Name: fmt.Sprint("key-", i)})
		_, err = b.Store(t.Context(), turn, 0)
		must(t, err)
	}
	must(t, a.Flush(t.Context()))
}

// proven waits until everything is signed, and returns that report.
func (s *site) proven(b *stream.Bus) *notary.Report {
	s.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r, err := notary.Verify(s.Context(), b, notary.Trust{Known: s.known})
		must(s.T, err)
		missing := 0
		for _, one := range r.Streams {
			missing += one.Messages - one.Proven
		}
		if missing == 0 {
			return r
		}
		if time.Now().After(deadline) {
			for _, n := range s.signing {
				s.Error(n.Healthy())
			}
			s.Fatalf("not everything is signed: %+v", r)
		}
	}
}

// TestTheNotarysRights: with the rights of deployments/nats/accounts.conf two notaries sign everything, and
// can do nothing else. The exported file verifies, and so does a bus into which it was imported.
func TestTheNotarysRights(t *testing.T) {
	s := start(t)
	all, one, other := s.as("millrace"), s.as("notary"), s.as("notary")
	must(t, errors.Join(all.EnsureKind(t.Context(), kinds.Pods.Kind), all.EnsureController(t.Context(), "c")))
	s.sign(one)
	s.sign(other)
	for i := range 5 {
		tell(t, all, 20*i, 20)
	}
	if r := s.proven(all); len(r.Findings) > 0 {
		t.Errorf("found: %v", r.Findings)
	}
	if err := errors.Join(one.Healthy(), other.Healthy()); err != nil {
		t.Errorf("something was forbidden: %v", err)
	}

	var out bytes.Buffer
	_, err := archive.Export(t.Context(), all, &out, archive.Selection{})
	must(t, err)
	f, err := archive.New("exported", bytes.NewReader(out.Bytes()), int64(out.Len()))
	must(t, err)
	elsewhere := start(t).as("millrace")
	for _, part := range f.Streams() {
		if part.Name != subject.WakeStream {
			must(t, elsewhere.Import(t.Context(), f, part.Name, part.Kind))
		}
	}
	if r := s.proven(elsewhere); len(r.Findings) > 0 {
		t.Errorf("found where it was imported: %v", r.Findings)
	}

	key := events.Key{Name: "k"}
	for name, try := range map[string]func() error{
		"store a turn": func() error {
			_, err := one.Put(t.Context(), events.Message{Subject: subject.Turn("c", events.LaneWrite, key)}, "id")
			return err
		},
		"tell a delta": func() error {
			_, err := one.Put(t.Context(), events.Message{Subject: subject.Mark("pods")}, "id")
			return err
		},
		"set a wake":               func() error { return one.Schedule(t.Context(), events.Wake{Controller: "c", Key: key}) },
		"make streams":             func() error { return one.EnsureKind(t.Context(), kinds.ConfigMaps.Kind) },
		"remove those of a kind":   func() error { return one.DeleteKind(t.Context(), kinds.Pods.Name) },
		"import something as ours": func() error { return one.Import(t.Context(), f, "OUTCOME_x", nil) },
	} {
		var refusal *natserr.Refusal
		if err := try(); !errors.As(err, &refusal) && !strings.Contains(fmt.Sprint(err), "no such stream") {
			t.Errorf("it may %s: %v", name, err)
		}
	}
}

// TestTheNotarySurvives a restart of the server and its own. A log that is created anew is a break that every
// verification reports.
func TestTheNotarySurvives(t *testing.T) {
	s := start(t)
	all := s.as("millrace")
	must(t, errors.Join(all.EnsureKind(t.Context(), kinds.Pods.Kind), all.EnsureController(t.Context(), "c")))
	stop := s.sign(s.as("notary"))
	tell(t, all, 0, 20)
	s.proven(all)
	s.stop()
	s.serve()
	all = s.as("millrace")
	tell(t, all, 20, 20)
	if r := s.proven(all); len(r.Findings) > 0 {
		t.Errorf("found after a restart of the server: %v", r.Findings)
	}
	stop()
	tell(t, all, 40, 20)
	s.sign(s.as("notary"))
	if r := s.proven(all); len(r.Findings) > 0 {
		t.Errorf("found after a restart of the notary: %v", r.Findings)
	}

	must(t, errors.Join(all.DeleteKind(t.Context(), kinds.Pods.Name), all.EnsureKind(t.Context(), kinds.Pods.Kind)))
	tell(t, all, 60, 20)
	r := s.proven(all)
	if len(r.Findings) != 1 || r.Findings[0].Stream != "EV_pods" || !strings.Contains(r.Findings[0].What, "made anew") {
		t.Errorf("a log that was made anew: %v", r.Findings)
	}
}
