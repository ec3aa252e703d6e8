package events_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/report"
)

var dawn = time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)

// full is a delta with every header, and numbers of two digits.
func full() events.Delta {
	return events.Delta{
		Kind: "pods", Op: events.Is, Ref: events.Ref{Kind: "pods", Namespace: "shop", Name: "web"}, UID: "u", ResourceVersion: "11",
		Generation: 12, Epoch: 13, Deleting: true, Sync: true, At: dawn, Form: kinds.Full, ContentType: kinds.JSON, Body: []byte(`{}`),
		By: events.Manager{Name: "kubectl", Operation: "Apply"}, Proven: true, Beside: []events.Manager{{Name: "kubelet"}},
		Census: events.Census{Known: true, Objects: 14, Digest: 15}, After: events.Link{Sequence: 16, Sum: "s"}, Before: events.Place{Known: true, Sequence: 17},
		Since: 18, Sight: events.Sight{Since: dawn, Until: dawn.Add(time.Second)}, Left: events.Left{Versions: 19, Bytes: 20}, Waits: 21,
		Redaction: events.Redacted, Trace: events.Trace{Parent: "p", State: "s", Writes: 22, Began: 23},
	}
}

// Other versions read and write the stored messages, so headers and sums must not change.
func TestADeltaOnTheWire(t *testing.T) {
	m := events.Seal(events.EncodeDelta(full()))
	want := map[string]string{
		events.HeaderOp: "is", events.HeaderUID: "u", events.HeaderRV: "11", events.HeaderGeneration: "12", events.HeaderEpoch: "13",
		events.HeaderDeleting: "true", events.HeaderSync: "true", events.HeaderAt: "2026-11-27T03:00:00Z", events.HeaderForm: string(kinds.Full),
		events.HeaderContentType: "application/json", events.HeaderManager: "kubectl\tApply", events.HeaderAuthor: "proven",
		events.HeaderCensus: "14 000000000000000f", events.HeaderAfter: "16 s", events.HeaderBefore: "17", events.HeaderSince: "18",
		events.HeaderSight: "2026-11-27T03:00:00Z 2026-11-27T03:00:01Z", events.HeaderLeft: "19 20", events.HeaderWaits: "21",
		events.HeaderRedaction: "rules", "traceparent": "p", "tracestate": "s", events.HeaderTraceWrites: "22", events.HeaderTraceBegan: "23",
		"ce-specversion": "1.0", "ce-id": "is/u/11", "ce-source": "/millrace/watcher", "ce-type": "io.k8s.pods.is", "ce-subject": "pods:shop/web",
		events.HeaderBodySum: "2e1472b57af294d1", events.HeaderSum: "e6243bce25fb733d",
	}
	got := map[string]string{}
	for key := range m.Header {
		got[key] = m.Get(key)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the headers are %v\nwant %v", got, want)
	}
	d, err := events.DecodeDelta(full().Ref, m)
	if err != nil || !reflect.DeepEqual(d, full()) {
		t.Errorf("the delta is decoded as %+v (%v)\nwant %+v", d, err, full())
	}
}

