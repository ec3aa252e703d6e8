package restore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// A record is imported beside other imports alone.
func TestBesideWhatARecordIsImported(t *testing.T) {
	t.Parallel()
	was := jstest.Of(jetstream.StreamConfig{Name: "TURN_c", Metadata: map[string]string{importedKey: "{}"}}, 0)
	a := &jstest.Server{Refuses: map[string]error{}, There: []*jetstream.StreamInfo{was, was}}
	on := a.Connected(conn.Options{})
	if err := MayImport(t.Context(), on); err != nil {
		t.Errorf("beside what was imported: %v", err)
	}
	a.There = []*jetstream.StreamInfo{was, jstest.Of(jetstream.StreamConfig{Name: "EV_pods"}, 0), jstest.Of(jetstream.StreamConfig{Name: "EV_nodes"}, 0)}
	if err := MayImport(t.Context(), on); !errors.Is(err, ErrServed) || !strings.Contains(err.Error(), "the stream EV_pods") {
		t.Errorf("beside what services made: %v", err)
	}
	a.Refuses["list streams"] = errors.New("away")
	if err := MayImport(t.Context(), on); err == nil || errors.Is(err, ErrServed) {
		t.Errorf("where that cannot be told: %v", err)
	}
}

// What is imported goes to the subjects of its stream, in a stream of a name that ours have, and says
// what it was.
func TestWhatIsImported(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]string{"EV_pods": "ev.pods.>", "TURN_c": "turn.c.>", "OUTCOME_c": "outcome.c.>", "SHADOW_c": "shadow.c.>", "NOTARY": "notary.>"} {
		kind := (*kinds.Kind)(nil)
		if stream == "EV_pods" {
			kind = &kinds.Pods.Kind
		}
		if got := importSubject(stream); got != want || !importable(stream, kind) {
			t.Errorf("%s has the subjects %s, and may be imported: %t", stream, got, importable(stream, kind))
		}
	}
	if importable("TURN_"+strings.Repeat("a", 254), nil) || !importable("TURN_"+strings.Repeat("a", 253), nil) {
		t.Error("a name is bounded otherwise than a controller's")
	}
	for text, header := range map[string]map[string][]string{
		"": {}, "NATS/1.0\r\nA: 1\r\nB: 2\r\nB: 3\r\n\r\n": {"B": {"2", "3"}, "A": {"1"}},
	} {
		if got := string(rawHeader(header)); got != text {
			t.Errorf("%v is written %q, want %q", header, got, text)
		}
	}
	now, made, begins := time.Unix(9, 0).UTC(), time.Unix(3, 0).UTC(), time.Unix(5, 0).UTC()
	for _, whole := range []uint64{0, 7} {
		was := bus.State{Now: now, Created: made, Whole: whole, Begins: begins}
		c := readOnly(settings.Policy{Replicas: 1}, "TURN_c", nil, was)
		is := bus.State{Begins: time.Unix(8, 0)}
		Original(&is, c.Metadata)
		if !is.Now.Equal(now) || !is.Created.Equal(made) || is.Whole != whole || is.Begins.Equal(begins) != (whole > 0) || !c.AllowDirect || !c.DenyPurge || c.MaxAge != 0 {
			t.Errorf("the imported state is %+v, want %+v; the stream is configured as %+v", is, was, c)
		}
	}
	is := bus.State{Whole: 3, Created: made}
	if Original(&is, map[string]string{"other": "x"}); is.Whole != 3 || !is.Created.Equal(made) {
		t.Errorf("the state of a stream that was not imported has become %+v", is)
	}
	if c := readOnly(settings.Policy{Replicas: 1}, "EV_pods", &kinds.Pods.Kind, bus.State{}); c.AllowDirect || c.Metadata["millrace.kind"] == "" {
		t.Errorf("a log is made as %+v", c)
	}
}
