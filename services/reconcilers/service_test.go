package reconcilers

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// reader is a controller that reads some kinds and decides nothing.
func reader(name string, inputs ...reconcile.Input) reconcile.Any {
	return reconcile.Controller[bool]{
		Name: name, Inputs: inputs,
		Observe: func(reconcile.Snapshot, events.Key) (bool, bool) { return false, false },
		Decide:  func(bool, time.Time) reconcile.Decision { return reconcile.Decision{} },
	}
}

// idle is a service of some controllers that does not run.
func idle(t *testing.T, b bus.Bus, controllers ...reconcile.Any) *Service {
	t.Helper()
	s, err := New(Config{Bus: b, Controllers: controllers})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ending returns a bus on which every stream ends at a sequence, and every message was stored at one time.
func ending(end uint64, stored time.Time) *bustest.Bus {
	b := bustest.Wrap(memory.New(memory.Options{}))
	b.OnStreamState = func(context.Context, string) (bus.State, error) { return bus.State{Last: end}, nil }
	b.OnAt = func(_ context.Context, _ string, sequence uint64) (events.Message, bool, error) {
		return events.Message{Sequence: sequence, Time: stored}, sequence <= end, nil
	}
	return b
}

func TestAServiceNeedsABusAndEachControllerOnce(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "no bus") {
		t.Errorf("New without a bus: %v, want an error that says so", err)
	}
	twice := Config{Bus: memory.New(memory.Options{}), Controllers: []reconcile.Any{reader("a"), reader("b"), reader("a")}}
	if _, err := New(twice); err == nil || !strings.Contains(err.Error(), "controller a is there twice") {
		t.Errorf("New with one controller twice: %v, want an error that says so", err)
	}
}

// A service whose streams cannot be created returns an error, unless its context has ended.
func TestStreamsThatCannotBeMadeAreAnError(t *testing.T) {
	s := idle(t, bustest.Wrap(memory.New(memory.Options{})).Fail(bustest.EnsureController, errors.New("no room")), reader("a"))
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "prepare a: no room") {
		t.Errorf("Run without room for the streams ends with %v, want that error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run with an ended context ends with %v, want nil", err)
	}
}

func TestWhoReadsAKind(t *testing.T) {
	keys := func(reconcile.Snapshot, reconcile.Object, reconcile.Object) []events.Key { return nil }
	named := reader("named", reconcile.Input{Kind: kinds.Pods.Kind}, reconcile.Input{Kind: kinds.Nodes.Kind, Keys: keys})
	casual := reader("casual", reconcile.Input{Every: true, Keys: keys})
	both := reader("both", reconcile.Input{Kind: kinds.Pods.Kind, Keys: keys}, reconcile.Input{Every: true})
	s := idle(t, memory.New(memory.Options{}), named, casual, both, reader("none"))
	names := func(loops []*shell.Loop) (all []string) {
		for _, l := range loops {
			all = append(all, l.Name())
		}
		return all
	}
	a, ok := s.claim(kinds.Pods.Kind)
	if !ok || !slices.Equal(names(a.readers), []string{"named", "casual", "both"}) || !slices.Equal(names(a.casual), []string{"casual"}) {
		t.Errorf("pods are read by %v, among others by %v (%t)", names(a.readers), names(a.casual), ok)
	}
	if _, ok := s.claim(kinds.Pods.Kind); ok {
		t.Error("pods are followed twice")
	}
	if got := s.following(); !slices.Equal(got, []kinds.Name{"pods"}) || s.complete() {
		t.Errorf("followed are %v, which is everything: %t", got, s.complete())
	}
	if _, ok := s.claim(kinds.Nodes.Kind); !ok || !slices.Equal(s.following(), []kinds.Name{"nodes", "pods"}) || !s.complete() {
		t.Errorf("followed are %v, which is not everything", s.following())
	}
	for name, want := range map[string][2]bool{"named": {false, true}, "casual": {true, true}, "both": {true, false}, "none": {false, false}} {
		i := slices.IndexFunc(s.loops, func(l *shell.Loop) bool { return l.Name() == name })
		if got := [2]bool{attends(s.loops[i], kinds.Pods.Name), attends(s.loops[i], kinds.Nodes.Name)}; got != want {
			t.Errorf("%s attends to pods and nodes: %v, want %v", name, got, want)
		}
	}
	if _, ok := idle(t, memory.New(memory.Options{}), named).claim(kinds.Jobs.Kind); ok {
		t.Error("claim follows a kind that no controller reads")
	}
}

