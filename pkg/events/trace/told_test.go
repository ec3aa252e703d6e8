package trace_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// tells compares the attributes of the last ended span with the expected ones; an empty value
// means that the attribute must be absent.
func tells(t *testing.T, r *tracetest.Recorder, want map[attribute.Key]string) tracetest.Span {
	t.Helper()
	all := r.Spans()
	if len(all) == 0 {
		t.Fatal("there is no span")
	}
	last := all[len(all)-1]
	for key, value := range want {
		got, has := last.Attributes[key]
		if got != value || has != (value != "") {
			t.Errorf("%s: %s is %q, want %q", last.Name, key, got, value)
		}
	}
	return last
}

// TestASpanTellsWhatItIsAbout: the attributes let a user find the spans of an object, of a field
// manager and of a message.
func TestASpanTellsWhatItIsAbout(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("watcher", trace.Options{})
	d := delta("u", "1")
	d.By.Name = "kubectl"
	span := tracer.Delta(d, trace.Origin{Missed: true})
	span.Stored(1234)
	span.End()
	tells(t, r, map[attribute.Key]string{
		trace.Kind: "pods", "k8s.namespace.name": "default", trace.ObjectName: "web", trace.Op: string(events.Is), trace.UID: "u",
		trace.ResourceVersion: "1", trace.Manager: "kubectl", trace.Outcome: "missed its cause", trace.Sequence: "1234",
		"messaging.system": "nats", "messaging.destination.name": "EV_pods", "messaging.operation.name": "send",
	})
	d.By.Name, d.Ref.Namespace = "", ""
	tracer.Delta(d, trace.Origin{}).End()
	tells(t, r, map[attribute.Key]string{trace.Manager: "", trace.Outcome: "", "k8s.namespace.name": ""})
	tracer.Relist("pods").End()
	tells(t, r, map[attribute.Key]string{trace.Kind: "pods"})

	parent := events.Trace{Parent: sampled}
	repeated := turn(parent)
	repeated.Repeats = 2
	tracer.Turn(repeated).End()
	tells(t, r, map[attribute.Key]string{"millrace.repeats": "2", trace.Controller: "c", trace.Kind: ""})
	repeated.Repeats = 1
	tracer.Turn(repeated).End()
	tells(t, r, map[attribute.Key]string{"millrace.repeats": "1"})
	tracer.Turn(turn(parent)).End()
	tells(t, r, map[attribute.Key]string{"millrace.repeats": ""})
}

// TestARequestTellsHowItWasAnswered: its command, its try, and why it failed.
func TestARequestTellsHowItWasAnswered(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("writer", trace.Options{})
	ctx := trace.With(t.Context(), tracer.Carry(events.Message{Sequence: 7}, turn(events.Trace{Parent: sampled}), 1))
	for name, c := range map[string]struct {
		request trace.Request
		code    int
		reason  string
		want    map[attribute.Key]string
		failure string
	}{
		"done": {
			trace.Request{Method: "POST", Template: "/x", Kind: "pods", Namespace: "default", Command: 3, Try: 1, AuditID: "id"}, 201, "",
			map[attribute.Key]string{
				"http.request.method": "POST", "k8s.namespace.name": "default", trace.Command: "3", trace.AuditID: "id",
				"http.request.resend_count": "", "http.response.status_code": "201", "error.type": "",
			}, "",
		},
		"again, of no namespace": {
			trace.Request{Method: "PATCH", Template: "/x", Try: 2}, 399, "",
			map[attribute.Key]string{"k8s.namespace.name": "", trace.AuditID: "", "http.request.resend_count": "1", "error.type": ""}, "",
		},
		"refused": {
			trace.Request{Method: "PATCH", Template: "/x", Try: 3}, 409, "Conflict",
			map[attribute.Key]string{"http.request.resend_count": "2", "http.response.status_code": "409", "error.type": "Conflict"}, "Conflict",
		},
		"refused without a reason": {
			trace.Request{Method: "PATCH", Template: "/x", Try: 1}, 400, "",
			map[attribute.Key]string{"http.response.status_code": "400", "error.type": "400"}, "400",
		},
		"not answered": {
			trace.Request{Method: "PATCH", Template: "/x", Try: 1}, 0, "timeout",
			map[attribute.Key]string{"http.response.status_code": "", "error.type": "timeout"}, "timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			span := tracer.Request(ctx, c.request)
			span.Answered(c.code, c.reason)
			span.End()
			if got := tells(t, r, c.want); got.Failure != c.failure {
				t.Errorf("the span has the failure %q, want %q", got.Failure, c.failure)
			}
		})
	}
}

