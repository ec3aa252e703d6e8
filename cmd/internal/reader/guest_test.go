package reader

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestTheReaderMayReadAll: each command that reads the record works with the bus's user that has
// only that right, on a real bus that admits no client without a login; and verify proves what
// the notary has signed.
func TestTheReaderMayReadAll(t *testing.T) {
	server := guarded(t)
	as := func(user string) string {
		return "nats://" + user + ":word-of-" + user + "@" + strings.TrimPrefix(server.URL(), "nats://")
	}
	b, err := stream.Connect(t.Context(), stream.Options{URL: as("millrace")})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	teller, err := recordtest.New(t.Context(), b, recordtest.ShopKinds, []string{recordtest.Deployments, recordtest.ReplicaSets})
	must(t, err)
	shop, err := recordtest.OpenShop(t.Context(), teller)
	must(t, err)
	key := vouch(t, b)
	reconcilers, err := stream.Connect(t.Context(), stream.Options{URL: as("reconcilers")})
	must(t, err)
	t.Cleanup(func() { _ = reconcilers.Close() })
	stall := events.Stall{Controller: "garbage-collector", Condition: events.NotRead, Detail: "widgets.example.com", Since: time.Now()}
	report, err := events.Report{Replica: "a", Stalled: []events.Stall{stall}}.Encode()
	must(t, err)
	report.Subject = subject.StatusSubject
	_, err = reconcilers.Put(t.Context(), report, "a/1")
	must(t, err)

	dir := t.TempDir()
	file := filepath.Join(dir, "shop.millrace")
	address := "--nats-url=" + as(embedded.GuestUser)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"history", "deploy/web", "-n=shop"}, "kubectl-scale"},
		{[]string{"get", "pods", "-n=shop"}, "web-1"},
		{[]string{"why", "rs/web-1", "-n=shop"}, "kubectl-scale"},
		{[]string{"why-not", "deploy/web", "-n=shop", "--controller=" + recordtest.Deployments}, "last write turn"},
		{[]string{"why-not", "deploy/web", "-n=shop"}, "last write turn"},
		{[]string{"diff", "deploy/web", "-n=shop", "--from=0s"}, ""},
		{[]string{"explain", recordtest.Deployments + "/1"}, ""},
		{[]string{"lag"}, "garbage-collector has work and has decided nothing since"},
		{[]string{"why-not", "deploy/web", "-n=shop", "--controller=" + recordtest.Deployments}, events.NotRunning.Reason()},
		{[]string{"parked"}, ""},
		{[]string{"retention"}, "EV_pods"},
		{[]string{"shadow"}, ""},
		{[]string{"replay"}, "turns"},
		{[]string{"export", file}, ""},
		{[]string{"verify", "--key=" + key}, "19 messages are exactly those that were signed"},
	} {
		said, err := command(t.Context(), append(c.args, address)...)
		if err != nil || !strings.Contains(said, c.says) {
			t.Errorf("millrace %s: %v\n%s\nwant %q", strings.Join(c.args, " "), err, said, c.says)
		}
	}
	for says, args := range map[string][]string{
		"configmaps:shop/unknown is not on record": {"why-not", "cm/unknown", "-n=shop"},
		"write millrace get KIND[,KIND...]":        {"get"},
	} {
		if _, err := command(t.Context(), append(args, address)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("millrace %s: %v\nwant %q", strings.Join(args, " "), err, says)
		}
	}
	followed(t, shop, address)
	must(t, teller.Close())
}

// guarded is a bus on which each user has a password.
func guarded(t *testing.T) *embedded.Server {
	t.Helper()
	for _, user := range embedded.Users {
		t.Setenv(embedded.PasswordOf(user), "word-of-"+user)
	}
	server, err := embedded.Serve(embedded.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Accounts: filepath.Join("..", "..", "..", "deployments", "nats", "accounts.conf"),
	})
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	return server
}

// followed runs tail while Pods are created, until it is interrupted.
func followed(t *testing.T, shop *recordtest.Shop, address string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	said, ended := &heard{}, make(chan error, 1)
	go func() { ended <- run(ctx, said, "tail", address) }()
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(said.text(), "web-1-"); {
		must(t, shop.AddPod(t.Context())) // it tells of what is made once it listens
		select {
		case err := <-ended:
			t.Fatalf("tail ended: %v\n%s", err, said.text())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("tail tells of no Pod:\n%s", said.text())
		}
	}
	interrupt()
	must(t, <-ended)
}

// heard is the output of a running command.
type heard struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (h *heard) Write(text []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said.Write(text)
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// vouch has a notary sign the record, and returns the file of its public key.
func vouch(t *testing.T, b *stream.Bus) string {
	t.Helper()
	private, public, err := notary.Generate("notary.test")
	must(t, err)
	signer, verifier, err := notary.Signer(private)
	must(t, err)
	must(t, notary.New(b, notary.Options{Signer: signer, Known: note.VerifierList(verifier)}).Round(t.Context()))
	key := filepath.Join(t.TempDir(), "notary.key.pub")
	must(t, os.WriteFile(key, []byte(public), 0o600))
	return key
}

// command runs a command, and returns its output.
func command(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := run(ctx, &out, args...)
	return out.String(), err
}

// run runs a command, and writes its output to out.
func run(ctx context.Context, out io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, c := range Commands("test") {
		if c.Name() != args[0] {
			continue
		}
		c.SetOut(out)
		c.SetErr(out)
		c.SetArgs(args[1:])
		return c.ExecuteContext(ctx)
	}
	return os.ErrNotExist
}
