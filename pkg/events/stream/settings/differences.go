package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

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
	{"max_msgs_per_subject", func(c jetstream.StreamConfig) any { return perSubject(c.MaxMsgsPerSubject) }},
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

// Differences describes every setting in which have differs from want.
func Differences(have, want jetstream.StreamConfig) []string {
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

// unreached is a bound of messages per subject that no subject reaches. With any bound, the NATS server
// writes blocks of 4 MB instead of 8 MB, so an operator may set this one to save memory.
const unreached = 1 << 40

// perSubject maps every bound that no subject reaches to -1.
func perSubject(n int64) int64 {
	if n >= unreached {
		return -1
	}
	return unlimited(n)
}
