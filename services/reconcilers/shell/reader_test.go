package shell

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// spread is a controller for which a change of a set is the turn of all pods
// that the set controls, as it is for the garbage collector.
func spread() reconcile.Controller[bool] {
	return reconcile.Controller[bool]{
		Name: "toy", Inputs: []reconcile.Input{{Every: true, Keys: func(s reconcile.Snapshot, was, _ reconcile.Object) (keys []events.Key) {
			if was.None() {
				return nil
			}
			for _, pod := range s.ControlledBy(kinds.Pods.Name, was.GetUID()) {
				keys = append(keys, events.Key{Kind: kinds.Pods.Name, Namespace: pod.GetNamespace(), Name: pod.GetName()})
			}
			return keys
		}}},
	}
}

// debts is a memory that owes to spread alone.
func debts(t *testing.T) (*Memory, *reader) {
	m := NewMemory()
	m.Register(spread().Describe())
	m.Follow(kinds.ReplicaSets.Kind)
	m.Follow(kinds.Pods.Kind)
	r := m.readers["toy"]
	t.Cleanup(func() {
		total := 0
		for _, at := range r.owed {
			total += len(at.Value.(*debt).keys)
		}
		if total != r.total || len(r.owed) != r.debts.Len() {
			t.Errorf("%d keys in %d debts, counted %d in %d", total, len(r.owed), r.total, r.debts.Len())
		}
	})
	return m, r
}

// have folds so many pods of a set, numbered from a number.
func have(m *Memory, set string, from, pods int) {
	var batch []events.Message
	for i := from; i < from+pods; i++ {
		batch = append(batch, delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint(set, "-", i), set, i+1), uint64(i+1)))
	}
	m.Fold(kinds.Pods.Name, batch)
}

func touch(m *Memory, set string, version int) {
	m.Fold(kinds.ReplicaSets.Name, []events.Message{
		delta(kinds.ReplicaSets.Kind, events.Is, aSet(set, version, 1, 0, ""), uint64(version)),
	})
}

func setRef(name string) events.Ref {
	return events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: name}
}

// An object may owe as many keys as it has dependents, through any number of
// changes before its ticket comes.
func TestDebtKeepsEveryKey(t *testing.T) {
	m, r := debts(t)
	const many = 1000
	touch(m, "web", 1)
	have(m, "web", 0, many)
	touch(m, "web", 2)
	for i := range many / 2 {
		gone := aPod(fmt.Sprint("web-", i), "web", many+i)
		m.Fold(kinds.Pods.Name, []events.Message{delta(kinds.Pods.Kind, events.Gone, gone, uint64(many+i))})
	}
	touch(m, "web", 3)
	owed := r.take(setRef("web"), 3)
	if owed == nil || len(owed.keys) != many {
		t.Fatalf("owes %+v, want %d keys", owed, many)
	}
	seen := map[events.Key]bool{}
	for _, k := range owed.keys {
		if seen[k] {
			t.Fatalf("%v is owed twice", k)
		}
		seen[k] = true
	}
	if r.take(setRef("web"), 3) != nil {
		t.Error("what was taken is still owed")
	}
}

func TestDebtsAreBounded(t *testing.T) {
	m, r := debts(t)
	r.most = 16
	for i, set := range []string{"a", "b", "c"} {
		touch(m, set, 10*i+1)
		have(m, set, 10*i, 6)
		touch(m, set, 10*i+2)
	}
	if r.take(setRef("a"), 2) != nil {
		t.Error("the oldest debt is still there")
	}
	for _, set := range []string{"b", "c"} {
		if owed := r.debt(setRef(set)); len(owed.keys) != 6 {
			t.Errorf("%s owes %v, want 6 keys", set, owed.keys)
		}
	}
	touch(m, "big", 50)
	have(m, "big", 100, 25)
	touch(m, "big", 51)
	if owed := r.take(setRef("big"), 51); owed == nil || len(owed.keys) != 25 {
		t.Errorf("the newest debt is %+v, want all 25 keys", owed)
	}
	if r.total != 0 {
		t.Errorf("%d keys are owed beside it", r.total)
	}
}

// An effect on a kind of which no stream is found is not waited for, once the
// streams have been looked up after it was known.
func TestEffectNowhereIsGivenUpAfterASurvey(t *testing.T) {
	o := &office{t: t, memory: NewMemory(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Register(spread().Describe())
	o.desk = NewDesk(spread(), o.memory, o, Settings{}, o.now)
	settled := func() bool { return o.desk.entry(web).act.settled() }
	result := events.Result{
		Status: events.Applied, UID: types.UID("x"), Version: "5",
		Ref: events.Ref{Kind: "widgets.example.com", Namespace: "default", Name: "w"},
	}
	o.desk.Survey() // began before the outcome was known: may have missed the kind
	o.outcome(events.Act, 10, result)
	o.desk.Surveyed()
	if settled() {
		t.Error("given up after a survey that began before")
	}
	o.desk.Survey()
	if settled() {
		t.Error("given up before the survey has ended")
	}
	o.desk.Surveyed()
	if !settled() {
		t.Error("not given up")
	}

	result.Version = "6"
	o.outcome(events.Act, 11, result)
	o.desk.Survey()
	o.desk.Shut(result.Ref.Kind) // it is found
	o.desk.Surveyed()
	if settled() {
		t.Error("given up although the kind has been found")
	}
}
