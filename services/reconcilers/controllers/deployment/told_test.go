package deployment

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// limited returns a Deployment with four replicas, a progress deadline, and this
// condition Progressing from the last rollout.
func limited(reason, message string) *appsv1.Deployment {
	d := rolling(4, "25%", "25%")
	seconds, began := int32(600), metav1.NewTime(reconciletest.Now.Add(-time.Minute))
	d.Spec.ProgressDeadlineSeconds = &seconds
	d.Annotations = map[string]string{revisionNote: "1"}
	if reason != "" {
		d.Status.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: began, LastTransitionTime: began,
		}}
	}
	return d
}

func noted(s *appsv1.ReplicaSet, revision string) *appsv1.ReplicaSet {
	s.Annotations = map[string]string{revisionNote: revision, desiredNote: "4", mostNote: "5"}
	return s
}

// Upstream: checkPausedConditions and getNewReplicaSet.
func TestWhatIsSaidAtTheBeginOfARollout(t *testing.T) {
	const created = `Created new replica set "web-b"`
	for what, c := range map[string]struct {
		reason, message string
		begun           string // the set that is being created
		there           bool   // or the set exists, with revision 2
		edit            func(d *appsv1.Deployment, fresh *appsv1.ReplicaSet)
		want            string
		again           bool // the condition has a new time
	}{
		"it is paused":                        {reasonComplete, "", "", true, paused, reasonPaused, true},
		"it was paused before":                {reasonPaused, "", "", true, paused, reasonPaused, false},
		"it is paused too late":               {reasonTimedOut, "", "", true, known(paused), reasonTimedOut, false},
		"it is paused, and goes":              {reasonComplete, "", "", true, known(both(paused, goes)), reasonComplete, false},
		"it is resumed":                       {reasonPaused, "", "", true, nil, reasonResumed, true},
		"it is resumed with a new set":        {reasonPaused, "", "web-b", false, nil, reasonResumed, true},
		"a set is made":                       {reasonComplete, "", "web-b", false, nil, reasonCreated, true},
		"a set is made, which was told":       {reasonCreated, created, "web-b", false, nil, reasonCreated, false},
		"a set is made under another name":    {reasonCreated, `Created new replica set "web-c"`, "web-b", false, nil, reasonCreated, true},
		"none is there, and none is made":     {reasonCreateError, "", "", false, nil, reasonCreateError, false},
		"one could not be made, and is there": {reasonCreateError, "", "", true, known(nil), reasonCreated, true},
		"one was made, and that was not told": {reasonComplete, `ReplicaSet "web-a" has successfully progressed.`, "", true, nil, reasonCreated, true},
		"it was told":                         {reasonComplete, `ReplicaSet "web-b" has successfully progressed.`, "", true, nil, reasonComplete, false},
		"it is of the revision that is known": {reasonComplete, "", "", true, known(nil), reasonComplete, false},
		"it has been one before":              {reasonComplete, "", "", true, reused, reasonComplete, false},
		"it was resumed before":               {reasonResumed, "", "", true, nil, reasonResumed, false},
		"nothing is known, and one is there":  {"", "", "", true, nil, reasonFound, true},
		"there is no deadline":                {"", "", "", true, endless, "", false},
		"there is none that is ever reached":  {"", "", "", true, never, "", false},
	} {
		d := limited(c.reason, c.message)
		sets := []*appsv1.ReplicaSet{noted(aSet(d, "web-a", "old:1", 2, 4, 4), "1")}
		fresh := noted(aSet(d, "web-b", imageOf(d), 1, 4, 4), "2")
		if c.there {
			sets = append(sets, fresh)
		}
		if c.edit != nil {
			c.edit(d, fresh)
		}
		r := newRollout(View{Deployment: d}, sets, reconciletest.Now)
		r.begun = c.begun
		got, _ := find(r.beginnings(), appsv1.DeploymentProgressing)
		if again := got.LastUpdateTime.Time.Equal(reconciletest.Now); got.Reason != c.want || again != c.again {
			t.Errorf("%s: the condition has the reason %q, updated: %v; want %q, %v", what, got.Reason, again, c.want, c.again)
		}
	}
}

type edit = func(d *appsv1.Deployment, fresh *appsv1.ReplicaSet)

func paused(d *appsv1.Deployment, _ *appsv1.ReplicaSet) { d.Spec.Paused = true }

func goes(d *appsv1.Deployment, _ *appsv1.ReplicaSet) {
	d.DeletionTimestamp = &metav1.Time{Time: reconciletest.Now}
}

func reused(_ *appsv1.Deployment, fresh *appsv1.ReplicaSet) { fresh.Annotations[historyNote] = "1" }

func endless(d *appsv1.Deployment, _ *appsv1.ReplicaSet) { d.Spec.ProgressDeadlineSeconds = nil }

