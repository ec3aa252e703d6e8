package watcher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/storageepoch"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// idle is a watcher that all kinds fall to and that runs no loop. It is for tests in virtual time.
func idle(t *testing.T, b bus.Bus, options ...func(*Config)) (*Service, *watchertest.Server) {
	t.Helper()
	s := watchertest.Offline(t)
	config := Config{Bus: b, ID: "one", Every: true}
	config.REST = s.REST()
	for _, option := range options {
		option(&config)
	}
	service, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); service.members.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	time.Sleep(2 * time.Second) // virtual
	if !service.fallsHere("pods") && config.Scope != Other {
		t.Fatal("kinds do not fall to a watcher that is alone")
	}
	return service, s
}

// A search wakes the loop of Run once for each new catalog. The watcher logs a discovery error when
// it changes.
func TestWhatASearchTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, s := idle(t, memory.New(memory.Options{}))
		ctx, log := watchertest.Logged(t)
		woken := func() bool {
			select {
			case <-service.changed:
				return true
			default:
				return false
			}
		}
		if _, _, searched := service.wanted(); searched || service.checkSynced() == nil {
			t.Error("wanted reports a search before discovery has answered")
		}
		service.findKinds(ctx)
		want, _, searched := service.wanted()
		if !woken() || !searched || len(want) != 1 || want[0].Name != "pods" {
			t.Errorf("the first discovery finds %v, want pods", want)
		}
		if service.findKinds(ctx); woken() {
			t.Error("findKinds wakes the service when nothing has changed")
		}
		service.await(true)
		if service.findKinds(ctx); !woken() {
			t.Error("findKinds does not wake the service while a kind waits")
		}
		service.await(false)
		service.reminder = time.Now().Add(1)
		if service.findKinds(ctx); woken() {
			t.Error("findKinds wakes the service before the reminder")
		}
		time.Sleep(1) // virtual
		if service.findKinds(ctx); !woken() {
			t.Error("findKinds does not wake the service at the reminder")
		}
		service.reminder = time.Time{}
		s.Refuse("", 503)
		for range 2 {
			service.findKinds(ctx)
		}
		s.Refuse("", 403)
		service.findKinds(ctx)
		if woken() || service.discoveryErr == nil {
			t.Error("a failed discovery wakes the service, or leaves no error")
		}
		s.Break(nil)
		for range 2 {
			service.findKinds(ctx)
		}
		if got := strings.Count(log(), "Cannot use the API server"); got != 2 {
			t.Errorf("two kinds of failures are logged %d times, want 2", got)
		}
		if got := strings.Count(log(), "The API server answers"); got != 1 || service.discoveryErr != nil {
			t.Errorf("that it goes on is told %d times, and it fails with %v", got, service.discoveryErr)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		s.Refuse("", 500)
		if service.findKinds(ended); service.discoveryErr != nil {
			t.Errorf("a discovery that was interrupted is the error %v", service.discoveryErr)
		}
		if service.note(ended, &service.discoveryErr, away); service.discoveryErr != nil {
			t.Errorf("an error after the end is kept as %v", service.discoveryErr)
		}
	})
}

// A change of a CRD or an APIService starts a discovery at once.
func TestAChangedDefinitionStirs(t *testing.T) {
	t.Parallel()
	service, now := &Service{definerChanged: make(chan struct{}, 1)}, time.Now()
	service.noteDefinerChange(now)
	if service.noteDefinerChange(now.Add(1)); len(service.definerChanged) != 1 || !service.definerChangedAt.Equal(now.Add(1)) {
		t.Errorf("the change of a definer is signalled %d times, last at %v; want once, at the second", len(service.definerChanged), service.definerChangedAt)
	}
}

