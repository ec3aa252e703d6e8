package shadow

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// OperationOf finds which operation a change of an object is, and whether KCM made it.
func TestWhatAChangeIs(t *testing.T) {
	of := func(p *corev1.Pod) reconcile.Object {
		if p == nil {
			return reconcile.Object{}
		}
		return reconcile.Object{Kind: kinds.Pods.Kind, Object: p}
	}
	plain := pod("a", nil)
	leaving := pod("a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} })
	again := pod("a", func(p *corev1.Pod) { p.UID = "again" })
	labelled := pod("a", func(p *corev1.Pod) { p.Labels["x"] = "y" })
	bare := pod("a", func(p *corev1.Pod) { p.Labels = nil })
	ready := pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
	boundTo := pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	for what, c := range map[string]struct {
		delta    events.Delta
		was, now *corev1.Pod
		verb     events.Verb // "": it is none
		kcm      bool
		status   bool
		doubtful bool
	}{
		"a pod comes":                    {events.Delta{Op: events.Is, By: kcm}, nil, plain, events.VerbCreate, true, false, false},
		"a user makes one":               {events.Delta{Op: events.Is, By: user}, nil, plain, events.VerbCreate, false, false, false},
		"one that was there before":      {events.Delta{Op: events.Is, By: kcm, Sync: true}, nil, plain, "", false, false, false},
		"another in its place":           {events.Delta{Op: events.Is, By: kcm}, plain, again, events.VerbCreate, true, false, false},
		"the log is whole":               {events.Delta{Op: events.Mark}, plain, plain, "", false, false, false},
		"it goes":                        {events.Delta{Op: events.Gone}, plain, nil, events.VerbDelete, false, false, false},
		"it went, and had been going":    {events.Delta{Op: events.Gone}, leaving, nil, "", false, false, false},
		"one that was not known went":    {events.Delta{Op: events.Gone}, nil, nil, "", false, false, false},
		"it begins to go":                {events.Delta{Op: events.Is, Deleting: true, By: kcm}, plain, leaving, events.VerbDelete, false, false, false},
		"it goes on going":               {events.Delta{Op: events.Is, Deleting: true, By: user}, leaving, leaving, "", false, false, false},
		"a label":                        {events.Delta{Op: events.Is, By: kcm}, plain, labelled, events.VerbUpdate, true, false, false},
		"a user's label":                 {events.Delta{Op: events.Is, By: user}, plain, labelled, "", false, false, false},
		"one of two's":                   {events.Delta{Op: events.Is, By: kcm, Beside: []events.Manager{user}}, plain, labelled, events.VerbUpdate, true, false, true},
		"one of two's, the other way":    {events.Delta{Op: events.Is, By: user, Beside: []events.Manager{kcm}}, plain, labelled, events.VerbUpdate, true, false, true},
		"one of two's, which is certain": {events.Delta{Op: events.Is, By: kcm, Proven: true, Beside: []events.Manager{user}}, plain, labelled, events.VerbUpdate, true, false, false},
		"a label is taken off":           {events.Delta{Op: events.Is, By: kcm}, plain, bare, events.VerbUpdate, true, false, true},
		"a status":                       {events.Delta{Op: events.Is, By: told}, plain, ready, events.VerbUpdate, true, true, false},
		"a status, through the object":   {events.Delta{Op: events.Is, By: kcm}, plain, ready, events.VerbUpdate, false, true, false},
		"a label, through the status":    {events.Delta{Op: events.Is, By: told}, plain, labelled, events.VerbUpdate, false, false, false},
		"a binding":                      {events.Delta{Op: events.Is, By: kcm}, plain, boundTo, events.VerbUpdate, false, false, false},
		"through another part":           {events.Delta{Op: events.Is, By: events.Manager{Name: events.FieldManager, Subresource: "resize"}}, plain, labelled, events.VerbUpdate, false, false, false},
	} {
		c.delta.Ref, c.delta.Kind, c.delta.At = events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "a"}, kinds.Pods.Name, noon
		change, ok := OperationOf(c.delta, events.Trigger{}, of(c.was), of(c.now))
		if !ok {
			change.Verb = ""
		}
		if change.Verb != c.verb || change.KCM != c.kcm || change.Status != c.status || change.Doubtful != c.doubtful {
			t.Errorf("%s: the operation is a %q, want %q; KCM's: %v, of the status: %v, doubtful: %v", what, change.Verb, c.verb, change.KCM, change.Status, change.Doubtful)
		}
		if ok && change.object() == nil {
			t.Errorf("%s: the operation has no object", what)
		}
	}
}