// The error for a malformed header names it, and no delta is returned.
func TestMalformedHeadersAreNamed(t *testing.T) {
	for header, bad := range map[string][]string{
		events.HeaderGeneration: {"x", "-1", "9223372036854775808"}, events.HeaderEpoch: {"x", "4294967296"}, events.HeaderBefore: {"x", "18446744073709551616"},
		events.HeaderSince: {"x", "18446744073709551616"}, events.HeaderWaits: {"x", "18446744073709551616"}, events.HeaderAt: {"noon"},
		events.HeaderSight: {"x", "x y", "2026-11-27T03:00:00Z", "2026-11-27T03:00:00Z noon"}, events.HeaderCensus: {"x", "1 x", "x 1", "1"},
		events.HeaderAfter: {"x s"}, events.HeaderLeft: {"x", "1", "1 x", "x 1"}, events.HeaderOp: {"", "was"}, events.HeaderUID: {""},
	} {
		for _, value := range bad {
			m := events.EncodeDelta(full())
			m.Header[header] = []string{value}
			if d, err := events.DecodeDelta(full().Ref, m); err == nil || !strings.Contains(err.Error(), header) || !reflect.DeepEqual(d, events.Delta{}) {
				t.Errorf("%s: %q is read as %+v, %v", header, value, d, err)
			}
		}
	}
	for header, largest := range map[string]string{
		events.HeaderGeneration: "9223372036854775807", events.HeaderEpoch: "4294967295", events.HeaderSince: "18446744073709551615", events.HeaderLeft: "18446744073709551615 18446744073709551615",
	} {
		m := events.EncodeDelta(full())
		m.Header[header] = []string{largest}
		if _, err := events.DecodeDelta(full().Ref, m); err != nil {
			t.Errorf("%s: decode the largest value: %v", header, err)
		}
	}
}

// JSON messages carry the trace, and a value that cannot be encoded is an error.
func TestWhatIsStoredAsJSON(t *testing.T) {
	trace := events.Trace{Parent: "p", State: "s", Writes: 22, Began: 23}
	m, err := events.EncodeJSON(events.Wake{Controller: "c"}, trace)
	if err != nil || events.TraceOf(m.Header) != trace || m.Get(events.HeaderContentType) != "application/json" {
		t.Errorf("the headers are %v, %v", m.Header, err)
	}
	var wake events.Wake
	if err := events.DecodeJSON(m, &wake); err != nil || wake.Controller != "c" {
		t.Errorf("the wake is decoded as %+v, %v; want controller c", wake, err)
	}
	if m, err := events.EncodeJSON(events.Wake{}, events.Trace{}); err != nil || len(m.Header) != 1 {
		t.Errorf("without a trace the headers are %v, %v; want one", m.Header, err)
	}
	if m, err := events.EncodeJSON(func() {}, trace); err == nil || m.Header != nil {
		t.Errorf("a value that JSON cannot have is encoded as %+v", m)
	}
	if got := events.TraceOf(map[string][]string{events.HeaderTraceWrites: {"22"}, events.HeaderTraceBegan: {"23"}}); got != (events.Trace{}) {
		t.Errorf("without a parent the trace is %+v, want none", got)
	}
	sealed := events.Seal(m)
	sealed.Data = append(slices.Clone(sealed.Data), ' ')
	if err := events.DecodeJSON(sealed, &wake); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("damage is read: %v", err)
	}
}

// Texts are written as by encoding/json, whatever they contain.
func TestTextsAreWrittenAsJSON(t *testing.T) {
	for c := range 256 {
		for _, text := range []string{string(rune(c)), "a" + string([]byte{byte(c)}) + "b"} {
			turn := events.Turn{Because: text}
			want, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(turn.AppendDecision(nil)); !strings.HasPrefix(got, `"because":`+string(want)) {
				t.Errorf("%q is written as %s, want %s", text, got, want)
			}
		}
	}
}