// ensureOthers creates the streams of kinds that fall to other watchers, except for kinds that are out
// of scope, or have streams already; it stops when the kinds move.
func TestTheStreamsOfOthersAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := bustest.Wrap(memory.New(memory.Options{}))
		service, _ := idle(t, a, func(c *Config) { c.Scope = BuiltIn })
		ctx, log := watchertest.Logged(t)
		want := []kinds.Kind{kinds.Pods.Kind, kinds.Nodes.Kind, kinds.Secrets.Kind, kinds.ConfigMaps.Kind}
		made := func() (names []kinds.Name) {
			all, err := a.Kinds(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range all {
				names = append(names, k.Name)
			}
			return names
		}
		if service.ensureOthers(ctx, want, nil); len(made()) != 0 || len(service.ensured) != 0 {
			t.Errorf("the streams of its own kinds are made: %v", made())
		}
		stop := pretends(t, a, "other", BuiltIn)
		time.Sleep(time.Second) // virtual
		defer stop()
		var theirs []kinds.Kind
		for _, k := range []kinds.Kind{kinds.Pods.Kind, kinds.Nodes.Kind, kinds.ConfigMaps.Kind, kinds.Services.Kind, kinds.Jobs.Kind, kinds.Deployments.Kind, kinds.Endpoints.Kind} {
			if service.members.Holder(string(k.Name)) == "other" {
				theirs = append(theirs, k)
			}
		}
		if len(theirs) < 3 {
			t.Fatalf("only %d kinds fall to the other watcher", len(theirs))
		}
		first, second, third := theirs[0], theirs[1], theirs[2]
		service.ensured[second.Name] = true
		moved := make(chan struct{})
		service.ensureOthers(ctx, append(theirs[1:3:3], kinds.Secrets.Kind), moved)
		if got := made(); len(got) != 1 || got[0] != third.Name || !service.ensured[third.Name] || service.ensured[first.Name] {
			t.Errorf("made are the streams of %v, want those of %s", got, third.Name)
		}
		a.Fail(bustest.EnsureKind, errors.New("refused"))
		if service.ensureOthers(ctx, theirs[:1], moved); service.ensured[first.Name] || !strings.Contains(log(), "Leaving the streams of a kind") {
			t.Errorf("streams that cannot be made are there: %t, and it tells\n%s", service.ensured[first.Name], log())
		}
		a.Fail(bustest.EnsureKind, nil)
		close(moved)
		if service.ensureOthers(ctx, theirs[:1], moved); service.ensured[first.Name] {
			t.Error("streams are made when the kinds have moved")
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if service.ensureOthers(ended, theirs[:1], make(chan struct{})); service.ensured[first.Name] {
			t.Error("streams are made by what is ended")
		}
	})
}

// The watcher logs how many kinds it watches when the number changes.
func TestHowManyKindsAreWatchedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := kinds.Nodes.Kind
		nodes.Form = kinds.Metadata
		service, _ := idle(t, memory.New(memory.Options{}), func(c *Config) { c.Kinds = []kinds.Kind{kinds.Pods.Kind, nodes} })
		ctx, log := watchertest.Logged(t)
		ctx, cancel := context.WithCancel(ctx)
		for range 2 {
			service.reconcile(ctx, nil)
		}
		if got := strings.Count(log(), "Assigned kinds to watchers"); got != 1 || service.watched != 2 || !strings.Contains(log(), "left=0") {
			t.Errorf("the assignment is logged %d times with %d kinds watched, want once with 2:\n%s", got, service.watched, log())
		}
		if !service.watches("pods") || !service.watches("nodes") {
			t.Error("kinds that are wanted are not watched")
		}
		time.Sleep(time.Second) // virtual
		stop := pretends(t, service.config.Bus, "other", All)
		time.Sleep(time.Second)
		service.mu.Lock()
		for _, k := range []kinds.Kind{kinds.Services.Kind, kinds.Jobs.Kind, kinds.Deployments.Kind, kinds.Endpoints.Kind, kinds.ConfigMaps.Kind, kinds.Namespaces.Kind, kinds.ServiceAccounts.Kind} {
			k.Form = kinds.Metadata
			service.config.Kinds = append(service.config.Kinds, k)
		}
		service.mu.Unlock()
		service.reconcile(ctx, nil)
		watched := 0
		for _, k := range service.config.Kinds {
			if service.watches(k.Name) != service.fallsHere(k.Name) {
				t.Errorf("%s is watched: %t, and falls to this watcher: %t", k.Name, service.watches(k.Name), service.fallsHere(k.Name))
			}
			watched += count(service.fallsHere(k.Name))
		}
		if got := strings.Count(log(), "Assigned kinds to watchers"); got != 2 || service.watched != watched || watched == len(service.config.Kinds) {
			t.Errorf("the assignment is logged %d times with %d kinds watched, want twice with %d", got, service.watched, watched)
		}
		stop()
		cancel()
		service.stop(func(kinds.Name) bool { return true })
	})
}

