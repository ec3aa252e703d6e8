package system

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// write is a write in the API server's audit log.
type write struct {
	AuditID    string `json:"auditID"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	Impersonated struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	Object struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

func (w write) String() string {
	return strings.Join([]string{w.Verb, w.RequestURI, "as", w.Impersonated.Username}, " ")
}

// stored reports whether a write changed the storage.
func (w write) stored() bool {
	return w.Response.Code >= 200 && w.Response.Code < 300 && !strings.Contains(w.RequestURI, "dryRun=")
}

// ours reports whether Millrace made the write.
func (w write) ours() bool { return strings.HasPrefix(w.User.Username, "millrace") }

// mark is the end of the last whole line of the audit log, because the next line may be half written.
// Everything before it is history.
func (s *site) mark(t *testing.T) int64 {
	t.Helper()
	log, err := os.Open(s.audit)
	must(t, err)
	defer log.Close()
	info, err := log.Stat()
	must(t, err)
	last := []byte{0}
	for end := info.Size(); end > 0; end-- {
		if _, err := log.ReadAt(last, end-1); err != nil || last[0] == '\n' {
			must(t, err)
			return end
		}
	}
	return 0
}

// writes are Millrace's writes in the audit log since a mark.
func (s *site) writes(t *testing.T, since int64) []write {
	t.Helper()
	text, err := os.ReadFile(s.audit)
	must(t, err)
	var found []write
	lines := bufio.NewScanner(bytes.NewReader(text[since:]))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var w write
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			break // the API server is still writing the line
		}
		if w.ours() {
			found = append(found, w)
		}
	}
	must(t, lines.Err())
	return found
}

// connect opens the streams of a running Millrace.
func connect(t *testing.T, nats string) bus.Bus {
	t.Helper()
	b, err := stream.Connect(t.Context(), stream.Options{URL: clustertest.BusURL(nats), Name: "system-test"})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// read returns all messages of a stream; none if there is no such stream.
func read(t *testing.T, b bus.Bus, name string) []events.Message {
	t.Helper()
	state, err := b.StreamState(t.Context(), name)
	if errors.Is(err, bus.ErrNoStream) || (err == nil && state.Messages == 0) {
		return nil
	}
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	whole := errors.New("read to the end")
	var all []events.Message
	err = b.Follow(ctx, name, state.First, func(batch []events.Message) error {
		all = append(all, batch...)
		if batch[len(batch)-1].Sequence >= state.Last {
			return whole
		}
		return nil
	})
	if !errors.Is(err, whole) {
		t.Fatalf("the read of %s does not reach message %d: %v", name, state.Last, err)
	}
	return all
}

// running are the names of the controllers that Millrace has.
func running() []string {
	var names []string
	for _, e := range controllers.Catalog() {
		if e.Exists() {
			names = append(names, e.Name)
		}
	}
	return names
}

// outcomes are the results of all commands that were ever carried out.
func outcomes(t *testing.T, b bus.Bus) []events.Result {
	t.Helper()
	var all []events.Result
	for _, controller := range running() {
		for _, m := range read(t, b, subject.OutcomeStream(controller)) {
			var o events.Outcome
			must(t, events.DecodeJSON(m, &o))
			all = append(all, o.Results...)
		}
	}
	return all
}

// streams are the names of all streams of a Millrace.
func streams(t *testing.T, b bus.Bus) []string {
	t.Helper()
	kinds, err := b.Kinds(t.Context())
	must(t, err)
	names := []string{subject.WakeStream}
	for _, k := range kinds {
		names = append(names, subject.LogStream(k.Name))
	}
	for _, controller := range running() {
		names = append(names, subject.TurnStream(controller), subject.OutcomeStream(controller))
	}
	return slices.Sorted(slices.Values(names))
}
