package trace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func delta(uid, version string) events.Delta {
	return events.Delta{
		Kind: kinds.Pods.Name, Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "web"}, Op: events.Is,
		UID: types.UID(uid), ResourceVersion: version,
	}
}

func turn(of events.Trace) events.Turn {
	return events.Turn{Controller: "c", Key: events.Key{Namespace: "default", Name: "web"}, Lane: events.LaneWrite, Trace: of}
}

// TestOffIsNothing: a service without spans passes on the context that it got.
func TestOffIsNothing(t *testing.T) {
	var off *trace.Tracer
	if trace.New(nil, trace.Options{}) != nil {
		t.Error("a tracer without a provider")
	}
	before := events.Trace{Parent: sampled}
	span := off.Turn(turn(before))
	span.Set(trace.Because.String("x"))
	span.Fail("x")
	span.Stored(1)
	span.Answered(500, "x")
	span.End()
	if got := span.Or(before); got != before {
		t.Errorf("handed on %v, want %v", got, before)
	}
	if off.Delta(delta("u", "1"), trace.Origin{}) != nil || off.Relist("pods") != nil || !off.Now(before).IsZero() {
		t.Error("a tracer that is off makes spans")
	}
	if inner, root := off.Replay("x"); inner != nil || root != nil {
		t.Error("a tracer that is off replays")
	}
}

// TestRootsAreTheSameForEverybody, and different for each version, object and cluster.
func TestRootsAreTheSameForEverybody(t *testing.T) {
	r := tracetest.New()
	one, other := r.Tracer("watcher", trace.Options{Cluster: "c"}), r.Tracer("watcher", trace.Options{Cluster: "c"})
	a, b := one.Delta(delta("u", "1"), trace.Origin{}), other.Delta(delta("u", "1"), trace.Origin{})
	if a.Trace().Parent != b.Trace().Parent || a.Trace().Parent == "" {
		t.Errorf("%q and %q", a.Trace().Parent, b.Trace().Parent)
	}
	if got, want := trace.Context(a.Trace()).TraceID(), trace.TraceID("c", delta("u", "1")); got != want {
		t.Errorf("the trace is %v, and was foretold as %v", got, want)
	}
	for name, s := range map[string]*trace.Span{
		"version": one.Delta(delta("u", "2"), trace.Origin{}), "object": one.Delta(delta("v", "1"), trace.Origin{}),
		"cluster": r.Tracer("watcher", trace.Options{}).Delta(delta("u", "1"), trace.Origin{}),
	} {
		if trace.Context(s.Trace()).TraceID() == trace.Context(a.Trace()).TraceID() {
			t.Errorf("another %s has the same trace", name)
		}
	}
}

// TestAChainHasLimits: after each limit a new trace begins, with a link to the old one.
func TestAChainHasLimits(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		parent events.Trace
		cut    string
	}{
		"young":            {events.Trace{Parent: sampled, Writes: 2, Began: now.UnixMilli()}, ""},
		"unknown age":      {events.Trace{Parent: sampled}, ""},
		"last write":       {events.Trace{Parent: sampled, Writes: 19, Began: now.UnixMilli()}, ""},
		"too many writes":  {events.Trace{Parent: sampled, Writes: 20, Began: now.UnixMilli()}, "writes"},
		"as old as may be": {events.Trace{Parent: sampled, Began: now.Add(-15 * time.Minute).UnixMilli()}, ""},
		"too old":          {events.Trace{Parent: sampled, Began: now.Add(-16 * time.Minute).UnixMilli()}, "age"},
	} {
		t.Run(name, func(t *testing.T) {
			r := tracetest.New()
			r.Sample = func(trace.Cause) bool { return false } // a cut needs no decision of the sampler
			tracer := r.Tracer("watcher", trace.Options{Now: func() time.Time { return now }})
			span := tracer.Delta(delta("u", "1"), trace.Origin{Ours: true, Cause: test.parent})
			span.End()
			got := r.Spans()[0]
			if got.Attributes[trace.Cut] != test.cut {
				t.Errorf("cut by %q, want %q", got.Attributes[trace.Cut], test.cut)
			}
			cut := test.cut != ""
			if got.Parent.IsValid() == cut || (len(got.Links) == 1) != cut {
				t.Errorf("the span has the parent %v and %d links", got.Parent, len(got.Links))
			}
			if next := span.Trace(); cut && (next.Writes != 0 || next.Began != now.UnixMilli()) || !cut && next.Writes != test.parent.Writes+1 {
				t.Errorf("the trace goes on as %+v", next)
			}
		})
	}
}

