package watcher

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/versions"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// start runs a watcher until the test ends or stop is called.
func start(t *testing.T, s *watchertest.Server, b bus.Bus, id string, options ...func(*Config)) (service *Service, stop func()) {
	config := Config{REST: s.REST(), Bus: b, Kinds: []kinds.Kind{kinds.Pods.Kind}, ID: id}
	for _, option := range options {
		option(&config)
	}
	service, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return service, servicetest.Run(t, "watcher", service.Run)
}

func TestEveryChangeIsToldOnceAcrossBrokenWatchesAndRestarts(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	_, stop := start(t, s, b, "one")
	watchertest.Eventually(t, b, "is a")
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a", "is a")
	s.CutWatches()
	s.PutPod("b", 0)
	watchertest.Eventually(t, b, "is a", "is a", "is b")
	stop()
	s.RemovePod("a")
	start(t, s, b, "two")
	watchertest.Eventually(t, b, "is a", "is a", "is b", "gone a")
	if got := s.Listed(); got != 1 {
		t.Errorf("%d lists, want one: the rest resumes", got)
	}
}

func TestDeletesDuringACompactionAreFound(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	s.PutPod("a", 0)
	s.PutPod("b", 0)
	_, stop := start(t, s, b, "one")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 3 }) // two objects and a mark
	stop()
	s.RemovePod("a")
	s.RemovePod("b")
	s.PutPod("b", 0) // another one of that name
	s.Compact()
	start(t, s, b, "two")
	watchertest.Until(t, func() bool { return strings.Contains(fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b))), "gap") })
	if got := fmt.Sprint(watchertest.Ops(watchertest.LogOf(t, b)[3:])); !strings.HasPrefix(got, "[gone b is b gone a gap") {
		t.Errorf("the relist told %s", got)
	}
}

// listen waits until an address is free again.
func listen(t *testing.T, address string) (l net.Listener) {
	t.Helper()
	watchertest.Until(t, func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", address)
		return err == nil
	})
	return l
}

func TestWhatIsTooLargeIsToldInBrief(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{MaxMessage: 4096})
	start(t, s, b, "one")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 1 }) // the mark of an empty list
	s.PutPod("large", 8192)
	s.PutPod("small", 0)
	watchertest.Eventually(t, b, "is large", "is small")
	for _, d := range watchertest.LogOf(t, b) {
		if want := map[string]kinds.Form{"large": kinds.Metadata, "small": kinds.Full}[d.Ref.Name]; d.Form != want {
			t.Errorf("%v has form %q, want %q", d.Ref, d.Form, want)
		}
	}
}

func TestTheYoungerWatcherTakesOverWithoutDoubling(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	s.PutPod("a", 0)
	watchertest.Eventually(t, b, "is a")
	start(t, s, b, "two")
	s.PutPod("b", 0)
	watchertest.Eventually(t, b, "is a", "is b")
	stop()
	s.PutPod("c", 0)
	watchertest.Eventually(t, b, "is a", "is b", "is c")
}

func TestRefusedCredentialsEndTheRun(t *testing.T) {
	t.Parallel()
	s := watchertest.Serve(t)
	s.Refuse("", http.StatusUnauthorized)
	service, err := New(Config{REST: &rest.Config{Host: s.URL}, Bus: memory.New(memory.Options{}), Kinds: []kinds.Kind{kinds.Pods.Kind}, ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Run(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("run: %v, want %v", err, ErrRefused)
	}
	if service.Checks()["api"]() == nil {
		t.Error("the api check passes")
	}
}

// A watch that lasted ten seconds is retried at once; one that ended earlier continues the
// back-off.
func TestASettledWatchBeginsAnewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := watchertest.Offline(t)
		s.Refuse("pods", http.StatusForbidden)
		start(t, s, memory.New(memory.Options{}), "one")
		fails := func(after time.Duration) []time.Duration {
			s.Break(nil)
			time.Sleep(20*time.Second + after) // virtual; 15 s is the longest pause
			from := time.Now()
			s.Refuse("pods", http.StatusForbidden)
			s.CutWatches()
			time.Sleep(time.Minute)
			return s.Since("pods", from)
		}
		time.Sleep(2 * time.Minute)
		if got := fails(20 * time.Second); len(got) < 4 || got[0] > 75*time.Millisecond || got[1]-got[0] > 75*time.Millisecond || got[2]-got[1] > 150*time.Millisecond {
			t.Errorf("after a watch of half a minute the watcher retries after %v, want soon", got)
		}
	})
}

