package space

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
)

// A store is checked more often the less is left of it, so that it cannot fill in
// between.
func TestHowOftenAStoreIsLookedAt(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for used, want := range map[uint64]time.Duration{
		0: 5 * time.Second, 80 * gib / 100: 200 * time.Millisecond, gib: 200 * time.Millisecond, 2 * gib: 200 * time.Millisecond,
	} {
		if got := UntilScarce(used, gib); got != want {
			t.Errorf("with %d bytes of a GiB it is checked again in %v, want %v", used, got, want)
		}
	}
	if got := UntilScarce(8*gib-100<<20, 10*gib); got < 999*time.Millisecond || got > 1001*time.Millisecond {
		t.Errorf("with room for a second it is checked again in %v, want a second", got)
	}
	if s := NewLimit(nil, nil, -1); s.most != 0 {
		t.Errorf("a store of -1 bytes has %d", s.most)
	}
}

// When the store is scarce, the largest streams are bounded, and their metadata records it; otherwise no
// stream is touched.
func TestWhenStreamsAreBounded(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	there := []*jetstream.StreamInfo{
		jstest.Of(jetstream.StreamConfig{Name: "EV_b", Metadata: map[string]string{"other": "kept"}}, 450*mb), jstest.Of(jetstream.StreamConfig{Name: "EV_a"}, 300*mb), jstest.Of(jetstream.StreamConfig{Name: "WAKE"}, 50*mb),
	}
	for name, c := range map[string]struct {
		most    int64
		refuses map[string]error
		bounded map[string]int64
		says    string
	}{
		"with room":           {1001 * mb, nil, nil, ""},
		"where it is scarce":  {1000 * mb, nil, map[string]int64{"EV_b": 400 * mb}, ""},
		"much too small":      {400 * mb, nil, map[string]int64{"EV_a": 125 * mb, "EV_b": 125 * mb}, ""},
		"it does not list":    {1000 * mb, map[string]error{"list streams": errors.New("away")}, nil, "list the streams: away"},
		"it does not let one": {1000 * mb, map[string]error{"update stream": errors.New("no")}, nil, "bound stream EV_b: no"},
	} {
		a := &jstest.Server{Refuses: c.refuses, There: there}
		s := NewLimit(a, slog.New(slog.DiscardHandler), c.most)
		err := s.freeSpace(t.Context())
		bounded := map[string]int64{}
		for _, stream := range a.Streams {
			bounded[stream.Name] = stream.MaxBytes
			if b := BoundOf(stream.Metadata); b.Bytes != stream.MaxBytes || time.Since(b.At) > time.Minute || stream.Name == "EV_b" && stream.Metadata["other"] != "kept" {
				t.Errorf("%s: noted is %v in %s", name, stream.Metadata, stream.Name)
			}
		}
		if fmt.Sprint(bounded) != fmt.Sprint(c.bounded) || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || s.cut.Load() != uint64(len(c.bounded)) {
			t.Errorf("%s: the bounded streams are %v, %v; want %v, %q", name, bounded, err, c.bounded, c.says)
		}
		if listed := c.refuses["list streams"] == nil; s.checked.Load() != listed || listed && s.used.Load() != 800*mb {
			t.Errorf("%s: the space was checked: %t, with %d bytes used", name, s.checked.Load(), s.used.Load())
		}
	}
}
