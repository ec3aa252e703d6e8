package space_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/space"
)

// TestTheLargestAreBoundedFirst: logs before turns and outcomes, all to the same size, and
// neither what is small nor what is there.
func TestTheLargestAreBoundedFirst(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for name, c := range map[string]struct {
		sizes map[string]uint64
		want  string
	}{
		"one log":              {map[string]uint64{"EV_a": 700 * mb, "EV_b": 200 * mb, "TURN_c": 50 * mb}, "map[EV_a:500]"},
		"two logs":             {map[string]uint64{"EV_a": 450 * mb, "EV_b": 400 * mb, "EV_c": 100 * mb}, "map[EV_a:325 EV_b:325]"},
		"turns":                {map[string]uint64{"EV_a": 50 * mb, "TURN_c": 600 * mb, "OUTCOME_c": 300 * mb}, "map[EV_a:16 TURN_c:434]"},
		"more than there is":   {map[string]uint64{"EV_a": 20 * mb, "TURN_c": 20 * mb, "WAKE": 910 * mb}, "map[EV_a:16 TURN_c:16]"},
		"one as large already": {map[string]uint64{"EV_a": 550 * mb, "EV_b": 350 * mb, "EV_c": 50 * mb}, "map[EV_a:350]"},
		"nothing to spare":     {map[string]uint64{"NOTARY": 900 * mb, "WAKE": 50 * mb}, "map[]"},
	} {
		got := space.Bounds(c.sizes, 950*mb, 1000*mb)
		for name := range got {
			got[name] /= mb
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	if got := space.Bounds(map[string]uint64{"EV_a": 700 * mb}, 700*mb, 1000*mb); len(got) > 0 {
		t.Errorf("where there is room %v are bounded", got)
	}
}

// TestTheFewestBytesAreNoted to which room was made within a day, with when that was last.
func TestTheFewestBytesAreNoted(t *testing.T) {
	t.Parallel()
	metadata, at := map[string]string{"other": "kept"}, time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after       time.Duration
		bytes, want int64
	}{{0, 500, 500}, {time.Minute, 300, 300}, {time.Hour, 700, 300}, {24*time.Hour - 1, 800, 300}, {24 * time.Hour, 700, 700}} {
		at = at.Add(step.after)
		metadata = space.Note(metadata, step.bytes, at)
		if b := space.BoundOf(metadata); b.Bytes != step.want || !b.At.Equal(at) || metadata["other"] != "kept" {
			t.Errorf("bounded to %d: %v in %v, want %d", step.bytes, b, metadata, step.want)
		}
	}
	for _, text := range []string{"", "500", "500 at noon", "many 2026-11-25T12:00:00Z"} {
		if b := space.BoundOf(map[string]string{"millrace.bounded": text}); b.Bytes != 0 || !b.At.IsZero() {
			t.Errorf("the bound in %q is %v, want none", text, b)
		}
	}
}