// TestARequestTakesItsTraceToTheServer, with the tracestate of vendors.
func TestARequestTakesItsTraceToTheServer(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("writer", trace.Options{})
	for _, state := range []string{"", "vendor=1"} {
		carry := tracer.Carry(events.Message{Sequence: 7}, turn(events.Trace{Parent: sampled, State: state}), 1)
		request := tracer.Request(trace.With(t.Context(), carry), trace.Request{Method: "GET", Try: 1})
		want := map[string]string{"traceparent": request.Trace().Parent}
		if state != "" {
			want["tracestate"] = state
		}
		if got := request.Headers(); !maps.Equal(got, want) || !strings.HasPrefix(got["traceparent"], sampled[:35]) {
			t.Errorf("with state %q the headers are %v, want %v", state, got, want)
		}
	}
}

// TestWithoutASpanThereIsNone: children of a span that is not recorded are not recorded.
func TestWithoutASpanThereIsNone(t *testing.T) {
	tracer := tracetest.New().Tracer("writer", trace.Options{})
	var off *trace.Tracer
	var none *trace.Span
	ctx := trace.With(t.Context(), none)
	none.EndAt(time.Now())
	carry := tracer.Carry(events.Message{}, turn(events.Trace{Parent: sampled}), 1)
	for name, s := range map[string]*trace.Span{
		"a request": tracer.Request(ctx, trace.Request{}), "a request without a tracer": off.Request(trace.With(ctx, carry), trace.Request{}),
		"a question": tracer.Process(trace.Question{}), "a question without a tracer": off.Process(trace.Question{Parent: events.Trace{Parent: sampled}}),
		"a question about a message without a tracer": off.Process(trace.Question{
			Parent: events.Trace{Parent: sampled}, Triggers: []events.Trigger{{Stream: "EV_pods", Sequence: 1, Trace: events.Trace{Parent: sampled}}},
		}),
		"a first decision": off.First(trace.Question{}, nil, time.Time{}), "a decision": tracer.Reconcile(nil, "c", time.Time{}),
		"a turn in flight": tracer.Carry(events.Message{}, turn(events.Trace{}), 1), "a turn": off.Carry(events.Message{}, turn(events.Trace{Parent: sampled}), 1),
		"garbage": tracer.Turn(turn(events.Trace{Parent: strings.Repeat("1", 55)})),
	} {
		if s != nil {
			t.Errorf("%s has a span", name)
		}
	}
	if none.Headers() != nil || trace.From(ctx) != nil || ctx != t.Context() {
		t.Error("no span is carried")
	}
	if !tracer.Now(events.Trace{}).IsZero() || tracer.Now(events.Trace{Parent: sampled}).IsZero() {
		t.Error("the moment is asked for where a span will be, and only there")
	}
}

// TestASpanOfTheLowestBit: the flags are a bit field, in which other bits may be set.
func TestASpanOfTheLowestBit(t *testing.T) {
	for i, digit := range "0123456789abcdef" {
		if got := trace.Sampled(events.Trace{Parent: sampled[:54] + string(digit)}); got != (i%2 == 1) {
			t.Errorf("with the flag %c the trace is sampled: %t, want %t", digit, got, i%2 == 1)
		}
	}
	if trace.Sampled(events.Trace{Parent: sampled[:54]}) {
		t.Error("a parent that is cut short is sampled")
	}
}