// The config determines how a kind is wanted, or else discovery does.
func TestHowAKindIsWanted(t *testing.T) {
	t.Parallel()
	brief, later := kinds.Pods.Kind, kinds.Nodes.Kind
	brief.Form, later.Version = kinds.Metadata, "v2"
	service := &Service{config: Config{Kinds: []kinds.Kind{kinds.Pods.Kind}}, catalog: source.Catalog{Kinds: []kinds.Kind{brief, later}}}
	want, _, _ := service.wanted()
	if len(want) != 2 || want[0] != kinds.Pods.Kind || want[1] != later {
		t.Errorf("wanted are %+v", want)
	}
	if got := service.wantedNow(kinds.Nodes.Kind); got != later {
		t.Errorf("nodes are wanted as %+v", got)
	}
	if got := service.wantedNow(brief); got != kinds.Pods.Kind {
		t.Errorf("pods are wanted as %+v, want in full", got)
	}
	if got := service.wantedNow(kinds.Jobs.Kind); got != kinds.Jobs.Kind {
		t.Errorf("a kind that is not wanted is wanted as %+v", got)
	}
	if service.serves("nodes", "v2") {
		t.Error("a catalog without versions serves one")
	}
}

// A watcher is synced when each kind that falls to it has been listed and is watched.
func TestWhenAWatcherIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, _ := idle(t, memory.New(memory.Options{}), func(c *Config) { c.Kinds, c.Every = []kinds.Kind{kinds.Pods.Kind, kinds.Secrets.Kind}, false }, func(c *Config) { c.Scope = BuiltIn })
		watch := &kept{}
		is := func(what, want string) {
			t.Helper()
			err := service.Checks()["synced"]()
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) || service.Synced() != (want == "") {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		is("before it is started", "pods: not started")
		service.kinds["pods"] = &running{reflector: watch}
		is("before it is listed", errNotListed.Error())
		watch.note(nil)
		is("when it is listed", "")
		watch.note(away)
		is("when it is degraded", "away")
		delete(service.kinds, "pods")
		service.kinds["secrets"], service.taken["secrets"] = &running{reflector: watch}, true
		watch.note(nil)
		is("when another one is watched", "pods: not started")
		service.kinds["pods"] = &running{reflector: watch}
		is("when both are", "")
		delete(service.kinds, "secrets")
		is("when what was taken is not", "secrets: not started")
		delete(service.taken, "secrets")
		is("when what is not is out of scope", "")
	})
}