func never(d *appsv1.Deployment, _ *appsv1.ReplicaSet) { *d.Spec.ProgressDeadlineSeconds = 1<<31 - 1 }

// known makes the Deployment carry the revision of the new set.
func known(also edit) edit {
	return both(also, func(d *appsv1.Deployment, _ *appsv1.ReplicaSet) { d.Annotations[revisionNote] = "2" })
}

func both(edits ...edit) edit {
	return func(d *appsv1.Deployment, fresh *appsv1.ReplicaSet) {
		for _, e := range edits {
			if e != nil {
				e(d, fresh)
			}
		}
	}
}

// said returns the condition Progressing that a turn writes, empty if it writes none.
func said(d *appsv1.Deployment, commands []events.Command) string {
	for _, c := range commands {
		var next appsv1.Deployment
		if c.Kind != kinds.Deployments.Name {
			continue
		}
		if read(c.Body, &next); next.Status.CollisionCount != nil && d.Status.CollisionCount == nil {
			return "another has its name"
		}
		got, _ := find(next.Status.Conditions, appsv1.DeploymentProgressing)
		return got.Reason
	}
	return ""
}

// A failed create of a set is retried and reported, except in a terminating namespace and
// if the set has another name.
func TestASetThatCouldNotBeMade(t *testing.T) {
	d := limited("", "")
	name := newRollout(View{Deployment: d}, nil, reconciletest.Now).infant().Name
	of := events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: d.Namespace, Name: name}
	other := func(change func(*events.Ref)) events.Ref {
		ref := of
		change(&ref)
		return ref
	}
	for what, c := range map[string]struct {
		failure events.Result
		makes   bool
		want    string
	}{
		"over a quota":             {events.Result{Ref: of, Status: events.Refused, Code: 403, Reason: "Forbidden"}, true, reasonCreateError},
		"as the server was down":   {events.Result{Ref: of, Status: events.Failed}, true, reasonCreateError},
		"as the turn was late":     {events.Result{Ref: of, Status: events.Refused}, true, reasonCreated},
		"in a namespace that goes": {events.Result{Ref: of, Status: events.Refused, Code: 403, Cause: "NamespaceTerminating"}, true, ""},
		"as another has its name":  {events.Result{Ref: of, Status: events.Conflict, Code: 409, Reason: "AlreadyExists"}, false, "another has its name"},
		"for another conflict":     {events.Result{Ref: of, Status: events.Conflict, Code: 409, Reason: "Conflict"}, true, reasonCreateError},
		"as it is there":           {events.Result{Ref: of, Status: events.Unchanged, Code: 409, Reason: "AlreadyExists"}, true, reasonCreateError},
		"of another name":          {events.Result{Ref: other(func(r *events.Ref) { r.Name = "web-x" }), Status: events.Failed}, true, reasonCreated},
		"in another namespace":     {events.Result{Ref: other(func(r *events.Ref) { r.Namespace = "x" }), Status: events.Failed}, true, reasonCreated},
		"of another kind":          {events.Result{Ref: other(func(r *events.Ref) { r.Kind = kinds.Pods.Name }), Status: events.Failed}, true, reasonCreated},
	} {
		commands := decide(View{Deployment: d, Failure: &c.failure}, reconciletest.Now).Commands
		makes := slices.ContainsFunc(commands, func(c events.Command) bool { return c.Verb == events.VerbCreate && c.Name == name })
		if got := said(d, commands); makes != c.makes || got != c.want {
			t.Errorf("one that could not be made %s: it is made again: %v, and %q is said; want %v, %q", what, makes, got, c.makes, c.want)
		}
	}
	failure := events.Result{Ref: of, Status: events.Failed, Message: "no"}
	for reason, want := range map[string]string{reasonCreateError: "", reasonComplete: reasonCreateError} {
		d := limited(reason, "")
		d.Status.Conditions[0].Status = corev1.ConditionFalse
		if got := said(d, decide(View{Deployment: d, Failure: &failure}, reconciletest.Now).Commands); got != want {
			t.Errorf("after %s a failure is told as %q, want %q", reason, got, want)
		}
	}
	if d := limited(reasonCreateError, ""); said(d, decide(View{Deployment: d, Failure: &failure}, reconciletest.Now).Commands) != reasonCreateError {
		t.Error("an error that was said not to be one is not told")
	}
	d.Spec.ProgressDeadlineSeconds = nil
	if got := said(d, decide(View{Deployment: d, Failure: &failure}, reconciletest.Now).Commands); got != "" {
		t.Errorf("without a deadline %q is said of a rollout", got)
	}
}

