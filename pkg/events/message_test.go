package events_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestDeltasRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ref := events.Ref{Kind: "pods", Namespace: rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "namespace"), Name: rapid.StringMatching(`[a-z.]{1,12}`).Draw(t, "name")}
		d := events.Delta{
			Kind: ref.Kind, Ref: ref,
			Op:              rapid.SampledFrom([]events.Op{events.Is, events.Gone}).Draw(t, "op"),
			UID:             types.UID(rapid.StringMatching(`[a-f0-9-]{1,36}`).Draw(t, "uid")),
			ResourceVersion: rapid.StringMatching(`[1-9][0-9]{0,12}`).Draw(t, "rv"),
			Generation:      rapid.Int64Min(0).Draw(t, "generation"),
			Deleting:        rapid.Bool().Draw(t, "deleting"),
			Epoch:           uint64(rapid.Uint32().Draw(t, "epoch")),
			Sync:            rapid.Bool().Draw(t, "sync"),
			By: events.Manager{Name: rapid.StringMatching(`[ -~]{0,19}[!-~]`).Draw(t, "manager"), Operation: "Update",
				Subresource: rapid.SampledFrom([]string{"", "status"}).Draw(t, "subresource"), Time: moment(t)},
			Proven:      rapid.Bool().Draw(t, "proven"),
			Beside:      []events.Manager{{Name: "x", Operation: "Apply", Time: moment(t)}, {Name: "y", Operation: "Update", Subresource: "scale"}},
			Before:      events.Place{Known: true, Sequence: rapid.Uint64().Draw(t, "before")},
			At:          moment(t),
			Sight:       events.Sight{Since: moment(t), Until: moment(t)},
			Form:        kinds.Full,
			ContentType: kinds.Protobuf,
			Body:        rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "body"),
			Trace:       events.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		}
		got, err := events.DecodeDelta(ref, events.EncodeDelta(d))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("%+v came back as %+v, %v", d, got, err)
		}
	})
}

// A manager whose name a header cannot represent is left out, and the managers beside it do not
// become the proven author.
func TestManagersWithoutANameAreLeftOut(t *testing.T) {
	ref := events.Ref{Kind: "pods", Name: "a"}
	other := events.Manager{Name: "b", Operation: "Update"}
	for _, name := range []string{"", " ", "\x01", "\t\n"} {
		blank := events.Manager{Name: name, Operation: "Update", Time: time.Unix(9, 0).UTC()}
		for _, d := range []events.Delta{
			{By: blank, Proven: true, Beside: []events.Manager{blank, other}},
			{By: other, Beside: []events.Manager{blank}},
		} {
			d.Kind, d.Ref, d.Op, d.UID, d.At = ref.Kind, ref, events.Is, "u", time.Unix(9, 0).UTC()
			m := events.EncodeDelta(d)
			if told := m.Header[events.HeaderManager]; len(told) > 1 || len(told) == 1 && !strings.HasPrefix(told[0], "b\t") {
				t.Errorf("%q: of %+v is told %q", name, d, told)
			}
			got, err := events.DecodeDelta(ref, m)
			if err != nil || got.By != other || got.Proven || len(got.Beside) != 0 {
				t.Errorf("%q: %+v came back as %+v, %v", name, d, got, err)
			}
		}
	}
	m := events.EncodeDelta(events.Delta{Kind: "pods", Ref: ref, Op: events.Is, UID: "u"})
	m.Header[events.HeaderManager] = []string{"a\tUpdate\t\t2030-01-01T12:00:00Z\tmore", "\tUpdate"}
	if d, err := events.DecodeDelta(ref, m); err != nil || d.By.Name != "" || d.By.Operation != "" || len(d.Beside) != 0 {
		t.Errorf("%v is read as %+v, %v", m.Header, d, err)
	}
	m = events.EncodeDelta(events.Delta{Kind: "pods", Ref: ref, Op: events.Is, UID: "u", By: other, Proven: true})
	m.Header[events.HeaderManager] = append([]string{" \tUpdate"}, m.Header[events.HeaderManager]...)
	if d, err := events.DecodeDelta(ref, m); err != nil || d.By != other || d.Proven {
		t.Errorf("%v is read as %+v, %v", m.Header, d, err)
	}
}

// A time is rejected if its zone moves it to a year that cannot be written.
func TestTimesCanBeWrittenAgain(t *testing.T) {
	ref := events.Ref{Kind: "pods", Name: "a"}
	for _, at := range []string{"9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59"} {
		for header, value := range map[string]string{
			events.HeaderAt: at, events.HeaderSight: at + " 2030-01-01T12:00:00Z", "": "",
		} {
			m := events.EncodeDelta(events.Delta{Kind: "pods", Ref: ref, Op: events.Is, UID: "u"})
			m.Header[events.HeaderManager] = []string{"a\tUpdate\t\t" + at}
			m.Header[header] = []string{value}
			d, err := events.DecodeDelta(ref, m)
			if refused := header != ""; (err != nil) != refused || !d.By.Time.IsZero() {
				t.Errorf("%s %q is read as %+v, %v", header, value, d, err)
			}
		}
	}
}

