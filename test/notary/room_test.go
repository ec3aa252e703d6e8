package notary

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// flood stores versions of one ConfigMap of 1 MiB, numbered from `from`, at 50 MB/s: the server checks five
// times a second whether its store is almost full.
func flood(ctx context.Context, b *stream.Bus, from, versions int) error {
	a, err := b.Append(ctx, kinds.ConfigMaps.Name)
	if err != nil {
		return err
	}
	defer a.Close()
	body := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	var after events.Link
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for i := range versions {
		<-pace.C
		ref := events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: "tenant", Name: "large"}
		m := events.Seal(subject.Message(events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "uid", ResourceVersion: fmt.Sprint(from + i), Form: kinds.Full, ContentType: kinds.JSON, Body: body, At: time.Now(), After: after}))
		if err := errors.Join(a.Append(ctx, m), a.Flush(ctx)); err != nil {
			return fmt.Errorf("version %d: %w", i, err)
		}
		after = events.Link{Sequence: a.Last(), Sum: m.Get(events.HeaderSum)}
	}
	return nil
}

// TestRoomThatIsMadeIsNoFinding: the server discards old messages of a log to make room, and a service then
// raises the bound of the log again. verify reports nothing at any moment, and the pages have the lowest
// bound of the log in bytes.
func TestRoomThatIsMadeIsNoFinding(t *testing.T) {
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir(), MaxStore: 96 << 20})
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	connect := func(began time.Time) *stream.Bus {
		b, err := stream.Connect(t.Context(), stream.Options{Server: server, Began: began})
		must(t, err)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	private, _, err := notary.Generate("notary.test")
	must(t, err)
	signer, verifier, err := notary.Signer(private)
	must(t, err)
	known := note.VerifierList(verifier)
	b := connect(time.Now())
	must(t, b.EnsureKind(t.Context(), kinds.ConfigMaps.Kind))
	signing := notary.New(b, notary.Options{Signer: signer, Known: known})
	verify := func() *notary.Report {
		t.Helper()
		r, err := notary.Verify(t.Context(), b, notary.Trust{Known: known})
		must(t, err)
		for _, f := range r.Findings {
			t.Errorf("found: %v", f)
		}
		return r
	}
	must(t, flood(t.Context(), b, 1, 60))
	must(t, signing.Round(t.Context()))
	flooded := make(chan error, 1)
	go func() { flooded <- flood(t.Context(), b, 61, 120) }()
	for over := false; !over; {
		select {
		case err := <-flooded:
			must(t, err)
			over = true
		default:
			verify() // what the server has discarded since then has no signature
		}
	}
	state, err := b.StreamState(t.Context(), tenantsLog)
	must(t, err)
	if state.Bounded.Bytes == 0 || state.First == 1 {
		t.Fatalf("no room was made: %+v", state)
	}
	must(t, connect(time.Now().Add(time.Minute)).EnsureKind(t.Context(), kinds.ConfigMaps.Kind))
	if state, err = b.StreamState(t.Context(), tenantsLog); err != nil || state.Keeps.Bytes != 0 || state.Bounded.Bytes == 0 {
		t.Errorf("a service that bounds nothing leaves %+v (%v)", state, err)
	}
	verify()
	must(t, signing.Round(t.Context()))
	if r := verify(); r.Streams[0].Head.Keeps.Bytes != state.Bounded.Bytes || r.Streams[0].Proven != r.Streams[0].Messages {
		t.Errorf("the page says %+v, want the bound %+v", r.Streams[0], state.Bounded)
	}
}

var tenantsLog = subject.LogStream(kinds.ConfigMaps.Name)
