package report_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
)

// FuzzHeartbeat: an accepted heartbeat has a writer's name, and does not change when it is
// encoded and decoded again.
func FuzzHeartbeat(f *testing.F) {
	f.Add(report.Heartbeat{Writer: "w", Number: 1, Turns: map[string][]uint64{"c": {1, 2}}, Full: []string{"c"}}.Encode())
	for _, seed := range []string{`{"writer":"w","number":18446744073709551615}`, `{"writer":"w","turns":{"c":[-1]}}`, `null`, `{"writer":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b, ok := report.DecodeHeartbeat(text)
		if !ok {
			return
		}
		if b.Writer == "" || len(b.Writer) > 256 {
			t.Errorf("%q is taken for %+v", text, b)
		}
		const most = 256 << 10
		first := b.Encode()
		if again, fine := report.DecodeHeartbeat(first); len(first) <= most && (!fine || !bytes.Equal(again.Encode(), first)) {
			t.Errorf("%s cannot be read again", first)
		}
		for controller := range b.Turns {
			if n := len(b.InFlight(controller)); n != len(b.Turns[controller])+len(b.Waiting[controller]) {
				t.Errorf("%d turns of %q are in flight: %s", n, controller, first)
			}
		}
	})
}

// FuzzReport: a replica's report stays small when it is encoded again.
func FuzzReport(f *testing.F) {
	encoded, err := report.Report{Replica: "r", Controllers: []string{"c"}, Stalled: []report.Stall{{
		Controller: "c", Condition: report.NotRead, Detail: strings.Repeat("ä", 400), Since: time.Unix(0, 0).UTC(), Work: 3,
	}}}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded.Data)
	f.Add([]byte(`{"stalled":[{"condition":"Unknown","work":-9223372036854775808}],"unwatched":[{"kind":".."}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := report.DecodeReport(events.Message{Data: body})
		if err != nil {
			return
		}
		m, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := report.DecodeReport(m)
		if len(m.Data) > 256<<10 {
			return // JSON may take six bytes for each character
		}
		if err != nil || len(again.Unwatched) > 100 || len(again.Stalled) != len(r.Stalled) {
			t.Errorf("%s is read again as %+v, %v", m.Data, again, err)
		}
		for _, s := range again.Stalled {
			if s.Condition.Reason() == "" && s.Condition != "" || len(s.Detail) > 2000 {
				t.Errorf("%q with %d bytes of detail", s.Condition, len(s.Detail))
			}
		}
	})
}