func TestMarksAreAboutNoObject(t *testing.T) {
	for _, op := range []events.Op{events.Mark, events.Gap} {
		d := events.Delta{Kind: "pods", Op: op, ResourceVersion: "7", At: time.Unix(9, 0).UTC()}
		got, err := events.DecodeDelta(events.Ref{Kind: "pods"}, events.EncodeDelta(d))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%+v came back as %+v, %v", d, got, err)
		}
	}
}

func TestForeignDeltasAreErrors(t *testing.T) {
	good := events.Delta{Kind: "pods", Ref: events.Ref{Kind: "pods", Name: "a"}, Op: events.Is, UID: "u", ResourceVersion: "1"}
	for header, value := range map[string]string{
		events.HeaderOp: "sideways", events.HeaderUID: "", events.HeaderGeneration: "-1", events.HeaderEpoch: "x", events.HeaderAt: "yesterday",
		events.HeaderSight: "2030-01-01T12:00:00Z",
	} {
		m := events.EncodeDelta(good)
		m.Header[header] = []string{value}
		if d, err := events.DecodeDelta(good.Ref, m); err == nil {
			t.Errorf("header %s %q decodes as %+v", header, value, d)
		}
	}
}

func TestPackSharesBodiesAndNotices(t *testing.T) {
	body := json.RawMessage(`{"kind":"Pod"}`)
	told := &events.Notice{Reason: "SuccessfulCreate", Message: "Created pod: {name}"}
	turn := events.Turn{Controller: "c", Because: "too few"}
	for _, name := range []string{"a", "b", "c"} {
		notice := *told
		turn.Commands = append(turn.Commands, events.Command{Verb: events.VerbCreate, Kind: "pods", Name: name, Body: body, OnApplied: &notice})
	}
	turn.Commands = append(turn.Commands, events.Command{Verb: events.VerbPatch, Kind: "pods", Name: "d", Body: json.RawMessage(`{}`)})
	turn.Pack()
	if len(turn.Shapes) != 1 || len(turn.Notices) != 1 {
		t.Fatalf("3 creates of one shape pack into %d shapes and %d notices", len(turn.Shapes), len(turn.Notices))
	}
	for _, c := range turn.Commands[:3] {
		if string(turn.BodyOf(c)) != string(body) || turn.NoticeAt(c.Applied).Message != told.Message || turn.NoticeAt(c.Failed) != nil {
			t.Errorf("command %s lost its body or notice", c.Name)
		}
	}
	if string(turn.BodyOf(turn.Commands[3])) != `{}` {
		t.Error("a body of its own moved away")
	}
	if strings.Count(string(mustJSON(t, turn)), `{"kind":"Pod"}`) != 1 {
		t.Error("the shared body is on the wire more than once")
	}
}

func TestSameDecisionIgnoresWhenAndWhere(t *testing.T) {
	a := events.Turn{Controller: "c", Because: "x", Now: time.Unix(1, 0), Seen: events.Position{"pods": 1}, Code: "v1"}
	b := a
	b.Now, b.Seen, b.Code = time.Unix(2, 0), events.Position{"pods": 2}, "v2"
	if !a.SameDecision(b) {
		t.Error("the same decision at another time is another decision")
	}
	b.Commands = []events.Command{{Verb: events.VerbDelete, Name: "a"}}
	if a.SameDecision(b) {
		t.Error("another command is the same decision")
	}
}

// The zone of a wake may move it to a year that cannot be written: two such turns are not equal.
func TestTurnsThatCannotBeWrittenAreNotTheSame(t *testing.T) {
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -60*60))
	a, b := events.Turn{Because: "x", WakeAt: &late}, events.Turn{Because: "y", WakeAt: &late}
	if a.SameDecision(b) {
		t.Error("two reasons are the same decision")
	}
	if !a.SameDecision(a) {
		t.Error("a turn decides otherwise than itself")
	}
}

func TestManagerOfTakesTheNewest(t *testing.T) {
	at := func(s int64) *metav1.Time { v := metav1.NewTime(time.Unix(s, 0)); return &v }
	got := events.ManagerOf([]metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, Time: at(5)},
		{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: at(9)},
		{Manager: "old", Time: at(1)},
		{Manager: "timeless"},
	})
	if got.Name != "kubelet" || got.Subresource != "status" || !got.Time.Equal(time.Unix(9, 0)) {
		t.Errorf("newest manager is %+v", got)
	}
}

