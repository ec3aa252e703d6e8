package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// standard is a policy with the defaults of package stream.
func standard() Policy { return Policy{Replicas: 1, Age: 24 * time.Hour, Began: time.Unix(1000, 0)} }

// What would lose or double something is compared, each by its name, and nothing else.
func TestEachSettingThatCountsIsCompared(t *testing.T) {
	t.Parallel()
	p := standard()
	log := p.Log(kinds.Pods.Kind)
	for says, change := range map[string]func(c *jetstream.StreamConfig){
		"subjects is [x], want [ev.pods.>]":        func(c *jetstream.StreamConfig) { c.Subjects = []string{"x"} },
		"mirror is true, want false":               func(c *jetstream.StreamConfig) { c.Mirror = &jetstream.StreamSource{Name: "x"} },
		"sources is 1, want 0":                     func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{}} },
		"retention is Interest, want Limits":       func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"discard is DiscardNew, want DiscardOld":   func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew },
		"storage is Memory, want File":             func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"num_replicas is 3, want 1":                func(c *jetstream.StreamConfig) { c.Replicas = 3 },
		"max_age is 1h0m0s, want 24h0m0s":          func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_bytes is 7, want -1":                  func(c *jetstream.StreamConfig) { c.MaxBytes = 7 },
		"max_msgs is 7, want -1":                   func(c *jetstream.StreamConfig) { c.MaxMsgs = 7 },
		"max_msgs_per_subject is 1, want -1":       func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
		"max_msg_size is 7, want -1":               func(c *jetstream.StreamConfig) { c.MaxMsgSize = 7 },
		"duplicate_window is 2m0s, want 10s":       func(c *jetstream.StreamConfig) { c.Duplicates = 2 * time.Minute },
		"allow_direct is true, want false":         func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"mirror_direct is true, want false":        func(c *jetstream.StreamConfig) { c.MirrorDirect = true },
		"allow_msg_ttl is false, want true":        func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false },
		"allow_batched is false, want true":        func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false },
		"allow_msg_schedules is true, want false":  func(c *jetstream.StreamConfig) { c.AllowMsgSchedules = true },
		"allow_rollup_hdrs is true, want false":    func(c *jetstream.StreamConfig) { c.AllowRollup = true },
		"deny_delete is false, want true":          func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"no_ack is true, want false":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"sealed is true, want false":               func(c *jetstream.StreamConfig) { c.Sealed = true },
		"subject_delete_marker_ttl is 1s, want 0s": func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Second },
		"subject_transform is true, want false":    func(c *jetstream.StreamConfig) { c.SubjectTransform = &jetstream.SubjectTransformConfig{} },
		`kind is "", want "{`:                      func(c *jetstream.StreamConfig) { c.Metadata = nil },
	} {
		c := log
		change(&c)
		found := Differences(c, log)
		if !slices.ContainsFunc(found, func(d string) bool { return strings.HasPrefix(d, says) }) || len(found) != 1 {
			t.Errorf("the differences are %q, want %q alone", found, says)
		}
	}
}

// What an operator may set makes no difference.
func TestWhichSettingsMakeNoDifference(t *testing.T) {
	t.Parallel()
	p := standard()
	log := p.Log(kinds.Pods.Kind)
	if found := Differences(log, log); len(found) > 0 {
		t.Errorf("a stream differs from itself in %v", found)
	}
	same := log
	same.Subjects, same.Compression, same.Description, same.MaxMsgs, same.MaxBytes = slices.Clone(log.Subjects), jetstream.NoCompression, "mine", -1, 0
	same.MaxMsgsPerSubject = 1 << 40 // for smaller blocks
	if found := Differences(same, log); len(found) > 0 {
		t.Errorf("in what an operator may set it differs in %v", found)
	}
}

// How much is kept of what belongs to a kind or controller is what is said of it, and for the
// rest what is said of all.
func TestHowMuchIsKept(t *testing.T) {
	t.Parallel()
	p := Policy{
		Replicas: 1, Age: time.Hour, Bytes: 7, Began: time.Unix(1000, 0),
		Retention: map[string]bus.Retention{"pods": {Age: time.Minute}, "nodes": {Bytes: 9}, "c": {Age: time.Second, Bytes: 1}},
	}
	for of, want := range map[string]bus.Retention{"pods": {Age: time.Minute, Bytes: 7}, "nodes": {Age: time.Hour, Bytes: 9}, "c": {Age: time.Second, Bytes: 1}, "other": {Age: time.Hour, Bytes: 7}} {
		if got := p.retention(of); got != want {
			t.Errorf("the retention of %s is %+v, want %+v", of, got, want)
		}
	}
	turns := p.Turns("c")
	if turns.MaxAge != time.Second || turns.MaxBytes != 1 || turns.Duplicates != time.Second || !Sized(turns) {
		t.Errorf("turns keep %v and %d bytes, and ids for %v", turns.MaxAge, turns.MaxBytes, turns.Duplicates)
	}
	if other := p.Turns("other"); other.Duplicates != 2*time.Minute || Keeps(other) != (bus.Retention{Age: time.Hour, Bytes: 7}) {
		t.Errorf("other turns keep %+v, and ids for %v", Keeps(other), other.Duplicates)
	}
	if Sized(p.Wakes()) || Sized(p.Status()) {
		t.Error("the retention that was asked for applies to wakes or reports")
	}
	if got := Keeps(jetstream.StreamConfig{MaxBytes: -1}); got != (bus.Retention{}) {
		t.Errorf("a stream without bounds keeps %+v, want no bound", got)
	}
}

