package shadow

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/fields"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// A want stands until its write is done, however many other writes are done.
func TestEachWantIsDoneOnce(t *testing.T) {
	s := begin()
	s.wants(deletion("a"), deletion("b"), create("web-a"))
	expect(t, "the first", s.died("a"), report.Agreed)
	if n := s.Standing(); n != 2 {
		t.Errorf("%d are wanted after the first", n)
	}
	expect(t, "the second", s.died("b"), report.Agreed)
	expect(t, "the create", s.created(kcm, pod("web-x", nil)), report.Agreed)
	if n := s.Standing(); n != 0 {
		t.Errorf("%d are wanted after all", n)
	}
}

// A create that was not decided on is a finding, unless its author is unknown or its set is being deleted.
func TestCreatesThatWereNotWanted(t *testing.T) {
	s := begin()
	expect(t, "of a set that lives", s.created(kcm, pod("web-1", nil)), report.KCMOnly)
	s.set.DeletionTimestamp = &metav1.Time{Time: noon}
	expect(t, "of a set that goes", s.created(kcm, pod("web-2", nil)))
	s.set = nil
	expect(t, "of a set that is gone", s.created(kcm, pod("web-3", nil)))
	s = begin()
	d := events.Delta{
		Kind: "pods", Ref: events.Ref{Kind: "pods", Namespace: "default", Name: "web-4"}, Op: events.Is, UID: "u", By: kcm, Beside: []events.Manager{user}, At: noon,
	}
	done, ok := OperationOf(d, events.Trigger{}, reconcile.Object{}, reconcile.Object{Kind: kinds.Pods.Kind, Object: pod("web-4", nil)})
	if !ok || !done.Doubtful {
		t.Fatalf("the operation is %+v, want doubtful", done)
	}
	expect(t, "in doubt", s.Happened(done, s))
}

// A create of one kind does not match the create of another kind that is wanted.
func TestACreateIsOfItsKind(t *testing.T) {
	d := description
	d.Writes = append(reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.ConfigMaps.Name}}, description.Writes...)
	s := begin()
	s.Matcher = New(d, Settings{})
	s.wants(reconcile.Create(kinds.ConfigMaps.Kind, "default", "c", json.RawMessage(`{"metadata":{}}`)), deletion("a"))
	expect(t, "a pod", s.created(kcm, pod("web-1", nil)), report.KCMOnly)
	if n := s.Standing(); n != 2 {
		t.Errorf("%d are wanted", n)
	}
}

// If keys are not objects, a write matches what was wanted, and any other write is no finding.
func TestKeysThatAreNoObjects(t *testing.T) {
	d := description
	d.Owns = nil
	s := begin()
	s.Matcher = New(d, Settings{})
	s.wants(deletion("a"))
	expect(t, "what was wanted", s.died("a"), report.Agreed)
	expect(t, "what never was", s.died("b"))
}

// A finding's id derives from its trigger, whenever the shadow sees that; without a trigger, from
// the time.
func TestAFindingHasOneName(t *testing.T) {
	vanished := func(by events.Trigger, after time.Duration) string {
		s := begin()
		s.Decided(Answer{Key: key, At: noon.Add(after), By: by, Wants: s.effects(deletion("a"))})
		found := s.Decided(Answer{Key: key, At: noon.Add(after + time.Second)})
		expect(t, "not wanted any more", found, report.Vanished)
		return found[0].ID
	}
	first := vanished(events.Trigger{Stream: "S", Sequence: 5}, 0)
	if again := vanished(events.Trigger{Stream: "S", Sequence: 5}, time.Hour); again != first {
		t.Errorf("the same finding has the IDs %s and %s", first, again)
	}
	for _, by := range []events.Trigger{{Stream: "S", Sequence: 6}, {Stream: "T", Sequence: 5}, {}} {
		if other := vanished(by, 0); other == first {
			t.Errorf("the finding because of %+v has the same ID %s", by, other)
		}
	}
	if vanished(events.Trigger{}, 0) == vanished(events.Trigger{}, time.Second) {
		t.Error("findings without a cause have one ID at all times")
	}
}

