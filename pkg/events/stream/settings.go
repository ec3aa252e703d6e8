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
	// putWindow is how long the id of a message is remembered.
	putWindow = 2 * time.Minute
	// logWindow is short: messages of a log have no ids.
	logWindow = 10 * time.Second
	// markAge is how long a mark is kept; there will be a newer one.
	markAge = time.Hour
	// wakeAge is how long a wake that fired waits for a reconciler to answer it.
	wakeAge = 7 * 24 * time.Hour
	// statusMost is how many reports of reconcilers are kept.
	statusMost = 256
)

// record is what logs, turns and outcomes have in common. of is the kind or the
// controller whose they are. No user may take messages out of them: not one by one, and not
// all at once. A store that is scarce drops the oldest ones by a limit.
func (o Options) record(of, name string, window time.Duration, subjects ...string) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: name, Subjects: subjects,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: o.packing(), Replicas: o.Replicas,
		DenyDelete: true, DenyPurge: true, Metadata: map[string]string{},
	}
	return o.bounded(c, of, window)
}

// packing is how blocks are packed that are full: not at all in a cluster. A server
// of a cluster that syncs always cuts its streams back to their last snapshot when it
// starts, and repeats what came after. While it cuts, it begins to pack the block that
// it then goes on writing to, and cannot read that block any more (nats-server
// 2.15.2): the server stays unready, and the copy is lost.
func (o Options) packing() jetstream.StoreCompression {
	if o.Replicas > 1 {
		return jetstream.NoCompression
	}
	return jetstream.S2Compression
}

// logSettings: AllowDirect must stay off, or the state stream would answer
// direct gets in the log's name.
func (o Options) logSettings(kind kinds.Kind) jetstream.StreamConfig {
	c := o.record(string(kind.Name), subject.LogStream(kind.Name), logWindow, subject.Log(kind.Name))
	c.AllowMsgTTL, c.AllowBatchPublish = true, true
	maps.Copy(c.Metadata, kindMetadata(kind))
	return c
}

// stateSettings: the state is not packed, since everybody reads all of it when they
// start. What is left in its blocks is scattered, and the server unpacks a block as
// a whole, for each reader, and measures by what it takes up packed whether it is
// worth to be tidied.
func (o Options) stateSettings(kind kinds.Kind) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.StateStream(kind.Name), Mirror: &jetstream.StreamSource{Name: subject.LogStream(kind.Name)},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: jetstream.NoCompression, Replicas: o.Replicas,
		MaxMsgsPerSubject: 1, MaxBytes: -1,
		AllowMsgTTL: true, AllowDirect: true,
		Metadata: kindMetadata(kind),
	}
}

func (o Options) turnSettings(controller string) jetstream.StreamConfig {
	c := o.record(controller, subject.TurnStream(controller), putWindow, subject.Turns(controller))
	c.AllowDirect = true
	return c
}

// controllerSettings are all that a controller needs.
func (o Options) controllerSettings(controller string) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{o.turnSettings(controller), o.outcomeSettings(controller), o.wakeSettings(), o.statusSettings()}
}

func (o Options) outcomeSettings(controller string) jetstream.StreamConfig {
	c := o.record(controller, subject.OutcomeStream(controller), putWindow, subject.Outcomes(controller))
	c.AllowDirect = true
	return c
}

// wakeSettings: the server insists on roll-ups where it keeps schedules, since
// it removes a schedule that has fired by one.
func (o Options) wakeSettings() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.WakeStream, Subjects: []string{"sched.>", "wake.>"},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: o.packing(), Replicas: o.Replicas,
		MaxMsgsPerSubject: 1, MaxBytes: -1, Duplicates: putWindow,
		AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true, AllowDirect: true,
	}
}

// statusSettings: what replicas of the reconcilers and watchers say of themselves, the newest of it.
// It is worth nothing later. It is on disk as the others are, so that a server that was
// restarted has the stream.
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

// kindOf reads the descriptor that kindMetadata wrote; ok is false for streams
// that are not ours.
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

// setting is one thing that must be as we want it. Only what would lose or
// double something is compared; an operator may set the rest.
type setting struct {
	name string
	of   func(jetstream.StreamConfig) any
}

var settings = []setting{
	{"subjects", func(c jetstream.StreamConfig) any { return slices.Sorted(slices.Values(c.Subjects)) }},
	{"mirror", func(c jetstream.StreamConfig) any { return mirrored(c) }},
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
	{"duplicate_window", func(c jetstream.StreamConfig) any { return window(c) }},
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

// differences names every setting of have that is not as in want.
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

// mirrored is the stream that is mirrored. Where in it the mirror began does not
// matter: one that was renewed is filled by saying everything again.
func mirrored(c jetstream.StreamConfig) string {
	if c.Mirror == nil {
		return ""
	}
	if c.Mirror.FilterSubject != "" || len(c.Mirror.SubjectTransforms) > 0 {
		return c.Mirror.Name + " (in part)"
	}
	return c.Mirror.Name
}

// unlimited is -1 for each of the ways to say so.
func unlimited(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

// window is the zero duration for mirrors: no client publishes to them.
func window(c jetstream.StreamConfig) time.Duration {
	if c.Mirror != nil {
		return 0
	}
	return c.Duplicates
}
