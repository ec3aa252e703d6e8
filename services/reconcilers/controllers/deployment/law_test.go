package deployment

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), reconciletest.Now,
		reconciletest.Indifferent(shuffled),
		reconciletest.Content(40, atOnce),
		reconciletest.Law[View]{Name: "one command for each object and lane", Holds: singleMinded},
		reconciletest.Law[View]{Name: "bounded above", Holds: bounded},
		reconciletest.Law[View]{Name: "bounded below", Holds: availableEnough},
		reconciletest.Law[View]{Name: "careful with history", Holds: careful},
	)
}

// anyView returns a Deployment in any state, with sets in any state.
func anyView(t *rapid.T) View {
	d := anyDeployment(t)
	v := View{Deployment: d}
	for i := range rapid.IntRange(0, 4).Draw(t, "sets") {
		v.Sets = append(v.Sets, anySet(t, d, i))
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		v.Running = map[types.UID]int{}
		for _, s := range v.Sets {
			if n := rapid.IntRange(0, 2).Draw(t, "running"); n > 0 {
				v.Running[s.UID] = n
			}
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "failed") == 5 {
		v.Failure = anyFailure(t, d)
	}
	return v
}

func anyDeployment(t *rapid.T) *appsv1.Deployment {
	amount := rapid.SampledFrom([]string{"0", "1", "3", "25%", "50%", "100%"})
	d := rolling(count(t, 9, "replicas"), amount.Draw(t, "surge"), amount.Draw(t, "unavailable"))
	if rapid.IntRange(0, 3).Draw(t, "recreate") == 3 {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	d.Generation, d.Status.ObservedGeneration = 4, int64(rapid.IntRange(3, 4).Draw(t, "observed"))
	d.Spec.Template.Spec.Containers[0].Image = image(rapid.IntRange(0, 2).Draw(t, "image"))
	d.Spec.Paused = rapid.IntRange(0, 5).Draw(t, "paused") == 5
	d.Spec.MinReadySeconds = count(t, 1, "min ready seconds")
	d.Spec.RevisionHistoryLimit = maybe(t, 3, "history limit")
	d.Spec.ProgressDeadlineSeconds = maybe(t, 600, "deadline")
	if d.Spec.ProgressDeadlineSeconds != nil {
		*d.Spec.ProgressDeadlineSeconds++
	}
	d.Status.Replicas, d.Status.UpdatedReplicas = count(t, 9, "replicas there"), count(t, 9, "updated")
	d.Status.ReadyReplicas, d.Status.AvailableReplicas = count(t, 9, "ready"), count(t, 9, "available")
	d.Status.CollisionCount = maybe(t, 2, "collisions")
	d.Status.Conditions = anyConditions(t)
	d.Annotations = map[string]string{"note": "kept"}
	if to := rapid.SampledFrom([]string{"", "", "", "", "", "0", "1", "9", "x"}).Draw(t, "back to"); to != "" {
		d.Annotations[appsv1.DeprecatedRollbackTo] = to
	}
	if rapid.IntRange(0, 11).Draw(t, "leaving") == 11 {
		d.DeletionTimestamp = new(ago(t, "left"))
	}
	return d
}

func anyConditions(t *rapid.T) []appsv1.DeploymentCondition {
	reason := rapid.SampledFrom([]string{"", reasonCreateError, reasonCreated, reasonFound, reasonUpdated,
		reasonComplete, reasonTimedOut, reasonPaused, reasonResumed}).Draw(t, "progressing")
	if reason == "" {
		return nil
	}
	status := corev1.ConditionTrue
	switch reason {
	case reasonCreateError, reasonTimedOut:
		status = corev1.ConditionFalse
	case reasonPaused, reasonResumed:
		status = corev1.ConditionUnknown
	}
	return []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason,
		LastUpdateTime: ago(t, "updated"), LastTransitionTime: ago(t, "changed")}}
}

