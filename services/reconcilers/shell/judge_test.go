package shell

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func TestWhatAResultLeavesToBeSeen(t *testing.T) {
	for _, c := range []struct {
		result events.Result
		some   bool
	}{
		{events.Result{Status: events.Applied}, true},
		{events.Result{Status: events.Unchanged}, false},
		{events.Result{Status: events.Unchanged, Version: "5"}, true},
		{events.Result{Status: events.Unchanged, Removed: true}, true},
		{events.Result{Status: events.Conflict}, false},
		{events.Result{Status: events.Conflict, Version: "5"}, true},
		{events.Result{Status: events.Failed}, false},
		{events.Result{Status: events.Failed, Version: "5"}, true},
		{events.Result{Status: events.Refused, Version: "5"}, false},
		{events.Result{Status: events.Answered, Version: "5"}, false},
	} {
		if becomesVisible(c.result) != c.some {
			t.Errorf("%+v: %t", c.result, !c.some)
		}
	}
}

// An outcome is stale when all failed commands would succeed on the present view.
func TestWhichOutcomesAreStale(t *testing.T) {
	applied, conflict, skipped := events.Result{Status: events.Applied}, events.Result{Status: events.Conflict}, events.Result{Status: events.Skipped}
	old, refused, failed := events.Result{Status: events.Refused, Reason: "Stale"}, events.Result{Status: events.Refused, Reason: "Forbidden"}, events.Result{Status: events.Failed, Reason: "Stale"}
	for _, c := range []struct {
		results []events.Result
		is      bool
	}{
		{nil, true}, {[]events.Result{applied}, true}, {[]events.Result{applied, conflict, skipped, old}, true},
		{[]events.Result{refused}, false}, {[]events.Result{conflict, refused}, false}, {[]events.Result{failed}, false}, {[]events.Result{old, failed}, false},
	} {
		if stale(events.Outcome{Results: c.results}) != c.is {
			t.Errorf("%+v: %t", c.results, !c.is)
		}
	}
}

func TestOutcomesThatChangedNothing(t *testing.T) {
	same, applied := events.Result{Status: events.Unchanged}, events.Result{Status: events.Applied}
	answered := events.Result{Status: events.Answered}
	for _, c := range []struct {
		results       []events.Result
		none, answers bool
	}{
		{nil, false, false}, {[]events.Result{same}, true, false}, {[]events.Result{same, same}, true, false},
		{[]events.Result{same, applied}, false, false}, {[]events.Result{answered}, false, true}, {[]events.Result{same, answered}, false, true},
	} {
		o := events.Outcome{Results: c.results}
		if changedNothing(o) != c.none || hasAnswer(o) != c.answers {
			t.Errorf("%+v: it changed nothing: %t, it answers: %t", c.results, changedNothing(o), hasAnswer(o))
		}
	}
}

func TestMomentsInOrder(t *testing.T) {
	zero, a, b := time.Time{}, epoch, epoch.Add(time.Second)
	for _, c := range []struct{ x, y, earliest, latest time.Time }{
		{a, b, a, b}, {b, a, a, b}, {zero, a, a, a}, {a, zero, a, a}, {zero, zero, zero, zero}, {a, a, a, a},
	} {
		if got := earliest(c.x, c.y); !got.Equal(c.earliest) {
			t.Errorf("the earliest of %v and %v is %v", c.x, c.y, got)
		}
		if got := latest(c.x, c.y); !got.Equal(c.latest) {
			t.Errorf("the latest of %v and %v is %v", c.x, c.y, got)
		}
	}
	for _, c := range []struct {
		x, y time.Time
		same bool
	}{{a, a, true}, {a, b, false}, {zero, b, true}, {a, zero, true}} {
		if sameMoment(c.x, c.y) != c.same {
			t.Errorf("%v and %v are the same: %t", c.x, c.y, !c.same)
		}
	}
	if timeOrNil(zero) != nil || timeOrNil(a) == nil || !timeOrNil(a).Equal(a) {
		t.Error("no moment is not told from one")
	}
}

