package shadow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

var (
	noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	key  = events.Key{Namespace: "default", Name: "web"}
	kcm  = events.Manager{Name: events.FieldManager}
	told = events.Manager{Name: events.FieldManager, Subresource: "status"}
	user = events.Manager{Name: "kubectl"}
)

// description describes a controller of the pods of ReplicaSets.
var description = reconcile.Description{
	Name: "replicaset-controller", Owns: &kinds.ReplicaSets.Kind,
	Inputs: []reconcile.Input{{Kind: kinds.ReplicaSets.Kind}, {Kind: kinds.Pods.Kind}},
	Writes: reconcile.Writes{
		{Verb: events.VerbCreate, Kind: kinds.Pods.Name}, {Verb: events.VerbDelete, Kind: kinds.Pods.Name},
		{Verb: events.VerbPatch, Kind: kinds.Pods.Name}, {Verb: events.VerbUpdate, Kind: kinds.ReplicaSets.Name, Subresource: "status"},
	},
}

// scene is a matcher together with the [Asker] that answers its questions.
type scene struct {
	*Matcher
	set     *appsv1.ReplicaSet
	earlier func(View) []Want
	equal   bool
	tied    func(View) bool // by view; replaces equal
	known   func(View) bool // whether there is such a view; nil: always
	asked   int
	now     time.Time
	version int
}

func begin() *scene {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "set"}}
	return &scene{Matcher: New(description, Settings{}), set: set, now: noon}
}

func (s *scene) Ask(_ events.Key, v View) ([]Want, bool) {
	s.asked++
	if s.known != nil && !s.known(v) {
		return nil, false
	}
	if s.earlier == nil {
		return nil, true
	}
	return s.earlier(v), true
}

func (s *scene) AsGood(_ events.Key, view View, _, _ events.Ref) bool {
	if s.tied != nil {
		return s.tied(view)
	}
	return s.equal
}

func (s *scene) Object(events.Key) metav1.Object {
	if s.set == nil {
		return nil
	}
	return s.set
}

func (s *scene) wants(commands ...events.Command) []Found {
	s.now = s.now.Add(time.Millisecond)
	return s.Decided(Answer{Key: key, Writes: 7, Reports: 8, Because: "so", At: s.now, Wants: s.effects(commands...)})
}

func (s *scene) effects(commands ...events.Command) []Want {
	return Wants(commands, func(ref events.Ref) metav1.Object {
		if ref.Kind == kinds.ReplicaSets.Name {
			return s.set
		}
		return pod(ref.Name, nil)
	})
}

// pod returns a pod of the set; change may be nil.
func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), GenerateName: "web-", Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "set", Controller: &yes}},
	}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app:1"}}}}
	if change != nil {
		change(p)
	}
	return p
}

func create(name string) events.Command {
	p := pod("", nil)
	p.UID, p.Namespace = "", ""
	return reconcile.Create(kinds.Pods.Kind, "default", name, reconcile.Body(p))
}

func deletion(name string) events.Command { return reconcile.Delete(kinds.Pods.Kind, pod(name, nil)) }

// status returns the command that reports the numbers of replicas and of ready replicas.
func (s *scene) status(replicas, ready int32) events.Command {
	set := s.set.DeepCopy()
	set.Status.Replicas, set.Status.ReadyReplicas = replicas, ready
	return reconcile.UpdateStatus(kinds.ReplicaSets.Kind, set)
}

func (s *scene) sees(op events.Op, by events.Manager, was, now metav1.Object, kind kinds.Kind) []Found {
	s.now, s.version = s.now.Add(time.Millisecond), s.version+1
	wrap := func(o metav1.Object) reconcile.Object {
		if o == nil || reflect.ValueOf(o).IsNil() {
			return reconcile.Object{}
		}
		return reconcile.Object{Kind: kind, Object: o}
	}
	some := now
	if wrap(now).None() {
		some = was
	}
	d := events.Delta{
		Kind: kind.Name, Ref: events.Ref{Kind: kind.Name, Namespace: "default", Name: some.GetName()}, Op: op, UID: some.GetUID(), By: by,
		ResourceVersion: fmt.Sprint(s.version), Deleting: some.GetDeletionTimestamp() != nil, At: s.now,
	}
	operation, ok := OperationOf(d, events.Trigger{Sequence: uint64(s.version)}, wrap(was), wrap(now))
	if !ok {
		return nil
	}
	return s.Happened(operation, s)
}

