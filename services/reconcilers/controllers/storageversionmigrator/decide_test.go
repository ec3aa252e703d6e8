package storageversionmigrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now, reconciletest.Content(20, answered), reconciletest.Law[View]{Name: "sure", Holds: sure})
}

func of(name string, conditions ...metav1.Condition) *migration {
	m := &migration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	m.Spec.Resource = metav1.GroupResource{Group: "example.com", Resource: "widgets"}
	m.Status.Conditions = conditions
	return m
}

func is(what storagemigrationv1beta1.MigrationConditionType) metav1.Condition {
	return condition(what, "R", "", now.Add(-time.Minute))
}

const (
	runs  = storagemigrationv1beta1.MigrationRunning
	good  = storagemigrationv1beta1.MigrationSucceeded
	wrong = storagemigrationv1beta1.MigrationFailed
)

// anyView returns a migration in any of its steps, with what may be known in it.
func anyView(t *rapid.T) View {
	v := View{Migration: of("m")}
	for _, what := range []storagemigrationv1beta1.MigrationConditionType{runs, good, wrong} {
		if rapid.IntRange(0, 2).Draw(t, string(what)) == 0 {
			v.Migration.Status.Conditions = append(v.Migration.Status.Conditions, is(what))
		}
	}
	v.Migration.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds ago")) * time.Second))
	v.Migration.Status.ResourceVersion = rapid.SampledFrom([]string{"", "100", "100"}).Draw(t, "stands at")
	v.Ahead = rapid.SampledFrom([]string{"", "", "", "other"}).Draw(t, "ahead")
	v.Definition = rapid.SampledFrom([]*Definition{
		nil, {}, {Name: "widgets.example.com", UID: "d", ResourceVersion: "5", Generation: 3, Since: 3, Storage: "v2", Stored: []string{"v1", "v2"}},
		{Name: "widgets.example.com", UID: "d", ResourceVersion: "5", Generation: 3, Since: 2, Storage: "v2", Stored: []string{"v1", "v2"}},
	}).Draw(t, "definition")
	v.Marked = v.Definition != nil && rapid.Bool().Draw(t, "marked")
	if rapid.Bool().Draw(t, "asked") {
		v.Question = &query.ObjectsQuestion{Resource: "widgets.example.com", Version: rapid.SampledFrom([]string{"", "100", "99"}).Draw(t, "since"), Last: rapid.Bool().Draw(t, "last")}
		v.Objects = &query.Objects{At: rapid.SampledFrom([]string{"100", "x"}).Draw(t, "at"), More: rapid.SampledFrom([]string{"", "more"}).Draw(t, "more")}
		if rapid.IntRange(0, 3).Draw(t, "served") > 0 {
			v.Objects.Version, v.Objects.Kind = "v2", "Widget"
			v.Objects.Lacking = rapid.SampledFrom([][]string{nil, nil, nil, {"patch"}}).Draw(t, "lacking")
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "objects") {
			v.Objects.Objects = append(v.Objects.Objects, query.Stored{Namespace: "ns", Name: fmt.Sprint("w", i), UID: "u", ResourceVersion: "50"})
		}
		v.At = now.Add(-time.Duration(rapid.IntRange(0, 10).Draw(t, "answered ago")) * time.Second)
	}
	v.Refused = rapid.SampledFrom([]string{"", "", "", "invalid"}).Draw(t, "refused")
	v.Undone = rapid.IntRange(0, 3).Draw(t, "undone") == 0
	return v
}

// answered returns the view after a decision was carried out, if the resource is served and has
// no objects.
func answered(v View, d reconcile.Decision, _ time.Time) View {
	next := View{Migration: v.Migration, Ahead: v.Ahead, Definition: v.Definition, Marked: v.Marked, At: now}
	for _, c := range d.Commands {
		switch {
		case c.Verb == events.VerbAsk && c.Kind == definitions.Name:
			next.Definition, next.Marked = &Definition{Name: c.Name, UID: "d", ResourceVersion: "9", Generation: 1, Storage: "v2", Stored: []string{"v2"}}, false
		case c.Verb == events.VerbAsk:
			next.Question, next.Objects = new(query.ObjectsQuestion), &query.Objects{Version: "v2", Kind: "Widget", At: "100"}
			if err := json.Unmarshal(c.Body, next.Question); err != nil {
				panic(err)
			}
		case c.Kind == definitions.Name:
			next.Marked = true
		case c.Verb == events.VerbUpdate:
			next.Migration = new(migration)
			if err := json.Unmarshal(c.Body, next.Migration); err != nil {
				panic(err)
			}
			next.Definition, next.Marked = nil, false
		}
	}
	return next
}