// A service is unready until every named kind has a follower, and while a kind's streams are
// damaged.
func TestWhatMakesAServiceUnready(t *testing.T) {
	s := idle(t, memory.New(memory.Options{}), reader("a", reconcile.Input{Kind: kinds.Pods.Kind}, reconcile.Input{Every: true}))
	check := func(what, want string) {
		t.Helper()
		if err := s.Checks()["reconcilers"](); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	trouble := s.integrity.troubled(t.Context(), "pods")
	check("before it runs", "not started")
	s.become(nil)
	check("without streams", "a kind has no stream yet")
	trouble(errors.New("torn"))
	check("without streams, and damaged", "a kind has no stream yet")
	s.claim(kinds.Pods.Kind)
	check("damaged", "pods: nothing is decided until the watcher has mended its streams: torn")
	trouble(nil)
	check("mended", "")
}

func TestDamageIsCountedOnce(t *testing.T) {
	i := newIntegrity()
	pods, nodes := i.troubled(t.Context(), "pods"), i.troubled(t.Context(), "nodes")
	read := func() string {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(i.collectors()...)
		return values(t, registry)
	}
	const before = "damage_total/nodes 0, damage_total/pods 0, damaged/nodes 0, damaged/pods 0"
	if got := read(); got != before || i.check() != nil {
		t.Errorf("at first: %s, %v", got, i.check())
	}
	pods(errors.New("torn"))
	pods(errors.New("torn more"))
	if got := read(); got != "damage_total/nodes 0, damage_total/pods 1, damaged/nodes 0, damaged/pods 1" || !strings.Contains(i.check().Error(), "torn more") {
		t.Errorf("damaged: %s, %v", got, i.check())
	}
	nodes(errors.New("gone"))
	if !strings.HasPrefix(i.check().Error(), "nodes: ") {
		t.Errorf("two are damaged: %v", i.check())
	}
	nodes(nil)
	pods(nil)
	if got := read(); got != "damage_total/nodes 1, damage_total/pods 1, damaged/nodes 0, damaged/pods 0" || i.check() != nil {
		t.Errorf("mended: %s, %v", got, i.check())
	}
	refused, lost := i.refused("a"), i.lost("a")
	refused(events.Message{}, errors.New("forged"))
	lost(subject.WakeStream, errors.New("lost"))
	if got, want := read(), "losses_total/a/"+subject.WakeStream+" 1"; !strings.Contains(got, want) || !strings.Contains(got, "unproven_outcomes_total/a 1") ||
		strings.Count(got, "losses_total/a/") != 3 {
		t.Errorf("after a loss and a forgery the metrics are %s", got)
	}
}

// values returns the names, labels and values of all metrics, without the common prefix.
func values(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all = append(all, strings.TrimPrefix(f.GetName(), "millrace_reconcilers_")+reading(m))
		}
	}
	return strings.Join(all, ", ")
}

// written returns the labels and values of single metrics, sorted.
func written(t *testing.T, collect func(chan<- prometheus.Metric)) (all []string) {
	t.Helper()
	out := make(chan prometheus.Metric, 100)
	collect(out)
	close(out)
	for m := range out {
		var said dto.Metric
		if err := m.Write(&said); err != nil {
			t.Fatal(err)
		}
		all = append(all, reading(&said))
	}
	slices.Sort(all)
	return all
}

func reading(m *dto.Metric) string {
	text := ""
	for _, l := range m.GetLabel() {
		text += "/" + l.GetValue()
	}
	return fmt.Sprint(text, " ", m.GetCounter().GetValue()+m.GetGauge().GetValue())
}

// Logged collects the log until the test ends.
func Logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set("logtostderr", "false"); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	klog.SetOutput(&text)
	t.Cleanup(func() { _ = flags.Set("logtostderr", "true"); klog.SetOutput(nil) })
	return &text
}

// capture returns a function that returns the log since its last call.
func capture(t *testing.T) func() string {
	t.Helper()
	text := Logged(t)
	return func() string { klog.Flush(); said := text.String(); text.Reset(); return said }
}

