package events_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// aDelta is a sealed delta of a pod with a body of the given size.
func aDelta(size int) (events.Ref, events.Message) {
	ref := events.Ref{Kind: "pods", Namespace: "default", Name: "web-6d5f7c9b4-x2x7p"}
	m := events.EncodeDelta(events.Delta{
		Kind: "pods", Ref: ref, Op: events.Is, UID: "5a4bb4ec-1b9c-4a4c-9f3a-5b7c7e0a7a11", ResourceVersion: "81723",
		Generation: 3, Epoch: 1, At: time.Unix(1700000000, 0), Form: kinds.Full, ContentType: kinds.Protobuf,
		By:     events.Manager{Name: "kubelet", Operation: "Update", Subresource: "status", Time: time.Unix(1700000000, 0)},
		Trace:  events.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		Census: events.Census{Known: true, Objects: 17, Digest: 1 << 60}, After: events.Link{Sequence: 811, Sum: "0123456789abcdef"},
		Body: make([]byte, size),
	})
	for i := range m.Data {
		m.Data[i] = byte(rand.Uint32())
	}
	m.Subject, m.Sequence, m.Stream = "ev.pods.3.default.web-6d5f7c9b4-x2x7p", 812, "EV_pods"
	return ref, events.Seal(m)
}

// flip flips one bit, of the subject, a header's name or value, or the body.
func flip(m events.Message, bit int) (events.Message, int) {
	m.Header, m.Data = maps.Clone(m.Header), slices.Clone(m.Data)
	turn := func(text string) (string, bool) {
		if bit >= 8*len(text) {
			bit -= 8 * len(text)
			return text, false
		}
		b := []byte(text)
		b[bit/8] ^= 1 << (bit % 8)
		return string(b), true
	}
	var done bool
	if m.Subject, done = turn(m.Subject); done {
		return m, 0
	}
	for _, key := range slices.Sorted(maps.Keys(m.Header)) {
		values := m.Header[key]
		if other, done := turn(key); done {
			delete(m.Header, key)
			m.Header[other] = values
			return m, 0
		}
		if other, done := turn(values[0]); done {
			m.Header[key] = []string{other}
			return m, 0
		}
	}
	if bit < 8*len(m.Data) {
		m.Data[bit/8] ^= 1 << (bit % 8)
		return m, 0
	}
	return m, bit - 8*len(m.Data)
}

// TestEveryFlippedBitIsFound: 10,000 bits at random, and every bit of a small message.
func TestEveryFlippedBitIsFound(t *testing.T) {
	check := func(ref events.Ref, m events.Message, bit int) {
		damaged, beyond := flip(m, bit)
		if beyond > 0 {
			t.Fatalf("bit %d is %d bits beyond the message", bit, beyond)
		}
		if d, err := events.DecodeDelta(ref, damaged); !errors.Is(err, events.ErrDamaged) {
			t.Fatalf("with bit %d flipped the message is decoded as %+v, %v; want ErrDamaged", bit, d, err)
		}
	}
	size := func(m events.Message) int { // in bits
		n := len(m.Subject) + len(m.Data)
		for key, values := range m.Header {
			n += len(key) + len(values[0])
		}
		return 8 * n
	}
	ref, m := aDelta(3000)
	if _, err := events.DecodeDelta(ref, m); err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		check(ref, m, rand.IntN(size(m)))
	}
	ref, m = aDelta(10)
	for bit := range size(m) {
		check(ref, m, bit)
	}
}

func TestWhatTheBusDoesToAMessageIsNoDamage(t *testing.T) {
	ref, m := aDelta(100)
	for name, change := range map[string]func(*events.Message){
		"adds headers of its own": func(m *events.Message) { m.Header["Nats-Expected-Last-Sequence"] = []string{"7"} },
		"leaves the body out": func(m *events.Message) {
			m.Header["Nats-Msg-Size"], m.Data = []string{"100"}, nil
		},
	} {
		changed := m
		changed.Header = maps.Clone(m.Header)
		change(&changed)
		if _, err := events.DecodeDelta(ref, changed); err != nil {
			t.Errorf("%s: decode: %v, want no error", name, err)
		}
	}
	cut := m
	cut.Data = nil
	if err := events.Verify(cut); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("a message without the body that it had: %v, want ErrDamaged", err)
	}
	set := events.Seal(events.Message{Subject: "sched.c.0.pods.default.a", Header: map[string][]string{"Content-Type": {kinds.JSON}}, Data: []byte("{}")})
	set.Subject = "wake.c.0.pods.default.a"
	if err := events.Verify(set); err != nil {
		t.Errorf("a wake that has fired: %v", err)
	}
}

func TestHeadersThatTheWireTidiesAreNoDamage(t *testing.T) {
	m := events.Seal(events.Message{Subject: "s", Header: map[string][]string{"A": {"two\nlines\t "}, "B": {""}}})
	m.Header["A"] = []string{"two lines"}
	delete(m.Header, "B")
	if err := events.Verify(m); err != nil {
		t.Error(err)
	}
}

func TestMessagesOfOlderVersionsHaveNoSums(t *testing.T) {
	ref, m := aDelta(10)
	delete(m.Header, events.HeaderSum)
	if err := events.Verify(m); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("a message with one sum of two: %v, want ErrDamaged", err)
	}
	delete(m.Header, events.HeaderBodySum)
	if _, err := events.DecodeDelta(ref, m); err != nil || m.Sealed() {
		t.Errorf("a message without sums: %v, want no error", err)
	}
	if err := events.DecodeJSON(events.Message{Sequence: 3, Data: []byte("{}")}, &events.Turn{}); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("a message without any header: %v, want ErrDamaged", err)
	}
}

func BenchmarkSum(b *testing.B) {
	_, m := aDelta(3000)
	plain := m
	plain.Header = maps.Clone(m.Header)
	delete(plain.Header, events.HeaderSum)
	delete(plain.Header, events.HeaderBodySum)
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			events.Seal(plain)
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if err := events.Verify(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
