package beside

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// copies wants one "copy" ServiceAccount in every namespace that has a ConfigMap, and
// panics where that is called "poison".
var copies = reconcile.Controller[string]{
	Name: "copies",
	Inputs: []reconcile.Input{
		{Kind: kinds.ConfigMaps.Kind, Keys: namespace}, {Kind: kinds.ServiceAccounts.Kind, Keys: namespace},
	},
	Writes: reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.ServiceAccounts.Name}},
	Observe: func(s reconcile.Snapshot, k events.Key) (string, bool) {
		if _, there := s.Get(kinds.ServiceAccounts.Name, k.Name, "copy"); there {
			return "", true
		}
		for _, m := range s.List(kinds.ConfigMaps.Name, k.Name) {
			if m.GetName() == "poison" {
				panic("poison")
			}
			return k.Name, true
		}
		return "", true
	},
	Decide: func(lacking string, _ time.Time) reconcile.Decision {
		if lacking == "" {
			return reconcile.Nothing("nothing is missing")
		}
		return reconcile.Do("a copy is missing", reconcile.Create(kinds.ServiceAccounts.Kind, lacking, "copy", []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
	},
}

func namespace(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	return []events.Key{{Name: now.GetNamespace()}}
}

// muzzled is a bus that fails the test if anything but a shadow's messages is published.
type muzzled struct {
	*memory.Bus
	t *testing.T
}

func (m muzzled) Put(ctx context.Context, msg events.Message, id string) (uint64, error) {
	if !strings.HasPrefix(msg.Subject, "shadow.") {
		m.t.Errorf("published on %s", msg.Subject)
	}
	return m.Bus.Put(ctx, msg, id)
}

func (m muzzled) Store(context.Context, events.Message, uint64) (uint64, error) {
	m.t.Error("stored a turn")
	return 0, bus.ErrClosed
}

func (m muzzled) Schedule(context.Context, events.Wake) error {
	m.t.Error("scheduled a wake")
	return bus.ErrClosed
}

func (m muzzled) EnsureController(context.Context, string) error {
	m.t.Error("made the streams of a controller that acts")
	return bus.ErrClosed
}

func (m muzzled) Append(context.Context, kinds.Name) (bus.Appender, error) {
	m.t.Error("opened a log")
	return nil, bus.ErrClosed
}

// stage plays the watcher.
type stage struct {
	t       *testing.T
	bus     *memory.Bus
	logs    map[kinds.Name]bus.Appender
	version int
	slow    time.Duration // how far its clock is behind
}

func begin(t *testing.T) *stage {
	s := &stage{t: t, bus: memory.New(memory.Options{}), logs: map[kinds.Name]bus.Appender{}}
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		must(t, s.bus.EnsureKind(t.Context(), kind))
		log, err := s.bus.Append(t.Context(), kind.Name)
		must(t, err)
		s.logs[kind.Name] = log
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stage) append(kind kinds.Name, d events.Delta) {
	s.t.Helper()
	s.version++
	d.Kind, d.ResourceVersion, d.At = kind, strconv.Itoa(s.version), time.Now().Add(-s.slow)
	must(s.t, s.logs[kind].Append(s.t.Context(), subject.Message(d)))
}

// told publishes a mark of every kind.
func (s *stage) told() {
	for kind := range s.logs {
		s.append(kind, events.Delta{Op: events.Mark})
	}
}

func (s *stage) say(kind kinds.Kind, namespace, name, by string, labels map[string]string) {
	s.t.Helper()
	ref := events.Ref{Kind: kind.Name, Namespace: namespace, Name: name}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(ref.String()), Labels: labels}
	var body []byte
	var err error
	if kind.Name == kinds.ConfigMaps.Name {
		body, err = kinds.Encode(kind, &corev1.ConfigMap{ObjectMeta: meta})
	} else {
		body, err = kinds.Encode(kind, &corev1.ServiceAccount{ObjectMeta: meta})
	}
	must(s.t, err)
	s.append(kind.Name, events.Delta{
		Ref: ref, Op: events.Is, UID: meta.UID, By: events.Manager{Name: by},
		ContentType: kinds.Protobuf, Form: kinds.Full, Body: body,
	})
}

