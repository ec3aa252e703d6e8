package writer_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/apply/applytest"
)

// FuzzTurn: each message under the subject of a turn, whatever its content, has one outcome; the
// writer writes nothing that the controller has not promised, and goes on.
func FuzzTurn(f *testing.F) {
	for _, seed := range []string{
		``, `null`, `{}`, `{"controller":"replicaset-controller","controller":"c"}`,
		`{"commands":[{"verb":"create","kind":"pods","version":"v1","namespace":"ns","name":"a","body":{}},{"verb":"delete","kind":"secrets","version":"v1","namespace":"ns","name":"s","if":{"uid":"u"}}]}`,
		`{"kind":"replicasets.apps","uid":"u","epochs":{"pods":18446744073709551615},"attempt":-1,"commands":[{"verb":"ask","kind":"pods","version":"v1","namespace":"ns","name":"a"}]}`,
		`{"shapes":[{"metadata":null}],"notices":[{"about":{"name":"a","namespace":"ns"},"type":"Normal"}],"commands":[{"verb":"create","kind":"pods","version":"v1","namespace":"ns","name":"b","shape":1,"applied":1},{"verb":"patch","kind":"pods","version":"v1","namespace":"ns","name":"b","patchType":"application/json-patch+json","body":[],"if":{"uid":"u"}}]}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	b, api := memory.New(memory.Options{}), applytest.Serve(f)
	if err := b.EnsureController(context.Background(), controller); err != nil {
		f.Fatal(err)
	}
	service, err := writer.New(writer.Config{
		REST: &rest.Config{Host: api.URL}, Bus: b, Impersonate: true, Log: slog.New(slog.DiscardHandler),
		Controllers: []writer.Profile{{Name: controller, Allowed: func(c events.Command) bool { return c.Kind == "pods" }}},
	})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	outcomes := uint64(0)
	f.Fuzz(func(t *testing.T, body []byte, addressed bool) {
		s := &scene{T: t, bus: b, api: api}
		key := events.Key{Namespace: "ns", Name: "web"}
		m := events.Message{Subject: subject.Turn(controller, events.LaneWrite, key), Data: body}
		var turn events.Turn
		if addressed && events.DecodeJSON(m, &turn) == nil { // as if from a compromised reconciler
			turn.Controller, turn.Key, turn.Lane, turn.Now = controller, key, events.LaneWrite, time.Now()
			turn.Epochs, turn.Seen = nil, nil // it would wait for the watcher
			again, err := events.EncodeJSON(turn, turn.Trace)
			s.must(err)
			m.Data, m.Header = again.Data, again.Header
		}
		before := len(api.Requests())
		sequence, err := b.Put(t.Context(), m, fmt.Sprint("turn ", outcomes))
		s.must(err)
		eventually.True(s, eventually.Long, "outcome of "+string(m.Data), func() bool { return s.outcomes() > outcomes })
		outcomes++
		if n := s.outcomes(); n != outcomes {
			t.Errorf("%d turns have %d outcomes", outcomes, n)
			outcomes = n
		}
		if o := s.outcome(key.Name); o.Turn != sequence || len(o.Results) == 0 && len(turn.Commands) > 0 {
			t.Errorf("turn %d has the outcome %+v", sequence, o)
		}
		for _, r := range api.Requests()[before:] {
			if r.Method != http.MethodGet && !strings.Contains(r.Path, "/pods") && !strings.Contains(r.Path, "/events") {
				t.Errorf("%s %s was never promised: %s", r.Method, r.Path, m.Data)
			}
		}
	})
}