// Which views are tried depends on the operation. A kind that two inputs name goes back once.
func TestWhichViewsAreTried(t *testing.T) {
	views := func(d reconcile.Description, do func(s *scene)) (pods, sets, nodes bool, asked int) {
		s := begin()
		s.Matcher = New(d, Settings{})
		s.earlier = func(v View) []Want {
			for kind, n := range v.Back {
				pods, sets, nodes = pods || kind == "pods" && n > 0, sets || kind == kinds.ReplicaSets.Name && n > 0, nodes || kind == "" || kind == "nodes"
			}
			return nil
		}
		s.wants()
		do(s)
		return pods, sets, nodes, s.asked
	}
	create := func(s *scene) { s.created(kcm, pod("web-1", nil)) }
	report := func(s *scene) { s.reports(told, counts(3, 1)) }
	if pods, sets, _, _ := views(description, create); pods || !sets {
		t.Errorf("about a create older views of pods are tried: %t, of sets: %t; want of sets alone", pods, sets)
	}
	pods, sets, _, once := views(description, report)
	if !pods || !sets {
		t.Errorf("about a report older views of pods are tried: %t, of sets: %t; want both", pods, sets)
	}
	twice := description
	twice.Inputs = append([]reconcile.Input{{Every: true}, {Kind: kinds.Pods.Kind}}, description.Inputs...)
	if _, _, other, asked := views(twice, report); other || asked != once {
		t.Errorf("where a kind is named twice %d views are tried, want %d; of every kind: %t", asked, once, other)
	}
	for want, back := range map[string]map[kinds.Name]int{
		"nothing behind": {"pods": 0}, "pods 2 changes behind": {"pods": 2, "nodes": 0}, "nodes 1 changes behind and pods 2 changes behind": {"pods": 2, "nodes": 1},
	} {
		if got := lagText([]kinds.Name{"nodes", "pods"}, back); got != want {
			t.Errorf("%v is told as %q, want %q", back, got, want)
		}
	}
}

// Only a refusal that is known can end with a successful attempt.
func TestOnlyARefusalEnds(t *testing.T) {
	s := begin()
	s.earlier = func(v View) []Want {
		if v.Back == nil && v.Ahead == 0 {
			return s.effects(s.status(4, 4))
		}
		return nil
	}
	expect(t, "what is wanted by now", s.reports(told, counts(4, 4)), report.KCMOnly)
}

// The matcher tries a failure that KCM reports as a refusal of each of the last three attempts, the
// newest first, on views that are known, the present one first.
func TestARefusalIsOfTheLastAttempts(t *testing.T) {
	failing := func(st *appsv1.ReplicaSetStatus) {
		st.Conditions = []appsv1.ReplicaSetCondition{{Type: "ReplicaFailure", Status: "True", Message: "quota"}}
	}
	refused := func(s *scene) (refs []string, codes map[int]bool) {
		codes = map[int]bool{}
		s.earlier = func(v View) []Want {
			if v.Last != nil {
				refs, codes[v.Last.Results[0].Code] = append(refs, v.Last.Results[0].Ref.Name), true
			}
			return nil
		}
		s.wants(deletion("a"), deletion("b"), deletion("c"), deletion("d"))
		expect(t, "a report", s.reports(told, failing), report.KCMOnly)
		return refs, codes
	}
	refs, codes := refused(begin())
	if len(refs) != 3*(furthest+1) || refs[0] != "d" || refs[2] != "b" || refs[3] != "d" || len(codes) != 1 || !codes[403] {
		t.Errorf("the finding is about %v, with the codes %v", refs, codes)
	}
	s := begin()
	s.known = func(v View) bool { return v.Last == nil }
	if refs, _ := refused(s); len(refs) != 0 {
		t.Errorf("with unknown views the finding is about %v, want nothing", refs)
	}
	s = begin()
	s.known = func(v View) bool { return v.Last == nil }
	s.earlier = func(View) []Want { return s.effects(s.status(9, 9)) }
	s.wants(deletion("a"))
	expect(t, "what cannot be asked", s.reports(told, func(st *appsv1.ReplicaSetStatus) { failing(st); st.Replicas = 1 }), report.KCMOnly)
}

