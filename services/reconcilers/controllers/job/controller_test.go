package job

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var sum = events.Key{Namespace: "batch", Name: "sum"}

func strayKey(name string) events.Key {
	return events.Key{Kind: kinds.Pods.Name, Namespace: "batch", Name: name}
}

func ended(j *batchv1.Job) {
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
}

func orphaned(p *corev1.Pod) { p.OwnerReferences = nil }

func letGo(p *corev1.Pod) { p.Finalizers = nil }

func ofAnotherKind(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" }

func ofAnEarlierJob(p *corev1.Pod) { p.OwnerReferences[0].UID = "uid-earlier" }

func TestWhoseTurnAPodMakesIt(t *testing.T) {
	deleted := func(p *corev1.Pod) { reconciletest.Deleted[*corev1.Pod](now)(p) }
	running := func(edits ...func(*corev1.Pod)) *corev1.Pod { return aPod("p", corev1.PodRunning, edits...) }
	for _, c := range []struct {
		what     string
		job      *batchv1.Job
		was, now metav1.Object
		want     []events.Key
	}{
		{"a pod of a Job is new", aJob(), nil, running(), []events.Key{sum}},
		{"a pod of a Job is gone", aJob(), running(), nil, []events.Key{sum}},
		{"a pod of a finished Job", aJob(ended), nil, running(), []events.Key{sum, strayKey("p")}},
		{"one that has been let go", aJob(ended), nil, running(letGo), []events.Key{sum}},
		{"a pod whose Job is not there", nil, nil, running(), []events.Key{strayKey("p")}},
		{"a pod of an earlier Job of that name", aJob(), nil, running(ofAnEarlierJob), []events.Key{strayKey("p")}},
		{"a pod of another kind of owner", nil, nil, running(ofAnotherKind), nil},
		{"an orphan that is kept", aJob(), running(), running(orphaned), []events.Key{sum, strayKey("p")}},
		{"an orphan", aJob(), nil, running(orphaned, letGo), []events.Key{sum}},
		{"an orphan that is going", aJob(), nil, running(orphaned, letGo, deleted), nil},
		{"a stray is gone", nil, running(), nil, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			world := reconciletest.NewWorld(kinds.Pods.Kind, kinds.Jobs.Kind)
			if c.job != nil {
				world.Put(kinds.Jobs.Kind, c.job)
			}
			if got := world.Keys(Controller, kinds.Pods.Kind, c.was, c.now); !slices.Equal(got, c.want) {
				t.Errorf("keys %v, want %v", got, c.want)
			}
		})
	}
}

func TestWhoseTurnAJobMakesIt(t *testing.T) {
	another := aJob()
	another.UID = "uid-another"
	world := reconciletest.NewWorld().Put(kinds.Pods.Kind,
		aPod("kept", corev1.PodRunning), aPod("let-go", corev1.PodRunning, letGo), aPod("other", corev1.PodRunning, ofAnEarlierJob))
	for _, c := range []struct {
		what     string
		was, now metav1.Object
		want     []events.Key
	}{
		{"it is new", nil, aJob(), []events.Key{sum}},
		{"it changes", aJob(), aJob(), []events.Key{sum}},
		{"it finishes", aJob(), aJob(ended), []events.Key{sum, strayKey("kept")}},
		{"it is gone", aJob(), nil, []events.Key{sum, strayKey("kept")}},
		{"another takes its name", aJob(), another, []events.Key{sum, strayKey("kept")}},
	} {
		if got := world.Keys(Controller, kinds.Jobs.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: keys %v, want %v", c.what, got, c.want)
		}
	}
}