// ends publishes that an object is deleted.
func (s *stage) ends(kind kinds.Kind, namespace, name string) {
	s.t.Helper()
	ref := events.Ref{Kind: kind.Name, Namespace: namespace, Name: name}
	s.append(kind.Name, events.Delta{Ref: ref, Op: events.Gone, UID: types.UID(ref.String())})
}

func (s *stage) run(patience time.Duration) *Service {
	s.t.Helper()
	service, err := New(Config{
		Bus: muzzled{s.bus, s.t}, Controllers: []reconcile.Any{copies}, Code: "test", Delay: 50 * time.Millisecond,
		Settings: shadow.Settings{Patience: patience},
	})
	must(s.t, err)
	servicetest.Run(s.t, "shadow", service.Run)
	return service
}

func (s *stage) ready(service *Service) {
	s.t.Helper()
	eventually.Complete(s.t, eventually.Long, "the shadow has begun", func() string {
		if err := service.Checks()["shadows"](); err != nil {
			return err.Error()
		}
		if !service.members.First("copies") {
			return "it is not its work yet"
		}
		return ""
	})
}

// finds waits until the last finding about a key has this agreement.
func (s *stage) finds(namespace string, want report.Agreement) (f report.Finding) {
	s.t.Helper()
	key := events.Key{Name: namespace}
	eventually.Complete(s.t, eventually.Long, fmt.Sprintf("%s of %s", want, namespace), func() string {
		m, there, err := s.bus.Last(s.t.Context(), subject.ShadowStream("copies"), subject.Finding("copies", key))
		must(s.t, err)
		if !there {
			return "nothing was found"
		}
		f = report.Finding{}
		must(s.t, events.DecodeJSON(m, &f))
		if f.Agreement != want {
			return fmt.Sprintf("%+v", f)
		}
		return ""
	})
	return f
}

func TestBeside(t *testing.T) {
	s := begin(t)
	s.say(kinds.ConfigMaps.Kind, "old", "m", "kubectl", nil)
	service := s.run(time.Minute)
	eventually.Complete(s.t, eventually.Long, "it waits until all has been told", func() string {
		if err := service.Checks()["shadows"](); err == nil || !strings.Contains(err.Error(), "not told everything") {
			return fmt.Sprint(err)
		}
		return ""
	})
	s.told()
	s.ready(service)
	as := map[string]string{"a": "b"}
	s.say(kinds.ServiceAccounts.Kind, "old", "copy", events.FieldManager, as)
	s.finds("old", report.Agreed)

	s.say(kinds.ConfigMaps.Kind, "poisoned", "poison", "kubectl", nil)
	s.say(kinds.ConfigMaps.Kind, "new", "m", "kubectl", nil)
	s.say(kinds.ServiceAccounts.Kind, "new", "copy", events.FieldManager, as)
	f := s.finds("new", report.Agreed)
	m, there, err := s.bus.At(t.Context(), subject.ShadowStream("copies"), f.Turn)
	must(t, err)
	var turn events.Turn
	if !there || events.DecodeJSON(m, &turn) != nil || turn.Because != "a copy is missing" || len(turn.Triggers) != 1 || turn.Seen[kinds.ConfigMaps.Name] == 0 {
		t.Errorf("the turn that wanted it is %+v, %t", turn, there)
	}

	s.say(kinds.ConfigMaps.Kind, "wrong", "m", "kubectl", nil)
	s.say(kinds.ServiceAccounts.Kind, "wrong", "copy", events.FieldManager, map[string]string{"a": "c"})
	f = s.finds("wrong", report.Differs)
	if len(f.Differences) != 1 || f.Differences[0].Ours != "b" || f.Differences[0].Theirs != "c" {
		t.Errorf("differs in %+v", f.Differences)
	}
}

func TestWhatKCMDoesNotDo(t *testing.T) {
	s := begin(t)
	s.told()
	s.ready(s.run(200 * time.Millisecond))
	s.say(kinds.ConfigMaps.Kind, "lost", "m", "kubectl", nil)
	s.finds("lost", report.WeOnly)
}