// sure: only a running migration writes objects, and without a change. It goes on only after a page
// that could be listed, and succeeds only after the last page, with nothing left undone. Old stored
// versions are removed only after a success, if the definition has not changed since it was marked.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		var body struct {
			Status struct {
				Conditions     []metav1.Condition
				StoredVersions []string
			}
		}
		if command.Verb != events.VerbAsk && json.Unmarshal(command.Body, &body) != nil {
			return errors.New("it writes what is no object")
		}
		succeeds := slices.ContainsFunc(body.Status.Conditions, func(c metav1.Condition) bool { return c.Type == string(good) }) && !succeeded(v.Migration)
		switch {
		case command.Kind == "widgets.example.com" && (!running(v.Migration) || ended(v.Migration) || string(command.Body) != "{}" || command.If.ResourceVersion == ""):
			return fmt.Errorf("it writes %v with %s", command.Ref(), command.Body)
		case asksForMore(command) && len(v.Objects.Lacking) > 0:
			return errors.New("it goes on where nothing could be listed")
		case succeeds && (v.Undone || v.Refused != "" || !v.Question.Last || v.Question.Version != v.Migration.Status.ResourceVersion):
			return errors.New("it has succeeded before all is done")
		case command.Kind == definitions.Name && len(body.Status.StoredVersions) == 1 && (!succeeded(v.Migration) || v.Definition.Since != v.Definition.Generation):
			return errors.New("it takes stored versions away in which objects may be stored")
		}
	}
	return nil
}

// asksForMore reports whether a command asks for a page that is not the first one, or for the
// end of the last one.
func asksForMore(c events.Command) bool {
	var q query.ObjectsQuestion
	return c.Verb == events.VerbAsk && c.Kind != definitions.Name && json.Unmarshal(c.Body, &q) == nil && (q.From != "" || q.Last)
}

// The migration that comes first is one that runs, or else the oldest that has not ended.
func TestWhichComesFirst(t *testing.T) {
	older := func(m *migration) *migration {
		m.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
		return m
	}
	another := of("b")
	another.Spec.Resource.Resource = "gadgets"
	for what, c := range map[string]struct {
		other *migration
		ahead bool
	}{
		"an older one":                        {older(of("z")), true},
		"one of the same second, by its name": {of("a"), true},
		"one of a later name":                 {of("z"), false},
		"one that runs":                       {of("z", is(runs)), true},
		"one that has ended and runs still":   {of("z", is(runs), is(good)), true},
		"an older one that has ended":         {older(of("a", is(wrong))), false},
		"one of another resource":             {older(another), false},
	} {
		world := reconciletest.NewWorld().Put(kinds.StorageVersionMigrations.Kind, of("m")).Put(kinds.StorageVersionMigrations.Kind, c.other)
		if v, ok := observe(world, events.Key{Name: "m"}); !ok || (v.Ahead != "") != c.ahead {
			t.Errorf("%s: it sees %+v, %t", what, v, ok)
		}
		want := []events.Key{{Name: "m"}}
		if c.other.Spec.Resource == of("m").Spec.Resource {
			want = append(want, events.Key{Name: c.other.Name})
		}
		if got := world.Keys(Controller, kinds.StorageVersionMigrations.Kind, of("m"), nil); !slices.Equal(got, want) {
			t.Errorf("%s: the change asks for turns of %v, want %v", what, got, want)
		}
	}
	if _, ok := observe(reconciletest.NewWorld(), events.Key{Name: "m"}); ok {
		t.Error("observe finds a migration that is not there")
	}
}