func TestObserve(t *testing.T) {
	job := aJob()
	mine, orphan := aPod("a", corev1.PodRunning), aPod("b", corev1.PodFailed, orphaned)
	world := reconciletest.NewWorld().Put(kinds.Jobs.Kind, job).Put(kinds.Pods.Kind, mine, orphan,
		aPod("c", corev1.PodRunning, ofAnEarlierJob),
		aPod("d", corev1.PodRunning, orphaned, func(p *corev1.Pod) { p.Labels = nil }),
		aPod("e", corev1.PodRunning, orphaned, func(p *corev1.Pod) { reconciletest.Deleted[*corev1.Pod](now)(p) }),
	)
	v, ok := observe(world, sum)
	if want := []*corev1.Pod{mine, orphan}; !ok || v.Job != job || !slices.Equal(v.Pods, want) {
		t.Errorf("the view is %v, found: %v; want the pods %v", v, ok, want)
	}
	if _, ok := observe(world, events.Key{Namespace: "batch", Name: "absent"}); ok {
		t.Error("observe finds a Job that is not there")
	}
	if v, ok := observe(world, strayKey("c")); !ok || v.Stray == nil || v.Over {
		t.Errorf("of a stray the view has %+v, found: %v", v, ok)
	}
	for _, name := range []string{"a", "absent"} {
		if v, ok := observe(world, strayKey(name)); ok {
			t.Errorf("%s is taken for a stray: %+v", name, v)
		}
	}
	world.Put(kinds.Jobs.Kind, aJob(ended))
	if v, ok := observe(world, strayKey("a")); !ok || !v.Over {
		t.Errorf("of a stray of a finished Job the view has %+v, found: %v", v, ok)
	}
	world.Put(kinds.Jobs.Kind, aJob(ended, func(j *batchv1.Job) { j.Spec.ManagedBy = of("example.com/queue") }))
	if _, ok := observe(world, strayKey("a")); ok {
		t.Error("a pod of a Job that is managed elsewhere is taken for a stray")
	}
}

// A Job with three active pods scales to two, to one, and back to three, while the
// surplus pods are still terminating. Only the status has two old failures. The
// controller must take neither surplus pod for one of them, or the next creates wait. It
// makes no difference whether the finalizer held the surplus pods back until they were counted.
func TestSurplusIsRememberedForMoreThanATurn(t *testing.T) {
	t.Run("counted", func(t *testing.T) { surplusIsRemembered(t) })
	t.Run("free", func(t *testing.T) {
		surplusIsRemembered(t, func(p *corev1.Pod) { p.Finalizers = nil })
	})
}

func surplusIsRemembered(t *testing.T, with ...func(*corev1.Pod)) {
	t.Helper()
	job := aJob(func(j *batchv1.Job) {
		j.Spec.Parallelism, j.Spec.Completions = of(int32(3)), of(int32(9))
		j.Status.Failed, j.Status.StartTime = 2, &metav1.Time{Time: now.Add(-time.Hour)}
	})
	world := reconciletest.NewWorld().Put(kinds.Jobs.Kind, job)
	for _, name := range []string{"a", "b", "c"} {
		world.Put(kinds.Pods.Kind, aPod(name, corev1.PodRunning, with...))
	}
	turn := func(parallelism int32) (because string, creates, deletions int) {
		t.Helper()
		job = job.DeepCopy()
		job.Spec.Parallelism = &parallelism
		v, _ := observe(world.Put(kinds.Jobs.Kind, job), sum)
		d := decide(v, now).In(events.LaneWrite)
		o := events.Outcome{Key: sum, UID: job.UID, Lane: events.LaneWrite, At: now}
		for _, c := range d.Commands {
			r := events.Result{Status: events.Applied, Ref: c.Ref()}
			if c.Note != nil {
				r.Answer = &events.Answer{Note: c.Note}
			}
			switch p, there := world.Get(kinds.Pods.Name, "batch", c.Name); {
			case c.Verb == events.VerbCreate:
				creates++
			case there:
				next := p.(*corev1.Pod).DeepCopy()
				r.UID, next.Finalizers = p.GetUID(), nil
				if c.Verb == events.VerbDelete {
					next.DeletionTimestamp = &metav1.Time{Time: now}
					deletions++
				}
				world.Put(kinds.Pods.Kind, next)
			}
			o.Results = append(o.Results, r)
		}
		world.Remember(o)
		return d.Because, creates, deletions
	}
	for _, c := range []struct {
		parallelism        int32
		creates, deletions int
	}{{2, 0, 1}, {1, 0, 1}, {3, 2, 0}} {
		if because, creates, deletions := turn(c.parallelism); creates != c.creates || deletions != c.deletions {
			t.Errorf("with %d to be at work %d are created and %d go, want %d and %d: %s", c.parallelism, creates, deletions, c.creates, c.deletions, because)
		}
	}
}