func TestManagersOfTheSameSecondAreBesideEachOther(t *testing.T) {
	at := func(s int64) *metav1.Time { v := metav1.NewTime(time.Unix(s, 0)); return &v }
	got, beside := events.ManagersOf([]metav1.ManagedFieldsEntry{
		{Manager: "a", Time: at(9)}, {Manager: "old", Time: at(1)}, {Manager: "b", Time: at(9)}, {Manager: "c", Time: at(9)},
	})
	if got.Name != "c" || len(beside) != 2 || beside[0].Name != "a" || beside[1].Name != "b" {
		t.Errorf("%+v beside %+v", got, beside)
	}
	if _, beside := events.ManagersOf([]metav1.ManagedFieldsEntry{{Manager: "a", Time: at(9)}, {Manager: "b", Time: at(10)}}); len(beside) > 0 {
		t.Errorf("another second: %+v", beside)
	}
}

// A manager of the scale subresource is reported whatever its age, because the API server does
// not date it.
func TestWhoScalesIsBesideEverybody(t *testing.T) {
	at := func(s int64) *metav1.Time { v := metav1.NewTime(time.Unix(s, 0)); return &v }
	scaler := metav1.ManagedFieldsEntry{Manager: "kubectl", Subresource: "scale"}
	got, beside := events.ManagersOf([]metav1.ManagedFieldsEntry{scaler, {Manager: "a", Time: at(9)}, {Manager: "b", Time: at(9)}, {Manager: "old", Time: at(1)}})
	if got.Name != "b" || len(beside) != 2 || beside[0].Name != "a" || !beside[1].Scales() {
		t.Errorf("%+v beside %+v", got, beside)
	}
	if got, beside := events.ManagersOf([]metav1.ManagedFieldsEntry{scaler}); got.Name != "kubectl" || len(beside) > 0 {
		t.Errorf("alone: %+v beside %+v", got, beside)
	}
}

func TestBodiesRoundTrip(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "u", Labels: map[string]string{"x": "y"}}, Spec: corev1.PodSpec{NodeName: "n"}}
	body, err := kinds.Encode(kinds.Pods.Kind, pod.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	for contentType, body := range map[string][]byte{kinds.Protobuf: body, kinds.JSON: mustJSON(t, pod)} {
		got, err := kinds.Decode(kinds.Pods.Kind, contentType, body)
		if err != nil {
			t.Fatalf("decode the %s: %v", contentType, err)
		}
		if p, ok := got.(*corev1.Pod); !ok || !reflect.DeepEqual(p.ObjectMeta, pod.ObjectMeta) || p.Spec.NodeName != "n" {
			t.Errorf("%s: %+v came back as %+v", contentType, pod, got)
		}
	}
	partial := kinds.Pods.Kind
	partial.Form = kinds.Metadata
	meta := &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}
	if body, err = kinds.Encode(partial, meta); err != nil {
		t.Fatal(err)
	}
	if got, err := kinds.Decode(partial, kinds.Protobuf, body); err != nil || got.GetUID() != "u" {
		t.Errorf("metadata came back as %+v, %v", got, err)
	}
	for _, damaged := range [][]byte{nil, []byte("k8s"), body[:len(body)/2]} {
		if got, err := kinds.Decode(kinds.Pods.Kind, kinds.Protobuf, damaged); err == nil {
			t.Errorf("damaged bytes decode as %+v", got)
		}
	}
	if _, err := kinds.Decode(kinds.Pods.Kind, "text/plain", body); err == nil {
		t.Error("an unknown content type is no error")
	}
}

func TestVersionsCompare(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"9", "10", -1}, {"10", "9", 1}, {"7", "7", 0}, {"99999999999999999999", "100000000000000000000", -1}, {"x", "5", -1}, {"5", "x", 1}, {"x", "x", 0}, {"x", "y", -1}} {
		if got := kinds.CompareVersions(tc.a, tc.b); got != tc.want {
			t.Errorf("%q against %q is %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func moment(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(1, 4e9).Draw(t, "time"), 0).UTC()
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestADigestIsOfTheRequests(t *testing.T) {
	deletion := func(uid, version string) events.Command {
		return events.Command{Verb: events.VerbDelete, Kind: "pods", Namespace: "a", Name: "b", If: &events.If{UID: types.UID(uid), ResourceVersion: version}}
	}
	one := events.Digest([]events.Command{deletion("u", "1")})
	told := deletion("u", "1")
	told.OnApplied = &events.Notice{}
	if events.Digest([]events.Command{told}) != one {
		t.Error("the digest depends on a command's Event")
	}
	create := deletion("u", "1")
	create.Body = []byte(`{}`)
	for name, other := range map[string][]events.Command{
		"none": nil, "two": {deletion("u", "1"), deletion("u", "1")}, "another object": {deletion("v", "1")}, "another version": {deletion("u", "2")}, "another body": {create},
	} {
		if events.Digest(other) == one {
			t.Errorf("%s: the same digest", name)
		}
	}
}

func TestTheIDOfATrace(t *testing.T) {
	for parent, want := range map[string]string{
		"": "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "0af7651916cd43dd8448eb211c80319c",
		"00-0af7651916cd": "",
	} {
		if got := (events.Trace{Parent: parent}).ID(); got != want {
			t.Errorf("%q is of trace %q, want %q", parent, got, want)
		}
	}
}
