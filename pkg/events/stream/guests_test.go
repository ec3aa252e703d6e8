package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// recorded has a bus with pods that were changed, and a turn.
func recorded(t *testing.T, b *stream.Bus) {
	t.Helper()
	if err := errors.Join(b.EnsureKind(t.Context(), kinds.Pods.Kind), b.EnsureController(t.Context(), "c")); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(t.Context(), b, 0, 300); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Store(t.Context(), events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "a"}), Data: []byte("{}")}, 0); err != nil {
		t.Fatal(err)
	}
}

// guest connects who may only read.
func guest(t *testing.T, address string) *stream.Bus {
	t.Helper()
	return connect(t, stream.Options{URL: address, Guest: true, APIPrefix: embedded.GuestPrefix})
}

// TestAGuestReadsEverything: a guest reads every stream and every passage like a user who may
// do everything.
func TestAGuestReadsEverything(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", GuestPassword: "look"})
	b := connect(t, stream.Options{Server: s})
	recorded(t, b)
	compareReaders(t, b, guest(t, guestURL(s.URL())))
	expectPrompt(t, b, guest(t, guestURL(s.URL())))
}

func guestURL(url string) string {
	return "nats://" + embedded.GuestUser + ":look@" + url[len("nats://"):]
}

func compareReaders(t *testing.T, b, g *stream.Bus) {
	t.Helper()
	all, err := g.Kinds(t.Context())
	if err != nil || !slices.Equal(all, []kinds.Kind{kinds.Pods.Kind}) {
		t.Errorf("the kinds are %v (%v)", all, err)
	}
	if names, err := g.Controllers(t.Context()); err != nil || !slices.Equal(names, []string{"c"}) {
		t.Errorf("the controllers are %v (%v)", names, err)
	}
	if _, err := g.Consumers(t.Context(), subject.TurnStream("c")); err != nil {
		t.Errorf("consumers: %v", err)
	}
	log := subject.LogStream("pods")
	middle, there, err := b.At(t.Context(), log, 150)
	if err != nil || !there {
		t.Fatal(there, err)
	}
	for name, p := range map[string]bus.Passage{
		"all": {Stream: log}, "a part": {Stream: log, From: 20, To: 170}, "since": {Stream: log, Since: middle.Time},
		"of one": {Stream: log, Subject: middle.Subject},
		"turns":  {Stream: subject.TurnStream("c")}, "nothing": {Stream: log, From: 301},
	} {
		if want, got := passage(t, b, p), passage(t, g, p); want != got || name == "all" && len(got) < 1000 {
			t.Errorf("%s: a guest reads\n%s\nand others\n%s", name, got, want)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), streamtest.Patience)
	defer stop()
	got := 0
	err = g.Follow(ctx, log, 290, func(batch []events.Message) error {
		if got += len(batch); got == 11 {
			if _, err := publish(t.Context(), b, 300, 2); err != nil {
				return err
			}
		}
		if got >= 13 {
			return errRead
		}
		return nil
	})
	if !errors.Is(err, errRead) {
		t.Errorf("followed %d messages: %v", got, err)
	}
	other := podDelta("pod-7", 0).Subject
	found, err := g.LastOf(t.Context(), log, []string{middle.Subject, other, "ev.pods.0.default.none"})
	if err != nil || len(found) != 2 || found[middle.Subject].Sequence == 0 || found[other].Sequence == 0 {
		t.Errorf("of three subjects a guest finds %d, %v; want the two that have messages", len(found), err)
	}
	if _, _, err := g.Last(t.Context(), "EV_none", "x"); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("a stream that is not there: %v", err)
	}
}

// expectPrompt: a guest that follows gets messages long before its own polling would find them,
// one by one and many at once; and a refused message, which it hears too, costs nothing.
func expectPrompt(t *testing.T, b, g *stream.Bus) {
	t.Helper()
	const messages, most, bound = 24, 2, 30 * time.Second
	begun := time.Now()
	for _, name := range []string{subject.LogStream("pods"), subject.TurnStream("c")} {
		at, err := g.StreamState(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan uint64)
		ctx, stop := context.WithTimeout(t.Context(), streamtest.Patience)
		followed := make(chan error, 1)
		go func() {
			followed <- g.Follow(ctx, name, at.Last+1, func(batch []events.Message) error {
				for _, m := range batch {
					got <- m.Sequence
				}
				return nil
			})
		}()
		for last := at.Last; last < at.Last+messages; {
			n := 1 + last%most
			if err := say(t.Context(), b, name, last, n); err != nil {
				t.Fatal(err)
			}
			for ; n > 0; n-- {
				last++
				if sequence := <-got; sequence != last {
					t.Errorf("%s: message %d comes after %d", name, sequence, last-1)
				}
			}
		}
		stop()
		if err := <-followed; err != nil {
			t.Errorf("%s: follow as a guest: %v", name, err)
		}
	}
	// By himself he would look every two seconds, which comes to almost 100 s.
	if took := time.Since(begun); took > bound {
		t.Errorf("the guests read what was stored after %v, too late to have heard of it", took)
	}
}

// say stores some messages behind a sequence, after one that is refused.
func say(ctx context.Context, b *stream.Bus, name string, after, n uint64) error {
	if _, ok := subject.KindOfStream(name); ok {
		_, err := publish(ctx, b, int(after), int(n))
		return err
	}
	turn := events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: fmt.Sprint("said-", after)}), Data: []byte("{}")}
	if _, err := b.Store(ctx, turn, 12345); !errors.Is(err, bus.ErrOvertaken) {
		return fmt.Errorf("a turn on a wrong sequence: %w", err)
	}
	at := uint64(0)
	for range n {
		stored, err := b.Store(ctx, turn, at)
		if err != nil {
			return err
		}
		at = stored
	}
	return nil
}