func anySet(t *rapid.T, d *appsv1.Deployment, i int) *appsv1.ReplicaSet {
	size := count(t, 7, "size")
	s := reconciletest.ReplicaSet("web-"+strconv.Itoa(i), size)
	s.CreationTimestamp = ago(t, "created")
	s.Spec.Template.Spec.Containers[0].Image = image(i)
	s.Spec.MinReadySeconds = d.Spec.MinReadySeconds
	s.Status.AvailableReplicas = min(count(t, 7, "available"), size)
	s.Status.Replicas, s.Status.ObservedGeneration = count(t, 7, "there"), 1
	s.Annotations = map[string]string{}
	if revision := rapid.SampledFrom([]string{"", "1", "2", "3", "odd"}).Draw(t, "revision"); revision != "" {
		s.Annotations[revisionNote] = revision
	}
	if desired := wanted(d); rapid.IntRange(0, 3).Draw(t, "notes") > 0 {
		if rapid.IntRange(0, 3).Draw(t, "rescaled") == 3 {
			desired = count(t, 9, "desired")
		}
		s.Annotations[desiredNote] = strconv.Itoa(int(desired))
		s.Annotations[mostNote] = strconv.Itoa(int(desired + count(t, 3, "surge then")))
	}
	switch rapid.IntRange(0, 11).Draw(t, "ownership") {
	case 0: // an orphan
	case 1:
		reconciletest.OwnedBy[*appsv1.ReplicaSet](kinds.Deployments.Kind, d)(s)
		s.Labels = map[string]string{"app": "other"}
	default:
		reconciletest.OwnedBy[*appsv1.ReplicaSet](kinds.Deployments.Kind, d)(s)
	}
	return s
}

func anyFailure(t *rapid.T, d *appsv1.Deployment) *events.Result {
	failure := rapid.SampledFrom([]events.Result{
		{Status: events.Conflict, Code: 409, Reason: string(metav1.StatusReasonAlreadyExists), Message: "taken"},
		{Status: events.Refused, Code: 403, Reason: "Forbidden", Message: "exceeded quota"},
		{Status: events.Refused, Code: 403, Reason: "Forbidden", Cause: string(corev1.NamespaceTerminatingCause)},
		{Status: events.Refused, Reason: "Stale"},
	}).Draw(t, "failure")
	failure.Ref = events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: d.Namespace,
		Name: nameOf(d, template.Hash(&d.Spec.Template, d.Status.CollisionCount))}
	return &failure
}

func count(t *rapid.T, most int32, what string) int32 { return rapid.Int32Range(0, most).Draw(t, what) }

func maybe(t *rapid.T, most int32, what string) *int32 {
	if rapid.IntRange(0, 2).Draw(t, "no "+what) == 0 {
		return nil
	}
	return new(count(t, most, what))
}

func image(i int) string { return "web:v" + strconv.Itoa(i) }

func ago(t *rapid.T, what string) metav1.Time {
	return metav1.NewTime(reconciletest.Now.Add(-time.Duration(rapid.IntRange(1, 900).Draw(t, what)) * time.Second))
}

func shuffled(t *rapid.T, v View) View {
	v.Sets = rapid.Permutation(slices.Clone(v.Sets)).Draw(t, "order")
	return v
}

func singleMinded(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	seen := map[string]bool{}
	for _, command := range c.Decide(v, now).Commands {
		if ref := command.Ref().String(); seen[ref] {
			return fmt.Errorf("two commands on %s", ref)
		} else {
			seen[ref] = true
		}
	}
	return nil
}

// bounded checks that no step makes the sets ask for more replicas than allowed or, if
// they did before, for more than before.
func bounded(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	total := func(v View) (n int32) {
		for _, s := range v.Sets {
			if metav1.IsControlledBy(s, v.Deployment) {
				n += sizeOf(s)
			}
		}
		return n
	}
	d := c.Decide(v, now)
	for _, command := range d.Commands {
		if command.Verb == events.VerbPatch {
			return nil // adopted sets keep their size
		}
	}
	before, after := total(v), total(carryOut(v, d, now))
	if limit := max(most(v.Deployment), before); after > limit {
		return fmt.Errorf("the sets asked for %d and now ask for %d, with %d allowed: %s", before, after, limit, d.Because)
	}
	return nil
}

// availableEnough checks that a rolling update removes no pod that is needed, even if no
// new pod becomes available.
func availableEnough(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	kept := func(v View) (n int32) {
		for _, s := range v.Sets {
			if metav1.IsControlledBy(s, v.Deployment) {
				n += min(sizeOf(s), s.Status.AvailableReplicas)
			}
		}
		return n
	}
	if d := v.Deployment; !rolls(d) || d.Spec.Paused || newRollout(v, v.Sets, now).rescaled() {
		return nil // not a step of a rolling update
	}
	d := c.Decide(v, now)
	for _, command := range d.Commands {
		if command.Verb == events.VerbPatch {
			return nil
		}
	}
	before, after := kept(v), kept(carryOut(v, d, now))
	if limit := min(least(v.Deployment), before); after < limit {
		return fmt.Errorf("%d pods were available and %d are left, with %d needed", before, after, limit)
	}
	return nil
}

