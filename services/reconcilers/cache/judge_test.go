package cache

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// withPods is a memory of pods: "there" is at version 5, "replaced" was taken over by another
// pod at 6, "dead" was deleted at 7, and the mark is at 9.
func withPods(t *testing.T, see func(Snapshot)) {
	t.Helper()
	m := New()
	m.Follow(kinds.Pods.Kind)
	m.Register(toy().Describe())
	replaced, other := aPod("replaced", "", 4), aPod("replaced", "", 6)
	replaced.UID = "old"
	leaving := aPod("leaving", "", 5)
	leaving.DeletionTimestamp = &metav1.Time{Time: epoch}
	torn := delta(kinds.Pods.Kind, events.Is, aPod("torn", "", 6), 8)
	m.Fold(kinds.Pods.Name, []events.Message{
		delta(kinds.Pods.Kind, events.Is, aPod("there", "", 5), 1), delta(kinds.Pods.Kind, events.Is, replaced, 2), delta(kinds.Pods.Kind, events.Is, other, 3),
		delta(kinds.Pods.Kind, events.Is, aPod("dead", "", 5), 4), delta(kinds.Pods.Kind, events.Gone, aPod("dead", "", 7), 5),
		delta(kinds.Pods.Kind, events.Is, leaving, 6), markAt(kinds.Pods.Kind, "9", 7),
	})
	d, err := events.DecodeDelta(events.Ref{Kind: "pods", Namespace: "default", Name: "torn"}, torn)
	if err != nil {
		t.Fatal(err)
	}
	d.Body = []byte("torn")
	torn = subject.Message(d)
	torn.Sequence = 8
	m.Fold(kinds.Pods.Name, []events.Message{torn})
	m.View("toy", nil, see)
}

func of(kind kinds.Name, called string, uid types.UID, version string, removed bool) Effect {
	return Effect{Result: events.Result{
		Ref: events.Ref{Kind: kind, Namespace: "default", Name: called}, UID: uid, Version: version, Removed: removed,
	}}
}

// An Effect has returned when the memory has its version, a later one, or its deletion.
func TestWhichEffectsHaveReturned(t *testing.T) {
	dated := func(u Effect, epoch uint64) Effect { u.Dated, u.Epoch = true, epoch; return u }
	position := func(u Effect, seen uint64) Effect { u.Seen = seen; return u }
	withPods(t, func(s Snapshot) {
		for what, c := range map[string]struct {
			due  Effect
			back bool
		}{
			"a version that is there":          {of("pods", "there", "uid-there", "5", false), true},
			"an earlier version":               {of("pods", "there", "uid-there", "4", false), true},
			"a later version":                  {of("pods", "there", "uid-there", "6", false), false},
			"of a later epoch":                 {dated(of("pods", "there", "uid-there", "5", false), 1), false},
			"of this epoch":                    {dated(of("pods", "there", "uid-there", "5", false), 0), true},
			"one that is not there":            {of("pods", "none", "uid-none", "5", false), false},
			"one that has gone":                {of("pods", "dead", "uid-dead", "6", false), true},
			"one that has gone, of its uid":    {of("pods", "dead", "uid-dead", "", true), true},
			"an older one of that name":        {of("pods", "dead", "older", "5", false), true},
			"a newer one of that name":         {of("pods", "dead", "newer", "8", false), false},
			"the end of one that is there":     {of("pods", "there", "uid-there", "", true), false},
			"the end of one that leaves":       {of("pods", "leaving", "uid-leaving", "", true), true},
			"the end of one that is not there": {of("pods", "none", "uid-none", "", true), true},
			"the end of the one before":        {of("pods", "replaced", "old", "", true), true},
			"the end of one of any uid":        {of("pods", "replaced", "", "", true), false},
			"one that cannot be read":          {of("pods", "torn", "uid-torn", "6", false), true},
			"a later one that cannot be":       {of("pods", "torn", "uid-torn", "7", false), false},
			"a kind that is not followed":      {of("jobs.batch", "there", "uid-there", "5", false), false},
			"a position that was reached":      {position(of("pods", "there", "", "99", false), 8), true},
			"a position that was not":          {position(of("pods", "there", "", "5", false), 9), false},
			"a position of another kind":       {position(of("jobs.batch", "there", "", "5", false), 1), false},
		} {
			if s.HasReturned(c.due) != c.back {
				t.Errorf("%s: the effect has returned: %t, want %t", what, !c.back, c.back)
			}
		}
	})
}