func passage(t *testing.T, b *stream.Bus, p bus.Passage) (text string) {
	t.Helper()
	err := b.Read(t.Context(), p, func(batch []events.Message) error {
		for _, m := range batch {
			text += fmt.Sprintln(m.Sequence, m.Subject, m.Time.UnixNano(), m.Header, string(m.Data))
		}
		return nil
	})
	if err != nil {
		t.Errorf("read %+v: %v", p, err)
	}
	return text
}

// TestAGuestChangesNothing: the server refuses everything that a guest publishes, and no
// message is stored; also when a guest names a subject of a stream as its reply subject.
func TestAGuestChangesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", GuestPassword: "look"})
	b := connect(t, stream.Options{Server: s})
	recorded(t, b)
	expectPowerless(t, b, guestURL(s.URL()))
	for _, wrong := range []string{"reader:guess@", "admin:look@", "reader@"} {
		if conn, err := nats.Connect("nats://" + wrong + s.URL()[len("nats://"):]); err == nil {
			conn.Close()
			t.Errorf("%s is let in", wrong)
		}
	}
}

func expectPowerless(t *testing.T, b *stream.Bus, address string) {
	t.Helper()
	streams := []string{subject.LogStream("pods"), subject.TurnStream("c"), subject.OutcomeStream("c"), subject.WakeStream}
	stand := func() (text string) {
		for _, name := range streams {
			at, err := b.StreamState(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			consumers, err := b.Consumers(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			text += fmt.Sprintln(name, at.First, at.Last, at.Messages, at.Created, at.Keeps, consumers)
		}
		return text
	}
	before := stand()
	conn, err := nats.Connect(address, nats.CustomInboxPrefix(access.Inbox(userOf(address))), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	turn := subject.Turn("c", events.LaneWrite, events.Key{Name: "forged"})
	for _, prefix := range []string{"$JS.API.", embedded.GuestPrefix + "."} {
		for _, question := range []string{
			"STREAM.CREATE.X", "STREAM.UPDATE.EV_pods", "STREAM.DELETE.TURN_c", "STREAM.PURGE.TURN_c", "STREAM.MSG.DELETE.TURN_c",
			"STREAM.SNAPSHOT.TURN_c", "STREAM.LEADER.STEPDOWN.EV_pods", "CONSUMER.CREATE.TURN_c", "CONSUMER.CREATE.TURN_c.w",
			"CONSUMER.DURABLE.CREATE.TURN_c.w", "CONSUMER.DELETE.TURN_c.w", "CONSUMER.MSG.NEXT.TURN_c.w", "CONSUMER.PAUSE.TURN_c.w",
		} {
			body := []byte(`{"stream_name":"TURN_c","config":{"durable_name":"w","name":"w","deliver_subject":"` + turn + `","ack_policy":"none"}}`)
			if answer, err := conn.Request(prefix+question, body, 50*time.Millisecond); err == nil {
				t.Errorf("%s%s is answered: %s", prefix, question, answer.Data)
			}
		}
	}
	for _, to := range []string{turn, subject.Delta(podRef("forged")), "sched.x.y", "$JS.ACK.TURN_c.w.1.1.1.1.0", "peers.writers"} {
		if err := conn.Publish(to, []byte("{}")); err != nil {
			t.Error(err)
		}
	}
	// An answer on a subject that is stored would be a message there.
	for _, question := range []string{"STREAM.INFO.TURN_c", "STREAM.LIST", "STREAM.MSG.GET.EV_pods"} {
		if err := conn.PublishRequest(embedded.GuestPrefix+"."+question, turn, []byte(`{"seq":1}`)); err != nil {
			t.Error(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	// What had been asked has been answered when this has.
	if _, err := conn.Request(embedded.GuestPrefix+".STREAM.INFO.TURN_c", nil, streamtest.Patience); err != nil {
		t.Errorf("a guest may not ask how a stream stands: %v", err)
	}
	if after := stand(); after != before {
		t.Errorf("a guest has changed\n%s\nto\n%s", before, after)
	}
}

// userOf is the user of an address.
func userOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.User.Username()
}

func podRef(name string) events.Ref {
	return events.Ref{Kind: "pods", Namespace: "default", Name: name}
}

// expectShadow: a shadow reads everything, publishes its findings once it has a stream, and can
// do nothing else.
func expectShadow(t *testing.T, b *stream.Bus, url string) {
	t.Helper()
	shadow := guest(t, url)
	compareReaders(t, b, shadow)
	made := make(chan error, 1)
	go func() { made <- shadow.EnsureShadow(t.Context(), "c") }()
	finding := events.Message{Subject: subject.Finding("c", events.Key{Name: "a"}), Data: []byte("{}")}
	if _, err := shadow.Put(t.Context(), finding, "1"); err == nil {
		t.Error("a finding is stored, and there is no stream of them")
	}
	if err := b.EnsureShadow(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Errorf("the shadow does not see that it has a stream: %v", err)
	}
	if n, err := shadow.Put(t.Context(), finding, "1"); err != nil || n != 1 {
		t.Errorf("a finding is stored as message %d: %v", n, err)
	}
	expectPowerless(t, b, url)
	if err := shadow.Healthy(); err != nil {
		t.Errorf("the shadow was refused something: %v", err)
	}
}