func (s *scene) created(by events.Manager, p *corev1.Pod) []Found {
	return s.sees(events.Is, by, nil, p, kinds.Pods.Kind)
}

func (s *scene) died(name string) []Found {
	return s.sees(events.Gone, events.Manager{}, pod(name, nil), nil, kinds.Pods.Kind)
}

// reports makes a manager write the status of the set.
func (s *scene) reports(by events.Manager, change func(*appsv1.ReplicaSetStatus)) []Found {
	now := s.set.DeepCopy()
	change(&now.Status)
	found := s.sees(events.Is, by, s.set, now, kinds.ReplicaSets.Kind)
	s.set = now
	return found
}

func counts(replicas, ready int32) func(*appsv1.ReplicaSetStatus) {
	return func(st *appsv1.ReplicaSetStatus) { st.Replicas, st.ReadyReplicas = replicas, ready }
}

func expect(t *testing.T, what string, found []Found, want ...report.Agreement) {
	t.Helper()
	var got []report.Agreement
	for _, f := range found {
		got = append(got, f.Agreement)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: found %v %+v, want %v", what, got, found, want)
	}
}

func TestCreates(t *testing.T) {
	s := begin()
	expect(t, "two are wanted", s.wants(create("web-a"), create("web-b")))
	expect(t, "the first", s.created(kcm, pod("web-x1", nil)), report.Agreed)
	expect(t, "one more is wanted", s.wants(create("web-b")))
	f := s.created(kcm, pod("web-x2", func(p *corev1.Pod) { // as admission changes it
		p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access"}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var"}}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}, {Key: "k", Effect: "NoExecute"}}
	}))
	expect(t, "the second", f, report.Agreed)
	if len(f) == 1 && (f[0].Turn != 7 || f[0].Because != "so" || f[0].Key != key || f[0].UID != "uid-web-x2" || f[0].Delta.Sequence != 2) {
		t.Errorf("the finding is %+v", f[0])
	}
	expect(t, "none is wanted", s.wants())
	expect(t, "a third", s.created(kcm, pod("web-x3", nil)), report.KCMOnly)
	expect(t, "a user's", s.created(user, pod("web-x4", nil)))
	expect(t, "one of another owner", s.created(kcm, pod("other", func(p *corev1.Pod) { p.OwnerReferences = nil })))
}

func TestAnotherCreate(t *testing.T) {
	for path, change := range map[string]func(*corev1.Pod){
		"metadata.labels.app":   func(p *corev1.Pod) { p.Labels["app"] = "other" },
		"metadata.labels.extra": func(p *corev1.Pod) { p.Labels["extra"] = "x" },
		"spec.containers":       func(p *corev1.Pod) { p.Spec.Containers[0].Image = "app:2" },
	} {
		s := begin()
		s.wants(create("web-a"))
		found := s.created(kcm, pod("web-x", change))
		expect(t, path, found, report.Differs)
		if len(found) == 1 && (len(found[0].Differences) != 1 || found[0].Differences[0].Path != path) {
			t.Errorf("%s: differs in %+v", path, found[0].Differences)
		}
		expect(t, "what was to be created is done with", s.wants())
	}
}

// KCM may act on an earlier view, but not twice.
func TestCreatesThatWereWanted(t *testing.T) {
	s := begin()
	s.wants(create("web-a"))
	expect(t, "not wanted any more", s.wants(), report.Vanished)
	expect(t, "created all the same", s.created(kcm, pod("web-x1", nil)), report.Late)
	expect(t, "and another one", s.created(kcm, pod("web-x2", nil)), report.KCMOnly)
}

func TestDeletions(t *testing.T) {
	s := begin()
	s.wants(deletion("a"), deletion("b"))
	expect(t, "the first", s.died("a"), report.Agreed)
	s.wants(deletion("b"))
	s.equal = true
	expect(t, "one that is as good", s.died("c"), report.Agreed)
	expect(t, "that is enough", s.wants())
	expect(t, "another client's doing", s.died("d"))
	s.equal = false
	s.wants(deletion("e"))
	found := s.died("f")
	expect(t, "the wrong one", found, report.Differs)
	if len(found) == 1 && !strings.Contains(found[0].Note, "e was to go") {
		t.Errorf("the note is %q", found[0].Note)
	}
	s.wants(deletion("g"))
	expect(t, "something else", s.wants(deletion("h")), report.Coalesced)
	expect(t, "what was wanted before", s.died("g"), report.Late)
	expect(t, "and that was it", s.wants())
}