// A ReplicaFailure of the new set is reported before those of others.
//
// Upstream: getReplicaFailures.
func TestWhatSetsFailToDo(t *testing.T) {
	at := metav1.NewTime(reconciletest.Now.Add(-time.Hour))
	fails := func(s *appsv1.ReplicaSet, reason string) *appsv1.ReplicaSet {
		s.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Other", Reason: "Other"}}
		if reason != "" {
			s.Status.Conditions = append(s.Status.Conditions, appsv1.ReplicaSetCondition{
				Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: at,
			})
		}
		return s
	}
	for what, c := range map[string]struct {
		had, status, old, fresh string
		want                    string
		since                   bool // the time does not change
	}{
		"none does":                 {"", "", "", "", "", false},
		"none does any more":        {"FailedCreate", "True", "", "", "", false},
		"the new one":               {"", "", "", "FailedCreate", "FailedCreate", false},
		"an old one":                {"", "", "FailedDelete", "", "FailedDelete", false},
		"both":                      {"", "", "FailedDelete", "FailedCreate", "FailedCreate", false},
		"it has been told":          {"FailedCreate", "True", "", "FailedCreate", "FailedCreate", true},
		"another reason":            {"FailedDelete", "True", "", "FailedCreate", "FailedCreate", true},
		"it was said to be no more": {"FailedCreate", "False", "", "FailedCreate", "FailedCreate", false},
	} {
		d := limited(reasonComplete, "")
		have, before := d.Status.Conditions, metav1.NewTime(reconciletest.Now.Add(-2*time.Hour))
		if c.had != "" {
			have = append(have, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionStatus(c.status), Reason: c.had, LastTransitionTime: before,
			})
		}
		sets := []*appsv1.ReplicaSet{fails(aSet(d, "web-a", "old:1", 2, 4, 4), c.old), fails(aSet(d, "web-b", imageOf(d), 1, 4, 4), c.fresh)}
		told := newRollout(View{Deployment: d}, sets, reconciletest.Now).failures(have)
		got, _ := find(told, appsv1.DeploymentReplicaFailure)
		if since := got.LastTransitionTime.Equal(&before); got.Reason != c.want || since != c.since || len(told) > 2 {
			t.Errorf("%s: %+v is said, want %q", what, told, c.want)
		}
	}
}

// Revisions are decimal numbers, and the new one is one more than the highest.
func TestRevisionsCountOn(t *testing.T) {
	for last, want := range map[string]string{"": "1", "1": "2", "10": "11", "19": "20", "odd": "1"} {
		d := limited("", "")
		old := noted(aSet(d, "web-a", "old:1", 2, 4, 4), last)
		if last == "" {
			delete(old.Annotations, revisionNote)
		}
		r := newRollout(View{Deployment: d}, []*appsv1.ReplicaSet{old}, reconciletest.Now)
		if got := r.infant().Annotations[revisionNote]; got != want {
			t.Errorf("after the revision %q a new set has %q, want %q", last, got, want)
		}
		fresh := noted(aSet(d, "web-b", imageOf(d), 1, 4, 4), "0")
		r = newRollout(View{Deployment: d}, []*appsv1.ReplicaSet{old, fresh}, reconciletest.Now)
		if r.record(); r.fresh.notes[revisionNote] != want || r.fresh.notes[historyNote] != "0" {
			t.Errorf("after the revision %q the set that comes back notes %v, want %q", last, r.fresh.notes, want)
		}
		fresh.Annotations[revisionNote] = "odd"
		r = newRollout(View{Deployment: d}, []*appsv1.ReplicaSet{old, fresh}, reconciletest.Now)
		if r.record(); r.fresh.notes[revisionNote] != "odd" {
			t.Errorf("a revision that is no number becomes %q", r.fresh.notes[revisionNote])
		}
	}
}

// Requests for a rollback and their results.
//
// Upstream: rollback.
func TestRollbacks(t *testing.T) {
	for to, want := range map[string]struct{ reason, image, note string }{
		"0": {"DeploymentRollback", "old:2", "second"},
		"1": {"DeploymentRollback", "old:1", "first"},
		"3": {"DeploymentRollbackTemplateUnchanged", "nginx:1", "now"},
		"7": {"DeploymentRollbackRevisionNotFound", "nginx:1", "now"},
	} {
		d := limited("", "")
		d.Annotations = map[string]string{appsv1.DeprecatedRollbackTo: to, "note": "now", revisionNote: "1"}
		first, second, third := noted(aSet(d, "web-c", "old:1", 2, 0, 0), "1"), noted(aSet(d, "web-b", "old:2", 3, 0, 0), "2"), noted(aSet(d, "web-a", imageOf(d), 1, 4, 4), "3")
		first.Annotations["note"], second.Annotations["note"], third.Annotations["note"] = "first", "second", "now"
		commands := decide(View{Deployment: d, Sets: []*appsv1.ReplicaSet{third, first, second}}, reconciletest.Now).Commands
		at := slices.IndexFunc(commands, func(c events.Command) bool { return c.Kind == kinds.Deployments.Name })
		var next appsv1.Deployment
		read(commands[at].Body, &next)
		_, asks := next.Annotations[appsv1.DeprecatedRollbackTo]
		if c := commands[at]; c.OnApplied.Reason != want.reason || imageOf(&next) != want.image || next.Annotations["note"] != want.note || next.Annotations[revisionNote] != "3" || asks {
			t.Errorf("to %s: %s, and it is to be of %s with %v; want %+v", to, c.OnApplied.Reason, imageOf(&next), next.Annotations, want)
		}
	}
}