// A change is reported. A new stall, or one that was not logged for ten minutes, is logged.
func TestAStallIsLoggedOnceInTenMinutes(t *testing.T) {
	said := capture(t)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newStalls()
	s.clock = func() time.Time { return now }
	stall := func(c report.Condition, detail string) map[string]report.Stall {
		return map[string]report.Stall{"a": {Controller: "a", Condition: c, Detail: detail, Since: now}}
	}
	none := map[string]report.Stall{}
	for _, c := range []struct {
		what    string
		after   time.Duration
		found   map[string]report.Stall
		changed bool
		log     string
	}{
		{"nothing stands still", 0, none, false, ""},
		{"one stands still", 0, stall(report.NotRead, "pods"), true, "A controller is stalled"},
		{"it still does", 10*time.Minute - 1, stall(report.NotRead, "pods"), false, ""},
		{"it has for ten minutes", 1, stall(report.NotRead, "pods"), false, "A controller is stalled"},
		{"it is said of another kind", time.Second, stall(report.NotRead, "nodes"), true, ""},
		{"it has been said", time.Second, stall(report.NotRead, "nodes"), false, ""},
		{"for another reason", time.Second, stall(report.BusRefuses, "nodes"), true, "A controller is stalled"},
		{"it goes on", 0, none, true, "The controller is no longer stalled"},
		{"all is well", 0, none, false, ""},
	} {
		now = now.Add(c.after)
		if got := s.take(c.found); got != c.changed {
			t.Errorf("%s: the stalls have changed: %t, want %t", c.what, got, c.changed)
		}
		if log := said(); (log == "") != (c.log == "") || !strings.Contains(log, c.log) {
			t.Errorf("%s: logged is %q, want %q", c.what, log, c.log)
		}
	}
}

func TestKeysThatWaitAreLoggedOnceInTenMinutes(t *testing.T) {
	said := capture(t)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newStalls()
	s.clock = func() time.Time { return now }
	wait := map[report.Condition]engine.Waiting{report.NoOutcome: {Keys: 3}}
	for _, c := range []struct {
		what    string
		after   time.Duration
		waiting map[report.Condition]engine.Waiting
		lines   int
	}{
		{"some wait", 0, wait, 1},
		{"they wait on", 10*time.Minute - 1, wait, 0},
		{"for ten minutes", 1, wait, 1},
		{"none waits", time.Second, nil, 0},
		{"some wait again", time.Second, wait, 1},
		{"for two reasons", time.Second, map[report.Condition]engine.Waiting{report.NoOutcome: {Keys: 3}, report.NotRead: {Keys: 1}}, 1},
	} {
		now = now.Add(c.after)
		s.wait("a", c.waiting)
		if log := said(); strings.Count(log, `"Keys wait"`) != c.lines {
			t.Errorf("%s: logged is %q, want %d lines", c.what, log, c.lines)
		}
	}
	if got := written(t, func(out chan<- prometheus.Metric) { s.collect(out, "a") }); !slices.Equal(got, []string{"/NoOutcome/a 3", "/NotRead/a 1", "/none/a 0"}) {
		t.Errorf("the waiting keys are measured as %q", got)
	}
	s.drop(idle(t, memory.New(memory.Options{}), reader("a"), reader("b")).loops)
	if len(s.waiting["a"]) != 2 {
		t.Error("the keys of a controller that falls to this replica are forgotten")
	}
	s.drop(idle(t, memory.New(memory.Options{}), reader("b")).loops)
	if len(s.waiting) != 0 {
		t.Error("the keys of a controller that falls to another replica are kept")
	}
}

func TestAStallIsMeasuredAndChecked(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newStalls()
	s.clock = func() time.Time { return now }
	s.take(map[string]report.Stall{
		"b": {Controller: "b", Condition: report.NotRead, Detail: "pods", Since: now.Add(-time.Minute), Work: 7},
		"a": {Controller: "a", Condition: report.NoOutcome, Since: now.Add(time.Minute)},
	})
	for name, want := range map[string]string{"a": "/NoOutcome/a 0", "b": "/NotRead/b 60", "c": "/none/c 0"} {
		if got := written(t, func(out chan<- prometheus.Metric) { s.collect(out, name) }); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is measured as %q, want %q", name, got, want)
		}
	}
	if err := s.check("b"); err == nil || !strings.Contains(err.Error(), "decides nothing since 2029-12-31T23:59:00Z although 7 wait") {
		t.Errorf("the check of a stalled controller: %v, want that it decides nothing", err)
	}
	if err := s.check("c"); err != nil {
		t.Errorf("the check of a controller that decides: %v, want nil", err)
	}
	if all := s.all(); len(all) != 2 || all[0].Controller != "a" || all[1].Controller != "b" {
		t.Errorf("all are %+v", all)
	}
}