// The watcher compares another process's claim with the logs, and the watch of the kind with the
// newest recorded change asks the API server.
func TestWhichEpochIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 2)
		service := &Service{config: Config{Bus: a}, epoch: storageepoch.New(), kinds: map[kinds.Name]*running{}}
		ctx := t.Context()
		doubts := func(kind kinds.Name) chan struct{} {
			watch := &kept{claims: make(chan struct{}, 1)}
			service.kinds[kind] = &running{reflector: watch}
			return watch.claims
		}
		tell := func(kind kinds.Kind, d events.Delta) {
			t.Helper()
			if err := a.EnsureKind(ctx, kind); err != nil {
				t.Fatal(err)
			}
			log, err := a.Append(ctx, kind.Name)
			if err != nil {
				t.Fatal(err)
			}
			d.Kind, d.Op = kind.Name, events.Mark
			if err := log.Append(ctx, events.Seal(subject.Message(d))); err != nil {
				t.Fatal(err)
			}
		}
		tell(kinds.Nodes.Kind, events.Delta{ResourceVersion: "30", Epoch: 4})
		tell(kinds.Jobs.Kind, events.Delta{ResourceVersion: "8", Epoch: 2})
		tell(kinds.ConfigMaps.Kind, events.Delta{ResourceVersion: "20", Epoch: 1, Sync: true})
		pods, jobs, maps := doubts("pods"), doubts("jobs.batch"), doubts("configmaps")
		if epoch, err := service.epochSeen(ctx, false); err != nil || epoch != 4 || len(pods)+len(jobs)+len(maps) != 0 {
			t.Errorf("the epoch is %d (%v), with %d questions; want 4, and none at a later look", epoch, err, len(pods)+len(jobs)+len(maps))
		}
		if epoch, err := service.epochSeen(ctx, true); err != nil || epoch != 4 || len(pods) != 1 || len(jobs)+len(maps) != 0 {
			t.Errorf("the epoch is %d (%v), with %d questions about pods, %d about jobs, %d about ConfigMaps; want 4, 1, 0, 0", epoch, err, len(pods), len(jobs), len(maps))
		}
		if clear(service.kinds); true {
			if epoch, err := service.epochSeen(ctx, true); err != nil || epoch != 4 || len(pods) != 1 {
				t.Errorf("with no kind watched the epoch is %d (%v), with %d questions; want 4 and 1", epoch, err, len(pods))
			}
		}
		a.Fail(bustest.StreamState, away, logPods)
		if _, err := service.epochSeen(ctx, true); !errors.Is(err, away) {
			t.Errorf("the epoch with a log that is away: %v, want the error of the bus", err)
		}
		a.Fail(bustest.StreamState, bus.ErrNoStream, logPods)
		if epoch, err := service.epochSeen(ctx, true); err != nil || epoch != 4 {
			t.Errorf("the epoch with a log that is gone is %d, %v; want 4", epoch, err)
		}
		if a.Fail(bustest.StreamState, nil, logPods); k.Last() != 3 {
			t.Fatalf("the log ends at %d", k.Last())
		}
		watchertest.Tear(a, 3)
		if d, err := kindlog.Newest(ctx, a, "pods"); err != nil || d.Kind != "" {
			t.Errorf("the newest delta of a log with a torn end is %+v, %v; want none", d, err)
		}
		if err := a.EnsureKind(ctx, kinds.Services.Kind); err != nil {
			t.Fatal(err)
		}
		if d, err := kindlog.Newest(ctx, a, "services"); err != nil || d.Op != "" || d.Kind != "services" {
			t.Errorf("the newest delta of an empty log is %+v, %v; want none", d, err)
		}
		a.Fail(bustest.Kinds, away)
		if _, err := service.epochSeen(ctx, true); !errors.Is(err, away) {
			t.Errorf("the epoch on a bus that is away: %v, want its error", err)
		}
	})
}

// Discovery runs again soon while something may have changed, and later when everything rests.
func TestWhenKindsAreLookedForAgain(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one")
	now := time.Now()
	until := func(change func()) time.Duration {
		service.mu.Lock()
		service.config.Scope, service.waiting, service.discoveryErr, service.definerChangedAt = All, false, nil, now.Add(-time.Hour)
		change()
		service.mu.Unlock()
		return service.untilDiscovery(now)
	}
	if got := until(func() {}); got != discoverResting {
		t.Errorf("at rest in %v", got)
	}
	for what, change := range map[string]func(){
		"something waits":   func() { service.waiting = true },
		"it failed":         func() { service.discoveryErr = away },
		"a kind was made":   func() { service.definerChangedAt = now.Add(-discoverSettled + 1) },
		"makers are hidden": func() { service.config.Scope = Other },
	} {
		if got := until(change); got != discoverEvery && !(what == "makers are hidden" && service.watchesDefiners()) {
			t.Errorf("%s: in %v", what, got)
		}
	}
	if got := until(func() { service.definerChangedAt = now.Add(-discoverSettled) }); got != discoverResting {
		t.Errorf("when a kind was created long ago the next discovery is in %v, want %v", got, discoverResting)
	}
}
