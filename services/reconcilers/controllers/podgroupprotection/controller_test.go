package podgroupprotection

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var key = events.Key{Namespace: reconciletest.Namespace, Name: "gang"}

func group() *schedulingv1alpha2.PodGroup {
	return &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u", ResourceVersion: "1"}}
}

func deleted() *schedulingv1alpha2.PodGroup {
	g := group()
	reconciletest.Deleted[*schedulingv1alpha2.PodGroup](reconciletest.Now)(g)
	return g
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		v := View{Group: group()}
		if rapid.Bool().Draw(t, "deleted") {
			v.Group, v.Pod = deleted(), rapid.SampledFrom([]string{"", "p"}).Draw(t, "pod")
		}
		v.Group.Finalizers = rapid.SampledFrom([][]string{nil, {guard}, {"x", guard}, {"x"}}).Draw(t, "finalizers")
		return v
	}), reconciletest.Now, reconciletest.Law[View]{Name: "sure", Holds: sure}, reconciletest.Content(2, func(v View, d reconcile.Decision, _ time.Time) View {
		next := View{Group: &schedulingv1alpha2.PodGroup{}, Pod: v.Pod}
		if err := json.Unmarshal(d.Commands[0].Body, next.Group); err != nil {
			panic(err)
		}
		return next
	}))
}

// sure: the finalizer is removed only from a deleted group in which no pod is seen, under the
// condition that the group is unused. Other finalizers stay.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		var next schedulingv1alpha2.PodGroup
		if err := json.Unmarshal(command.Body, &next); err != nil {
			return err
		}
		switch {
		case v.Group.DeletionTimestamp == nil, v.Pod != "":
			return errors.New("it lets a group go that lives, or that a pod is in")
		case !command.If.Unused:
			return errors.New("it lets a group go without a look")
		case slices.Contains(next.Finalizers, guard), slices.Contains(next.Finalizers, "x") != slices.Contains(v.Group.Finalizers, "x"):
			return errors.New("it takes another finalizer off")
		}
	}
	return nil
}

// in returns a pod of a group, in a phase.
func in(name string, of string, phase corev1.PodPhase) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.InPhase(phase))
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &of}
	return p
}

func TestWhoIsInADeletedGroup(t *testing.T) {
	none := reconciletest.Pod("p")
	none.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
	elsewhere := in("p", "gang", corev1.PodRunning)
	elsewhere.Namespace = "elsewhere"
	for what, c := range map[string]struct {
		pod *corev1.Pod
		in  bool
	}{
		"pending":                 {in("p", "gang", corev1.PodPending), true},
		"running":                 {in("p", "gang", corev1.PodRunning), true},
		"of no known phase":       {in("p", "gang", ""), true},
		"on its way out":          {leaving(in("p", "gang", corev1.PodRunning)), true},
		"succeeded":               {in("p", "gang", corev1.PodSucceeded), false},
		"failed":                  {in("p", "gang", corev1.PodFailed), false},
		"in another":              {in("p", "other", corev1.PodRunning), false},
		"in none":                 {reconciletest.Pod("p"), false},
		"in one without a name":   {none, false},
		"in that of another name": {elsewhere, false},
	} {
		world := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.PodGroups.Kind, deleted()).Put(kinds.Pods.Kind, c.pod)
		if v, ok := observe(world, key); !ok || (v.Pod == "p") != c.in {
			t.Errorf("a pod that is %s: it sees %+v, %t", what, v, ok)
		}
		world = reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.PodGroups.Kind, group()).Put(kinds.Pods.Kind, c.pod)
		if v, ok := observe(world, key); !ok || v.Pod != "" {
			t.Errorf("of a group that lives the view has %+v, found: %t", v, ok)
		}
	}
	if _, ok := observe(reconciletest.NewWorld(kinds.Pods.Kind), key); ok {
		t.Error("observe finds a group that is not there")
	}
}

func leaving(p *corev1.Pod) *corev1.Pod {
	reconciletest.Deleted[*corev1.Pod](reconciletest.Now)(p)
	return p
}

// A change of a pod maps to the pod's group, and to the group of the earlier pod of its name.
func TestKeys(t *testing.T) {
	world, other := reconciletest.NewWorld(kinds.Pods.Kind), events.Key{Namespace: key.Namespace, Name: "other"}
	was, now := in("p", "gang", corev1.PodRunning), in("p", "other", corev1.PodPending)
	for what, c := range map[string]struct {
		was, now *corev1.Pod
		want     []events.Key
	}{
		"it comes":         {nil, now, []events.Key{other}},
		"it ends":          {was, in("p", "gang", corev1.PodFailed), []events.Key{key}},
		"it goes":          {was, nil, []events.Key{key}},
		"another comes":    {was, now, []events.Key{other, key}},
		"it is in none":    {reconciletest.Pod("p"), reconciletest.Pod("p"), nil},
		"it was in none":   {reconciletest.Pod("p"), now, []events.Key{other}},
		"it is in no more": {was, reconciletest.Pod("p"), []events.Key{key}},
	} {
		var before, after metav1.Object
		if c.was != nil {
			before = c.was
		}
		if c.now != nil {
			after = c.now
		}
		if got := world.Keys(Controller, kinds.Pods.Kind, before, after); !slices.Equal(got, c.want) {
			t.Errorf("%s: the change asks for turns of %v, want %v", what, got, c.want)
		}
	}
}