// A part of a decision passes when it has commands, its lane is open, and its wait is over.
func TestWhichPartsOfADecisionPass(t *testing.T) {
	some := reconcile.Do("so", events.Command{Verb: events.VerbCreate})
	for what, c := range map[string]struct {
		part      reconcile.Decision
		open      bool
		notBefore time.Time
		pass      bool
		until     time.Time
	}{
		"at once":        {some, true, time.Time{}, true, time.Time{}},
		"nothing":        {reconcile.Decision{}, true, epoch.Add(1), false, time.Time{}},
		"a lane is shut": {some, false, epoch.Add(1), false, time.Time{}},
		"too early":      {some, true, epoch.Add(1), false, epoch.Add(1)},
		"in time":        {some, true, epoch, true, time.Time{}},
	} {
		if pass, until := laneMayStore(c.part, c.open, c.notBefore, epoch); pass != c.pass || !until.Equal(c.until) {
			t.Errorf("%s: it passes: %t, or waits until %v", what, pass, until)
		}
	}
	record := events.Command{Verb: events.VerbRecord}
	if !onlyEvents(reconcile.Do("so", record, record)) || onlyEvents(reconcile.Do("so", record, events.Command{Verb: events.VerbUpdate})) {
		t.Error("what only makes Events is not told from what does more")
	}
}

// The known outcome of a lane is outlived when the stream has another turn at that sequence, or
// none.
func TestALaneThatIsOutlived(t *testing.T) {
	at := func(decided time.Time) *events.Turn { return &events.Turn{Now: decided} }
	for what, c := range map[string]struct {
		turn, outcome uint64
		decided       time.Time
		past          Past
		is            bool
	}{
		"an earlier outcome":      {7, 6, epoch, Past{Sequence: 7, Turn: at(epoch)}, false},
		"the same turn":           {7, 7, epoch, Past{Sequence: 7, Turn: at(epoch)}, false},
		"another in its place":    {7, 7, epoch, Past{Sequence: 7, Turn: at(epoch.Add(1))}, true},
		"one that cannot be read": {7, 7, epoch, Past{Sequence: 7}, false},
		"an earlier turn is last": {7, 7, epoch, Past{Sequence: 6, Turn: at(epoch)}, true},
		"an outcome of no turn":   {6, 7, epoch, Past{Sequence: 7, Turn: at(epoch)}, true},
		"nothing is there":        {0, 0, time.Time{}, Past{}, false},
	} {
		l := lane{turn: c.turn, outcome: c.outcome, decided: c.decided}
		if l.outlived(c.past) != c.is {
			t.Errorf("%s: %t", what, !c.is)
		}
	}
}

// A turn has taken the sequence of a lost one if the outcome cannot be the turn's own.
func TestATurnInThePlaceOfALostOne(t *testing.T) {
	turn := &events.Turn{Now: epoch}
	message := events.Message{Sequence: 7, Time: epoch}
	stored := func(after time.Duration) events.Message { return events.Message{Time: epoch.Add(after)} }
	for what, c := range map[string]struct {
		turn    *events.Turn
		outcome events.Message
		of      events.Outcome
		is      bool
	}{
		"an earlier outcome":              {turn, stored(0), events.Outcome{Turn: 6}, false},
		"its own":                         {turn, stored(0), events.Outcome{Turn: 7, Decided: epoch}, false},
		"its own, that does not say when": {turn, stored(0), events.Outcome{Turn: 7}, false},
		"decided at another moment":       {turn, stored(0), events.Outcome{Turn: 7, Decided: epoch.Add(1)}, true},
		"stored before it":                {turn, stored(-time.Second - 1), events.Outcome{Turn: 7, Decided: epoch}, true},
		"stored a second before it":       {turn, stored(-time.Second), events.Outcome{Turn: 7, Decided: epoch}, false},
		"of a turn that cannot be read":   {nil, stored(0), events.Outcome{Turn: 7, Decided: epoch.Add(1)}, false},
		"of a later turn, decided before": {turn, stored(0), events.Outcome{Turn: 9, Decided: epoch.Add(-time.Second - 1)}, true},
		"of a later turn":                 {turn, stored(0), events.Outcome{Turn: 9, Decided: epoch.Add(-time.Second)}, false},
		"of a later turn, at any time":    {turn, stored(0), events.Outcome{Turn: 9}, false},
	} {
		if supersedes(message, c.turn, c.outcome, c.of) != c.is {
			t.Errorf("%s: %t", what, !c.is)
		}
	}
}

