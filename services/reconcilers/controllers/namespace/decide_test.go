package namespace

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now, reconciletest.Content(8, applied),
		reconciletest.Law[View]{Name: "sure", Holds: sure}, reconciletest.Law[View]{Name: "orderly", Holds: orderly})
}

// anyView returns a namespace in any state, with any answer.
func anyView(t *rapid.T) View {
	v := View{Namespace: &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", ResourceVersion: "7"},
		Spec:       corev1.NamespaceSpec{Finalizers: rapid.SampledFrom([][]corev1.FinalizerName{{"kubernetes"}, {"other", "kubernetes"}, {"other"}, nil}).Draw(t, "finalizers")},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}}
	if rapid.IntRange(0, 5).Draw(t, "lives") == 5 {
		return v
	}
	ago := time.Duration(rapid.IntRange(0, 90).Draw(t, "deleted, seconds ago")) * time.Second
	v.Namespace.DeletionTimestamp = &metav1.Time{Time: now.Add(-ago)}
	if rapid.IntRange(0, 5).Draw(t, "says so") > 0 {
		v.Namespace.Status.Phase = corev1.NamespaceTerminating
	}
	if rapid.Bool().Draw(t, "asked") {
		v.Contents, v.At = anyContents(t), now.Add(-time.Duration(rapid.IntRange(0, int(ago/time.Second)).Draw(t, "answered, seconds ago"))*time.Second)
		for i := range rapid.IntRange(0, 2).Draw(t, "refused") {
			v.Refused = append(v.Refused, Refusal{Kind: "configmaps", UID: types.UID(fmt.Sprint("configmaps-", i)), Message: "no"})
		}
		if rapid.Bool().Draw(t, "deleted without effect") {
			v.Deleted = append(v.Deleted, "widgets.example.com-0")
			v.forget()
		}
	}
	if rapid.Bool().Draw(t, "conditions are there") && v.Contents != nil {
		v.Namespace.Status.Conditions = v.conditions(now.Add(-time.Minute))
	}
	return v
}

func anyContents(t *rapid.T) *query.Contents {
	c := &query.Contents{}
	for _, kind := range []kinds.Name{"configmaps", "pods", "widgets.example.com"} {
		h := query.Holding{Kind: kind, Version: "v1", Count: rapid.IntRange(0, 3).Draw(t, "count")}
		for i := range rapid.IntRange(0, h.Count).Draw(t, "standing") {
			h.Standing = append(h.Standing, query.Standing{Name: fmt.Sprint("o", i), UID: types.UID(fmt.Sprint(kind, "-", i))})
		}
		if h.Count > 0 && rapid.Bool().Draw(t, "held") {
			h.Finalizers = map[string]int{"example.com/hold": h.Count}
		}
		if kind == kinds.Pods.Name {
			h.Grace = int64(rapid.IntRange(0, 60).Draw(t, "grace"))
		}
		if h.Count == 0 && rapid.IntRange(0, 3).Draw(t, "cannot be listed") == 0 {
			h.Failure = "the server is currently unable to handle the request"
		}
		if h.Count == 0 && h.Failure == "" {
			continue
		}
		if kind == kinds.Pods.Name && rapid.Bool().Draw(t, "pods alone") {
			return &query.Contents{Partial: true, Kinds: []query.Holding{h}}
		}
		c.Kinds = append(c.Kinds, h)
	}
	c.Unparsed = rapid.SampledFrom([]string{"", "", "unexpected GroupVersion string: a/b/c"}).Draw(t, "unparsed")
	if rapid.IntRange(0, 3).Draw(t, "undiscovered") == 0 {
		c.Undiscovered, c.Groups = "unable to retrieve the complete list of server APIs", rapid.IntRange(0, 2).Draw(t, "groups")
	}
	return c
}

// applied returns the view after every command succeeded: the namespace is empty.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		switch {
		case c.Verb == events.VerbAsk:
			v.Contents, v.At, v.Refused, v.Deleted = &query.Contents{}, now, nil, nil
		case c.Verb == events.VerbUpdate:
			ns := new(corev1.Namespace)
			if err := json.Unmarshal(c.Body, ns); err != nil {
				panic(err)
			}
			v.Namespace = ns
		}
	}
	return v
}

