package settings

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
)

// A consumer of several keeps their place; a reader's is gone soon after it, unless the reader
// says how far it has come. None sends what is stored anywhere.
func TestWhichConsumersAreMade(t *testing.T) {
	t.Parallel()
	since := time.Unix(7, 0)
	for name, o := range map[string]Consumer{
		"of several": {Stream: "TURN_c", Durable: "writer", AckWait: time.Second, MaxPending: 7}, "of several, since": {Durable: "writer", Since: &since},
		"of a reader": {name: "r", From: 7, HeadersOnly: true, Subject: "ev.>"}, "of a reader, from the begin": {name: "r"}, "of a reader that acknowledges": {name: "r", Acks: true, From: 3},
	} {
		c := o.Config()
		if c.DeliverSubject != "" || c.MaxDeliver != -1 || c.FilterSubject != o.Subject || c.HeadersOnly != o.HeadersOnly {
			t.Errorf("%s: the consumer is %+v, want it pulled, on the given subject, delivered without limit", name, c)
		}
		durable, policy, replicas := "", jetstream.AckNonePolicy, 1
		switch name {
		case "of several", "of several, since":
			durable, policy, replicas = "writer", jetstream.AckExplicitPolicy, 0
			if c.PriorityPolicy != jetstream.PriorityPolicyPrioritized || len(c.PriorityGroups) != 1 || c.AckWait != o.AckWait || c.MaxAckPending != o.MaxPending || c.InactiveThreshold != 0 {
				t.Errorf("%s: the consumer is %+v, want one with priorities, the given ack wait and bound, for ever", name, c)
			}
		case "of a reader that acknowledges":
			durable, policy = "r", jetstream.AckAllPolicy
			if c.Name != "" || c.AckWait != time.Hour || c.MaxAckPending != -1 || c.InactiveThreshold != bus.Abandoned || c.OptStartSeq != 3 {
				t.Errorf("%s: the consumer is %+v, want one without a name from 3 on, with acks of all before", name, c)
			}
		default:
			if c.Name != "r" || c.InactiveThreshold != ReaderIdle || c.OptStartSeq != max(o.From, 1) {
				t.Errorf("%s: the consumer is %+v, want the name r, and that it ends when idle", name, c)
			}
		}
		if c.Durable != durable || c.AckPolicy != policy || c.Replicas != replicas || c.MemoryStorage != (replicas == 1) {
			t.Errorf("%s: the consumer is %+v, want durable %q, ack policy %v, %d replicas, in memory if 1", name, c, durable, policy, replicas)
		}
		if o.Since != nil && (c.DeliverPolicy != jetstream.DeliverByStartTimePolicy || c.OptStartTime != &since || c.OptStartSeq != 0) {
			t.Errorf("%s: the consumer begins with %v, %v, %d; want at the given time", name, c.DeliverPolicy, c.OptStartTime, c.OptStartSeq)
		}
	}
}

// Matches ignores where a consumer began, and Valid rejects orders beyond the needs of a service.
func TestWhichConsumersAreLike(t *testing.T) {
	t.Parallel()
	o := Consumer{Durable: "writer", AckWait: time.Second, MaxPending: 7, Subject: "a", HeadersOnly: true}
	have := o.Config()
	have.DeliverPolicy, have.OptStartSeq = jetstream.DeliverByStartSequencePolicy, 9
	if !o.Matches(have) {
		t.Error("one that began elsewhere is another")
	}
	for name, change := range map[string]func(c *jetstream.ConsumerConfig){
		"wait": func(c *jetstream.ConsumerConfig) { c.AckWait++ }, "bound": func(c *jetstream.ConsumerConfig) { c.MaxAckPending++ }, "bodies": func(c *jetstream.ConsumerConfig) { c.HeadersOnly = false },
		"subject": func(c *jetstream.ConsumerConfig) { c.FilterSubject = "" }, "policy": func(c *jetstream.ConsumerConfig) { c.PriorityPolicy = jetstream.PriorityPolicyNone },
		"groups": func(c *jetstream.ConsumerConfig) { c.PriorityGroups = nil },
	} {
		other := have
		if change(&other); o.Matches(other) {
			t.Errorf("one of another %s is the same", name)
		}
	}
	for _, c := range []struct {
		wait    time.Duration
		pending int
		sane    bool
	}{{0, 0, true}, {time.Hour, 1 << 20, true}, {-1, 0, false}, {time.Hour + 1, 0, false}, {0, -1, false}, {0, 1<<20 + 1, false}} {
		if got := (Consumer{AckWait: c.wait, MaxPending: c.pending}).Valid(); got != c.sane {
			t.Errorf("a wait of %v and %d pending are sane: %t", c.wait, c.pending, got)
		}
	}
}