// KCM decided on an older view, on which both pods were equally good: the finding is late. A pod
// that was as good on no view differs.
func TestDeletionsOnViewsWhereTheyAreAsGood(t *testing.T) {
	s := begin()
	behind := func(v View) bool { return v.Back[kinds.Pods.Name] == 2 }
	s.earlier = func(View) []Want { return s.effects(deletion("a")) }
	s.tied = behind
	s.wants(deletion("a"))
	found := s.died("b")
	expect(t, "one that was as good", found, report.Late)
	if len(found) == 1 && !strings.Contains(found[0].Note, "pods 2 changes behind") {
		t.Errorf("the note is %q", found[0].Note)
	}
	s.tied = func(View) bool { return false }
	s.wants(deletion("c"))
	expect(t, "one that never was", s.died("d"), report.Differs)
}

func TestStatus(t *testing.T) {
	s := begin()
	s.wants(s.status(3, 1))
	expect(t, "the same", s.reports(told, counts(3, 1)), report.Agreed)
	expect(t, "only a time", s.reports(told, func(st *appsv1.ReplicaSetStatus) {
		st.Conditions = []appsv1.ReplicaSetCondition{{LastTransitionTime: metav1.NewTime(noon)}}
	}))
	s.set.Status.Conditions = nil
	s.wants(s.status(5, 2))
	expect(t, "half of it", s.reports(told, counts(5, 1)), report.Coalesced)
	expect(t, "the rest is wanted", s.wants(s.status(5, 2)))
	expect(t, "the rest", s.reports(told, counts(5, 2)), report.Agreed)

	s.wants(s.status(6, 2))
	expect(t, "more is wanted", s.wants(s.status(7, 2)), report.Coalesced)
	expect(t, "what was wanted before", s.reports(told, counts(6, 2)), report.Late)
	s.wants(s.status(7, 2))
	found := s.reports(told, counts(9, 2))
	expect(t, "another number", found, report.Differs)
	want := []report.Difference{{Path: "status.replicas", Before: 6.0, Ours: 7.0, Theirs: 9.0}}
	if len(found) == 1 && !reflect.DeepEqual(found[0].Differences, want) {
		t.Errorf("differs in %+v, want %+v", found[0].Differences, want)
	}
	expect(t, "a user's", s.reports(events.Manager{Name: "kubectl", Subresource: "status"}, counts(1, 1)))
}

func TestNothingWasToChange(t *testing.T) {
	s := begin()
	expect(t, "a status", s.reports(told, counts(3, 1)), report.KCMOnly)
	adopted := func(p *corev1.Pod) { p.Labels["new"] = "x" }
	expect(t, "a label", s.sees(events.Is, kcm, pod("a", nil), pod("a", adopted), kinds.Pods.Kind), report.KCMOnly)
	node := func(p *corev1.Pod) { p.Spec.NodeName, p.Labels["zone"] = "n", "z" }
	expect(t, "a binding", s.sees(events.Is, kcm, pod("a", nil), pod("a", node), kinds.Pods.Kind))
	s.set.DeletionTimestamp = &metav1.Time{Time: noon}
	expect(t, "of a set on its way out", s.sees(events.Is, kcm, pod("a", nil), pod("a", adopted), kinds.Pods.Kind))
}

func TestOtherViews(t *testing.T) {
	s := begin()
	s.earlier = func(v View) []Want {
		if v.Back[kinds.Pods.Name] == 2 {
			return s.effects(s.status(4, 4))
		}
		return nil
	}
	found := s.reports(told, counts(4, 4))
	expect(t, "on an older view of pods", found, report.Late)
	if len(found) == 1 && !strings.Contains(found[0].Note, "pods 2 changes behind") {
		t.Errorf("the note is %q", found[0].Note)
	}
	s.earlier = func(v View) []Want {
		if v.Ahead > 0 {
			return s.effects(s.status(4, 3))
		}
		return nil
	}
	expect(t, "a moment later", s.reports(told, counts(4, 3)), report.Late)
}