// beyond holds for an Effect up to whose version its kind has been reported; the Effect is lost
// when the log has been read to its end, too.
func TestWhichEffectsAreLost(t *testing.T) {
	with := func(u Effect, goal, seen uint64) Effect { u.Goal, u.Seen = goal, seen; return u }
	dated := func(u Effect, epoch uint64) Effect { u.Dated, u.Epoch = true, epoch; return u }
	withPods(t, func(s Snapshot) {
		for what, c := range map[string]struct {
			due          Effect
			beyond, lost bool
		}{
			"before the mark":               {of("pods", "none", "u", "8", false), true, false},
			"at the mark":                   {of("pods", "none", "u", "9", false), true, false},
			"behind the mark":               {of("pods", "none", "u", "10", false), false, false},
			"an end that is there":          {of("pods", "there", "u", "", true), false, false},
			"an end that is not":            {of("pods", "none", "u", "", true), true, false},
			"a version that is there":       {of("pods", "there", "u", "7", false), true, false},
			"no version, and it is there":   {of("pods", "there", "u", "", false), false, false},
			"a kind that is not followed":   {of("jobs.batch", "none", "u", "8", false), false, false},
			"of this epoch":                 {dated(of("pods", "none", "u", "10", false), 0), false, false},
			"a position":                    {with(of("pods", "none", "u", "10", false), 0, 3), true, false},
			"to the end of the log":         {with(of("pods", "none", "u", "8", false), 9, 0), true, true},
			"to the end of an empty log":    {with(of("pods", "none", "u", "8", false), 1, 0), true, true},
			"to what is not folded":         {with(of("pods", "none", "u", "8", false), 10, 0), true, false},
			"to the end, behind the mark":   {with(of("pods", "none", "u", "10", false), 9, 0), false, false},
			"a position told again":         {with(of("pods", "none", "u", "8", false), 9, 3), true, true},
			"a position not told again":     {with(of("pods", "none", "u", "10", false), 9, 3), true, false},
			"a kind not followed, with end": {with(of("jobs.batch", "none", "u", "8", false), 1, 0), false, false},
		} {
			if beyond, lost := s.ReportedBeyond(c.due), s.Lost(c.due); beyond != c.beyond || lost != c.lost {
				t.Errorf("%s: the log goes beyond it: %t, lost: %t; want %t, %t", what, beyond, lost, c.beyond, c.lost)
			}
		}
	})
}

// The memory and the API server disagree about an object when only one of them has it.
func TestWhichResultsDiverge(t *testing.T) {
	withPods(t, func(s Snapshot) {
		for what, c := range map[string]struct {
			of     Effect
			status events.Status
			is     bool
		}{
			"gone, and there":               {of("pods", "there", "uid-there", "", true), events.Applied, true},
			"absent, and there":             {of("pods", "there", "uid-there", "", false), events.Absent, true},
			"absent, and another there":     {of("pods", "there", "other", "", false), events.Absent, false},
			"gone":                          {of("pods", "none", "u", "", true), events.Applied, false},
			"unchanged, and not there":      {of("pods", "none", "u", "5", false), events.Unchanged, true},
			"unchanged, and there":          {of("pods", "there", "uid-there", "5", false), events.Unchanged, false},
			"unchanged, of no version":      {of("pods", "none", "u", "", false), events.Unchanged, false},
			"applied, and not there":        {of("pods", "none", "u", "5", false), events.Applied, false},
			"of no uid":                     {of("pods", "there", "", "", true), events.Applied, false},
			"of a kind that is not watched": {of("jobs.batch", "there", "u", "", true), events.Applied, false},
		} {
			r := c.of.Result
			r.Status = c.status
			if s.Contradicts(r) != c.is {
				t.Errorf("%s: the result contradicts the cache: %t, want %t", what, !c.is, c.is)
			}
		}
	})
}