// A paused Deployment scales and updates annotations, and deletes no set to which it must roll back.
func TestAPausedDeployment(t *testing.T) {
	for _, back := range []bool{false, true} {
		d := limited(reasonPaused, "")
		d.Spec.Paused, d.Spec.RevisionHistoryLimit, d.Annotations["note"] = true, new(int32), "now"
		if back {
			d.Annotations[appsv1.DeprecatedRollbackTo] = "1"
		}
		old, fresh := noted(aSet(d, "web-a", "old:1", 2, 0, 0), "1"), noted(aSet(d, "web-b", imageOf(d), 1, 4, 4), "2")
		var deletes, notes int
		for _, c := range decide(View{Deployment: d, Sets: []*appsv1.ReplicaSet{old, fresh}}, reconciletest.Now).Commands {
			if c.Verb == events.VerbDelete {
				deletes++
			} else if c.Kind == kinds.ReplicaSets.Name && strings.Contains(string(c.Body), `"note":"now"`) {
				notes++
			}
		}
		if (deletes == 0) != back || notes != 1 {
			t.Errorf("it is to go back: %v; %d sets are forgotten, and %d are noted on", back, deletes, notes)
		}
	}
}

// Under Recreate the new set waits for the pods of the old ones.
func TestTargetsOfOtherStrategies(t *testing.T) {
	for _, c := range []struct{ has, old, want int32 }{{0, 3, 0}, {2, 3, 2}, {0, 0, 4}, {2, 0, 4}, {9, 3, 4}} {
		d := rolling(4, "25%", "25%")
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		r := &rollout{deployment: d, old: []*set{sized(0, c.old, 0)}}
		if got := r.target(c.has); got != c.want {
			t.Errorf("beside %d old ones a set of %d is to have %d, want %d", c.old, c.has, got, c.want)
		}
	}
}

// A Deployment that selects everything reports that once for each generation.
func TestSelectingEverythingIsToldOnce(t *testing.T) {
	for observed, want := range map[int64]int{0: 1, 1: 0, 2: 0} {
		d := rolling(4, "25%", "25%")
		d.Spec.Selector, d.Status.ObservedGeneration = &metav1.LabelSelector{}, observed
		if got := len(decide(View{Deployment: d}, reconciletest.Now).Commands); got != want {
			t.Errorf("its first generation is told of, and %d was seen: %d things are done, want %d", observed, got, want)
		}
	}
	d := rolling(4, "25%", "25%")
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "no label"}}
	if decision := decide(View{Deployment: d}, reconciletest.Now); len(decision.Commands) > 0 {
		t.Errorf("with a selector that is none it wants %+v", decision.Commands)
	}
}

// The pod of an earlier set with the name of a present one asks for no turn.
func TestAPodOfASetOfBefore(t *testing.T) {
	d := rolling(3, "25%", "25%")
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	set := reconciletest.ReplicaSet("web-a", 1, ownSet(kinds.Deployments.Kind, d))
	before := set.DeepCopy()
	before.UID = "before"
	w := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.Deployments.Kind, d).Put(kinds.ReplicaSets.Kind, set)
	if got := w.Keys(Controller, kinds.Pods.Kind, reconciletest.Pod("p", ownPod(kinds.ReplicaSets.Kind, before)), nil); got != nil {
		t.Errorf("the change asks for turns of %v", got)
	}
}

// The view of a Deployment with an invalid selector has the sets that it controls.
func TestWhatIsSeenWithoutASelector(t *testing.T) {
	d := rolling(3, "25%", "25%")
	d.Spec.Selector = nil
	w := reconciletest.NewWorld().Put(kinds.Deployments.Kind, d).
		Put(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web-a", 1, ownSet(kinds.Deployments.Kind, d)), reconciletest.ReplicaSet("web-b", 1))
	if v, ok := observe(w, web); !ok || len(v.Sets) != 1 || v.Sets[0].Name != "web-a" {
		t.Errorf("observe finds the Deployment: %v, with %d sets; want web-a", ok, len(v.Sets))
	}
}