// Only KCM knows how the API server answered it. The matcher believes a refusal that KCM
// reports if the controller would report the same.
func TestRefusals(t *testing.T) {
	s := begin()
	failing := func(st *appsv1.ReplicaSetStatus) {
		st.Conditions = []appsv1.ReplicaSetCondition{{Type: "ReplicaFailure", Status: "True", Reason: "FailedCreate", Message: "exceeded quota"}}
	}
	s.earlier = func(v View) []Want {
		if v.Last == nil || v.Last.Results[0].Message != "exceeded quota" || v.Last.Results[0].Ref.Name != "web-a" {
			return s.effects(create("web-a"))
		}
		set := s.set.DeepCopy()
		failing(&set.Status)
		return s.effects(create("web-a"), reconcile.UpdateStatus(kinds.ReplicaSets.Kind, set))
	}
	s.wants(create("web-a"))
	if _, known := s.Last(key, events.LaneWrite); known {
		t.Error("a failure is known before anybody told of it")
	}
	expect(t, "the refusal", s.reports(told, failing), report.Unseen)
	if o, known := s.Last(key, events.LaneWrite); !known || o.Results[0].Message != "exceeded quota" || o.UID == "" || o.UID != s.set.UID {
		t.Errorf("the failure is %+v, %t", o, known)
	}
	expect(t, "what is refused", s.Advance(s.now.Add(2*time.Minute), s), report.Unseen)
	expect(t, "is told once", s.Advance(s.now.Add(4*time.Minute), s))
	s.earlier = func(v View) []Want {
		if v.Last != nil {
			return nil
		}
		set := s.set.DeepCopy()
		set.Status.Conditions = nil
		return s.effects(reconcile.UpdateStatus(kinds.ReplicaSets.Kind, set))
	}
	expect(t, "the end of it", s.reports(told, func(st *appsv1.ReplicaSetStatus) { st.Conditions = nil }), report.Late)
	if _, known := s.Last(key, events.LaneWrite); known {
		t.Error("a failure is known that is over")
	}
}

// KCM reports a refusal before it has seen its report of the last one: the condition gets another message.
func TestARefusalReportedOnAnOlderView(t *testing.T) {
	for behind, want := range map[int]report.Agreement{0: report.Unseen, 1: report.Unseen, furthest: report.Unseen, furthest + 1: report.KCMOnly} {
		s := begin()
		condition := func(message string) func(*appsv1.ReplicaSetStatus) {
			return func(st *appsv1.ReplicaSetStatus) {
				st.Conditions = []appsv1.ReplicaSetCondition{{Type: "ReplicaFailure", Status: "True", Reason: "FailedCreate", Message: message}}
			}
		}
		unaware := s.set.DeepCopy()
		condition("pods web-x exceed a quota")(&s.set.Status)
		s.earlier = func(v View) []Want {
			if v.Last == nil || v.Last.Results[0].Message != "pods web-y exceed a quota" || v.Back[kinds.ReplicaSets.Name] < behind {
				return s.effects(create("web-y"))
			}
			set := unaware.DeepCopy()
			condition(v.Last.Results[0].Message)(&set.Status)
			return Wants([]events.Command{create("web-y"), reconcile.UpdateStatus(kinds.ReplicaSets.Kind, set)}, func(events.Ref) metav1.Object { return unaware })
		}
		s.wants(create("web-y"))
		expect(t, fmt.Sprintf("the set %d changes behind", behind), s.reports(told, condition("pods web-y exceed a quota")), want)
	}
}

func TestPatience(t *testing.T) {
	s := begin()
	s.wants(deletion("a"), s.status(2, 2))
	expect(t, "at once", s.Advance(s.now, s))
	later := s.now.Add(2 * time.Minute)
	found := s.Advance(later, s)
	expect(t, "after a while", found, report.WeOnly, report.WeOnly)
	expect(t, "and once", s.Advance(later.Add(time.Hour), s))
	expect(t, "nor again when it ends", s.wants())
	for _, f := range found {
		if f.Turn == 0 || f.Ref.Name == "" || f.What == "" {
			t.Errorf("the finding is %+v", f)
		}
	}
}