func result(kind kinds.Name, name string, status events.Status, code int, note, body string) events.Result {
	r := events.Result{Status: status, Code: code, Ref: events.Ref{Kind: kind, Name: name}}
	if status == events.Refused {
		r.Message = "it is refused"
	}
	if note != "" || body != "" {
		r.Answer = &events.Answer{Note: json.RawMessage(note), Body: json.RawMessage(body)}
	}
	return r
}

// What the view has of the last turn's results.
func TestWhatIsHeard(t *testing.T) {
	asks := kinds.StorageVersionMigrations.Name
	const question, page = `{"resource":"widgets.example.com","version":"100","from":"x"}`, `{"version":"v2","kind":"Widget","objects":[{"name":"w","uid":"u","resourceVersion":"5"}],"more":"y"}`
	const definition = `{"kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com","uid":"d","resourceVersion":"5","generation":3},` +
		`"spec":{"versions":[{"name":"v1","storage":false},{"name":"v2","storage":true}]},` +
		`"status":{"storedVersions":["v1","v2"],"conditions":[{"type":"Established","observedGeneration":1},{"type":"StorageMigrating","observedGeneration":3}]}}`
	for what, c := range map[string]struct {
		r    events.Result
		want string
	}{
		"a page":                           {result(asks, "m", events.Answered, 0, question, page), `"question":` + question + `,"objects":` + page},
		"no answer":                        {result(asks, "m", events.Refused, 410, question, ""), ``},
		"an answer that cannot be read":    {result(asks, "m", events.Answered, 0, question, `[]`), `"unread"`},
		"an answer to no question":         {result(asks, "m", events.Answered, 0, "", page), `"unread"`},
		"a page of another resource":       {result(asks, "m", events.Answered, 0, `{"resource":"gadgets.example.com","version":"100"}`, page), ``},
		"no definition":                    {result(definitions.Name, "widgets.example.com", events.Absent, 404, "", ""), `"definition":{}`},
		"a definition":                     {result(definitions.Name, "widgets.example.com", events.Answered, 0, "", definition), `"definition":{"name":"widgets.example.com","uid":"d","resourceVersion":"5","generation":3,"since":3,"storage":"v2","stored":["v1","v2"]}`},
		"an object that is refused":        {result("widgets.example.com", "w", events.Refused, 422, "", ""), `"refused":"it is refused"`},
		"an object of a turn that was old": {result("widgets.example.com", "w", events.Refused, 0, "", ""), `"undone":true`},
		"an object not in time":            {result("widgets.example.com", "w", events.Failed, 503, "", ""), `"undone":true`},
		"an object that was skipped":       {result("widgets.example.com", "w", events.Skipped, 0, "", ""), `"undone":true`},
		"an object that has changed":       {result("widgets.example.com", "w", events.Conflict, 409, "", ""), ``},
		"an object that is gone":           {result("widgets.example.com", "w", events.Absent, 404, "", ""), ``},
		"an object that was written":       {result("widgets.example.com", "w", events.Applied, 0, "", ""), ``},
	} {
		last := events.Outcome{Key: events.Key{Name: "m"}, Lane: events.LaneWrite, UID: "uid-m", ResourceVersion: "7", At: now, Decided: now, Results: []events.Result{c.r}}
		v, _ := observe(reconciletest.NewWorld().Put(kinds.StorageVersionMigrations.Kind, of("m")).Remember(last), events.Key{Name: "m"})
		v.Migration = nil
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(text); !strings.Contains(got, c.want) || c.want == "" && got != `{"migration":null,"at":"2030-01-01T12:00:00Z"}` {
			t.Errorf("%s: it sees %s, want %s", what, got, c.want)
		}
	}
}