// careful checks that only sets without replicas are deleted, and never the new one.
func careful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbDelete {
			continue
		}
		at := slices.IndexFunc(v.Sets, func(s *appsv1.ReplicaSet) bool { return s.UID == command.If.UID })
		if s := v.Sets[at]; sizeOf(s) != 0 || s.Status.Replicas != 0 || sameTemplate(&s.Spec.Template, &v.Deployment.Spec.Template) {
			return fmt.Errorf("%s goes, with %d replicas", s.Name, s.Status.Replicas)
		}
	}
	return nil
}

// TestRolloutsEnd rolls out random Deployments, repeatedly with new templates and sizes,
// while pods become ready at a random pace.
func TestRolloutsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.SampledFrom([]string{"0", "1", "3", "25%", "50%", "100%"})
		v := View{Deployment: rolling(count(t, 12, "replicas"), amount.Draw(t, "surge"), amount.Draw(t, "unavailable"))}
		if rapid.IntRange(0, 3).Draw(t, "recreate") == 3 {
			v.Deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		}
		v.Deployment.Spec.RevisionHistoryLimit, v.Deployment.Spec.ProgressDeadlineSeconds = new(int32(2)), new(int32(600))
		now := reconciletest.Now
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			for range rapid.IntRange(0, 6).Draw(t, "steps before the next change") {
				v, now = step(t, v, now)
			}
			d := v.Deployment.DeepCopy()
			d.Generation++
			d.ResourceVersion = later(d)
			d.Spec.Template.Spec.Containers[0].Image = image(rapid.IntRange(0, 3).Draw(t, "image"))
			d.Spec.Replicas = new(count(t, 12, "replicas"))
			v.Deployment = d
		}
		for range 400 {
			if ended(v, now) {
				return
			}
			v, now = step(t, v, now)
		}
		t.Fatalf("the rollout does not end: %+v", v.Deployment.Status)
	})
}

func step(t *rapid.T, v View, now time.Time) (View, time.Time) {
	d := Controller.Decide(v, now)
	quick := rapid.Int32Range(0, 4).Draw(t, "pods that get ready")
	return live(carryOut(v, d, now), quick), now.Add(time.Second)
}

// ended returns whether the controller has nothing left to do; then everything must be right.
func ended(v View, now time.Time) bool {
	d := Controller.Decide(v, now)
	if len(d.Commands) > 0 || !complete(v.Deployment, v.Deployment.Status) {
		return false
	}
	r := newRollout(v, v.Sets, now)
	progressing, _ := find(v.Deployment.Status.Conditions, appsv1.DeploymentProgressing)
	return d.WakeAt.IsZero() && r.fresh != nil && r.fresh.size == wanted(v.Deployment) && len(active(r.old)) == 0 &&
		progressing.Reason == reasonComplete && len(r.old) <= 2 &&
		v.Deployment.Annotations[revisionNote] == r.fresh.notes[revisionNote]
}

// TestRollingUpdateTrace checks the sequence of upstream's controller with ten replicas,
// maxSurge and maxUnavailable of 25%, while pods become ready.
func TestRollingUpdateTrace(t *testing.T) {
	v := View{Deployment: rolling(10, "25%", "25%")}
	v = atOnce(v, Controller.Decide(v, reconciletest.Now), reconciletest.Now)
	old := v.Sets[0].UID
	v.Deployment.Spec.Template.Spec.Containers[0].Image = "nginx:2"
	var trace []string
	for _, ready := range []int32{0, 0, 0, 0, 3, 3, 5, 5, 8, 10, 10} { // available pods of the new set
		v = carryOut(v, Controller.Decide(v, reconciletest.Now), reconciletest.Now)
		sizes := map[bool]int32{}
		for _, s := range v.Sets {
			sizes[s.UID == old] = sizeOf(s)
			s.Status.Replicas, s.Status.AvailableReplicas = sizeOf(s), sizeOf(s)
			if s.UID != old {
				s.Status.AvailableReplicas = ready
			}
		}
		if text := fmt.Sprintf("%d/%d", sizes[false], sizes[true]); !slices.Contains(trace, text) {
			trace = append(trace, text)
		}
	}
	want := []string{"3/10", "3/8", "5/8", "5/5", "8/5", "8/3", "10/3", "10/0"}
	if !slices.Equal(trace, want) {
		t.Errorf("new/old = %v, want %v", trace, want)
	}
}