// TestWhatIsNotSampledCostsNothing, all the way down.
func TestWhatIsNotSampledCostsNothing(t *testing.T) {
	r := tracetest.New()
	r.Sample = func(trace.Cause) bool { return false }
	tracer := r.Tracer("watcher", trace.Options{})
	if s := tracer.Delta(delta("u", "1"), trace.Origin{}); s != nil || s.Trace() != (events.Trace{}) {
		t.Error("a root that is not sampled")
	}
	if tracer.Delta(delta("u", "1"), trace.Origin{Ours: true}) != nil {
		t.Error("a write that is not sampled begins a trace")
	}
	for _, parent := range []string{"", "garbage", strings.TrimSuffix(sampled, "1") + "0"} {
		if tracer.Turn(turn(events.Trace{Parent: parent})) != nil {
			t.Errorf("a span behind %q", parent)
		}
	}
	if r.Roots() != 1 {
		t.Errorf("%d traces were to begin, want 1", r.Roots())
	}
}

// TestACommandBeyondTheLimitHasItsOwnTrace.
func TestACommandBeyondTheLimitHasItsOwnTrace(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("writer", trace.Options{Limits: trace.Limits{Fanout: 2}})
	carry := tracer.Carry(events.Message{Sequence: 7}, turn(events.Trace{Parent: sampled}), 1)
	ctx := trace.With(t.Context(), carry)
	for command := range 4 {
		s := tracer.Request(ctx, trace.Request{Method: "POST", Template: "/api/v1/namespaces/{namespace}/pods", Command: command, Try: 1})
		s.Answered(201, "")
		s.End()
	}
	carry.End()
	want := "(orphan) writer: process TURN_c\n  writer: POST /api/v1/namespaces/{namespace}/pods ×2\n" +
		"writer: POST /api/v1/namespaces/{namespace}/pods [1 links] ×2\n"
	if got := r.Tree(); got != want {
		t.Errorf("the traces are\n%swant\n%s", got, want)
	}
	traces := map[string]bool{}
	for _, s := range r.Spans() {
		traces[s.Context.TraceID().String()] = true
	}
	if len(traces) != 3 {
		t.Errorf("%d traces, want 3", len(traces))
	}
}

// TestAReplayIsInNoTraceThatWasRecorded.
func TestAReplayIsInNoTraceThatWasRecorded(t *testing.T) {
	r := tracetest.New()
	tracer, root := r.Tracer("replay", trace.Options{Limits: trace.Limits{Age: 1}}).Replay("yesterday") // the limits do not apply to a replay
	process := tracer.Process(trace.Question{
		Controller: "c", About: events.Ref{Name: "web"}, Parent: events.Trace{Parent: sampled, Began: 1},
		Triggers: []events.Trigger{{Stream: "EV_pods", Sequence: 3, Trace: events.Trace{Parent: sampled, Began: 1}}},
	})
	reconcile := tracer.Reconcile(process, "c", time.Time{})
	reconcile.End()
	process.End()
	tracer.Delta(delta("u", "1"), trace.Origin{}).End()
	root.End()
	want := "replay: replay yesterday\n  replay: process EV_pods [1 links]\n    replay: reconcile c\n  replay: send EV_pods\n"
	if got := r.Tree(); got != want {
		t.Errorf("the traces are\n%swant\n%s", got, want)
	}
	for _, s := range r.Spans() {
		if s.Context.TraceID().String() == sampled[3:35] || s.Attributes[trace.Replay] != "true" || s.Attributes[trace.Cut] != "" {
			t.Errorf("%s is in trace %v, marked %q, cut %q", s.Name, s.Context.TraceID(), s.Attributes[trace.Replay], s.Attributes[trace.Cut])
		}
	}
}