// withPods is a memory of pods: "there" is at version 5, "replaced" was taken over by another
// pod at 6, "dead" was deleted at 7, and the mark is at 9.
func withPods(t *testing.T, see func(snapshot)) {
	t.Helper()
	m := NewMemory()
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
	torn = events.EncodeDelta(d)
	torn.Subject, torn.Sequence = subject.Delta(d.Ref), 8
	m.Fold(kinds.Pods.Name, []events.Message{torn})
	m.view("toy", nil, see)
}

func of(kind kinds.Name, called string, uid types.UID, version string, removed bool) effect {
	return effect{result: events.Result{
		Ref: events.Ref{Kind: kind, Namespace: "default", Name: called}, UID: uid, Version: version, Removed: removed,
	}}
}

// An effect has returned when the memory has its version, a later one, or its deletion.
func TestWhichEffectsHaveReturned(t *testing.T) {
	dated := func(u effect, epoch uint64) effect { u.dated, u.epoch = true, epoch; return u }
	position := func(u effect, seen uint64) effect { u.seen = seen; return u }
	withPods(t, func(s snapshot) {
		for what, c := range map[string]struct {
			due  effect
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
			if s.hasReturned(c.due) != c.back {
				t.Errorf("%s: it is seen: %t", what, !c.back)
			}
		}
	})
}

// beyond holds for an effect up to whose version its kind has been reported; the effect is lost
// when the log has been read to its end, too.
func TestWhichEffectsAreLost(t *testing.T) {
	with := func(u effect, goal, seen uint64) effect { u.goal, u.seen = goal, seen; return u }
	dated := func(u effect, epoch uint64) effect { u.dated, u.epoch = true, epoch; return u }
	withPods(t, func(s snapshot) {
		for what, c := range map[string]struct {
			due          effect
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
			if beyond, lost := s.reportedBeyond(c.due), s.lost(c.due); beyond != c.beyond || lost != c.lost {
				t.Errorf("%s: it is beyond: %t, lost: %t", what, beyond, lost)
			}
		}
	})
}

// The memory and the API server disagree about an object when only one of them has it.
func TestWhichResultsDiverge(t *testing.T) {
	withPods(t, func(s snapshot) {
		for what, c := range map[string]struct {
			of     effect
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
			r := c.of.result
			r.Status = c.status
			if s.contradicts(r) != c.is {
				t.Errorf("%s: %t", what, !c.is)
			}
		}
	})
}