// After a gap it is unknown what happened, so no difference counts as unexplained.
func TestGap(t *testing.T) {
	s := begin(t)
	s.told()
	s.ready(s.run(time.Minute))
	s.append(kinds.ConfigMaps.Name, events.Delta{Op: events.Gap})
	s.say(kinds.ConfigMaps.Kind, "wrong", "m", "kubectl", nil)
	s.say(kinds.ServiceAccounts.Kind, "wrong", "copy", events.FieldManager, map[string]string{"a": "c"})
	s.finds("wrong", report.Unseen)
}

// A log that is deleted and created again ends the session; the next session reads the new log.
func TestBeginsAnew(t *testing.T) {
	s := begin(t)
	s.told()
	service := s.run(time.Minute)
	s.ready(service)
	must(t, s.bus.DeleteKind(t.Context(), kinds.ConfigMaps.Name))
	must(t, s.bus.EnsureKind(t.Context(), kinds.ConfigMaps.Kind))
	log, err := s.bus.Append(t.Context(), kinds.ConfigMaps.Name)
	must(t, err)
	s.logs[kinds.ConfigMaps.Name] = log
	eventually.Complete(s.t, eventually.Long, "it notices", func() string {
		if err := service.Checks()["shadows"](); err == nil {
			return "it is content"
		}
		return ""
	})
	s.told()
	s.ready(service)
	s.say(kinds.ConfigMaps.Kind, "new", "m", "kubectl", nil)
	s.say(kinds.ServiceAccounts.Kind, "new", "copy", events.FieldManager, map[string]string{"a": "b"})
	s.finds("new", report.Agreed)
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("there is a shadow without a bus")
	}
	if _, err := New(Config{Bus: memory.New(memory.Options{}), Controllers: []reconcile.Any{copies, copies}}); err == nil {
		t.Error("a controller looks on twice")
	}
}

// A controller that is left out is not compared. What happens once it is compared again, is.
func TestAControllerIsLeftOut(t *testing.T) {
	s := begin(t)
	s.told()
	service := s.run(time.Minute)
	s.ready(service)
	service.LeaveOut(map[string]bool{"copies": true, "other": true})
	eventually.Complete(s.t, eventually.Long, "the comparison has ended", func() string {
		if state := service.Checks()["shadows"](); state != nil {
			return state.Error()
		}
		if all, _ := service.compared(); len(all) > 0 {
			return "it goes on"
		}
		return ""
	})
	s.say(kinds.ConfigMaps.Kind, "left", "m", "kubectl", nil)
	s.say(kinds.ServiceAccounts.Kind, "left", "copy", "kube-controller-manager", map[string]string{"a": "b"})
	service.LeaveOut(nil)
	service.LeaveOut(map[string]bool{})
	eventually.Complete(s.t, eventually.Long, "the comparison has begun anew", func() string {
		s.told()
		s.say(kinds.ConfigMaps.Kind, "again", "m", "kubectl", nil)
		m, there, err := s.bus.Last(t.Context(), subject.ShadowStream("copies"), subject.ShadowTurn("copies", events.LaneWrite, events.Key{Name: "again"}))
		if err != nil || !there {
			return fmt.Sprint("no turn: ", m.Subject, err)
		}
		return ""
	})
	s.say(kinds.ServiceAccounts.Kind, "again", "copy", "kube-controller-manager", map[string]string{"a": "b"})
	s.finds("again", report.Agreed)
	if _, there, err := s.bus.Last(t.Context(), subject.ShadowStream("copies"), subject.Finding("copies", events.Key{Name: "left"})); err != nil || there {
		t.Errorf("a namespace that is left out has a finding: %t, %v", there, err)
	}
	if n := restarts(service); n > 0 {
		t.Errorf("%v comparisons have failed", n)
	}
}

func restarts(s *Service) float64 {
	var m dto.Metric
	_ = s.metrics.restarts.Write(&m)
	return m.GetCounter().GetValue()
}