// Two wants have the same id if they want the same of the same object, by uid. A want is about
// an operation of its verb, kind and part; an update also has the same name.
func TestWhatIsTheSame(t *testing.T) {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "a"}
	one := Want{Verb: events.VerbUpdate, Ref: ref, UID: "u", Fields: []fields.Change{{Path: "x", Is: "y"}}}
	for what, c := range map[string]struct {
		edit        func(*Want)
		same, about bool
	}{
		"itself":              {func(*Want) {}, true, true},
		"another field":       {func(w *Want) { w.Fields = []fields.Change{{Path: "z", Is: "y"}} }, false, true},
		"another value":       {func(w *Want) { w.Fields = []fields.Change{{Path: "x", Is: "z"}} }, false, true},
		"what was before":     {func(w *Want) { w.Fields = []fields.Change{{Path: "x", Was: "z", Is: "y"}} }, true, true},
		"the status":          {func(w *Want) { w.Status = true }, false, false},
		"another object":      {func(w *Want) { w.Ref.Name = "b" }, false, false},
		"another of its name": {func(w *Want) { w.UID = "v" }, false, true},
		"another kind":        {func(w *Want) { w.Ref.Kind = kinds.Nodes.Name }, false, false},
		"a delete":            {func(w *Want) { w.Verb, w.Fields = events.VerbDelete, nil }, false, false},
	} {
		other := one
		c.edit(&other)
		about := other.about(Operation{Verb: events.VerbUpdate, Ref: ref})
		if same := one.id() == other.id(); same != c.same || about != c.about {
			t.Errorf("%s: the same operation: %v, about the same: %v; want %v, %v", what, same, about, c.same, c.about)
		}
	}
	gone, other := Want{Verb: events.VerbDelete, Ref: ref, UID: "u"}, Want{Verb: events.VerbDelete, Ref: ref, UID: "v"}
	if gone.id() == other.id() || !gone.about(Operation{Verb: events.VerbDelete, Ref: events.Ref{Kind: kinds.Pods.Name, Name: "b"}}) || gone.about(Operation{Verb: events.VerbDelete, Ref: events.Ref{Kind: kinds.Nodes.Name}}) {
		t.Error("deletes are compared by something else than kind and uid")
	}
	if one.String() != "update pods:default/a" {
		t.Errorf("the write is written %q", one)
	}
	if one.Status = true; one.String() != "update the status of pods:default/a" {
		t.Errorf("the write of a status is written %q", one)
	}
}

// An answer is news if it wants other writes than the last one, or another number of the same.
func TestWhatIsNews(t *testing.T) {
	a, b := create("a"), create("b") // the same but for the name
	other := deletion("x")
	for what, c := range map[string]struct {
		had, has []events.Command
		want     bool
	}{
		"nothing, as before":  {nil, nil, false},
		"something":           {nil, []events.Command{a}, true},
		"the same":            {[]events.Command{a, other}, []events.Command{other, a}, false},
		"under another name":  {[]events.Command{a}, []events.Command{b}, false},
		"one more":            {[]events.Command{a}, []events.Command{a, b}, true},
		"one less":            {[]events.Command{a, b}, []events.Command{a}, true},
		"nothing any more":    {[]events.Command{a}, nil, true},
		"something else":      {[]events.Command{a}, []events.Command{other}, true},
		"two for one another": {[]events.Command{a, b}, []events.Command{a, other}, true},
	} {
		s := begin()
		if len(c.had) > 0 {
			s.wants(c.had...)
		}
		if got := s.News(key, s.effects(c.has...)); got != c.want {
			t.Errorf("%s is news: %v, want %v", what, got, c.want)
		}
	}
}

// The matcher forgets a key a minute after it last wanted something.
func TestKeysAreLetGo(t *testing.T) {
	s := begin()
	s.wants(create("a"))
	if s.wants(); len(s.books) != 1 || s.Standing() != 0 {
		t.Errorf("%d keys are known and %d writes are wanted, want 1 and 0", len(s.books), s.Standing())
	}
	if s.Advance(s.now.Add(time.Minute), s); len(s.books) != 1 {
		t.Error("a wish of a minute ago is forgotten")
	}
	if s.Advance(s.now.Add(time.Minute+1), s); len(s.books) != 0 {
		t.Errorf("%d keys are known of which nothing was wanted for a minute", len(s.books))
	}
	if s.wants(); len(s.books) != 0 {
		t.Error("a key of which nothing is wanted is kept")
	}
}