// The matcher remembers a refusal as long as it lasts. A write that waits on it is unseen; a report
// that KCM does not write is not.
func TestWhatWaitsOnARefusal(t *testing.T) {
	s := begin()
	s.books[key] = &book{key: key, created: map[kinds.Name]int{}, told: &events.Outcome{Turn: 1}}
	s.wants(deletion("a"), s.status(2, 2))
	found := s.Advance(s.now.Add(2*time.Minute), s)
	expect(t, "a deletion and a report", found, report.Unseen, report.WeOnly)
	for _, f := range found {
		if (f.Agreement == report.Unseen) != (f.Ref.Kind == "pods") {
			t.Errorf("the finding about %v is %s", f.Ref, f.Agreement)
		}
	}
	s.wants()
	for range 3 {
		s.now = s.now.Add(10 * time.Minute)
		s.Advance(s.now, s)
	}
	if _, known := s.Last(key, events.LaneWrite); !known {
		t.Error("a refusal is forgotten while it lasts")
	}
	if _, known := s.Last(key, events.LaneStatus); known {
		t.Error("a refusal is known of reports")
	}
}

// A patch that cannot be parsed wants nothing, and unnamed accepts a tree without metadata.
func TestBodiesWithoutASense(t *testing.T) {
	seen := func(events.Ref) metav1.Object { return pod("a", nil) }
	patch := reconcile.Patch(kinds.Pods.Kind, pod("a", nil), types.StrategicMergePatchType, json.RawMessage(`[`))
	if wants := Wants([]events.Command{patch}, seen); len(wants) != 0 {
		t.Errorf("a patch that cannot be read has the wishes %+v, want none", wants)
	}
	if got := unnamed(fields.Tree{"spec": 1.0}); len(got) != 1 || got["spec"] != 1.0 {
		t.Errorf("the tree without metadata is %v", got)
	}
	widget := reconcile.Patch(kinds.Kind{Name: "widgets.e", Version: "v1", Kind: "Widget"}, pod("a", nil), types.StrategicMergePatchType, json.RawMessage(`{"metadata":{"labels":{"app":"x"}}}`))
	if wants := Wants([]events.Command{widget}, seen); len(wants) != 1 || len(wants[0].Fields) != 1 {
		t.Errorf("of an unknown kind the wishes are %+v, want one field", wants)
	}
}

// KCM may still make a write that was wanted a minute ago: it is late. Another write of KCM differs
// from what was wanted, unless that had been wanted for longer than a minute.
func TestForHowLongAWantIsRemembered(t *testing.T) {
	for after, want := range map[time.Duration]report.Agreement{time.Minute: report.Late, time.Minute + 1: report.KCMOnly} {
		s := begin()
		s.wants(create("web-a"))
		wanted := s.now
		s.Decided(Answer{Key: key, At: wanted.Add(after)})
		expect(t, after.String(), s.created(kcm, pod("web-x", nil)), want)
	}
	for since, want := range map[time.Duration]report.Agreement{time.Minute - time.Second: report.Differs, 2 * time.Minute: report.KCMOnly} {
		s := begin()
		s.wants(s.status(7, 2))
		s.now = s.now.Add(since)
		s.wants(s.status(7, 2))
		expect(t, "not wanted any more", s.wants(), report.Vanished)
		expect(t, since.String(), s.reports(told, counts(9, 2)), want)
	}
}

// A write that the controller never makes is no finding, whichever manager makes it. A finding about a
// write that KCM has not made lists what would change.
func TestWhatIsNotTheControllers(t *testing.T) {
	s := begin()
	running := func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }
	expect(t, "the status of a pod", s.sees(events.Is, told, pod("a", nil), pod("a", running), kinds.Pods.Kind))
	s.wants(s.status(2, 2))
	found := s.Advance(s.now.Add(2*time.Minute), s)
	expect(t, "a report", found, report.WeOnly)
	if len(found) == 1 && len(found[0].Differences) != 2 {
		t.Errorf("the report would change %+v, want two fields", found[0].Differences)
	}
	s = begin()
	s.wants(s.status(2, 2))
	if found := s.wants(); len(found) != 1 || len(found[0].Differences) != 0 {
		t.Errorf("a wish that was dropped is reported as %+v, want without differences", found)
	}
}