// sure: a namespace is finalized only because of a recent, complete answer that found
// nothing.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Subresource != "finalize" {
			continue
		}
		if a := v.Contents; a == nil || len(a.Kinds) > 0 || a.Partial || a.Undiscovered != "" || a.Unparsed != "" || now.Sub(v.At) > time.Minute {
			return errors.New("it lets a namespace go of which it does not know that it is empty")
		}
		if v.Namespace.DeletionTimestamp == nil {
			return errors.New("it lets a namespace go that is not being deleted")
		}
	}
	return nil
}

// orderly: a turn that deletes asks last what is left. Nothing is deleted in a namespace
// that lives, or was deleted a moment ago.
func orderly(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	commands := c.Decide(v, now).Commands
	at := slices.IndexFunc(commands, func(c events.Command) bool { return c.Verb == events.VerbDelete })
	switch {
	case at < 0:
		return nil
	case v.Namespace.DeletionTimestamp == nil || now.Before(v.Namespace.DeletionTimestamp.Add(settle)):
		return errors.New("the decision deletes what is in a namespace that lives, or lived a moment ago")
	case commands[len(commands)-1].Verb != events.VerbAsk:
		return errors.New("it does not ask what is left")
	}
	return nil
}

func TestObserve(t *testing.T) {
	at := metav1.NewTime(now)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", DeletionTimestamp: &at}}
	world := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.Namespaces.Kind, ns)
	key := events.Key{Name: "shop"}
	if v, ok := observe(world, key); !ok || v.Namespace != ns || v.Contents != nil {
		t.Errorf("before anything was asked it sees %+v, %v", v, ok)
	}
	if _, ok := observe(world, events.Key{Name: "nothing"}); ok {
		t.Error("observe finds a namespace that is not there")
	}
	answer, err := json.Marshal(query.Contents{Kinds: []query.Holding{{Kind: "pods", Version: "v1", Count: 3, Standing: []query.Standing{{Name: "b", UID: "b"}, {Name: "c", UID: "c"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	pod := func(uid types.UID, status events.Status) events.Result {
		return events.Result{Status: status, Ref: events.Ref{Kind: "pods", Namespace: "shop", Name: string(uid)}, UID: uid, Code: 403, Message: "not " + string(uid)}
	}
	last := events.Outcome{Key: key, Lane: events.LaneWrite, UID: "ns", At: now, Results: []events.Result{
		pod("a", events.Applied), pod("b", events.Refused), pod("c", events.Applied), pod("d", events.Conflict),
		{Status: events.Answered, Ref: events.Ref{Kind: "namespaces", Name: "shop"}, Answer: &events.Answer{Body: answer}},
	}}
	v, _ := observe(world.Remember(last), key)
	if v.Contents == nil || !v.At.Equal(now) || len(v.Refused) != 1 || v.Refused[0].Message != "not b" || !slices.Equal(v.Deleted, []types.UID{"c"}) {
		t.Errorf("the view has %+v", v)
	}
	last.Results[4].Answer = &events.Answer{Body: json.RawMessage(`{"pods":[]}`)}
	if v, _ := observe(world.Remember(last), key); v.Contents != nil || v.Unread == nil || !v.Unread.At.Equal(now) {
		t.Errorf("an answer of another shape is heard: %+v", v)
	}
	last.UID = "another of that name"
	if v, _ := observe(world.Remember(last), key); v.Contents != nil || v.Refused != nil {
		t.Errorf("of another namespace of that name the view has %+v", v)
	}
}

func TestWhoseTurnItIs(t *testing.T) {
	at := metav1.NewTime(now)
	lives := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	goes := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &at}}
	for _, c := range []struct {
		was, now metav1.Object
		turns    int
	}{{nil, lives, 0}, {lives, goes, 1}, {nil, goes, 1}, {goes, nil, 0}} {
		if keys := reconciletest.NewWorld().Keys(Controller, kinds.Namespaces.Kind, c.was, c.now); len(keys) != c.turns {
			t.Errorf("from %v to %v it is the turn of %v", c.was, c.now, keys)
		}
	}
}

// The controller asks about a slow deletion ever less often, and never later than
// upstream would.
func TestWhenItIsLookedAtAgain(t *testing.T) {
	deleted := metav1.NewTime(now)
	for _, c := range []struct {
		after time.Duration // from when it is emptied to the answer
		held  query.Holding
		want  time.Duration // from the answer
	}{
		{0, query.Holding{Kind: "pods", Count: 1, Grace: 30}, soon},
		{4 * time.Second, query.Holding{Kind: "pods", Count: 1, Grace: 30}, 2 * time.Second},
		{20 * time.Second, query.Holding{Kind: "pods", Count: 1, Grace: 30}, 10 * time.Second},
		{40 * time.Second, query.Holding{Kind: "pods", Count: 1, Grace: 60}, 20 * time.Second},
		{50 * time.Second, query.Holding{Kind: "pods", Count: 1, Grace: 30}, 25 * time.Second},
		{time.Hour, query.Holding{Kind: "pods", Count: 1, Grace: 30}, seldom},
		{time.Hour, query.Holding{Kind: "pods", Count: 1, Grace: 7200}, 30 * time.Minute},
		{time.Second, query.Holding{Kind: "widgets", Count: 1, Finalizers: map[string]int{"a": 1}}, soon},
		{time.Hour, query.Holding{Kind: "widgets", Count: 1, Finalizers: map[string]int{"a": 1}}, 8 * time.Second},
		{time.Hour, query.Holding{Kind: "widgets", Failure: "no"}, seldom},
		{time.Hour, query.Holding{Kind: "widgets", Count: 1, Finalizers: map[string]int{"a": 1}, Failure: "no"}, seldom},
	} {
		v := View{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &deleted}}}
		v.At, v.Contents = now.Add(settle+c.after), &query.Contents{Kinds: []query.Holding{c.held}}
		if got := v.next().Sub(v.At); got != c.want {
			t.Errorf("%v after it began, with %+v: in %v, want in %v", c.after, c.held, got, c.want)
		}
	}
}

// A namespace stays if something about its contents is unknown, whatever its status says.
func TestOnlyWhatIsEmptyGoes(t *testing.T) {
	deleted := metav1.NewTime(now.Add(-time.Minute))
	for what, c := range map[string]struct {
		contents query.Contents
		age      time.Duration
		goes     bool
	}{
		"empty":                  {query.Contents{}, 0, true},
		"empty a while ago":      {query.Contents{}, lasting, true},
		"empty long ago":         {query.Contents{}, lasting + time.Second, false},
		"of unknown kinds":       {query.Contents{Undiscovered: "no", Groups: 1}, 0, false},
		"of unreadable kinds":    {query.Contents{Unparsed: "no"}, 0, false},
		"not looked at in whole": {query.Contents{Partial: true}, 0, false},
		"with something":         {query.Contents{Kinds: []query.Holding{{Kind: "pods", Count: 1}}}, 0, false},
		"that cannot be listed":  {query.Contents{Kinds: []query.Holding{{Kind: "pods", Failure: "no"}}}, 0, false},
	} {
		v := View{Contents: &c.contents, At: now.Add(-c.age), Namespace: &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", ResourceVersion: "7", DeletionTimestamp: &deleted},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
		}}
		v.Namespace.Status.Conditions = v.conditions(now)
		d := Controller.Decide(v, now)
		if got := len(d.Commands) == 1 && d.Commands[0].Subresource == "finalize"; got != c.goes {
			t.Errorf("one that is %s: %s, %d commands", what, d.Because, len(d.Commands))
		}
	}
}