// A change belongs to the key of its object, or of the object's controller, by group and kind.
func TestWhoseAChangeIs(t *testing.T) {
	m := New(description, Settings{})
	owned := func(version, kind string) reconcile.Object {
		return reconcile.Object{Kind: kinds.Pods.Kind, Object: pod("a", func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = version, kind })}
	}
	for what, c := range map[string]struct {
		done Operation
		want bool
	}{
		"of the set":           {Operation{Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}}, true},
		"of a pod of it":       {Operation{Now: owned("apps/v1", "ReplicaSet")}, true},
		"of a pod of it, gone": {Operation{Was: owned("apps/v1", "ReplicaSet")}, true},
		"of another kind's":    {Operation{Now: owned("apps/v1", "StatefulSet")}, false},
		"of another group's":   {Operation{Now: owned("example.com/v1", "ReplicaSet")}, false},
		"of nothing":           {Operation{}, false},
	} {
		if got, ok := m.keyOf(c.done); ok != c.want || ok && got != key {
			t.Errorf("a change %s is %v's: %v, want %v", what, got, ok, c.want)
		}
	}
}

// Fields that the API server fills in do not count. A list entry matches wherever in the list it is.
func TestTreesAreComparedByWhatCounts(t *testing.T) {
	tree := func(text string) fields.Tree { return treeOf(json.RawMessage(text)) }
	text := func(t fields.Tree) string { body, _ := json.Marshal(t); return string(body) }
	for what, c := range map[string]struct{ got, want string }{
		"a new object":          {text(asCreated(tree(`{"kind":"Pod","metadata":{"name":"a","generateName":"a-","namespace":"n","uid":"u","labels":{"x":"y"}},"spec":{"a":1},"status":{"b":2}}`))), `{"metadata":{"labels":{"x":"y"}},"spec":{"a":1}}`},
		"one with its own name": {text(asCreated(tree(`{"metadata":{"name":"a","namespace":"n"}}`))), `{"metadata":{"name":"a"}}`},
		"one without metadata":  {text(asCreated(tree(`{"spec":{"a":1}}`))), `{"spec":{"a":1}}`},
		"a status":              {text(part(tree(`{"spec":1,"status":{"a":[{"lastTransitionTime":"t","b":1}],"lastProbeTime":"t"}}`), true)), `{"status":{"a":[{"b":1}]}}`},
		"without a name":        {text(unnamed(tree(`{"metadata":{"name":"a","labels":{}},"spec":1}`))), `{"metadata":{"labels":{}},"spec":1}`},
		"no object":             {text(treeOf(json.RawMessage(`7`))), `{}`},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s, want %s", what, c.got, c.want)
		}
	}
	for what, c := range map[string]struct {
		ours, theirs string
		path         string // "": nothing is lacking
		is           string
	}{
		"the same":            {`{"a":1}`, `{"a":1,"b":2}`, "", ""},
		"a field":             {`{"a":1}`, `{"b":2}`, ".a", "null"},
		"another value":       {`{"a":{"b":1}}`, `{"a":{"b":2}}`, ".a.b", "2"},
		"an entry, elsewhere": {`{"a":[{"name":"x"}]}`, `{"a":[{"name":"y"},{"name":"x","more":1}]}`, "", ""},
		"an entry of a name":  {`{"a":[{"name":"x","v":1}]}`, `{"a":[{"name":"y"},{"name":"x","v":2}]}`, ".a", `{"name":"x","v":2}`},
		"an entry of none":    {`{"a":[{"v":1}]}`, `{"a":[{"v":2}]}`, ".a", `[{"v":2}]`},
		"an entry of nothing": {`{"a":[1]}`, `{"a":[]}`, ".a", "null"},
		"nothing is asked":    {`{"a":null}`, `{}`, "", ""},
	} {
		found := lacks("", map[string]any(tree(c.ours)), map[string]any(tree(c.theirs)), nil)
		path, is := "", ""
		if len(found) > 0 {
			body, _ := json.Marshal(found[0].Is)
			path, is = found[0].Path, string(body)
		}
		if path != c.path || is != c.is || len(found) > 1 {
			t.Errorf("%s: lacking is %q, there is %s; want %q, %s", what, path, is, c.path, c.is)
		}
	}
}

// A command that changes nothing, or updates an object that does not exist, wants nothing.
func TestWhatIsNotWanted(t *testing.T) {
	s := begin()
	if wants := s.effects(s.status(s.set.Status.Replicas, s.set.Status.ReadyReplicas), events.Command{Verb: events.VerbRecord}, events.Command{Verb: events.VerbAsk}); len(wants) > 0 {
		t.Errorf("the wishes are %v", wants)
	}
	update := s.status(9, 9)
	if wants := Wants([]events.Command{update, deletion("a")}, func(events.Ref) metav1.Object { return nil }); len(wants) != 1 || wants[0].Verb != events.VerbDelete || wants[0].UID != "uid-a" {
		t.Errorf("of a missing object the wishes are %v, want the deletion alone", wants)
	}
}