// A stream that is kept otherwise keeps its ids for as long, and no longer than its messages.
func TestIDsAreKeptNoLongerThanMessages(t *testing.T) {
	t.Parallel()
	of := func(age, window time.Duration, bytes int64) jetstream.StreamConfig {
		return jetstream.StreamConfig{MaxAge: age, Duplicates: window, MaxBytes: bytes}
	}
	for name, c := range map[string]struct{ other, c, want jetstream.StreamConfig }{
		"for longer":                     {of(time.Hour, 2*time.Minute, 7), of(time.Minute, 10*time.Second, 9), of(time.Hour, 10*time.Second, 7)},
		"for less time than ids":         {of(time.Minute, time.Minute, 7), of(time.Hour, 2*time.Minute, 9), of(time.Minute, time.Minute, 7)},
		"for as long as ids":             {of(2*time.Minute, time.Minute, 7), of(time.Hour, 2*time.Minute, 9), of(2*time.Minute, 2*time.Minute, 7)},
		"ids as long as messages so far": {of(time.Hour, 2*time.Minute, 7), of(time.Minute, time.Minute, 9), of(time.Hour, 2*time.Minute, 7)},
	} {
		if got := Retained(c.other, c.c); got.MaxAge != c.want.MaxAge || got.Duplicates != c.want.Duplicates || got.MaxBytes != c.want.MaxBytes {
			t.Errorf("%s: the stream keeps messages for %v, ids for %v and %d bytes", name, got.MaxAge, got.Duplicates, got.MaxBytes)
		}
	}
}

// A kind goes with its stream and comes back; a stream without one is not ours.
func TestAKindGoesWithItsStream(t *testing.T) {
	t.Parallel()
	if kind, ours, err := KindOf(kindMetadata(kinds.Deployments.Kind)); err != nil || !ours || kind != kinds.Deployments.Kind {
		t.Errorf("the kind in the stream's metadata is %+v, %t, %v; want that of Deployments", kind, ours, err)
	}
	if _, ours, err := KindOf(map[string]string{"other": "x"}); ours || err != nil {
		t.Errorf("a stream without a kind is ours: %t, %v", ours, err)
	}
	if _, ours, err := KindOf(map[string]string{kindKey: "{"}); ours || err == nil {
		t.Errorf("a stream with a kind that cannot be read is ours: %t, %v", ours, err)
	}
	log := Policy{Replicas: 3}.Log(kinds.Pods.Kind)
	kind, ours, err := KindOf(log.Metadata)
	if err != nil || !ours || kind != kinds.Pods.Kind || log.MaxMsgsPerSubject > 0 || log.Replicas != 3 || log.AllowDirect {
		t.Errorf("a log is made as %+v", log)
	}
	for replicas, want := range map[int]jetstream.StoreCompression{1: jetstream.S2Compression, 3: jetstream.NoCompression} {
		if got := (Policy{Replicas: replicas}).Wakes().Compression; got != want {
			t.Errorf("with %d copies blocks are packed by %v, want %v", replicas, got, want)
		}
	}
}

// What is for all controllers is bounded by what is worth something.
func TestStreamsOfAllControllers(t *testing.T) {
	t.Parallel()
	p := standard()
	if s := p.Status(); s.MaxMsgsPerSubject != 256 || s.MaxAge != report.Age || s.Duplicates != report.Every || s.MaxBytes != -1 {
		t.Errorf("reports are kept in %+v", s)
	}
	if s := p.Wakes(); s.MaxMsgsPerSubject != 1 || s.Duplicates != 2*time.Minute || s.MaxAge != 0 {
		t.Errorf("the stream of wakes is %+v", s)
	}
	if s := p.Shadow("c"); s.Name != "SHADOW_c" || !slices.Equal(s.Subjects, []string{"shadow.c.>"}) || s.MaxAge != 24*time.Hour {
		t.Errorf("the stream of a shadow is %+v", s)
	}
	if s := p.Notary(time.Hour); s.MaxAge != time.Hour || s.MaxBytes != -1 || s.Duplicates != 2*time.Minute || !slices.Equal(s.Subjects, []string{"notary.>"}) {
		t.Errorf("pages are kept in %+v", s)
	}
}