// A snapshot does not show kinds that the controller does not read.
func TestASceneShowsWhatIsRead(t *testing.T) {
	m := New()
	m.Follow(kinds.Nodes.Kind)
	m.Follow(kinds.Pods.Kind)
	m.Register(toy().Describe())
	node := delta(kinds.Nodes.Kind, events.Is, aPod("n", "web", 5), 1)
	m.Fold(kinds.Nodes.Name, []events.Message{node})
	m.Fold(kinds.Pods.Name, []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 5), 1), delta(kinds.Pods.Kind, events.Is, aPod("q", "", 6), 2)})
	m.View("toy", nil, func(s Snapshot) {
		if _, ok := s.Get("nodes", "default", "n"); ok || s.List("nodes", "") != nil || s.ControlledBy("nodes", "uid-web") != nil || s.Orphans("nodes", "default") != nil {
			t.Error("nodes are seen")
		}
		if _, ok := s.ByUID("uid-n"); ok {
			t.Error("a node is seen by its uid")
		}
		if _, ok := s.Kind("nodes"); ok || !s.Heard("nodes", "default", "n").IsZero() || s.Sight("nodes") != (events.Sight{}) {
			t.Error("the kind of nodes is seen")
		}
		if _, ok := s.KindOf("", "Node"); ok {
			t.Error("the kind of nodes is found")
		}
		if k, ok := s.KindOf("", "Pod"); !ok || k.Name != "pods" {
			t.Errorf("the kind of pods is %v", k)
		}
		if all := s.Dependents("uid-web"); len(all) != 1 || all[0].GetName() != "p" {
			t.Errorf("the dependents are %v", all)
		}
		if _, ok := s.Get("pods", "default", "x"); ok || len(s.List("pods", "")) != 2 || len(s.List("pods", "other")) != 0 || len(s.Orphans("pods", "default")) != 1 {
			t.Error("pods are not seen as they are")
		}
		if _, ok := s.Last(events.Key{Namespace: "default", Name: "web"}, events.LaneWrite); ok {
			t.Error("an outcome is known, and none was told")
		}
		if seen := s.Seen(); len(seen) != 1 || seen["pods"] != 2 || s.Digest(seen) == 0 || s.Epochs() != nil {
			t.Errorf("seen are %v of %v", seen, s.Epochs())
		}
	})
}

// The epoch decides first which of two versions is newer.
func TestWhichVersionIsNewer(t *testing.T) {
	for _, c := range []struct {
		epoch, than  uint64
		version      string
		newer, older bool
	}{
		{0, 0, "6", true, false}, {0, 0, "5", false, false}, {0, 0, "4", false, true},
		{1, 0, "4", true, false}, {0, 1, "6", false, true}, {2, 2, "6", true, false},
	} {
		d := events.Delta{Epoch: c.epoch, ResourceVersion: c.version}
		if isNewer(d, c.than, "5") != c.newer || isOlder(d, &cachedObject{state: &state{epoch: c.than, version: "5"}}) != c.older {
			t.Errorf("%s of epoch %d, than 5 of epoch %d: newer %t", c.version, c.epoch, c.than, !c.newer)
		}
	}
}

// Objects are in the same indexes when their owners are the same, and so is their controller.
func TestObjectsInTheSameIndexes(t *testing.T) {
	yes, no := true, false
	with := func(owners ...metav1.OwnerReference) reconcile.Object {
		return reconcile.Object{Object: &metav1.ObjectMeta{OwnerReferences: owners}}
	}
	a, b := metav1.OwnerReference{UID: "a"}, metav1.OwnerReference{UID: "b"}
	controlling, not := metav1.OwnerReference{UID: "a", Controller: &yes}, metav1.OwnerReference{UID: "a", Controller: &no}
	for _, c := range []struct {
		x, y reconcile.Object
		same bool
	}{
		{with(), with(), true}, {with(a), with(a), true}, {with(a), with(not), true}, {with(a), with(), false}, {with(), with(a), false},
		{with(a), with(b), false}, {with(a), with(controlling), false}, {with(a, b), with(b, a), false}, {with(a, b), with(a, b), true},
	} {
		if sameIndexes(c.x, c.y) != c.same {
			t.Errorf("%v and %v: %t", c.x.GetOwnerReferences(), c.y.GetOwnerReferences(), !c.same)
		}
	}
}

