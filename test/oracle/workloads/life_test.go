package workloads_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// broken is the image whose pods never become available.
const broken = 3

// TestDeploymentsLiveAsUpstream plays the life of a Deployment twice, once with each controller: a user
// changes it, the controller runs until it wants nothing more, then some pods start or end, and so on.
// Whenever both are at rest, all objects must be the same, to the second, and so must all Events.
func TestDeploymentsLiveAsUpstream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		d := arbitraryDeployment(r)
		d.Annotations, d.Status, d.Generation = map[string]string{"note": "kept"}, appsv1.DeploymentStatus{}, 1
		d.DeletionTimestamp, d.Finalizers, d.Spec.Paused = nil, nil, false
		l := &life{t: t, r: r, now: objects.Now, theirs: []runtime.Object{d}, ours: []runtime.Object{d}}
		for range rapid.IntRange(1, 4).Draw(r, "chapters") {
			l.settle()
			for range rapid.IntRange(1, 12).Draw(r, "rounds") {
				if !l.pods() {
					break
				}
				l.settle()
			}
			l.change(edit(r))
		}
		l.settle()
		for l.pods() {
			l.settle()
		}
		l.now = l.now.Add(time.Hour) // beyond every deadline
		l.settle()
	})
}

// life is one Deployment with both controllers.
type life struct {
	t            *testing.T
	r            *rapid.T
	now          time.Time
	theirs, ours []runtime.Object
	story        []string
}

// settle runs both until they are at rest, and compares.
func (l *life) settle() {
	l.r.Helper()
	var told, tells []effect.Effect
	l.theirs, told = l.rest("upstream", l.theirs, true)
	l.ours, tells = l.rest("ours", l.ours, false)
	diff := effect.Diff(effect.Normal(told), effect.Normal(tells))
	if theirs, ours := l.picture(l.theirs), l.picture(l.ours); theirs != ours {
		diff += oracletest.Unlike(theirs, ours)
	}
	if diff != "" {
		l.r.Fatalf("upstream (-) and we (+) come to different ends after:\n%s\n%s", strings.Join(l.story, "\n"), diff)
	}
}

// rest runs one controller until it wants nothing more. It returns the world and the Events.
func (l *life) rest(who string, world []runtime.Object, upstream bool) ([]runtime.Object, []effect.Effect) {
	const most = 16
	var told []effect.Effect
	for range most {
		var effects []effect.Effect
		var err error
		if upstream {
			effects, err = workloads.Deployment.AskTheirs(l.t, deploymentKey, world, l.now)
		} else {
			effects, err = workloads.Deployment.AskOurs(deploymentKey, world, l.now)
		}
		if err != nil {
			l.r.Fatal(err)
		}
		if len(effects) == 0 {
			return world, told
		}
		before := slices.Clone(told)
		for _, e := range effects {
			line := fmt.Sprintf("%s %s: %s %s %s", l.now.Format(time.TimeOnly), who, e.Verb, e.Resource, e.Name)
			if e.Resource == "events" {
				// Upstream repeats the Event when it syncs again because a write was refused, which its own
				// report before can cause: equal Events are one with a count.
				if !upstream || !slices.Contains(before, e) {
					told = append(told, e)
				} else {
					exemption.Uses("event-again")
				}
				line += " " + e.Body
			}
			l.story = append(l.story, line)
		}
		if world, err = objects.After(world, effects, l.now); err != nil {
			l.r.Fatal(err)
		}
	}
	l.r.Fatalf("%s still acts after %d turns:\n%s", who, most, strings.Join(l.story, "\n"))
	return nil, nil
}

// pods lets some time pass, in which sets get closer to their spec. It returns false if no set can get
// closer.
func (l *life) pods() bool {
	l.now = l.now.Add(10 * time.Second)
	theirs := advance(l.theirs)
	return advance(l.ours) || theirs
}