func TestObserveRemembersWhatWasDone(t *testing.T) {
	job := aJob()
	world := reconciletest.NewWorld().Put(kinds.Jobs.Kind, job).Put(kinds.Pods.Kind, aPod("a", corev1.PodRunning))
	done := func(status events.Status, uid string, times int) {
		r := events.Result{Status: status, UID: aPod(uid, "").UID, Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "batch", Name: uid}}
		world.Remember(events.Outcome{Key: sum, UID: job.UID, Lane: events.LaneWrite, Turn: 9, At: now, Results: slices.Repeat([]events.Result{r}, times)})
	}
	for _, c := range []struct {
		status  events.Status
		pod     string
		times   int
		attempt uint64
		letGo   time.Time
	}{
		{events.Applied, "a", 1, 0, time.Time{}},
		{events.Applied, "gone", 1, 0, now},
		{events.Applied, "gone", 2, 0, time.Time{}}, // let go and deleted
		{events.Applied, "a", 2, 0, time.Time{}},
		{events.Refused, "gone", 1, 9, time.Time{}},
	} {
		done(c.status, c.pod, c.times)
		v, _ := observe(world, sum)
		if v.Attempt != c.attempt || (v.LetGo == nil) != c.letGo.IsZero() {
			t.Errorf("after %s of %s the view remembers %d, %v", c.status, c.pod, v.Attempt, v.LetGo)
		}
		if surplus := c.pod == "a" && c.times > 1; surplus != slices.Equal(v.Surplus, []types.UID{"uid-a"}) {
			t.Errorf("after %d commands about %s it takes %v for surplus", c.times, c.pod, v.Surplus)
		}
	}
}

// Three old failures are in the status. A pod that failed just now has the labels of
// another Job, so it is released, and with that no longer visible. It was none of the
// three, so the creates do not wait.
func TestWhoIsReleasedWasNotCounted(t *testing.T) {
	job := aJob(func(j *batchv1.Job) {
		j.Spec.Parallelism, j.Spec.Completions = of(int32(1)), of(int32(9))
		j.Status.Failed, j.Status.StartTime = 3, &metav1.Time{Time: now.Add(-time.Hour)}
	})
	stranger := aPod("a", corev1.PodFailed, reconciletest.Deleted[*corev1.Pod](now), func(p *corev1.Pod) { p.Labels = nil })
	world := reconciletest.NewWorld().Put(kinds.Jobs.Kind, job).Put(kinds.Pods.Kind, stranger)
	v, _ := observe(world, sum)
	d := decide(v, now).In(events.LaneWrite)
	if len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbPatch || d.Commands[0].Name != "a" {
		t.Fatalf("%s: %v, want the stranger released", d.Because, d.Commands)
	}
	released := events.Result{Status: events.Applied, UID: stranger.UID, Ref: d.Commands[0].Ref(), Answer: &events.Answer{Note: d.Commands[0].Note}}
	world = reconciletest.NewWorld().Put(kinds.Jobs.Kind, job)
	world.Remember(events.Outcome{Key: sum, UID: job.UID, Lane: events.LaneWrite, Turn: 1, At: now, Results: []events.Result{released}})
	v, _ = observe(world, sum)
	if d := decide(v, now).In(events.LaneWrite); len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbCreate {
		t.Errorf("%s: %v, want a pod created", d.Because, d.Commands)
	}
}

// An unknown completion mode is reported once for each version of the Job.
func TestAnUnknownModeIsToldOnce(t *testing.T) {
	job := aJob(func(j *batchv1.Job) { j.Spec.CompletionMode = of(batchv1.CompletionMode("Elastic")) })
	world := reconciletest.NewWorld().Put(kinds.Jobs.Kind, job)
	told := func() int {
		v, _ := observe(world, sum)
		return len(decide(v, now).Commands)
	}
	if told() != 1 {
		t.Error("the decision has no command, want the Event")
	}
	world.Remember(events.Outcome{Key: sum, Lane: events.LaneStatus, UID: job.UID, ResourceVersion: job.ResourceVersion, At: now})
	if told() != 0 {
		t.Error("the decision has the Event again")
	}
	next := job.DeepCopy()
	next.ResourceVersion = "2"
	if world.Put(kinds.Jobs.Kind, next); told() != 1 {
		t.Error("the decision has no Event about another version")
	}
}