// A stall ends when the controller has no work or falls to another replica. Answers while the
// service ends are ignored.
func TestALookForStallsTakesInWhatIsFound(t *testing.T) {
	s := idle(t, memory.New(memory.Options{}), reader("a"), reader("b"))
	known := map[string]report.Stall{"a": {Controller: "a", Condition: report.NotRead}}
	s.stalls.take(known)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if s.stalls.look(ended, s.loops) || len(s.stalls.all()) != 1 {
		t.Errorf("with an ended context the stalls have become %+v", s.stalls.all())
	}
	if !s.stalls.look(t.Context(), s.loops) || len(s.stalls.all()) != 0 {
		t.Errorf("at rest the stalls are %+v, want none", s.stalls.all())
	}
	if s.stalls.look(t.Context(), s.loops) {
		t.Error("look reports a change, and nothing has changed")
	}
	s.stalls.take(known)
	if !s.stalls.look(t.Context(), s.loops[1:]) || len(s.stalls.all()) != 0 {
		t.Errorf("of another replica's controller the stalls are %+v, want none", s.stalls.all())
	}
}

func TestAReportThatIsNotStoredIsAnError(t *testing.T) {
	b := memory.New(memory.Options{})
	s := idle(t, b, reader("b"), reader("a"))
	if err := b.EnsureController(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	s.stalls.take(map[string]report.Stall{"a": {Controller: "a", Condition: report.NotRead, Since: time.Now()}})
	if err := s.report(t.Context(), s.loops, 1); err != nil {
		t.Fatal(err)
	}
	m, _, err := b.Last(t.Context(), subject.StatusStream, subject.StatusSubject)
	if err != nil {
		t.Fatal(err)
	}
	r, err := report.DecodeReport(m)
	if err != nil || r.Replica != s.members.ID() || !slices.Equal(r.Controllers, []string{"a", "b"}) || len(r.Stalled) != 1 {
		t.Errorf("the report is %+v, %v", r, err)
	}
	s = idle(t, bustest.Wrap(b).Fail(bustest.Put, errors.New("no room")), reader("a"))
	if err := s.report(t.Context(), s.loops, 2); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a report that cannot be stored: %v, want the error of the bus", err)
	}
}

// The fold's lag is the distance to the end of the log, and the age of the next message.
func TestTheLagOfAKind(t *testing.T) {
	lag := func(end uint64, stored time.Time, fails error) []string {
		s := idle(t, ending(end, stored).Fail(bustest.StreamState, fails).Fail(bustest.At, fails), reader("a"))
		return written(t, func(out chan<- prometheus.Metric) { s.metrics.collectLag(t.Context(), out, "pods", end) })
	}
	if got := lag(0, time.Time{}, nil); !slices.Equal(got, []string{"/pods 0", "/pods 0"}) {
		t.Errorf("the lag of an empty log is %q", got)
	}
	if got := lag(3, time.Now().Add(time.Hour), nil); !slices.Equal(got, []string{"/pods 0", "/pods 3"}) {
		t.Errorf("the lag of a message with a time to come is %q, want 0", got)
	}
	if got := lag(3, time.Now().Add(-time.Hour), errors.New("away")); !slices.Equal(got, []string{"/pods 0", "/pods 3"}) {
		t.Errorf("the lag on a bus that is away is %q", got)
	}
	if got := lag(3, time.Now().Add(-time.Hour), nil); len(got) != 2 || !slices.Contains(got, "/pods 3") || !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "/pods 36") }) {
		t.Errorf("the lag of a message from an hour ago is %q", got)
	}
}

func TestTheEndsOfTheLogs(t *testing.T) {
	pods := reader("a", reconcile.Input{Kind: kinds.Pods.Kind})
	there := idle(t, ending(7, time.Time{}), pods)
	there.claim(kinds.Pods.Kind)
	if ends := there.metrics.ends(t.Context()); len(ends) != 1 || ends["pods"] != 7 {
		t.Errorf("the logs end at %v, want pods at 7", ends)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if ends := there.metrics.ends(ended); len(ends) != 0 {
		t.Errorf("with an ended context the logs end at %v, want none", ends)
	}
	gone := idle(t, ending(7, time.Time{}).Fail(bustest.StreamState, errors.New("none")), pods)
	gone.claim(kinds.Pods.Kind)
	if ends := gone.metrics.ends(t.Context()); len(ends) != 0 {
		t.Errorf("of a kind that is gone the logs end at %v, want none", ends)
	}
}

// A controller's lag counts from its oldest waiting change to the end of the log.
func TestWhatWaitsForAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := func(reconcile.Snapshot, reconcile.Object, reconcile.Object) []events.Key { return nil }
		s := idle(t, memory.New(memory.Options{}), reader("a", reconcile.Input{Kind: kinds.Pods.Kind, Keys: keys}, reconcile.Input{Kind: kinds.Nodes.Kind}))
		ends := map[kinds.Name]uint64{"pods": 7, "nodes": 9}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := written(t, func(out chan<- prometheus.Metric) { s.metrics.collectBehind(soon, out, s.loops[0], ends) }); len(got) != 0 {
			t.Errorf("a loop that does not answer is measured as %q, want nothing", got)
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go s.loops[0].Run(ctx)
		if got := written(t, func(out chan<- prometheus.Metric) { s.metrics.collectBehind(ctx, out, s.loops[0], ends) }); !slices.Equal(got, []string{"/a/pods 0", "/a/pods 0"}) {
			t.Errorf("a loop for which nothing waits is measured as %q", got)
		}
		end()
		synctest.Wait()
	})
}

