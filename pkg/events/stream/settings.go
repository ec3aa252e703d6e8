package stream

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// kindKey is where a stream's metadata holds the descriptor of its kind.
	kindKey = "millrace.kind"
	// putWindow is how long the server remembers the id of a message.
	putWindow = 2 * time.Minute
	// logWindow is short: messages of a log have no ids.
	logWindow = 10 * time.Second
	// markAge is how long the log keeps a mark; newer marks replace it.
	markAge = time.Hour
	// wakeAge is how long a fired wake waits for a reconciler to answer it.
	wakeAge = 7 * 24 * time.Hour
	// statusMost bounds the stored status reports per subject.
	statusMost = 256
)

// record is the common settings of logs, turns and outcomes; of is the kind or controller that
// they belong to. No user may delete or purge messages. When the store is scarce, a limit drops
// the oldest ones.
func (o Options) record(of, name string, window time.Duration, subjects ...string) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: name, Subjects: subjects,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: o.packing(), Replicas: o.Replicas,
		DenyDelete: true, DenyPurge: true, Metadata: map[string]string{},
	}
	return o.bounded(c, of, window)
}

// packing is the compression of full blocks: none in a cluster. A server of a cluster that
// always syncs truncates its streams to their last snapshot when it starts, and replays what
// came after. While it truncates, it begins to compress the block that it then goes on writing
// to, and cannot read that block any more (nats-server 2.15.2): the server stays unready, and
// the replica is lost.
func (o Options) packing() jetstream.StoreCompression {
	if o.Replicas > 1 {
		return jetstream.NoCompression
	}
	return jetstream.S2Compression
}

// logSettings is the settings of a log. AllowDirect is off: any replica would answer a direct get,
// also one that lags behind the log's leader.
func (o Options) logSettings(kind kinds.Kind) jetstream.StreamConfig {
	c := o.record(string(kind.Name), subject.LogStream(kind.Name), logWindow, subject.Log(kind.Name))
	c.AllowMsgTTL, c.AllowBatchPublish = true, true
	maps.Copy(c.Metadata, kindMetadata(kind))
	return c
}

func (o Options) turnSettings(controller string) jetstream.StreamConfig {
	c := o.record(controller, subject.TurnStream(controller), putWindow, subject.Turns(controller))
	c.AllowDirect = true
	return c
}

// controllerSettings is the settings of all streams that a controller needs.
func (o Options) controllerSettings(controller string) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{o.turnSettings(controller), o.outcomeSettings(controller), o.wakeSettings(), o.statusSettings()}
}

func (o Options) outcomeSettings(controller string) jetstream.StreamConfig {
	c := o.record(controller, subject.OutcomeStream(controller), putWindow, subject.Outcomes(controller))
	c.AllowDirect = true
	return c
}

// wakeSettings is the settings of the wake stream. The server insists on roll-ups for
// schedules, since it removes a fired schedule by a roll-up.
func (o Options) wakeSettings() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.WakeStream, Subjects: []string{"sched.>", "wake.>"},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: o.packing(), Replicas: o.Replicas,
		MaxMsgsPerSubject: 1, MaxBytes: -1, Duplicates: putWindow,
		AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true, AllowDirect: true,
	}
}

// statusSettings is the settings of the stream of status reports, which keeps the newest reports of the
// reconcilers and watchers. They are worth nothing later. The stream is on disk, like the others, so that a
// restarted server still has it.
func (o Options) statusSettings() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.StatusStream, Subjects: []string{subject.StatusSubject, subject.WatcherStatusSubject},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Replicas: o.Replicas, MaxAge: events.ReportAge,
		MaxMsgsPerSubject: statusMost, MaxBytes: -1, Duplicates: events.ReportEvery, AllowDirect: true,
	}
}

func kindMetadata(kind kinds.Kind) map[string]string {
	text, _ := json.Marshal(kind) // strings and a bool: cannot fail
	return map[string]string{kindKey: string(text)}
}

