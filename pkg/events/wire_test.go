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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// padded is a JSON text of exactly the given number of bytes.
func padded(text string, to int) []byte { return []byte(text + strings.Repeat(" ", to-len(text))) }

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
		t.Errorf("it is read as %+v (%v)\nwant %+v", d, err, full())
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
			t.Errorf("%s: %v", header, err)
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
		t.Errorf("it is read as %+v, %v", wake, err)
	}
	if m, err := events.EncodeJSON(events.Wake{}, events.Trace{}); err != nil || len(m.Header) != 1 {
		t.Errorf("without a trace the headers are %v, %v", m.Header, err)
	}
	if m, err := events.EncodeJSON(func() {}, trace); err == nil || m.Header != nil {
		t.Errorf("what cannot be written is %+v", m)
	}
	if got := events.TraceOf(map[string][]string{events.HeaderTraceWrites: {"22"}, events.HeaderTraceBegan: {"23"}}); got != (events.Trace{}) {
		t.Errorf("without a parent the trace is %+v", got)
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

// A report is cut when it is encoded, and one that is too large is not decoded. The original
// report does not change.
func TestReportsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 600)
	report := events.Report{Replica: "r", Stalled: []events.Stall{{Controller: "c", Condition: events.Deciding, Detail: long}}}
	for range 101 {
		report.Unwatched = append(report.Unwatched, events.Unwatched{Kind: "pods", Reason: long})
	}
	m, err := report.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := events.DecodeReport(m)
	if err != nil || got.Replica != "r" || len(got.Stalled[0].Detail) != 500 || len(got.Unwatched) != 100 || len(got.Unwatched[99].Reason) != 500 {
		t.Errorf("it is read as %.100v, %v", got, err)
	}
	if len(report.Stalled[0].Detail) != 600 || len(report.Unwatched) != 101 || len(report.Unwatched[0].Reason) != 600 {
		t.Error("what was reported has changed")
	}
	named := func(n int) []byte { return []byte(`{"replica":"` + strings.Repeat("r", n) + `"}`) }
	for name, c := range map[string]struct {
		data []byte
		read bool
	}{
		"as long as may be": {padded(`{"replica":"r"}`, 256<<10), true}, "longer": {padded(`{"replica":"r"}`, 256<<10+1), false},
		"a name as long as may be": {named(256), true}, "a longer name": {named(257), false}, "no JSON": {[]byte("{"), false},
	} {
		if got, err := events.DecodeReport(events.Message{Data: c.data}); (err == nil) != c.read || c.read == (got.Replica == "") {
			t.Errorf("%s: %.60v, %v", name, got, err)
		}
	}
}

// Every condition has a reason and an advice; the reason of a later version's condition is its
// name.
func TestConditionsAreExplained(t *testing.T) {
	all := events.Conditions()
	if len(all) != 9 || !slices.IsSorted(all) {
		t.Errorf("the conditions are %v", all)
	}
	for _, c := range all {
		if c.Reason() == string(c) || c.Advice() == "" || c.Advice() == c.Reason() {
			t.Errorf("%s: %q, %q", c, c.Reason(), c.Advice())
		}
	}
	if later := events.Condition("Later"); later.Reason() != "Later" || later.Advice() != "" {
		t.Errorf("a later condition: %q, %q", later.Reason(), later.Advice())
	}
	stall := events.Stall{Condition: events.KeysWait}
	if stall.String() != events.KeysWait.Reason() {
		t.Errorf("without a detail: %s", stall)
	}
	if stall.Detail = "three"; stall.String() != events.KeysWait.Reason()+": three" {
		t.Errorf("with a detail: %s", stall)
	}
}

