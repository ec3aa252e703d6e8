package cache

import (
	"strconv"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestBehindWhatWasKnown: no engine may decide on a kind that was forgotten before a mark says
// that the watcher has reported again everything that was known of it.
func TestBehindWhatWasKnown(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod("p", "", int(at)), at)
	}
	mark := func(version string, at uint64) events.Message { return markAt(kinds.Pods.Kind, version, at) }
	in := func(epoch uint64, m events.Message) events.Message {
		m.Header[events.HeaderEpoch] = []string{strconv.FormatUint(epoch, 10)}
		return m
	}
	version := func(at uint64) string { return pod(at).Get(events.HeaderRV) }
	buried := delta(kinds.Pods.Kind, events.Gone, aPod("q", "", 90), 4)
	buried.Header[events.HeaderSync] = []string{"true"}
	ended := delta(kinds.Pods.Kind, events.Gone, aPod("q", "", 90), 4)
	retold := pod(3)
	retold.Header[events.HeaderSync] = []string{"true"}
	for name, tc := range map[string]struct {
		known, left []events.Message
		want        bool
	}{
		"never forgotten anything":        {nil, nil, false},
		"nothing was lost":                {[]events.Message{pod(1), mark(version(1), 2)}, []events.Message{pod(1), mark(version(1), 2)}, false},
		"a change was lost":               {[]events.Message{pod(1), mark(version(1), 2), pod(3)}, []events.Message{pod(1), mark(version(1), 2)}, true},
		"it was told again, unmarked":     {[]events.Message{pod(1), mark(version(1), 2), pod(3)}, []events.Message{mark(version(1), 2), pod(3)}, true},
		"it was told again":               {[]events.Message{pod(1), mark(version(1), 2), pod(3)}, []events.Message{pod(3), mark(version(3), 4)}, false},
		"everything was lost":             {[]events.Message{pod(1), mark(version(1), 2)}, nil, true},
		"an end was lost":                 {[]events.Message{pod(1), mark(version(1), 2), ended}, []events.Message{pod(1), mark(version(1), 2)}, true},
		"what was told again was lost":    {[]events.Message{mark(version(1), 2), retold}, []events.Message{mark(version(1), 2)}, true},
		"an older epoch is there":         {[]events.Message{in(1, mark("5", 2))}, []events.Message{mark("9000", 2)}, true},
		"a newer epoch has been told":     {[]events.Message{pod(9), mark(version(9), 10)}, []events.Message{in(1, mark("1", 11))}, false},
		"an end of another epoch is none": {[]events.Message{in(1, mark("5", 3)), in(1, buried)}, []events.Message{in(1, mark("5", 3))}, false},
		"versions without an order":       {[]events.Message{mark("x2", 1)}, []events.Message{mark("x1", 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := New()
			m.Follow(kinds.Pods.Kind)
			m.Fold(kinds.Pods.Name, tc.known)
			if m.BehindKnown(kinds.Pods.Name) {
				t.Error("behind before anything was forgotten")
			}
			m.Forget(kinds.Pods.Name)
			m.Forget(kinds.Pods.Name) // a second Forget keeps the known moment
			m.Fold(kinds.Pods.Name, tc.left)
			if got := m.BehindKnown(kinds.Pods.Name); got != tc.want {
				t.Errorf("behind: %t, want %t", got, tc.want)
			}
		})
	}
}

// A kind that is not followed has no known moment.
func TestAKindThatIsNotFollowedIsNotBehind(t *testing.T) {
	if New().BehindKnown(kinds.Pods.Name) {
		t.Error("a kind that is not followed is behind")
	}
}
