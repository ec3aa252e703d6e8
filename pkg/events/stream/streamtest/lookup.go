package streamtest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// testLastOf: a lookup of many subjects returns the same as single lookups, whatever their
// number and the size of their messages.
func testLastOf(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	stream := subject.TurnStream(controller)
	at := func(i int) string { return subject.Turn(controller, events.LaneWrite, key(fmt.Sprint("key-", i))) }
	var subjects []string
	for i := range 1500 {
		subjects = append(subjects, at(i))
	}
	k.lastOf(stream, subjects, nil)
	want := map[string]string{}
	for i := 0; i < len(subjects); i += 7 {
		body := fmt.Sprint("of ", i)
		n, err := b.Store(k.ctx, turn(fmt.Sprint("key-", i), "old"), 0)
		k.must(err)
		_, err = b.Store(k.ctx, turn(fmt.Sprint("key-", i), body), n)
		k.must(err)
		want[at(i)] = body
	}
	k.lastOf(stream, subjects, want)
	k.lastOf(stream, subjects[:1], map[string]string{at(0): "of 0"})
	k.lastOf(stream, subjects[1:2], nil)
	k.lastOf(stream, []string{at(7), at(8), at(7)}, map[string]string{at(7): "of 7"})
	k.lastOf(stream, nil, nil)
	if _, err := b.LastOf(k.ctx, subject.TurnStream("absent"), subjects); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("LastOf a stream that is not there: %v, want ErrNoStream", err)
	}
}

// testLastOfLarge: messages that exceed one answer of the server are found, too.
func testLastOfLarge(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	body := string(bytes.Repeat([]byte("large "), 20<<10))
	want, subjects := map[string]string{}, []string(nil)
	for i := range 40 {
		m := turn(fmt.Sprint("key-", i), body)
		_, err := b.Store(k.ctx, m, 0)
		k.must(err)
		want[m.Subject] = body
		subjects = append(subjects, m.Subject, m.Subject+"-which-has-none")
	}
	k.lastOf(subject.TurnStream(controller), subjects, want)
}

// testLastOfLog: the lookup works on a log, too.
func testLastOfLog(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	k.append(k.appender(kinds.Pods.Kind), k.pod("a", 1), k.pod("b", 2), k.pod("a", 3))
	at := func(pod string) string { return subject.Delta(podRef(pod)) }
	want := map[string]string{at("a"): `{"version":3}`, at("b"): `{"version":2}`}
	k.lastOf(subject.LogStream("pods"), []string{at("a"), at("b"), at("c")}, want)
}

// lastOf compares a lookup of many subjects with the wanted bodies, and with single lookups.
func (k *kit) lastOf(stream string, subjects []string, want map[string]string) {
	k.Helper()
	found, err := k.bus.LastOf(k.ctx, stream, subjects)
	k.must(err)
	if len(found) != len(want) {
		k.Errorf("of %d subjects there are %d messages, want %d", len(subjects), len(found), len(want))
	}
	for at, body := range want {
		m := found[at]
		alone, _, err := k.bus.Last(k.ctx, stream, at)
		k.must(err)
		switch {
		case string(m.Data) != body || m.Subject != at || m.Stream != stream:
			k.Errorf("the last of %s is %.80q of %s in %s, want %.80q", at, m.Data, m.Subject, m.Stream, body)
		case m.Sequence != alone.Sequence || !m.Time.Equal(alone.Time) || fmt.Sprint(m.Header) != fmt.Sprint(alone.Header):
			k.Errorf("looked up together it is %d of %v with %v, and alone %d of %v with %v", m.Sequence, m.Time, m.Header, alone.Sequence, alone.Time, alone.Header)
		}
	}
}