// A snapshot does not show kinds that the controller does not read.
func TestASceneShowsWhatIsRead(t *testing.T) {
	m := NewMemory()
	m.Follow(kinds.Nodes.Kind)
	m.Follow(kinds.Pods.Kind)
	m.Register(toy().Describe())
	node := delta(kinds.Nodes.Kind, events.Is, aPod("n", "web", 5), 1)
	m.Fold(kinds.Nodes.Name, []events.Message{node})
	m.Fold(kinds.Pods.Name, []events.Message{delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 5), 1), delta(kinds.Pods.Kind, events.Is, aPod("q", "", 6), 2)})
	m.view("toy", nil, func(s snapshot) {
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
		if _, ok := s.Last(web, events.LaneWrite); ok {
			t.Error("an outcome is known, and none was told")
		}
		if seen := s.seen(); len(seen) != 1 || seen["pods"] != 2 || s.digest(seen) == 0 || s.epochs() != nil {
			t.Errorf("seen are %v of %v", seen, s.epochs())
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
	bury := func(k *kindMemory, n int, at time.Time) {
		uid := types.UID(fmt.Sprint("u", n))
		k.addTombstone(tombstone{uid: uid, at: at, name: name{"ns", fmt.Sprint("n", n)}})
	}
	k := newKindMemory(kinds.Pods.Kind)
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
	k = newKindMemory(kinds.Pods.Kind)
	bury(k, 1, epoch)
	bury(k, 2, epoch.Add(time.Minute))
	k.newest = epoch.Add(10 * time.Minute)
	if bury(k, 3, k.newest); len(k.gone) != 3 {
		t.Errorf("%d are remembered after ten minutes", len(k.gone))
	}
	k.newest = epoch.Add(10*time.Minute + 1)
	k.addTombstone(tombstone{uid: "other", at: k.newest, name: name{"ns", "n1"}})
	if _, first := k.gone["u1"]; first || len(k.gone) != 3 || k.last[name{"ns", "n1"}] != "other" {
		t.Errorf("%d are remembered after more than ten minutes, the first among them: %t", len(k.gone), first)
	}
}

func TestAKindThatIsNotFollowedIsNowhere(t *testing.T) {
	m := NewMemory()
	position, marked := m.progress("pods")
	number, told := m.epoch("pods")
	if m.Position("pods") != 0 || position != 0 || marked || number != 0 || !told || m.Count("pods") != 0 || m.completeness("pods") != (completeness{}) || m.Forget("pods") != nil {
		t.Error("a kind that is not followed has something")
	}
	if m.Fold("pods", []events.Message{markAt(kinds.Pods.Kind, "5", 3)}) != 0 {
		t.Error("a kind that is not followed is folded")
	}
	m.Dealt("pods", 3)
	m.Follow(kinds.Pods.Kind)
	position, marked = m.progress("pods")
	if position != 0 || marked {
		t.Error("a kind of which nothing was folded is marked")
	}
	m.Fold("pods", []events.Message{markAt(kinds.Pods.Kind, "5", 3)})
	if position, marked = m.progress("pods"); position != 3 || !marked || m.Position("pods") != 3 {
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

// An entry names the newest triggers, and counts the oldest change of each kind as waiting.
func TestCausesAreBounded(t *testing.T) {
	var c causes
	for i := range events.MaxTriggers + 5 {
		c.add(events.Trigger{Sequence: uint64(100 - i), Ref: events.Ref{Kind: "pods"}}, epoch)
	}
	c.add(events.Trigger{Sequence: 200, Ref: events.Ref{Kind: "nodes"}}, epoch)
	if len(c.triggers) != events.MaxTriggers || c.triggers[len(c.triggers)-1].Sequence != 200 {
		t.Errorf("named are %d, the last %v", len(c.triggers), c.triggers[len(c.triggers)-1])
	}
	c.addOldest(Backlog{Kind: "pods", Sequence: 300})
	want := []Backlog{{"pods", uint64(100 - events.MaxTriggers - 4), epoch}, {"nodes", 200, epoch}}
	if !slices.Equal(c.oldest, want) {
		t.Errorf("waiting are %v, want %v", c.oldest, want)
	}
	e := &entry{}
	for i := range events.MaxTriggers + 2 {
		e.addTrigger(events.Trigger{Sequence: uint64(i)})
	}
	if len(e.triggers) != events.MaxTriggers || e.triggers[0].Sequence != 2 {
		t.Errorf("an entry has %d causes, the first %v", len(e.triggers), e.triggers[0])
	}
}
