package watcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/cutconn"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// The pace at which watchers hear of each other; see package membership.
const (
	heartbeat = 120 * time.Millisecond
	quietFor  = 480 * time.Millisecond
)

// cable is one watcher's connection to the bus, which can be cut in two directions.
type cable struct {
	*bustest.Bus
	mute atomic.Bool // other watchers do not receive what it sends
	deaf atomic.Bool // it does not receive what others send

	mu   sync.Mutex
	said [][]byte
}

func newCable(b bus.Bus) *cable {
	c := &cable{Bus: bustest.Wrap(b)}
	c.OnBroadcast = func(topic string, data []byte) error {
		if c.mute.Load() {
			return nil
		}
		c.mu.Lock()
		c.said = append(c.said, data)
		c.mu.Unlock()
		return b.Broadcast(topic, data)
	}
	c.OnListen = func(ctx context.Context, topic string, hear func([]byte)) error {
		return b.Listen(ctx, topic, func(data []byte) {
			if !c.deaf.Load() || c.own(data) {
				hear(data)
			}
		})
	}
	return c
}

func (c *cable) own(data []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.said, func(said []byte) bool { return bytes.Equal(said, data) })
}

// store lets the watcher store again, or, with an error, nothing.
func (c *cable) store(err error) { c.Fail(bustest.Append, err).Fail(bustest.AppendMessage, err) }

var errDead = errors.New("the connection is dead")

// pair starts two watchers and waits until one of them watches pods.
func pair(t *testing.T, s *watchertest.Server, cables [2]*cable, options ...func(*Config)) (first, second int, services [2]*Service) {
	for i, c := range cables {
		services[i], _ = start(t, s, c, fmt.Sprint("watcher-", i), options...)
	}
	watchertest.Until(t, func() bool {
		for i, s := range services {
			if s.members.Check() != nil || s.members.Others() != 1 || s.isActive() != s.members.First("pods") {
				return false
			}
			if s.isActive() {
				first, second = i, 1-i
			}
		}
		return services[first].isWatching() && !services[second].isActive()
	})
	return first, second, services
}

func TestASilentWatcherIsReplaced(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	cables := [2]*cable{newCable(b), newCable(b)}
	first, _, _ := pair(t, s, cables)
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	lists := s.Listed()
	cables[first].store(errDead)
	cables[first].mute.Store(true)
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a", "is a")
	if got := s.Listed(); got != lists {
		t.Errorf("%d lists, want %d: who takes over goes on where the log ends", got, lists)
	}
}

// TestKindsAreSharedOut: each kind has one watcher. When one watcher is left, it gets all kinds and
// relists none of them. No change is recorded twice or not at all.
func TestKindsAreSharedOut(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	resources := []kinds.Name{"configmaps", "endpoints", "events", "limitranges", "pods", "secrets", "serviceaccounts", "services"}
	many := func(c *Config) {
		c.Kinds = nil
		for _, name := range resources {
			c.Kinds = append(c.Kinds, kinds.Kind{Name: name, Version: "v1", Form: kinds.Metadata})
		}
		c.Kinds[slices.Index(resources, "pods")] = kinds.Pods.Kind
	}
	first, stop := start(t, s, b, "one", many)
	second, _ := start(t, s, b, "two", many)
	shares := func() (one, two int) {
		for _, name := range resources {
			one, two = one+count(first.watches(name)), two+count(second.watches(name))
		}
		return one, two
	}
	watchertest.Until(t, func() bool {
		one, two := shares()
		return one > 0 && two > 0 && one+two == len(resources) && first.Synced() && second.Synced()
	})
	changes := 0
	change := func() {
		changes++
		for _, name := range resources {
			s.Edit(string(name), "a", func(*corev1.Pod) {})
		}
	}
	told := func() (all string) {
		for _, name := range resources {
			n := 0
			for _, d := range watchertest.LogOfKind(t, b, name) {
				n += count(d.Op == events.Is)
			}
			all += fmt.Sprint(n, " ")
		}
		return all
	}
	all := func() string { return strings.Repeat(fmt.Sprint(changes, " "), len(resources)) }
	change()
	watchertest.Until(t, func() bool { return told() == all() })
	lists := s.Listed()
	for range 5 {
		change()
	}
	stop()
	for range 5 {
		change()
	}
	watchertest.Until(t, func() bool { return told() == all() })
	if _, two := shares(); two != len(resources) {
		t.Errorf("the one that is left watches %d kinds", two)
	}
	if got := s.Listed(); got != lists {
		t.Errorf("%d lists, want %d", got, lists)
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestAWatcherWithoutAnAPIServerLeavesTheKindsToOthers: its connections break without a FIN or RST,
// so that only its own time-out notices.
func TestAWatcherWithoutAnAPIServerLeavesTheKindsToOthers(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	var cut [2]cutconn.Dialer
	at := 0
	wired := func(c *Config) {
		c.REST.Dial = cut[at].Dial
		at++
	}
	first, second, services := pair(t, s, [2]*cable{newCable(b), newCable(b)}, wired)
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	cut[first].Cut()
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a", "is a")
	watchertest.Until(t, func() bool { return !services[first].isActive() && services[second].isActive() })
	cut[first].Mend()
	watchertest.Until(t, func() bool { return services[first].isActive() && !services[second].isActive() })
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a", "is a", "is a")
}

// TestTwoActiveWatchersTellNothingTwice: two watchers cannot hear each other, so both are active
// meanwhile; only the fence of the log keeps them apart.
func TestTwoActiveWatchersTellNothingTwice(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	cables := []*cable{newCable(b), newCable(b)}
	var services []*Service
	for i, c := range cables {
		c.deaf.Store(true)
		service, _ := start(t, s, c, fmt.Sprint("watcher-", i))
		services = append(services, service)
		watchertest.Until(t, service.isActive)
	}
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("pod-%02d", i)
		s.PutPod(name, 0)
		if want = append(want, "is "+name); i%5 == 0 {
			watchertest.Eventually(t, b, want...)
		}
	}
	watchertest.Eventually(t, b, want...)
	for _, c := range cables {
		c.deaf.Store(false)
	}
	watchertest.Until(t, func() bool { return services[0].isActive() != services[1].isActive() })
	s.PutPod("last", 0)
	watchertest.Eventually(t, b, append(want, "is last")...)
}

func TestTheBusGoesAndComesBack(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	c := newCable(b)
	service, _ := start(t, s, c, "one")
	watching(t, service) // or the list would be begun anew
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	c.store(errDead)
	s.PutPod("a", 0)
	s.RemovePod("a")
	watchertest.Until(t, func() bool {
		err := service.checkSynced()
		return err != nil && strings.Contains(err.Error(), errDead.Error())
	})
	c.store(nil)
	watchertest.Eventually(t, b, "is a", "is a", "gone a")
	watchertest.Until(t, service.Synced)
	if got := s.Listed(); got != 1 {
		t.Errorf("%d lists, want 1", got)
	}
}

func (s *Service) isActive() bool { return s.watches("pods") }