// TestAllCausesAreLinked: several changes can cause one question; the newest is its parent, and
// it has links to the others that are recorded.
func TestAllCausesAreLinked(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("c", trace.Options{Cluster: "here"})
	other := strings.Replace(sampled, "0af7", "1af7", 1)
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	q := trace.Question{Controller: "c", About: events.Ref{Name: "web"}, Parent: events.Trace{Parent: sampled}, Began: began, Triggers: []events.Trigger{
		{Stream: "EV_a", Sequence: 1, Trace: events.Trace{Parent: other}}, {Stream: "EV_b", Sequence: 2},
		{Stream: "EV_c", Sequence: 3, Trace: events.Trace{Parent: sampled}},
	}}
	tracer.Process(q).End()
	got := tells(t, r, map[attribute.Key]string{trace.Sequence: "3", "messaging.batch.message_count": "3"})
	if got.Name != "process EV_c" || len(got.Links) != 1 || got.Links[0].SpanContext.TraceID().String() != other[3:35] || got.Parent.TraceID().String() != sampled[3:35] {
		t.Errorf("%s has the parent %v and the links %v", got.Name, got.Parent, got.Links)
	}
}

// TestWhatIsSampledIsDecidedByTheObject: a sampler gets kind, namespace and labels.
func TestWhatIsSampledIsDecidedByTheObject(t *testing.T) {
	r := tracetest.New()
	var asked []trace.Cause
	r.Sample = func(c trace.Cause) bool { asked = append(asked, c); return true }
	tracer := r.Tracer("watcher", trace.Options{})
	labels := map[string]string{"app": "web"}
	tracer.Delta(delta("u", "1"), trace.Origin{Labels: labels}).End()
	tracer.First(trace.Question{Controller: "c", About: delta("u", "1").Ref}, labels, time.Time{}).End()
	if len(asked) != 2 {
		t.Fatalf("asked %d times", len(asked))
	}
	for _, c := range asked {
		if c.Kind != "pods" || c.Namespace != "default" || !maps.Equal(c.Labels, labels) || c.Cut {
			t.Errorf("asked about %+v", c)
		}
	}
}

// TestIDs: two unnamed traces have different ids, and every byte of them varies; the same parts
// joined in another way give other ids.
func TestIDs(t *testing.T) {
	var low, high otel.TraceID
	for range 64 {
		id, span := trace.IDs{}.NewIDs(context.Background())
		if !id.IsValid() || !span.IsValid() {
			t.Fatalf("the new IDs are not valid: %v, %v", id, span)
		}
		for i := range id {
			low[i] |= ^id[i]
			high[i] |= id[i]
		}
	}
	for i := range low {
		if low[i] == 0 || high[i] == 0 {
			t.Errorf("byte %d of an id is always %x", i, high[i])
		}
	}
	if trace.TraceID("c", delta("u1", "1")) == trace.TraceID("c", delta("u", "11")) {
		t.Error("two versions of two objects have one trace")
	}
	if got := trace.TraceID("c", delta("u", "1")).String(); got != "5d7759c586d843ae16c029534aee81b2" {
		t.Errorf("the trace of a version is %s: services of two releases no longer agree on it", got)
	}
	if trace.Context(events.Trace{State: "a=b"}).IsValid() || trace.Context(events.Trace{}).IsValid() {
		t.Error("no parent is one")
	}
}