// A wake that fires reaches its controller; the stream also holds scheduled wakes.
func TestWhichWakesFire(t *testing.T) {
	key := events.Key{Namespace: "ns", Name: "web"}
	wake := func(at string, of events.Key) events.Message {
		m, err := events.EncodeJSON(events.Wake{Controller: "a", Key: of}, events.Trace{})
		if err != nil {
			t.Fatal(err)
		}
		m.Subject = at
		return m
	}
	for what, m := range map[string]events.Message{
		"of another controller": wake(subject.Wake("b", key), key),
		"that is set":           wake(subject.Schedule("a", key), key),
		"of another key":        wake(subject.Wake("a", key), events.Key{Name: "other"}),
		"on another subject":    wake("x", key),
		"that cannot be read":   {Subject: subject.Wake("a", key), Data: []byte("{")},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) { fired(map[string]*shell.Loop{"a": {}}, m) }) // to tell a loop that does not run would never end
		})
	}
}

func TestNoReplicaIsFitBeforeItHasFolded(t *testing.T) {
	if s := idle(t, memory.New(memory.Options{}), reader("a")); s.fit() {
		t.Error("a replica that has folded nothing is fit")
	}
	none := idle(t, memory.New(memory.Options{}))
	if !none.fit() || none.busTime().IsZero() || none.stored() != 0 {
		t.Error("a replica without controllers is not fit, or does not know the time")
	}
}

func TestMetricsAreUpstreams(t *testing.T) {
	if got := name(reconcile.Description{Name: "a-controller", Aliases: []string{"a", "b"}}); got != "a" {
		t.Errorf("a controller with an alias is called %q", got)
	}
	if got := name(reconcile.Description{Name: "a-controller"}); got != "a-controller" {
		t.Errorf("a controller without an alias is called %q", got)
	}
	gauge := reconcile.Metric{Name: "things", Sort: reconcile.Gauge}
	u := newUpstream([]reconcile.Any{reconcile.Controller[bool]{Name: "a", Metrics: []reconcile.Metric{gauge}}})
	d := reconcile.Description{Name: "a", Metrics: []reconcile.Metric{gauge}}
	for active, want := range map[bool][]string{true: {" 0", "/millrace/a 1"}, false: {"/millrace/a 0"}} {
		if got := written(t, func(out chan<- prometheus.Metric) { u.collect(out, d, active) }); !slices.Equal(got, want) {
			t.Errorf("with the controller of this replica (%t) it is measured as %q, want %q", active, got, want)
		}
	}
}

func TestSyncsAreCountedAsUpstreams(t *testing.T) {
	controllers := []reconcile.Any{reader(rootCAPublisher), reader(bundlePublisher), reader(slicer), reader(mirrorer), reader("other")}
	u := newUpstream(controllers)
	for _, c := range controllers {
		u.answered(c.Describe().Name, 200, time.Second)
		u.answered(c.Describe().Name, 409, time.Second)
	}
	counts := map[string]int{}
	for _, one := range metrictest.Collect(t, u.collectors(controllers)...) {
		at := one.Name
		for _, l := range one.Labels {
			at += "/" + l.Value
		}
		counts[at] = int(one.Value)
	}
	for at, want := range map[string]int{
		"root_ca_cert_publisher_sync_total/200": 1, "root_ca_cert_publisher_sync_total/409": 1, "root_ca_cert_publisher_sync_duration_seconds/409": 1,
		"clustertrustbundle_publisher_sync_total/409": 1, "clustertrustbundle_publisher_sync_duration_seconds/200": 1,
		"endpoint_slice_controller_syncs/success": 1, "endpoint_slice_controller_syncs/error": 1,
		"endpoint_slice_mirroring_controller_endpoints_sync_duration": 2,
	} {
		if counts[at] != want {
			t.Errorf("%s is %d, want %d", at, counts[at], want)
		}
	}
}
