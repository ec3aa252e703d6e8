package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// kindKey is where a stream's metadata holds the descriptor of its kind.
	kindKey = "millrace.kind"
	// putWindow is how long the server remembers the id of a message.
	putWindow = 2 * time.Minute
	// logWindow is short: messages of a log have no ids.
	logWindow = 10 * time.Second
	// statusMost bounds the stored status reports per subject.
	statusMost = 256
)

// Policy is how the streams of an installation are kept.
type Policy struct {
	// Replicas of every stream.
	Replicas int
	// Age is how long logs, turns and outcomes are kept, and Bytes bounds each of those streams; 0: unbounded.
	Age   time.Duration
	Bytes int64
	// Retention overrides Age and Bytes by name of a kind or controller; a zero field means those.
	Retention map[string]bus.Retention
	// Began is when the process began. The retention that the youngest process wants holds.
	Began time.Time
}

// record is the common settings of logs, turns and outcomes; of is the kind or controller that
// they belong to. No user may delete or purge messages. When the store is scarce, a limit drops
// the oldest ones.
func (p Policy) record(of, name string, window time.Duration, subjects ...string) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: name, Subjects: subjects,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: p.packing(), Replicas: p.Replicas,
		DenyDelete: true, DenyPurge: true, Metadata: map[string]string{},
	}
	return p.bounded(c, of, window)
}

// packing is the compression of full blocks: none in a cluster. A server of a cluster that
// always syncs truncates its streams to their last snapshot when it starts, and replays what
// came after. While it truncates, it begins to compress the block that it then goes on writing
// to, and cannot read that block any more (nats-server 2.15.2): the server stays unready, and
// the replica is lost.
func (p Policy) packing() jetstream.StoreCompression {
	if p.Replicas > 1 {
		return jetstream.NoCompression
	}
	return jetstream.S2Compression
}

// Log is the settings of a log. AllowDirect is off: any replica would answer a direct get,
// also one that lags behind the log's leader.
func (p Policy) Log(kind kinds.Kind) jetstream.StreamConfig {
	c := p.record(string(kind.Name), subject.LogStream(kind.Name), logWindow, subject.Log(kind.Name))
	c.AllowMsgTTL, c.AllowBatchPublish = true, true
	maps.Copy(c.Metadata, kindMetadata(kind))
	return c
}

// Turns is the settings of the stream of a controller's turns.
func (p Policy) Turns(controller string) jetstream.StreamConfig {
	c := p.record(controller, subject.TurnStream(controller), putWindow, subject.Turns(controller))
	c.AllowDirect = true
	return c
}

// Controller is the settings of all streams that a controller needs.
func (p Policy) Controller(controller string) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{p.Turns(controller), p.outcomes(controller), p.Wakes(), p.Status()}
}

func (p Policy) outcomes(controller string) jetstream.StreamConfig {
	c := p.record(controller, subject.OutcomeStream(controller), putWindow, subject.Outcomes(controller))
	c.AllowDirect = true
	return c
}

// Wakes is the settings of the wake stream. The server insists on roll-ups for
// schedules, since it removes a fired schedule by a roll-up.
func (p Policy) Wakes() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.WakeStream, Subjects: []string{"sched.>", "wake.>"},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: p.packing(), Replicas: p.Replicas,
		MaxMsgsPerSubject: 1, MaxBytes: -1, Duplicates: putWindow,
		AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true, AllowDirect: true,
	}
}

// Status is the settings of the stream of status reports, which keeps the newest reports of the
// reconcilers and watchers. They are worth nothing later. The stream is on disk, like the others, so that a
// restarted server still has it.
func (p Policy) Status() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.StatusStream, Subjects: []string{subject.StatusSubject, subject.WatcherStatusSubject},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Replicas: p.Replicas, MaxAge: report.Age,
		MaxMsgsPerSubject: statusMost, MaxBytes: -1, Duplicates: report.Every, AllowDirect: true,
	}
}

func kindMetadata(kind kinds.Kind) map[string]string {
	text, _ := json.Marshal(kind) // strings and a bool: cannot fail
	return map[string]string{kindKey: string(text)}
}

// KindOf reads the descriptor of a kind in the metadata of its log; ok is false for a stream that is not
// Millrace's.
//
// Errors: the descriptor cannot be read.
func KindOf(metadata map[string]string) (kind kinds.Kind, ok bool, err error) {
	text, ok := metadata[kindKey]
	if !ok {
		return kind, false, nil
	}
	if err := json.Unmarshal([]byte(text), &kind); err != nil {
		return kind, false, fmt.Errorf("read the kind in a stream's metadata: %w", err)
	}
	return kind, true, nil
}

// Shadow is the settings of a shadow's stream, which keeps its messages as long as the
// turns of its controller.
func (p Policy) Shadow(controller string) jetstream.StreamConfig {
	c := p.Turns(controller)
	c.Name, c.Subjects = subject.ShadowStream(controller), []string{subject.Shadow(controller)}
	return c
}

// Notary is the settings of the notary's stream. It has no bound in bytes, which would
// drop the pages of a quiet stream for those of a busy one. No user can delete or purge its
// messages; a user can only delete the whole stream, which its notaries notice.
func (p Policy) Notary(keep time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.NotaryStream, Subjects: []string{subject.Notary(">")},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: p.packing(), Replicas: p.Replicas,
		MaxAge: keep, MaxBytes: -1, Duplicates: putWindow, AllowDirect: true, DenyDelete: true, DenyPurge: true,
	}
}

// Imported is the settings of an imported stream, which keeps everything for ever: a log of the kind, or another
// stream, without a kind.
func (p Policy) Imported(name, subjects string, kind *kinds.Kind) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: name, Subjects: []string{subjects},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: p.packing(), Replicas: p.Replicas,
		MaxBytes: -1, Duplicates: putWindow, AllowDirect: kind == nil, DenyDelete: true, DenyPurge: true,
		Metadata: map[string]string{},
	}
	if kind != nil {
		c.Metadata = kindMetadata(*kind)
	}
	return c
}