// Tombstones are bounded in number and age.
func TestHowLongTheDeadAreRemembered(t *testing.T) {
	bury := func(k *kindCache, n int, at time.Time) {
		uid := types.UID(fmt.Sprint("u", n))
		k.addTombstone(tombstone{uid: uid, at: at, name: types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("n", n)}})
	}
	k := newKindCache(kinds.Pods.Kind)
	k.newest = epoch
	for n := range tombstoneMax {
		bury(k, n, epoch)
	}
	if len(k.gone) != 20_000 || len(k.last) != 20_000 {
		t.Errorf("%d are remembered, by %d names", len(k.gone), len(k.last))
	}
	bury(k, 0, epoch) // once more
	if len(k.gone) != tombstoneMax {
		t.Errorf("%d are remembered when one is buried twice", len(k.gone))
	}
	bury(k, tombstoneMax, epoch)
	if _, first := k.gone["u0"]; first || len(k.gone) != tombstoneMax || len(k.last) != tombstoneMax || len(k.tombstones) != tombstoneMax {
		t.Errorf("%d are remembered, by %d names, the first among them: %t", len(k.gone), len(k.last), first)
	}
	k = newKindCache(kinds.Pods.Kind)
	bury(k, 1, epoch)
	bury(k, 2, epoch.Add(time.Minute))
	k.newest = epoch.Add(10 * time.Minute)
	if bury(k, 3, k.newest); len(k.gone) != 3 {
		t.Errorf("%d are remembered after ten minutes", len(k.gone))
	}
	k.newest = epoch.Add(10*time.Minute + 1)
	k.addTombstone(tombstone{uid: "other", at: k.newest, name: types.NamespacedName{Namespace: "ns", Name: "n1"}})
	if _, first := k.gone["u1"]; first || len(k.gone) != 3 || k.last[types.NamespacedName{Namespace: "ns", Name: "n1"}] != "other" {
		t.Errorf("%d are remembered after more than ten minutes, the first among them: %t", len(k.gone), first)
	}
}

func TestAKindThatIsNotFollowedIsNowhere(t *testing.T) {
	m := New()
	position, marked := m.Progress("pods")
	number, told := m.Epoch("pods")
	if m.Position("pods") != 0 || position != 0 || marked || number != 0 || !told || m.Count("pods") != 0 || m.Completeness("pods") != (Completeness{}) || m.Forget("pods") != nil {
		t.Error("a kind that is not followed has something")
	}
	if m.Fold("pods", []events.Message{markAt(kinds.Pods.Kind, "5", 3)}) != 0 {
		t.Error("a kind that is not followed is folded")
	}
	m.Dealt("pods", 3)
	m.Follow(kinds.Pods.Kind)
	position, marked = m.Progress("pods")
	if position != 0 || marked {
		t.Error("a kind of which nothing was folded is marked")
	}
	m.Fold("pods", []events.Message{markAt(kinds.Pods.Kind, "5", 3)})
	if position, marked = m.Progress("pods"); position != 3 || !marked || m.Position("pods") != 3 {
		t.Errorf("a kind that was marked stands at %d, %t", position, marked)
	}
}

// A keySet has each key once, in the order of arrival, however many there are.
func TestASetOfKeysHasEachOnce(t *testing.T) {
	var s keySet
	for range 2 {
		for i := range 3 * few {
			s.add(events.Key{Name: fmt.Sprint(i)}, events.Key{Name: fmt.Sprint(i)})
		}
	}
	if len(s.keys) != 3*few || s.keys[0].Name != "0" || s.keys[3*few-1].Name != fmt.Sprint(3*few-1) {
		t.Errorf("the keys are %v", s.keys)
	}
}