// A writer's heartbeat is decoded up to its limits; its turns in flight are all that it was
// given.
func TestWhatWritersSay(t *testing.T) {
	named := func(n int) []byte { return []byte(`{"writer":"` + strings.Repeat("w", n) + `"}`) }
	for name, c := range map[string]struct {
		data []byte
		read bool
	}{
		"as long as may be": {padded(`{"writer":"w"}`, 256<<10), true}, "longer": {padded(`{"writer":"w"}`, 256<<10+1), false},
		"a name as long as may be": {named(256), true}, "a longer name": {named(257), false}, "no name": {named(0), false},
		"half of it": {[]byte(`{"writer":"w","number":"x"}`), false},
	} {
		if got, ok := events.DecodeHeartbeat(c.data); ok != c.read || name == "half of it" && got.Writer != "" {
			t.Errorf("%s: %.60v, %t", name, got, ok)
		}
	}
	said := events.Heartbeat{Writer: "w", Number: 7, Turns: map[string][]uint64{"c": {1, 2}}, Waiting: map[string][]uint64{"c": {3}}}
	if got, ok := events.DecodeHeartbeat(said.Encode()); !ok || !reflect.DeepEqual(got, said) {
		t.Errorf("it is read as %+v", got)
	}
	if got := said.InFlight("c"); !slices.Equal(got, []uint64{1, 2, 3}) || !slices.Equal(said.Turns["c"], []uint64{1, 2}) {
		t.Errorf("in flight are %v", got)
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

// A pod with a node uses a claim that one of its volumes names, or that is made for it.
func TestWhichPodsUseAClaim(t *testing.T) {
	named := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "p-v"}}}
	made := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	other := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	now, zero, some := metav1.NewTime(dawn), int64(0), int64(5)
	owned := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "up", Controller: new(true)}}}}
	strange := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "uq", Controller: new(true)}}}}
	for name, c := range map[string]struct {
		node    string
		deleted *metav1.Time
		grace   *int64
		volumes []corev1.Volume
		uses    bool
		want    events.User
		needs   bool // the claim that it owns
		others  bool // another one's claim
	}{
		"named":             {"n", nil, nil, []corev1.Volume{other, named}, true, events.User{Name: "p", UID: "up"}, true, true},
		"made for it":       {"n", nil, nil, []corev1.Volume{made}, true, events.User{Name: "p", UID: "up", Own: true}, true, false},
		"both":              {"n", nil, nil, []corev1.Volume{made, named}, true, events.User{Name: "p", UID: "up"}, true, true},
		"neither":           {"n", nil, nil, []corev1.Volume{other}, false, events.User{}, false, false},
		"on no node":        {"", nil, nil, []corev1.Volume{named}, false, events.User{}, false, false},
		"shut down":         {"n", &now, &zero, []corev1.Volume{made}, true, events.User{Name: "p", UID: "up", Own: true, Down: true}, false, false},
		"being shut down":   {"n", &now, &some, []corev1.Volume{made}, true, events.User{Name: "p", UID: "up", Own: true}, true, false},
		"deleted, no grace": {"n", &now, nil, []corev1.Volume{made}, true, events.User{Name: "p", UID: "up", Own: true}, true, false},
		"not deleted":       {"n", nil, &zero, []corev1.Volume{made}, true, events.User{Name: "p", UID: "up", Own: true}, true, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "up", DeletionTimestamp: c.deleted, DeletionGracePeriodSeconds: c.grace}}
		pod.Spec.NodeName, pod.Spec.Volumes = c.node, c.volumes
		got, uses := events.UserOf(pod, "p-v")
		if got != c.want || uses != c.uses {
			t.Errorf("%s: %+v, %t", name, got, uses)
		}
		if uses && (got.Needs(owned) != c.needs || got.Needs(strange) != c.others || got.Needs(&corev1.PersistentVolumeClaim{}) != c.others) {
			t.Errorf("%s: it needs its own claim: %t, another one's: %t, an unowned one: %t", name, got.Needs(owned), got.Needs(strange), got.Needs(&corev1.PersistentVolumeClaim{}))
		}
		var users events.Users
		for range 101 {
			users.Take(pod, "p-v")
		}
		if uses && (users.Count != 101 || len(users.Pods) != 100) || !uses && users.Count != 0 {
			t.Errorf("%s: of 101 pods %d are counted and %d named", name, users.Count, len(users.Pods))
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
	token := events.Command{Verb: events.VerbPatch, Kind: "secrets", Subresource: events.SubToken}
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
			t.Errorf("%s: %t", name, got)
		}
	}
	if o.Ahead(dawn.Add(-time.Second)) || !o.Ahead(dawn.Add(-time.Second-1)) {
		t.Error("clocks may be a second apart, and not more")
	}
	late := events.Outcome{At: dawn.Add(-time.Hour), Decided: dawn}
	if !late.Ahead(dawn.Add(-2 * time.Second)) {
		t.Error("it was decided later than it was known")
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
		t.Errorf("noted is %v", got)
	}
	if got := (events.Outcome{}).Noted(dawn); !got.Equal(dawn) {
		t.Errorf("of no moment, noted is %v", got)
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
		t.Errorf("a mark has a hole before it: %+v", hole)
	}
	if hole, ok := c.Next(events.Message{Sequence: 4}, events.Delta{Op: events.Is, After: events.Link{Sequence: 3}}); ok || hole.From != 2 || hole.To != 3 {
		t.Errorf("what is missing behind it is %+v, %t", hole, ok)
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
		t.Errorf("of pods it adds %d", got)
	}
	if got := (events.Census{Known: true, Digest: 7}).Of("pods"); got != 0 {
		t.Errorf("no objects add %d", got)
	}
}

// Where nothing is held, nothing is named again.
func TestNothingIsNamedOfNothing(t *testing.T) {
	contents := events.Contents{Kinds: []events.Holding{{Kind: "a"}, {Kind: "b"}}}
	contents.Limit(map[kinds.Name]string{"a": "x"})
	for _, h := range contents.Kinds {
		if h.Part || h.Again {
			t.Errorf("of %s a part is named: %t, again: %t", h.Kind, h.Part, h.Again)
		}
	}
}

// The slot of an object is a part of its subject, so all versions must compute the same one.
func TestSlotsStay(t *testing.T) {
	for ref, want := range map[events.Ref]int{{Namespace: "shop", Name: "web"}: 9, {Namespace: "shop", Name: "db"}: 9, {Name: "n1"}: 0} {
		if got := ref.Slot(); got != want {
			t.Errorf("%v is in slot %d, want %d", ref, got, want)
		}
	}
	if events.MaxEpoch != 4294967295 || events.NextEpoch(7) != 8 || events.NextEpoch(events.MaxEpoch) != events.MaxEpoch || events.ReportAge != time.Minute {
		t.Errorf("the last epoch is %d, and a report counts for %v", uint64(events.MaxEpoch), events.ReportAge)
	}
	blank := events.Message{Subject: "ev.x", Header: map[string][]string{"X": {" \t"}}}
	if err := events.Verify(events.Seal(blank)); err != nil {
		t.Errorf("a blank header: %v", err)
	}
}

// Metrics are read if the wanted number of replicas is in the question's range.
func TestWhereMetricsAreRead(t *testing.T) {
	q := events.ReadingsQuestion{Least: 2, Most: 4}
	for replicas, want := range map[int32]bool{0: false, 1: false, 2: true, 4: true, 5: false} {
		if got := q.Counts(replicas); got != want {
			t.Errorf("of %d replicas: %t", replicas, got)
		}
	}
	if q.Zero = true; !q.Counts(0) || q.Counts(1) {
		t.Error("where none are wanted they are read if that is asked for")
	}
}