// If two managers write within one second, it is unknown which of them made a write, so an
// unexplained write is no finding, unless the watcher has proof.
func TestDoubt(t *testing.T) {
	s := begin()
	was := pod("a", nil)
	now := pod("a", func(p *corev1.Pod) { p.Labels["new"] = "x" })
	d := events.Delta{
		Kind: kinds.Pods.Name, Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "a"}, Op: events.Is, UID: was.UID, By: kcm,
		Beside: []events.Manager{user}, ResourceVersion: "1", At: noon,
	}
	operation, ok := OperationOf(d, events.Trigger{}, reconcile.Object{Kind: kinds.Pods.Kind, Object: was}, reconcile.Object{Kind: kinds.Pods.Kind, Object: now})
	if !ok || !operation.KCM || !operation.Doubtful {
		t.Fatalf("the operation is %+v, %t", operation, ok)
	}
	expect(t, "a doubtful write", s.Happened(operation, s))
	before, after := reconcile.Object{Kind: kinds.Pods.Kind, Object: was}, reconcile.Object{Kind: kinds.Pods.Kind, Object: now}
	d.Proven = true // the watcher knows which of the two managers it was
	if operation, ok := OperationOf(d, events.Trigger{}, before, after); !ok || !operation.KCM || operation.Doubtful {
		t.Errorf("proven to be KCM's, the operation is %+v, %t", operation, ok)
	}
	d.By, d.Beside = user, []events.Manager{kcm}
	if operation, ok := OperationOf(d, events.Trigger{}, before, after); ok {
		t.Errorf("with a proven author the operation is %+v, want the user's", operation)
	}
	d.Sync = true
	if _, ok := OperationOf(d, events.Trigger{}, reconcile.Object{Kind: kinds.Pods.Kind, Object: was}, reconcile.Object{Kind: kinds.Pods.Kind, Object: now}); ok {
		t.Error("a repeated delta is an operation")
	}
}

// Owner references are merged as the API server merges them.
func TestPatches(t *testing.T) {
	body := json.RawMessage(`{"metadata":{"uid":"uid-a","ownerReferences":[{"$patch":"delete","uid":"set"}]}}`)
	wants := Wants([]events.Command{reconcile.Patch(kinds.Pods.Kind, pod("a", nil), types.StrategicMergePatchType, body)},
		func(events.Ref) metav1.Object { return pod("a", nil) })
	if len(wants) != 1 || wants[0].Verb != events.VerbUpdate || len(wants[0].Fields) == 0 {
		t.Fatalf("wants %+v", wants)
	}
	for _, f := range wants[0].Fields {
		if !strings.HasPrefix(f.Path, "metadata.ownerReferences") || f.Is != nil {
			t.Errorf("changes %+v", f)
		}
	}
	body = json.RawMessage(`{"metadata":{"labels":{"app":null,"new":"x"}}}`)
	wants = Wants([]events.Command{reconcile.Patch(kinds.Pods.Kind, pod("a", nil), types.MergePatchType, body)},
		func(events.Ref) metav1.Object { return pod("a", nil) })
	if len(wants) != 1 || len(wants[0].Fields) != 2 {
		t.Fatalf("wants %+v", wants)
	}
}

// TestWhoDoesWhatIsWanted: if KCM makes wanted writes, at any moment and in any portions, every
// finding is explained, and every write of KCM gives one finding.
func TestWhoDoesWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := begin()
		replicas, living, created := int32(0), int32(0), 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "scaled") {
				replicas = rapid.Int32Range(0, 5).Draw(t, "replicas")
			}
			var commands []events.Command
			for n := living; n < replicas; n++ {
				commands = append(commands, create(fmt.Sprint("web-", n)))
			}
			if s.set.Status.Replicas != living {
				commands = append(commands, s.status(living, s.set.Status.ReadyReplicas))
			}
			found := s.wants(commands...)
			switch rapid.IntRange(0, 2).Draw(t, "does") {
			case 0:
				if living < replicas {
					living, created = living+1, created+1
					found = append(found, one(t, s.created(kcm, pod(fmt.Sprint("x", created), nil)))...)
				}
			case 1:
				if s.set.Status.Replicas != living {
					found = append(found, one(t, s.reports(told, counts(living, s.set.Status.ReadyReplicas)))...)
				}
			}
			for _, f := range found {
				if !f.Agreement.Explained() {
					t.Fatalf("found %+v", f)
				}
			}
		}
	})
}

func one(t *rapid.T, found []Found) []Found {
	if len(found) != 1 {
		t.Fatalf("one write has %d findings", len(found))
	}
	return found
}

// TestWhatWasNeverWanted: a status that KCM writes and the controller never wanted differs.
func TestWhatWasNeverWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := begin()
		wanted := rapid.Int32Range(1, 4).Draw(t, "wanted")
		other := rapid.Int32Range(5, 9).Draw(t, "other")
		for n := range wanted {
			s.wants(s.status(n+1, 0))
		}
		found := one(t, s.reports(told, counts(other, 0)))
		if found[0].Agreement != report.Differs || len(found[0].Differences) != 1 || found[0].Differences[0].Theirs != float64(other) {
			t.Fatalf("found %+v", found)
		}
	})
}
