package watcher

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	topic     = "watcher"
	heartbeat = 150 * time.Millisecond
	silence   = 600 * time.Millisecond
)

// beat is what watchers tell each other.
type beat struct {
	ID      string    `json:"id"`
	Started time.Time `json:"started"`
	Bye     bool      `json:"bye,omitempty"`
}

// before orders watchers: the oldest one is active.
func (b beat) before(other beat) bool {
	if !b.Started.Equal(other.Started) {
		return b.Started.Before(other.Started)
	}
	return b.ID < other.ID
}

// peers knows which watchers are alive. It only saves work: when two are
// active at once, the log refuses one of them.
type peers struct {
	self beat

	mu    sync.Mutex
	heard map[string]time.Time
	who   map[string]beat
}

func newPeers(id string, now time.Time) *peers {
	return &peers{self: beat{ID: id, Started: now}, heard: map[string]time.Time{}, who: map[string]beat{}}
}

func (p *peers) hear(b beat, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.ID == p.self.ID {
		return
	}
	if b.Bye {
		delete(p.heard, b.ID)
		delete(p.who, b.ID)
		return
	}
	p.heard[b.ID], p.who[b.ID] = now, b
}

// first is true when no older watcher is alive. A watcher that has not listened
// for long enough to know does not claim it.
func (p *peers) first(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.self.Started) < silence {
		return false
	}
	for id, b := range p.who {
		if now.Sub(p.heard[id]) < silence && b.before(p.self) {
			return false
		}
	}
	return true
}

// run says and hears heartbeats until the context ends, and reports whether
// this watcher is to be active.
func (p *peers) run(ctx context.Context, b bus.Bus, active func(bool)) {
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for ctx.Err() == nil {
			err := b.Listen(ctx, topic, func(data []byte) {
				var other beat
				if json.Unmarshal(data, &other) == nil {
					p.hear(other, time.Now())
				}
			})
			if err != nil {
				klog.FromContext(ctx).Error(err, "Cannot hear the other watchers")
				pause(ctx, heartbeat)
			}
		}
	}()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		if err := p.say(b, false); err != nil {
			klog.FromContext(ctx).V(2).Info("Cannot say that this watcher is alive", "err", err)
		}
		active(p.first(time.Now()))
		select {
		case <-ctx.Done():
			active(false) // what is stored is stored; now others may go on
			if err := p.say(b, true); err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot say goodbye", "err", err)
			}
			<-heard
			return
		case <-tick.C:
		}
	}
}

func (p *peers) say(b bus.Bus, bye bool) error {
	message := p.self
	message.Bye = bye
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode heartbeat: %w", err)
	}
	return b.Say(topic, data)
}
