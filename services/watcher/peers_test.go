package watcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// cable is one watcher's connection to the bus, which can be cut in two ways.
type cable struct {
	bus.Bus
	mute atomic.Bool // what it says is not heard
	deaf atomic.Bool // nor does it hear
	dead atomic.Bool // it stores nothing
	said atomic.Int64
}

var errDead = errors.New("the connection is dead")

func (c *cable) Say(topic string, data []byte) error {
	c.said.Add(1)
	if c.mute.Load() {
		return nil
	}
	return c.Bus.Say(topic, data)
}

func (c *cable) Listen(ctx context.Context, topic string, hear func([]byte)) error {
	return c.Bus.Listen(ctx, topic, func(data []byte) {
		if !c.deaf.Load() {
			hear(data)
		}
	})
}

func (c *cable) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	if c.dead.Load() {
		return nil, errDead
	}
	a, err := c.Bus.Append(ctx, kind)
	return &cabled{a, c}, err
}

type cabled struct {
	bus.Appender
	cable *cable
}

func (c *cabled) Append(ctx context.Context, m events.Message) error {
	if c.cable.dead.Load() {
		return errDead
	}
	return c.Appender.Append(ctx, m)
}

func TestASilentWatcherIsReplacedWithinASecond(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	crashed := &cable{Bus: b}
	start(t, s, crashed, "one")
	s.change("ADDED", "a", 0)
	eventually(t, b, "is a")
	standby := &cable{Bus: b}
	younger, _ := start(t, s, standby, "two")
	until(t, func() bool { return standby.said.Load() > int64(2*silence/heartbeat) })
	if younger.isActive() {
		t.Fatal("the younger watcher is active beside the older one")
	}
	crashed.dead.Store(true)
	crashed.mute.Store(true)
	began := time.Now()
	s.change("MODIFIED", "a", 0)
	eventually(t, b, "is a", "is a")
	if took := time.Since(began); took > time.Second {
		t.Errorf("taking over took %v", took)
	}
	if got := s.listed(); got != 1 {
		t.Errorf("%d lists, want 1: who takes over goes on where the log ends", got)
	}
}

// TestTwoActiveWatchersTellNothingTwice: they cannot hear each other, so both
// are active for as long as that lasts; only the log keeps them apart.
func TestTwoActiveWatchersTellNothingTwice(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	cables := []*cable{{Bus: b}, {Bus: b}}
	var services []*Service
	for i, c := range cables {
		c.deaf.Store(true)
		service, _ := start(t, s, c, fmt.Sprint("watcher-", i))
		services = append(services, service)
		until(t, service.isActive)
	}
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("pod-%02d", i)
		s.change("ADDED", name, 0)
		if want = append(want, "is "+name); i%5 == 0 {
			eventually(t, b, want...)
		}
	}
	eventually(t, b, want...)
	for _, c := range cables {
		c.deaf.Store(false)
	}
	until(t, func() bool { return services[0].isActive() && !services[1].isActive() })
	s.change("ADDED", "last", 0)
	eventually(t, b, append(want, "is last")...)
}

func TestTheBusGoesAndComesBack(t *testing.T) {
	s, b := serve(t), memory.New(memory.Options{})
	c := &cable{Bus: b}
	service, _ := start(t, s, c, "one")
	s.change("ADDED", "a", 0)
	eventually(t, b, "is a")
	c.dead.Store(true)
	s.change("MODIFIED", "a", 0)
	s.change("DELETED", "a", 0)
	until(t, func() bool {
		err := service.checkSynced()
		return err != nil && strings.Contains(err.Error(), errDead.Error())
	})
	c.dead.Store(false)
	eventually(t, b, "is a", "is a", "gone a")
	until(t, service.Synced)
	if got := s.listed(); got != 1 {
		t.Errorf("%d lists, want 1", got)
	}
}

func (s *Service) isActive() bool {
	_, _, active, _ := s.wanted()
	return active
}