// TestWhatIsTooLongIsNoWord: a message that any user may publish is rejected by its size and by
// the name in it, which becomes a part of a subject.
func TestWhatIsTooLongIsNoWord(t *testing.T) {
	pad := func(text []byte, to int) []byte { return append(text, strings.Repeat(" ", to-len(text))...) }
	for name, c := range map[string]struct {
		writer string
		size   int // of the write; a roll has 16 times that
		want   bool
	}{
		"at the bound": {"w", 16384, true}, "beyond it": {"w", 16385, false},
		"a long name": {strings.Repeat("w", 256), 16384, true}, "a longer one": {strings.Repeat("w", 257), 16384, false},
		"a space": {"a b", 16384, false}, "a tilde": {"a~b", 16384, true}, "delete": {"a\x7fb", 16384, false}, "a line": {"a\nb", 16384, false},
	} {
		_, write := trace.DecodeWrite(pad(trace.Write{Writer: c.writer, ID: "1"}.Encode(), c.size))
		_, roll := trace.DecodeRoll(pad(trace.Roll{Writer: c.writer, Open: []string{}}.Encode(), c.size+15*16384))
		if write != c.want || roll != c.want {
			t.Errorf("%s: a write %t, a roll %t, want %t", name, write, roll, c.want)
		}
	}
	for _, text := range []string{"{", `"w"`, `{"writer":7,"open":[]}`, `{"writer":"w","open":["a",7],"id":"1","rv":7}`} {
		if _, ok := trace.DecodeRoll([]byte(text)); ok {
			t.Errorf("%s is a roll", text)
		}
		if _, ok := trace.DecodeWrite([]byte(text)); ok {
			t.Errorf("%s is a write", text)
		}
	}
}

// TestAVersionOfAnotherTraceBeginsItsOwn: only a status change continues the trace of the
// previous version, and only if that is recorded.
func TestAVersionOfAnotherTraceBeginsItsOwn(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("watcher", trace.Options{})
	before := events.Trace{Parent: sampled}
	for name, c := range map[string]struct {
		origin  trace.Origin
		goesOn  bool
		linksTo int
	}{
		"a report":                   {trace.Origin{Reports: true, Before: before}, true, 0},
		"no report":                  {trace.Origin{Before: before}, false, 1},
		"a report after no recorded": {trace.Origin{Reports: true}, false, 0},
	} {
		span := tracer.Delta(delta("u", "1"), c.origin)
		span.End()
		same := trace.Context(span.Trace()).TraceID() == trace.Context(before).TraceID()
		if last := r.Spans()[len(r.Spans())-1]; same != c.goesOn || len(last.Links) != c.linksTo {
			t.Errorf("%s goes on in the trace: %t, want %t; with %d links", name, same, c.goesOn, len(last.Links))
		}
	}
}

// TestIDsAreRandom in all of their bytes.
func TestIDsAreRandom(t *testing.T) {
	var seen [8]map[byte]bool
	for range 200 {
		for i, b := range (trace.IDs{}).NewSpanID(t.Context(), otel.TraceID{}) {
			if seen[i] == nil {
				seen[i] = map[byte]bool{}
			}
			seen[i][b] = true
		}
	}
	for i := range seen {
		if len(seen[i]) < 50 {
			t.Errorf("byte %d has %d values in 200 ids", i, len(seen[i]))
		}
	}
}

// TestAWordThatIsHalfReadIsNone, whatever part of it was decoded.
func TestAWordThatIsHalfReadIsNone(t *testing.T) {
	for _, text := range []string{`{"uid":"u","writer":"w","rv":3}`, `{"uid":"u","writer":"w"`, `{"uid":"u"}` + strings.Repeat(" ", 16<<10)} {
		if w, ok := trace.DecodeWrite([]byte(text)); ok || w != (trace.Write{}) {
			t.Errorf("%.40q is read as %+v", text, w)
		}
	}
}

// TestFiftyCommandsAreInTheTraceOfTheirTurn, and each further one has its own trace.
func TestFiftyCommandsAreInTheTraceOfTheirTurn(t *testing.T) {
	r := tracetest.New()
	tracer := r.Tracer("writer", trace.Options{})
	ctx := trace.With(t.Context(), tracer.Carry(events.Message{Sequence: 7}, turn(events.Trace{Parent: sampled}), 1))
	for command, cut := range map[int]string{0: "", 49: "", 50: "fan-out"} {
		tracer.Request(ctx, trace.Request{Method: "POST", Command: command, Try: 1}).End()
		tells(t, r, map[attribute.Key]string{trace.Cut: cut})
	}
	if trace.RollEvery != 500*time.Millisecond { // watchers of other versions rely on this interval
		t.Errorf("a writer calls its roll every %v", trace.RollEvery)
	}
}