// A watcher never watches Secrets in full, does not change the config that it is given, and needs
// an API server and a bus.
func TestWhatAWatcherIsMadeOf(t *testing.T) {
	t.Parallel()
	secrets := kinds.Secrets.Kind
	secrets.Form = kinds.Full
	b := memory.New(memory.Options{})
	given := Config{REST: &rest.Config{Host: "http://server"}, Bus: b, Kinds: []kinds.Kind{secrets, kinds.Pods.Kind}, Scope: Other}
	service, err := New(given)
	if err != nil || service.config.Kinds[0].Form != kinds.Metadata || service.config.Kinds[1].Form != kinds.Full || given.Kinds[0].Form != kinds.Full {
		t.Errorf("the watcher watches %+v, and was given %+v, %v", service.config.Kinds, given.Kinds, err)
	}
	for what, c := range map[string]Config{
		"without an API server": {Bus: b}, "without a bus": {REST: given.REST}, "of another scope": {REST: given.REST, Bus: b, Scope: "odd"},
		"of an address that is none": {REST: &rest.Config{Host: "http://[::1"}, Bus: b},
	} {
		if service, err := New(c); err == nil || service != nil {
			t.Errorf("%s a watcher is made", what)
		}
	}
	for _, scope := range append(slices.Clone(Scopes), "") {
		if got, want := scope.group(), map[Scope]string{BuiltIn: "built-in", Other: "other"}[scope]; got != want {
			t.Errorf("the group of the watchers of %q is %q, want %q", scope, got, want)
		}
		if _, err := New(Config{REST: given.REST, Bus: b, Scope: scope}); err != nil {
			t.Errorf("New with the scope %q: %v", scope, err)
		}
	}
	if fmt.Sprint(versions.DefaultBound) != "{8388608 102400}" {
		t.Errorf("the bound is %v where none is said", versions.DefaultBound)
	}
}

// TestAGapSaysSinceWhenItMayBe: the watcher is down until the API server has forgotten the changes
// of that time.
func TestAGapSaysSinceWhenItMayBe(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	_, stop := start(t, s, b, "one")
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 1 })
	s.PutPod("a", 0)
	watchertest.Until(t, func() bool { return len(watchertest.LogOf(t, b)) == 2 })
	stop()
	last := watchertest.LogOf(t, b)[1].At
	s.PutPod("a", 0)
	s.PutPod("b", 0)
	s.Compact()
	_, stop = start(t, s, b, "two")
	defer stop()
	watchertest.Until(t, func() bool { log := watchertest.LogOf(t, b); return len(log) > 2 && log[len(log)-1].Op == events.Mark })
	log := watchertest.LogOf(t, b)
	gap, mark := log[len(log)-2], log[len(log)-1]
	if h := watchertest.Hole(t, gap); !h.Since.Equal(last) {
		t.Errorf("the gap says since %v, want since the last change at %v", h.Since, last)
	}
	if want := (events.Place{Known: true}); gap.Before != want {
		t.Errorf("the first gap has another before it at %+v", gap.Before)
	}
	if want := (events.Place{Known: true, Sequence: uint64(len(log) - 1)}); mark.Before != want {
		t.Errorf("the mark says that the gap is at %+v, want %+v", mark.Before, want)
	}
}

// TestTheAuthorIsToldAcrossBrokenWatches: the watcher finds the author of a change from the version
// before it, also when the watch was interrupted. A watcher that has just started does not know
// that version, and does not guess.
func TestTheAuthorIsToldAcrossBrokenWatches(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	at := metav1.NewTime(time.Unix(1_900_000_000, 0))
	// All managers write in the same second; the API server sorts them by name.
	write := func(managers ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.ManagedFields = nil
			for _, m := range managers {
				p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
					Manager: m, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:` + m + `":{}}`)},
				})
			}
		}
	}
	newest := func(version int) (d events.Delta) {
		t.Helper()
		watchertest.Until(t, func() bool {
			var told []events.Delta
			for _, d := range watchertest.LogOf(t, b) {
				if d.Op == events.Is {
					told = append(told, d)
				}
			}
			if len(told) == version {
				d = told[version-1]
			}
			return len(told) == version
		})
		return d
	}
	is := func(version int, want string) {
		t.Helper()
		if d := newest(version); d.Proven != (want != "") || d.Proven && d.By.Name != want {
			t.Errorf("version %d is by %q, proven %v, want %q", version, d.By.Name, d.Proven, want)
		}
	}
	s.Edit("pods", "a", write("run"))
	_, stop := start(t, s, b, "one")
	is(1, "") // a list has found it
	s.Edit("pods", "a", write("label", "run"))
	is(2, "label")
	s.CutWatches()
	s.Edit("pods", "a", write("label", "note", "run"))
	is(3, "note")
	s.Edit("pods", "a", write("label", "note", "run")) // a binding
	is(4, "")
	s.Edit("pods", "b", write("create"))
	is(5, "create")
	stop()
	start(t, s, b, "two")
	s.Edit("pods", "a", write("edit", "label", "note", "run"))
	is(6, "")
	s.Edit("pods", "a", write("edit", "fix", "label", "note", "run"))
	is(7, "fix")
	s.Edit("pods", "b", write("create", "patch"))
	is(8, "")
}

// TestTheWatcherTellsOfAFight: a watch looks for fights in the changes that it receives.
func TestTheWatcherTellsOfAFight(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one")
	watching(t, service)
	write := func(i int) {
		s.Edit("pods", "web", func(p *corev1.Pod) {
			watchertest.ByWriter([]string{events.FieldManager, "pipeline"}[i%2])(p)
			p.Generation, p.Spec.HostNetwork = int64(i+1), i%2 == 0
		})
	}
	const enough = 3 + 10 // its create, the first change, and the second one, which is not a return yet
	for i := range 2*enough - 1 {
		write(i)
	}
	watchertest.Until(t, func() bool {
		return metrictest.Collect(t, service.Collectors()...).Sum("millrace_watcher_fights_total", "kind=pods") == 2
	})
}
