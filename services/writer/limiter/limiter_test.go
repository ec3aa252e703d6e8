package limiter

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/internal/podlog"
	"github.com/millrace/millrace/services/writer/limits"
)

// limited returns the limiter of "rs", which may create three pods an hour. Outcomes of turn 3 do not
// count.
func limited(t *testing.T, b bus.Bus) *Limiter {
	t.Helper()
	set, err := limits.Parse([]byte(`{apiVersion: millrace.io/v1alpha1, kind: WriteLimits, limits: [{name: pods, verbs: [create], kinds: [pods], max: 3, within: 1h}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Bus: b, Controller: "rs", Limits: set, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Valid: func(m events.Message) error {
			if strings.HasSuffix(m.Subject, "c") {
				return errors.New("not signed")
			}
			return nil
		},
	})
}

// stores stores the outcome of a turn that made some writes.
func stores(t *testing.T, b bus.Bus, name string, turn uint64, writes int) {
	t.Helper()
	key := events.Key{Namespace: "ns", Name: name}
	m, err := events.EncodeJSON(events.Outcome{Controller: "rs", Key: key, Lane: events.LaneWrite, Turn: turn, WriteCounts: []events.WriteCount{{Limit: "pods", Writes: writes}}}, events.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	m.Subject = subject.Outcome("rs", events.LaneWrite, key)
	if _, err := b.Put(t.Context(), m, strconv.FormatUint(turn, 10)); err != nil {
		t.Fatal(err)
	}
}

func creates(n int) (t events.Turn) {
	t.Controller = "rs"
	for range n {
		t.Commands = append(t.Commands, events.Command{Verb: events.VerbCreate, Kind: kinds.Pods.Name, Namespace: "ns"})
	}
	return t
}

// The outcomes within the reach of a limit count, those of the past and those that no writer has
// signed do not. A turn waits until they are counted, and is not judged without.
func TestOutcomesOnRecordCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := podlog.Recorded(t)
		defer b.Close()
		stores(t, b, "a", 1, 3)
		time.Sleep(2 * time.Hour) // virtual
		stores(t, b, "b", 2, 1)
		stores(t, b, "c", 3, 3)
		l := limited(t, b)
		turn, at := creates(3), events.Message{Sequence: 9}
		if _, err := l.Judge(t.Context(), at, turn, nil); err == nil || !strings.Contains(err.Error(), "count the writes of rs: outcomes are counted up to 0 of 3") {
			t.Errorf("before the outcomes are counted: %v, want an error that says so", err)
		}
		state, err := b.StreamState(t.Context(), l.stream)
		if err != nil {
			t.Fatal(err)
		}
		if before, err := l.lastBefore(t.Context(), state, time.Now().Add(-time.Hour)); before != 1 || err != nil {
			t.Errorf("counting begins after outcome %d, %v", before, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.Run(ctx); close(ended) }()
		held, err := l.Judge(t.Context(), at, turn, nil)
		if r := held[2]; err != nil || len(held) != 1 || r.Code != events.HeldCode || r.Reason != events.Held || r.Cause != "pods" {
			t.Errorf("of three creates these are held: %+v, %v; want the third, by the limit pods", held, err)
		}
		results := []events.Result{{Command: 0, Status: events.Applied}, {Command: 1, Status: events.Applied}}
		if counts := l.Written(at, results); !reflect.DeepEqual(counts, []events.WriteCount{{Limit: "pods", Writes: 2}}) {
			t.Errorf("the writes count as %+v, want 2 for the limit pods", counts)
		}
		stop()
		<-ended
	})
}

// A controller without limits has no limiter, which holds and counts nothing.
func TestAControllerWithoutLimits(t *testing.T) {
	l := New(Config{Controller: "rs"})
	held, err := l.Judge(t.Context(), events.Message{}, creates(1), nil)
	if l != nil || held != nil || err != nil || l.Names() != nil || l.Written(events.Message{}, nil) != nil {
		t.Errorf("without limits these are held: %v, %v; want none", held, err)
	}
	b := podlog.Recorded(t)
	defer b.Close()
	if names := limited(t, b).Names(); !reflect.DeepEqual(names, []string{"pods"}) {
		t.Errorf("the limits are %v", names)
	}
}