func advance(world []runtime.Object) (changed bool) {
	for i, obj := range world {
		rs, ok := obj.(*appsv1.ReplicaSet)
		if !ok {
			continue
		}
		next := rs.DeepCopy()
		s := &next.Status
		s.Replicas, s.FullyLabeledReplicas, s.TerminatingReplicas = *rs.Spec.Replicas, *rs.Spec.Replicas, oracletest.Ptr(int32(0))
		s.ObservedGeneration = rs.Generation
		if image(&rs.Spec.Template) != fmt.Sprintf("web:v%d", broken) {
			s.AvailableReplicas += 2
		}
		s.AvailableReplicas = min(s.AvailableReplicas, s.Replicas)
		s.ReadyReplicas = s.AvailableReplicas
		if !equality.Semantic.DeepEqual(rs, next) {
			version, _ := strconv.Atoi(rs.ResourceVersion)
			next.ResourceVersion = strconv.Itoa(version + 1)
			world[i], changed = next, true
		}
	}
	return changed
}

// change applies a user's change to the Deployment in both worlds.
func (l *life) change(what string, edit func(*appsv1.Deployment)) {
	l.story = append(l.story, "the user "+what)
	for _, world := range [][]runtime.Object{l.theirs, l.ours} {
		at := slices.IndexFunc(world, func(o runtime.Object) bool { _, ok := o.(*appsv1.Deployment); return ok })
		was := world[at].(*appsv1.Deployment)
		next := was.DeepCopy()
		edit(next)
		if !equality.Semantic.DeepEqual(was.Spec, next.Spec) {
			next.Generation++
		}
		if next.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && !hasFresh(world, next) {
			// If a rollback needs a set that does not exist, upstream creates it with all its replicas beside
			// the old sets; ours waits until those have ended.
			exemption.Uses("rollback-and-recreate")
			delete(next.Annotations, appsv1.DeprecatedRollbackTo)
		}
		world[at] = next
	}
}

// hasFresh reports whether a set of the Deployment's template exists.
func hasFresh(world []runtime.Object, d *appsv1.Deployment) bool {
	return slices.ContainsFunc(world, func(o runtime.Object) bool {
		rs, ok := o.(*appsv1.ReplicaSet)
		return ok && image(&rs.Spec.Template) == image(&d.Spec.Template)
	})
}

func edit(r *rapid.T) (what string, change func(*appsv1.Deployment)) {
	n := rapid.IntRange(0, 6).Draw(r, "number")
	switch rapid.SampledFrom([]string{"image", "image", "size", "size", "pause", "back", "surge", "note", "ready", "history"}).Draw(r, "edit") {
	case "image":
		return fmt.Sprintf("sets the image %d", n%5+1), func(d *appsv1.Deployment) { d.Spec.Template.Spec = oracletest.Template(n%5 + 1).Spec }
	case "size":
		return fmt.Sprintf("scales to %d", n*2), func(d *appsv1.Deployment) { d.Spec.Replicas = oracletest.Ptr(int32(n * 2)) }
	case "pause":
		return "pauses or resumes", func(d *appsv1.Deployment) { d.Spec.Paused = !d.Spec.Paused }
	case "back":
		return fmt.Sprintf("rolls back to %d", n), func(d *appsv1.Deployment) {
			d.Annotations[appsv1.DeprecatedRollbackTo] = strconv.Itoa(n)
		}
	case "surge":
		return fmt.Sprintf("allows %d more", n), func(d *appsv1.Deployment) {
			if d.Spec.Strategy.RollingUpdate != nil {
				d.Spec.Strategy.RollingUpdate.MaxSurge = oracletest.Ptr(intstr.FromInt32(int32(n)))
			}
		}
	case "note":
		return fmt.Sprintf("notes %d", n), func(d *appsv1.Deployment) { d.Annotations["note"] = strconv.Itoa(n) }
	case "ready":
		return fmt.Sprintf("wants pods to be ready for %d s", n), func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = int32(n) }
	default:
		return fmt.Sprintf("keeps %d old sets", n), func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = oracletest.Ptr(int32(n)) }
	}
}

// picture is a world without the fields that count writes.
func (l *life) picture(world []runtime.Object) string {
	world = slices.Clone(world)
	var parts []string
	for _, obj := range world {
		obj = obj.DeepCopyObject()
		switch obj := obj.(type) {
		case *appsv1.Deployment:
			obj.ResourceVersion = ""
		case *appsv1.ReplicaSet:
			obj.ResourceVersion, obj.Generation, obj.Status.ObservedGeneration = "", 0, 0
		}
		text, err := json.MarshalIndent(obj, "", " ") // YAML takes a quarter of the time of a life
		if err != nil {
			l.r.Fatal(err)
		}
		parts = append(parts, string(text))
	}
	slices.Sort(parts)
	return strings.Join(parts, "---\n")
}