// MembersOf finds the fields of an object; any other text has none.
func TestMembersOfOtherTexts(t *testing.T) {
	for _, text := range []string{"", "null", "{}"} {
		if got, err := events.MembersOf(json.RawMessage(text)); err != nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"[]", "7", `"x"`, "true", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,"a":2}`, `{1:2}`} {
		if got, err := events.MembersOf(json.RawMessage(text)); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Two numbers say what a page covers.
func TestWhatAPageCovers(t *testing.T) {
	of := func(text string) events.Message {
		return events.Message{Header: map[string][]string{events.HeaderCovers: {text}}}
	}
	if first, last, ok := events.CoveredBy(of(events.Covers(12, 1<<64-1))); first != 12 || last != 1<<64-1 || !ok {
		t.Errorf("%d to %d, %t", first, last, ok)
	}
	for _, text := range []string{"", "3", "3 ", " 3", "x 9", "3 x", "18446744073709551616 1", "1 18446744073709551616", "-1 2"} {
		if first, last, ok := events.CoveredBy(of(text)); ok {
			t.Errorf("%q covers %d to %d", text, first, last)
		}
	}
}

// Only commands that report observations may run beside those that act.
func TestWhichCommandsReport(t *testing.T) {
	for name, c := range map[string]struct {
		command events.Command
		want    events.Lane
	}{
		"a status": {events.Command{Verb: events.VerbUpdate, Subresource: "status"}, events.LaneStatus}, "a record": {events.Command{Verb: events.VerbRecord}, events.LaneStatus},
		"a scale": {events.Command{Verb: events.VerbUpdate, Subresource: "scale"}, events.LaneWrite}, "a create": {events.Command{Verb: events.VerbCreate}, events.LaneWrite},
	} {
		if got := c.command.Lane(); got != c.want {
			t.Errorf("%s goes on lane %s", name, got)
		}
	}
	token := events.Command{Verb: events.VerbPatch, Kind: "secrets", Subresource: query.SubToken}
	for name, change := range map[string]func(*events.Command){
		"another verb": func(c *events.Command) { c.Verb = events.VerbUpdate }, "another kind": func(c *events.Command) { c.Kind = "pods" }, "no token": func(c *events.Command) { c.Subresource = "" },
	} {
		other := token
		if change(&other); other.FillsToken() || !token.FillsToken() {
			t.Errorf("%s fills in a token: %t", name, other.FillsToken())
		}
	}
}

// An outcome belongs to a turn by sequence and moment, and is no later than the reader knew it.
func TestWhichTurnAnOutcomeIsOf(t *testing.T) {
	o := events.Outcome{Turn: 7, At: dawn, Decided: dawn}
	for name, c := range map[string]struct {
		sequence uint64
		outcome  time.Time
		turn     time.Time
		want     bool
	}{
		"the same": {7, dawn, dawn, true}, "another place": {8, dawn, dawn, false}, "another moment": {7, dawn, dawn.Add(1), false},
		"a moment that is not known": {7, dawn, time.Time{}, true}, "an outcome without one": {7, time.Time{}, dawn, true}, "in another zone": {7, dawn, dawn.In(time.FixedZone("", 3600)), true},
	} {
		o := events.Outcome{Turn: 7, Decided: c.outcome}
		if got := o.IsOf(c.sequence, c.turn); got != c.want {
			t.Errorf("%s: the outcome is of the turn: %t, want %t", name, got, c.want)
		}
	}
	if o.Ahead(dawn.Add(-time.Second)) || !o.Ahead(dawn.Add(-time.Second-1)) {
		t.Error("clocks may be a second apart, and not more")
	}
	late := events.Outcome{At: dawn.Add(-time.Hour), Decided: dawn}
	if !late.Ahead(dawn.Add(-2 * time.Second)) {
		t.Error("Ahead is false for an outcome that was decided later")
	}
	known := o.KnownBy(dawn.Add(-1))
	if !known.At.Equal(dawn.Add(-1)) || !known.Decided.Equal(dawn.Add(-1)) {
		t.Errorf("known before, it is of %v and %v", known.At, known.Decided)
	}
	for _, by := range []time.Time{{}, dawn.Add(1)} {
		if got := o.KnownBy(by); !got.At.Equal(dawn) || !got.Decided.Equal(dawn) {
			t.Errorf("known by %v, it is of %v", by, got.At)
		}
	}
	if got := o.Noted(dawn.Add(1)); !got.Equal(dawn) {
		t.Errorf("the noted time is %v, want when it was decided", got)
	}
	if got := (events.Outcome{}).Noted(dawn); !got.Equal(dawn) {
		t.Errorf("an outcome without a time has the noted time %v, want the given one", got)
	}
	forged := []events.Result{{Status: events.Refused, Reason: events.BadSignature}}
	for _, c := range []struct {
		results []events.Result
		want    bool
	}{{forged, true}, {nil, false}, {[]events.Result{{Status: events.Failed, Reason: events.BadSignature}}, false}, {[]events.Result{{Status: events.Refused}}, false}} {
		if got := (events.Outcome{Results: c.results}).Forged(); got != c.want {
			t.Errorf("%+v is forged: %t", c.results, got)
		}
	}
}

// Answers differ by what was read and by the notes; without answers the digest is 0.
func TestWhatAnswersComeTo(t *testing.T) {
	of := func(answers ...*events.Answer) uint64 {
		var o events.Outcome
		for _, a := range answers {
			o.Results = append(o.Results, events.Result{Answer: a})
		}
		return o.Answers()
	}
	a, b := &events.Answer{Body: json.RawMessage("1")}, &events.Answer{Note: json.RawMessage("1")}
	if of() != 0 || of(nil, nil) != 0 {
		t.Error("there are answers where there are none")
	}
	all := []uint64{of(a), of(b), of(a, b), of(b, a), of(&events.Answer{})}
	slices.Sort(all)
	if len(slices.Compact(all)) != 5 || all[0] == 0 || of(nil, a) != of(a) {
		t.Errorf("the digests are %v", all)
	}
}

// A mark without a link does not change the chain.
func TestAMarkWithoutALink(t *testing.T) {
	var c events.Chain
	c.Next(events.Message{Sequence: 1}, events.Delta{Op: events.Is})
	if hole, ok := c.Next(events.Message{Sequence: 2}, events.Delta{Op: events.Mark}); !ok {
		t.Errorf("a mark has the hole %+v before it, want none", hole)
	}
	if hole, ok := c.Next(events.Message{Sequence: 4}, events.Delta{Op: events.Is, After: events.Link{Sequence: 3}}); ok || hole.From != 2 || hole.To != 3 {
		t.Errorf("the hole behind it is %+v, %t; want 2 to 3", hole, ok)
	}
}

// Readers of different versions count the same objects.
func TestACensusOnTheWire(t *testing.T) {
	var tally events.Tally
	d := full()
	tally.Fold(d)
	if got := tally.Census().String(); got != "1 edac911302c7bdc0" || !tally.Holds(d) {
		t.Errorf("the census is %s", got)
	}
	for name, change := range map[string]func(*events.Delta){
		"name": func(d *events.Delta) { d.Ref.Name = "x" }, "namespace": func(d *events.Delta) { d.Ref.Namespace = "x" }, "uid": func(d *events.Delta) { d.UID = "x" },
		"version": func(d *events.Delta) { d.ResourceVersion = "x" }, "epoch": func(d *events.Delta) { d.Epoch = 99 },
	} {
		other := d
		if change(&other); tally.Holds(other) {
			t.Errorf("an object of another %s is counted", name)
		}
	}
	if got := tally.Census().Of("pods"); got != 14468666021201374654 {
		t.Errorf("the census of pods adds %d, want 14468666021201374654", got)
	}
	if got := (events.Census{Known: true, Digest: 7}).Of("pods"); got != 0 {
		t.Errorf("no objects add %d", got)
	}
}

// The slot of an object is a part of its subject, so all versions must compute the same one.
func TestSlotsStay(t *testing.T) {
	for ref, want := range map[events.Ref]int{{Namespace: "shop", Name: "web"}: 9, {Namespace: "shop", Name: "db"}: 9, {Name: "n1"}: 0} {
		if got := ref.Slot(); got != want {
			t.Errorf("%v is in slot %d, want %d", ref, got, want)
		}
	}
	if events.MaxEpoch != 4294967295 || events.NextEpoch(7) != 8 || events.NextEpoch(events.MaxEpoch) != events.MaxEpoch || report.Age != time.Minute {
		t.Errorf("the last epoch is %d, and a report counts for %v", uint64(events.MaxEpoch), report.Age)
	}
	blank := events.Message{Subject: "ev.x", Header: map[string][]string{"X": {" \t"}}}
	if err := events.Verify(events.Seal(blank)); err != nil {
		t.Errorf("a blank header: %v", err)
	}
}