// TestSecretsHaveNoNames in spans, as deltas, as keys and as objects of keys.
func TestSecretsHaveNoNames(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("x", trace.Options{})
	d := delta("u", "1")
	d.Kind, d.Ref = "secrets", events.Ref{Kind: "secrets", Namespace: "default", Name: "hidden"}
	d.Body = []byte("hidden content")
	tracer.Delta(d, trace.Origin{Labels: map[string]string{"hidden": "hidden"}, Notes: map[string]string{"hidden": "hidden"}}).End()
	secret := turn(events.Trace{Parent: sampled})
	secret.Key = events.Key{Kind: "secrets", Namespace: "default", Name: "hidden"}
	tracer.Turn(secret).End()
	secret.Key.Kind, secret.Kind = "", "secrets"
	tracer.Carry(events.Message{Subject: "hidden"}, secret, 1).End()
	tracer.Process(trace.Question{Controller: "c", About: d.Ref, Parent: secret.Trace}).End()
	if len(r.Spans()) != 4 {
		t.Fatalf("%d spans, want 4", len(r.Spans()))
	}
	for _, s := range r.Spans() {
		if text := fmt.Sprint(s.Name, s.Attributes); strings.Contains(text, "hidden") {
			t.Errorf("%s tells %s", s.Name, text)
		}
	}
}

// TestANoteOnAnObjectIsALink (KEP-5915): it has no influence on sampling, and an unreadable one
// is ignored.
func TestANoteOnAnObjectIsALink(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("watcher", trace.Options{})
	for note, links := range map[string]int{sampled: 1, "garbage": 0, "": 0} {
		r.Reset()
		tracer.Delta(delta("u", "1"), trace.Origin{Notes: map[string]string{trace.NoteParent: note}}).End()
		if got := r.Spans()[0]; len(got.Links) != links || got.Parent.IsValid() {
			t.Errorf("with the note %q the span has %d links, want %d; its parent is %v", note, len(got.Links), links, got.Parent)
		}
	}
}

// TestAReportGoesOnWithinTheLimits, and beyond them begins a trace that links back.
func TestAReportGoesOnWithinTheLimits(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("watcher", trace.Options{Limits: trace.Limits{Writes: 2}})
	before := events.Trace{Parent: sampled, Writes: 1}
	for _, version := range []string{"1", "2", "3"} {
		span := tracer.Delta(delta("u", version), trace.Origin{Before: before, Reports: true})
		before = span.Trace()
		span.End()
	}
	all := r.Named("send EV_pods")
	if all[0].Parent.SpanID().String() != "b7ad6b7169203331" || len(all[0].Links) != 0 {
		t.Errorf("the first is %+v", all[0])
	}
	if all[1].Parent.IsValid() || len(all[1].Links) != 1 || all[1].Attributes[trace.Cut] != "writes" {
		t.Errorf("the one behind the limit is %+v", all[1])
	}
	if all[2].Parent.SpanID() != all[1].Context.SpanID() {
		t.Errorf("the next is %+v", all[2])
	}
}

// TestAWriteGoesItsWay.
func TestAWriteGoesItsWay(t *testing.T) {
	about := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "web"}
	for _, w := range []trace.Write{
		{Writer: "w", ID: "1", About: about, Begins: true},
		{ID: "1", About: about},
		{ID: "1", About: about, UID: "u", Version: "3", Ends: true, Trace: events.Trace{Parent: sampled, Writes: 2, Began: 5}},
		{UID: "u", Version: "3"},
	} {
		if got, ok := trace.DecodeWrite(w.Encode()); !ok || got != w {
			t.Errorf("the write is decoded as %+v, %t; want %+v", got, ok, w)
		}
	}
	if _, ok := trace.DecodeWrite([]byte("{}")); ok {
		t.Error("a write of no object")
	}
}

// TestARollGoesItsWay, and is not decoded as a write, nor a write as a roll.
func TestARollGoesItsWay(t *testing.T) {
	for _, open := range [][]string{{}, {"1", "2"}} {
		text := trace.Roll{Writer: "w", Open: open}.Encode()
		if got, ok := trace.DecodeRoll(text); !ok || got.Writer != "w" || !slices.Equal(got.Open, open) {
			t.Errorf("the roll is decoded as %+v, %t; want w with %v", got, ok, open)
		}
		if _, ok := trace.DecodeWrite(text); ok {
			t.Error("a roll is a write")
		}
	}
	if _, ok := trace.DecodeRoll(trace.Write{Writer: "w", ID: "1", Begins: true}.Encode()); ok {
		t.Error("a write is a roll")
	}
}