// A definition counts as marked if it was written after it was asked for, in the same step.
func TestWhenADefinitionIsMarked(t *testing.T) {
	answer := result(definitions.Name, "widgets.example.com", events.Answered, 0, "", `{"metadata":{"name":"widgets.example.com","uid":"d"}}`)
	for what, c := range map[string]struct {
		asked, wrote  string
		later         time.Duration
		status        events.Status
		known, marked bool
	}{
		"written":              {"7", "7", time.Second, events.Applied, true, true},
		"written before":       {"7", "7", -time.Second, events.Applied, true, false},
		"in another step":      {"7", "6", time.Second, events.Applied, true, false},
		"asked before":         {"6", "6", time.Second, events.Applied, false, false},
		"not, it has changed":  {"7", "7", time.Second, events.Conflict, false, false},
		"not, it is refused":   {"7", "7", time.Second, events.Refused, false, false},
		"as it was, and is so": {"7", "7", time.Second, events.Unchanged, true, true},
	} {
		key := events.Key{Name: "m"}
		world := reconciletest.NewWorld().Put(kinds.StorageVersionMigrations.Kind, of("m")).
			Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: "uid-m", ResourceVersion: c.asked, At: now, Decided: now, Results: []events.Result{answer}}).
			Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: "uid-m", ResourceVersion: c.wrote, At: now.Add(c.later), Decided: now.Add(c.later),
				Results: []events.Result{result(definitions.Name, "widgets.example.com", c.status, 0, "", "")}})
		if v, ok := observe(world, key); !ok || (v.Definition != nil) != c.known || v.Marked != c.marked {
			t.Errorf("%s: it sees %+v, %t", what, v, ok)
		}
	}
}

// A condition that is refused is written again, and the definition before it is not: its generation is
// that of the first write by now.
func TestARefusedConditionIsWrittenAgain(t *testing.T) {
	key := events.Key{Name: "m"}
	answer := result(definitions.Name, "widgets.example.com", events.Answered, 0, "", `{"metadata":{"name":"widgets.example.com","uid":"d"}}`)
	for what, m := range map[string]*migration{"begins": of("m"), "ends": of("m", is(runs), is(good))} {
		world := reconciletest.NewWorld().Put(kinds.StorageVersionMigrations.Kind, m).
			Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: "uid-m", ResourceVersion: "7", At: now, Decided: now, Results: []events.Result{answer}})
		var wrote []string
		for n := range 5 {
			v, ok := observe(world, key)
			d := decide(v, now)
			if !ok || len(d.Commands) != 1 {
				t.Fatalf("%s: it sees %+v and does %+v", what, v, d)
			}
			c := d.Commands[0]
			r := events.Result{Status: events.Applied, Ref: c.Ref()}
			if wrote = append(wrote, string(c.Kind)); c.Kind != definitions.Name {
				r = events.Result{Status: events.Refused, Code: 422, Message: "it is refused", Ref: c.Ref()}
			}
			if c.Note != nil {
				r.Answer = &events.Answer{Note: c.Note}
			}
			at := now.Add(time.Duration(n+1) * time.Second)
			world.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: "uid-m", ResourceVersion: "7", At: at, Decided: at, Results: []events.Result{r}})
		}
		of := string(kinds.StorageVersionMigrations.Name)
		if want := []string{string(definitions.Name), of, of, of, of}; !slices.Equal(wrote, want) {
			t.Errorf("a migration that %s: it writes %v, want %v", what, wrote, want)
		}
	}
}

// If a migration replaces another one of its name, in one change, those that waited for the other
// have a turn, too.
func TestWhoseTurnAMigrationIs(t *testing.T) {
	waits, gone, comes := of("waits"), of("m"), of("m")
	comes.UID, comes.Spec.Resource.Resource = "uid-other", "gadgets"
	ended := of("other", is(good))
	ended.Spec.Resource.Resource = "gadgets"
	w := reconciletest.NewWorld().Put(kinds.StorageVersionMigrations.Kind, waits, ended, comes)
	for what, c := range map[string]struct {
		was, now *migration
		want     string
	}{
		"one that is made":     {nil, comes, "m other"},
		"one that changes":     {comes, comes, "m other"},
		"one that is gone":     {gone, nil, "m waits"},
		"one that is replaced": {gone, comes, "m other waits"},
	} {
		var was, now metav1.Object
		if c.was != nil {
			was = c.was
		}
		if c.now != nil {
			now = c.now
		}
		var names []string
		for _, key := range w.Keys(Controller, kinds.StorageVersionMigrations.Kind, was, now) {
			names = append(names, key.Name)
		}
		if slices.Sort(names); strings.Join(names, " ") != c.want {
			t.Errorf("%s: it is the turn of %q, want %q", what, names, c.want)
		}
	}
}