// Objects that cannot be deleted, even more than an answer names, delay neither other
// kinds nor objects of their kind: every object is tried before any is tried again.
func TestWhatCannotBeDeletedKeepsOffNothing(t *testing.T) {
	deleted := metav1.NewTime(now.Add(-time.Minute))
	stands := map[kinds.Name][]query.Standing{"services": nil, "configmaps": nil, "secrets": nil}
	for i := range 2*query.MaxStanding + 500 {
		stands["configmaps"] = append(stands["configmaps"], query.Standing{Name: fmt.Sprintf("c%05d", i), UID: types.UID(fmt.Sprint("c", i))})
	}
	stands["secrets"] = []query.Standing{{Name: "s", UID: "s"}}
	stands["services"] = []query.Standing{{Name: "a", UID: "a"}, {Name: "b", UID: "b"}}
	for i := range query.MaxStanding + 600 {
		stands["leases.coordination.k8s.io"] = append(stands["leases.coordination.k8s.io"], query.Standing{Name: fmt.Sprintf("l%05d", i), UID: types.UID(fmt.Sprint("l", i))})
	}
	stuck := slices.Concat(stands["configmaps"], stands["leases.coordination.k8s.io"])
	tried := map[types.UID]int{}
	v := View{Namespace: &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", ResourceVersion: "7", DeletionTimestamp: &deleted},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}}
	for round := range 20 {
		d := decide(v, now)
		if len(d.Commands) == 0 {
			break
		}
		if round == 19 {
			t.Fatalf("the decisions do not come to rest: %s", d.Because)
		}
		if d.Commands[0].Subresource == "status" {
			v = applied(v, d, now)
			continue
		}
		v.Refused = nil
		for _, c := range d.Commands {
			switch {
			case c.Verb == events.VerbDelete && slices.ContainsFunc(stuck, func(s query.Standing) bool { return s.UID == c.If.UID }):
				tried[c.If.UID]++
				v.Refused = append(v.Refused, Refusal{Kind: c.Kind, UID: c.If.UID, Message: "no"})
			case c.Verb == events.VerbDelete:
				stands[c.Kind] = slices.DeleteFunc(slices.Clone(stands[c.Kind]), func(s query.Standing) bool { return s.UID == c.If.UID })
			case c.Verb == events.VerbAsk:
				v.Contents, v.At = answerTo(t, c, stands), now
			}
		}
	}
	if len(stands["services"])+len(stands["secrets"]) > 0 {
		t.Errorf("there are still %v and %v", stands["services"], stands["secrets"])
	}
	for _, s := range stuck {
		if tried[s.UID] != 1 {
			t.Fatalf("before it waits %s was tried %d times", s.Name, tried[s.UID])
		}
	}
	if again := decide(v, v.next()); len(again.Commands) != query.MaxStanding+1 {
		t.Errorf("when it has waited it tries %d: %s", len(again.Commands)-1, again.Because)
	}
}

// answerTo returns the writer's answer.
func answerTo(t *testing.T, ask events.Command, stands map[kinds.Name][]query.Standing) *query.Contents {
	t.Helper()
	var question query.ContentsQuestion
	if err := json.Unmarshal(ask.Body, &question); err != nil {
		t.Fatal(err)
	}
	c := new(query.Contents)
	for _, kind := range slices.Sorted(maps.Keys(stands)) {
		if n := len(stands[kind]); n > 0 {
			c.Kinds = append(c.Kinds, query.Holding{Kind: kind, Version: "v1", Count: n, Standing: slices.Clone(stands[kind])})
		}
	}
	c.Limit(question.After)
	return c
}

// A namespace is finalized although the API server refuses its status: the status is written
// again, and the finalize no longer waits for it.
func TestANamespaceGoesThoughItsStatusIsRefused(t *testing.T) {
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", ResourceVersion: "7", DeletionTimestamp: &metav1.Time{Time: now.Add(-time.Minute)}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
	key := events.Key{Name: "shop"}
	told := func(status events.Status) events.Outcome {
		return events.Outcome{Key: key, Lane: events.LaneStatus, UID: ns.UID, At: now, Results: []events.Result{{Status: status, Code: 403, Ref: events.Ref{Kind: kinds.Namespaces.Name, Name: "shop"}}}}
	}
	answer := events.Outcome{Key: key, Lane: events.LaneWrite, UID: ns.UID, At: now, Results: []events.Result{{
		Status: events.Answered, Answer: &events.Answer{Body: reconcile.Body(query.Contents{})},
	}}}
	for want, world := range map[string]*reconciletest.World{
		"update status":                  reconciletest.NewWorld().Put(kinds.Namespaces.Kind, ns).Remember(answer),
		"update status, update finalize": reconciletest.NewWorld().Put(kinds.Namespaces.Kind, ns).Remember(answer).Remember(told(events.Refused)),
	} {
		d, _ := Controller.Ask(world, key, now)
		var got []string
		for _, c := range d.Commands {
			got = append(got, string(c.Verb)+" "+c.Subresource)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", d.Because, got, want)
		}
	}
}
