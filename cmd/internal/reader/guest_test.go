package reader

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// commands are all commands that read the record.
func commands() []*cobra.Command { return Commands("test") }

// TestTheReaderMayReadAll: each command that reads the record works with the bus's user that has
// only that right, on a real bus that admits no client without a login; and verify proves what
// the notary has signed.
func TestTheReaderMayReadAll(t *testing.T) {
	server := guarded(t)
	as := func(user string) string {
		return "nats://" + user + ":word-of-" + user + "@" + strings.TrimPrefix(server.URL(), "nats://")
	}
	b, err := stream.Connect(t.Context(), stream.Options{URL: as("millrace")})
	readertest.Must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	teller, err := recordtest.New(t.Context(), b, recordtest.ShopKinds, []string{recordtest.Deployments, recordtest.ReplicaSets})
	readertest.Must(t, err)
	shop, err := recordtest.OpenShop(t.Context(), teller)
	readertest.Must(t, err)
	key := vouch(t, b)
	reconcilers, err := stream.Connect(t.Context(), stream.Options{URL: as("reconcilers")})
	readertest.Must(t, err)
	t.Cleanup(func() { _ = reconcilers.Close() })
	stall := report.Stall{Controller: "garbage-collector", Condition: report.NotRead, Detail: "widgets.example.com", Since: time.Now()}
	told, err := report.Report{Replica: "a", Stalled: []report.Stall{stall}}.Encode()
	readertest.Must(t, err)
	told.Subject = subject.StatusSubject
	_, err = reconcilers.Put(t.Context(), told, "a/1")
	readertest.Must(t, err)

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
		{[]string{"why-not", "deploy/web", "-n=shop", "--controller=" + recordtest.Deployments}, report.NotRunning.Reason()},
		{[]string{"parked"}, ""},
		{[]string{"retention"}, "EV_pods"},
		{[]string{"shadow"}, ""},
		{[]string{"replay"}, "turns"},
		{[]string{"export", file}, ""},
		{[]string{"verify", "--key=" + key}, "19 messages are exactly those that were signed"},
	} {
		said, err := readertest.Output(t.Context(), commands(), append(c.args, address)...)
		if err != nil || !strings.Contains(said, c.says) {
			t.Errorf("millrace %s: %v\n%s\nwant %q", strings.Join(c.args, " "), err, said, c.says)
		}
	}
	for says, args := range map[string][]string{
		"configmaps:shop/unknown is not on record": {"why-not", "cm/unknown", "-n=shop"},
		"write millrace get KIND[,KIND...]":        {"get"},
	} {
		if _, err := readertest.Output(t.Context(), commands(), append(args, address)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("millrace %s: %v\nwant %q", strings.Join(args, " "), err, says)
		}
	}
	followed(t, shop, address)
	readertest.Must(t, teller.Close())
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
	readertest.Must(t, err)
	t.Cleanup(func() { readertest.Must(t, server.Close()) })
	return server
}

// followed runs tail while Pods are created, until it is interrupted.
func followed(t *testing.T, shop *recordtest.Shop, address string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	said, ended := &readertest.Buffer{}, make(chan error, 1)
	go func() { ended <- readertest.Run(ctx, commands(), said, "tail", address) }()
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(said.String(), "web-1-"); {
		readertest.Must(t, shop.AddPod(t.Context())) // it tells of what is made once it listens
		select {
		case err := <-ended:
			t.Fatalf("tail ended: %v\n%s", err, said.String())
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("tail tells of no Pod:\n%s", said.String())
		}
	}
	interrupt()
	readertest.Must(t, <-ended)
}

// vouch has a notary sign the record, and returns the file of its public key.
func vouch(t *testing.T, b *stream.Bus) string {
	t.Helper()
	private, public, err := notary.Generate("notary.test")
	readertest.Must(t, err)
	signer, verifier, err := notary.Signer(private)
	readertest.Must(t, err)
	readertest.Must(t, notary.New(b, notary.Options{Signer: signer, Known: note.VerifierList(verifier)}).Round(t.Context()))
	key := filepath.Join(t.TempDir(), "notary.key.pub")
	readertest.Must(t, os.WriteFile(key, []byte(public), 0o600))
	return key
}