// kindOf reads the descriptor that kindMetadata wrote; ok is false for a stream that is not
// Millrace's.
func kindOf(metadata map[string]string) (kind kinds.Kind, ok bool, err error) {
	text, ok := metadata[kindKey]
	if !ok {
		return kind, false, nil
	}
	if err := json.Unmarshal([]byte(text), &kind); err != nil {
		return kind, false, fmt.Errorf("read the kind in a stream's metadata: %w", err)
	}
	return kind, true, nil
}

// setting is one setting that must be as wanted. Only settings that could lose or double a
// message are compared; an operator may choose the rest.
type setting struct {
	name string
	of   func(jetstream.StreamConfig) any
}

var settings = []setting{
	{"subjects", func(c jetstream.StreamConfig) any { return slices.Sorted(slices.Values(c.Subjects)) }},
	{"mirror", func(c jetstream.StreamConfig) any { return c.Mirror != nil }},
	{"sources", func(c jetstream.StreamConfig) any { return len(c.Sources) }},
	{"retention", func(c jetstream.StreamConfig) any { return c.Retention }},
	{"discard", func(c jetstream.StreamConfig) any { return c.Discard }},
	{"storage", func(c jetstream.StreamConfig) any { return c.Storage }},
	{"num_replicas", func(c jetstream.StreamConfig) any { return c.Replicas }},
	{"max_age", func(c jetstream.StreamConfig) any { return c.MaxAge }},
	{"max_bytes", func(c jetstream.StreamConfig) any { return unlimited(c.MaxBytes) }},
	{"max_msgs", func(c jetstream.StreamConfig) any { return unlimited(c.MaxMsgs) }},
	{"max_msgs_per_subject", func(c jetstream.StreamConfig) any { return unlimited(c.MaxMsgsPerSubject) }},
	{"max_msg_size", func(c jetstream.StreamConfig) any { return unlimited(int64(c.MaxMsgSize)) }},
	{"duplicate_window", func(c jetstream.StreamConfig) any { return c.Duplicates }},
	{"allow_direct", func(c jetstream.StreamConfig) any { return c.AllowDirect }},
	{"mirror_direct", func(c jetstream.StreamConfig) any { return c.MirrorDirect }},
	{"allow_msg_ttl", func(c jetstream.StreamConfig) any { return c.AllowMsgTTL }},
	{"allow_batched", func(c jetstream.StreamConfig) any { return c.AllowBatchPublish }},
	{"allow_msg_schedules", func(c jetstream.StreamConfig) any { return c.AllowMsgSchedules }},
	{"allow_rollup_hdrs", func(c jetstream.StreamConfig) any { return c.AllowRollup }},
	{"deny_delete", func(c jetstream.StreamConfig) any { return c.DenyDelete }},
	{"no_ack", func(c jetstream.StreamConfig) any { return c.NoAck }},
	{"sealed", func(c jetstream.StreamConfig) any { return c.Sealed }},
	{"subject_delete_marker_ttl", func(c jetstream.StreamConfig) any { return c.SubjectDeleteMarkerTTL }},
	{"subject_transform", func(c jetstream.StreamConfig) any { return c.SubjectTransform != nil }},
	{"kind", func(c jetstream.StreamConfig) any { return c.Metadata[kindKey] }},
}

// differences describes every setting in which have differs from want.
func differences(have, want jetstream.StreamConfig) []string {
	var found []string
	for _, s := range settings {
		if h, w := s.of(have), s.of(want); !reflect.DeepEqual(h, w) {
			found = append(found, fmt.Sprintf("%s is %s, want %s", s.name, text(h), text(w)))
		}
	}
	return found
}

func text(value any) string {
	if list, ok := value.([]string); ok {
		return "[" + strings.Join(list, " ") + "]"
	}
	if s, ok := value.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(value)
}

// unlimited maps every way to say "no limit" to -1.
func unlimited(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}
