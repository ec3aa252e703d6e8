package writer_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
)

// No turn ends a writer, reaches the API server in a forbidden place, or creates a metric label.
func TestHostileTurnsAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	registry := prometheus.NewRegistry()
	s.started = func(service *writer.Service) { registry.MustRegister(service.Collectors()...) }
	s.writer(func(c *writer.Config) { c.Controllers[0].Owns = "replicasets.apps" })
	kill := events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a", If: &events.If{UID: "u"}}
	for key, c := range map[string]struct {
		change  func(*events.Turn)
		command events.Command
	}{
		"readings":  {nil, events.Command{Verb: events.VerbAsk, Kind: "pods", Version: "v1", Name: "a", Subresource: query.SubReadings, Body: json.RawMessage(`{}`)}},
		"path":      {nil, events.Command{Verb: events.VerbAsk, Kind: "leases.coordination.k8s.io", Version: "v1", Name: "../../../../../../api/v1/namespaces/kube-system/secrets/root"}},
		"verb":      {nil, events.Command{Verb: "exfiltrate", Kind: "pods", Version: "v1", Name: "a"}},
		"lane":      {func(t *events.Turn) { t.Commands[0].Subresource = "status" }, kill},
		"shape":     {func(t *events.Turn) { t.Commands[0].Shape = -5 }, kill},
		"uid":       {func(t *events.Turn) { t.Kind, t.UID = "nodes", "n" }, kill},
		"secret":    {nil, events.Command{Verb: events.VerbAsk, Namespace: "ns", Of: &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "a"}}},
		"alive":     {nil, events.Command{Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a", Body: json.RawMessage(`{}`), If: &events.If{Alive: &events.Alive{}}}},
		"no object": {nil, events.Command{Verb: events.VerbUpdate, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a", Body: json.RawMessage(`7`), If: &events.If{UID: "u"}}},
	} {
		s.store(key, c.change, c.command)
		o := s.outcome(key)
		if len(o.Results) != 1 || o.Results[0].Status != events.Refused {
			t.Errorf("%s: the results are %+v, want one refusal", key, o.Results)
		}
	}
	if paths := s.api.Paths(); len(paths) > 0 {
		t.Errorf("the API server was asked: %v", paths)
	}
	families, err := registry.Gather()
	s.must(err)
	for _, f := range families {
		if strings.Contains(f.String(), "exfiltrate") {
			t.Errorf("%s repeats an unknown verb", f.GetName())
		}
	}
}

// A panic of the writer is the outcome of the turn that caused it, and the writer carries out the
// next turn.
func TestAPanicIsAnOutcome(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	registry := prometheus.NewRegistry()
	s.started = func(service *writer.Service) { registry.MustRegister(service.Collectors()...) }
	s.writer(func(c *writer.Config) {
		c.Controllers[0].Allowed = func(c events.Command) bool {
			if c.Name == "poison" {
				panic("a fault")
			}
			return true
		}
	})
	s.store("poisoned", nil, events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: "poison", If: &events.If{UID: "u"}})
	if o := s.outcome("poisoned"); len(o.Results) != 1 || o.Results[0].Status != events.Failed || o.Results[0].Reason != "Panicked" || !o.Results[0].Unsure {
		t.Errorf("the results are %+v, want Panicked, failed and unsure", o.Results)
	}
	if count := alarms(t, registry, "Panicked"); count != 1 {
		t.Errorf("%v alarms", count)
	}
	s.store("web", nil, creates("web", 1)...)
	if o := s.outcome("web"); !o.OK() {
		t.Errorf("the next turn: %+v", o.Results)
	}
}

// A turn that updates a status is compared with the recorded object, like one that acts: its body
// has the object's metadata, too.
func TestAStatusIsHeldAgainstItsObject(t *testing.T) {
	t.Parallel()
	for what, live := range map[string]*events.Delta{
		"as it is": {Op: events.Is, UID: "rs", ResourceVersion: "5"}, "gone": {Op: events.Gone, UID: "rs", ResourceVersion: "9"}, "unknown": nil,
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t)
			s.must(s.bus.EnsureKind(t.Context(), kinds.ReplicaSets.Kind))
			if live != nil {
				body, err := kinds.Encode(kinds.ReplicaSets.Kind, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "rs"}})
				s.must(err)
				live.ContentType, live.Body, live.Form = kinds.Protobuf, body, kinds.Full
				s.delta(*live)
			}
			known := make(chan metav1.Object, 1)
			s.writer(func(c *writer.Config) {
				c.Controllers[0].Allowed = func(events.Command) bool { return true }
				c.Controllers[0].Fits = func(_ events.Turn, own func() metav1.Object, _ func(events.Ref) metav1.Object) func(events.Command) error {
					return func(events.Command) error {
						known <- own()
						return events.ErrSuperseded
					}
				}
			})
			status := events.Command{
				Verb: events.VerbUpdate, Kind: kinds.ReplicaSets.Name, Version: "v1", Namespace: "ns", Name: "web", Subresource: "status",
				If: &events.If{UID: "rs", ResourceVersion: "5"}, Body: []byte(`{"metadata":{"annotations":{"forged":"so"}}}`),
			}
			turn := events.Turn{Controller: controller, Key: events.Key{Namespace: "ns", Name: "web"}, Lane: events.LaneStatus, Now: time.Now(), Commands: []events.Command{status}}
			seen("rs", "5", 2)(&turn)
			m, err := events.EncodeJSON(turn, events.Trace{})
			s.must(err)
			m.Subject = subject.Turn(controller, turn.Lane, turn.Key)
			_, err = s.bus.Put(t.Context(), m, "")
			s.must(err)
			if obj := <-known; (obj != nil) != (what == "as it is") || obj != nil && obj.GetUID() != "rs" {
				t.Errorf("the promise is checked with the owner %+v, want it only as the turn has it", obj)
			}
			eventually.True(s, eventually.Long, "outcome", func() bool { return s.outcomes() == 1 })
			for _, r := range s.api.Requests() {
				if r.Method != http.MethodGet {
					t.Errorf("%s %s was made", r.Method, r.Path)
				}
			}
		})
	}
}
