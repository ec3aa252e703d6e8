package ephemeralvolume

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

// pod returns a pod with ephemeral volumes of these names.
func pod(name string, volumes ...string) *corev1.Pod {
	p := reconciletest.Pod(name)
	for _, v := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: v, VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}},
		}})
	}
	return p
}

func claim(name string, edits ...reconciletest.Edit[*corev1.PersistentVolumeClaim]) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name)}}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func of(p *corev1.Pod) reconciletest.Edit[*corev1.PersistentVolumeClaim] {
	return reconciletest.OwnedBy[*corev1.PersistentVolumeClaim](kinds.Pods.Kind, p)
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		volumes := []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "volumes")]
		v := View{Pod: pod("p", volumes...)}
		for _, name := range volumes {
			switch rapid.IntRange(0, 3).Draw(t, "claim "+name) {
			case 0:
				v.Claims = append(v.Claims, claim("p-"+name, of(v.Pod)))
			case 1:
				v.Claims = append(v.Claims, claim("p-"+name))
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
			reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
		}
		return v
	}), now, reconciletest.Content(3, applied), reconciletest.Law[View]{Name: "no thief", Holds: func(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
		for _, command := range c.Decide(v, now).Commands {
			if command.Verb == events.VerbCreate && v.claim(command.Name) != nil {
				return fmt.Errorf("the decision creates %s, which is there", command.Name)
			}
		}
		return nil
	}})
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v.Claims = slices.Clone(v.Claims)
	for _, c := range d.Commands {
		if c.Verb == events.VerbRecord {
			v.Told = append(v.Told, c.Name)
			continue
		}
		v.Claims = append(v.Claims, claim(c.Name, of(v.Pod)))
	}
	return v
}

// A claim of another owner delays the later ones, and is reported once, when the claims
// before it exist.
func TestAClaimThatIsNotThePods(t *testing.T) {
	v := View{Pod: pod("p", "a", "b", "c"), Claims: []*corev1.PersistentVolumeClaim{claim("p-b")}}
	d := decide(v, now)
	if len(d.Commands) != 1 || d.Commands[0].Name != "p-a" {
		t.Fatalf("the decision has the commands %+v", d.Commands)
	}
	if len(d.Figures) != 2 || d.Figures[0].Metric != created || d.Figures[0].Value != 1 || !d.Figures[1].Failed || d.Figures[1].Of.Name != "p-a" {
		t.Errorf("the figures are %+v", d.Figures)
	}
	v = applied(v, d, now)
	if d = decide(v, now); len(d.Commands) != 1 || d.Commands[0].OnApplied == nil {
		t.Fatalf("with the claims before it, the decision has the commands %+v", d.Commands)
	}
	want := "ephemeral volume b: PVC default/p-b was not created for pod default/p (pod is not owner)"
	if n := d.Commands[0].OnApplied; n.Reason != "FailedBinding" || n.Message != want {
		t.Errorf("the Event is %s: %s", n.Reason, n.Message)
	}
	v = applied(v, d, now)
	if d := decide(v, now); len(d.Commands) > 0 {
		t.Errorf("then the decision has the commands %+v", d.Commands)
	}
	v.Claims[0].UID = "another"
	if d := decide(v, now); len(d.Commands) != 1 {
		t.Errorf("of another claim the decision has the commands %+v", d.Commands)
	}
}

func TestObserve(t *testing.T) {
	p := pod("p", "a", "b")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "c"})
	key := events.Key{Namespace: p.Namespace, Name: "p"}
	world := reconciletest.NewWorld().Put(kinds.Pods.Kind, p).Put(kinds.PersistentVolumeClaims.Kind, claim("p-a"), claim("p-c"))
	world.Remember(events.Outcome{Key: key, UID: p.UID, Lane: events.LaneStatus, Results: []events.Result{
		{Status: events.Applied, Ref: events.Ref{Kind: kinds.Events.Name, Name: "told"}},
		{Status: events.Failed, Ref: events.Ref{Kind: kinds.Events.Name, Name: "not told"}},
	}})
	v, ok := observe(world, key)
	if !ok || len(v.Claims) != 1 || v.Claims[0].Name != "p-a" || !slices.Equal(v.Told, []string{"told"}) {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
	if _, ok := observe(world, events.Key{Namespace: p.Namespace, Name: "absent"}); ok {
		t.Error("observe finds a pod that is not there")
	}
}

func TestWhoseTurn(t *testing.T) {
	mine, plain, leaving, robbed := pod("p", "a"), pod("plain"), pod("leaving", "a"), pod("robbed", "a", "b")
	reconciletest.Deleted[*corev1.Pod](now)(leaving)
	world := reconciletest.NewWorld(kinds.PersistentVolumeClaims.Kind).Put(kinds.Pods.Kind, mine, plain, leaving, robbed).Put(kinds.PersistentVolumeClaims.Kind, claim("robbed-b"))
	pods, claims := kinds.Pods.Kind, kinds.PersistentVolumeClaims.Kind
	before := mine.DeepCopy()
	before.UID = "before"
	for _, c := range []struct {
		what     string
		kind     kinds.Kind
		was, now metav1.Object
		want     bool
	}{
		{"a pod with such a volume", pods, nil, mine, true}, {"a pod without", pods, nil, plain, false},
		{"a pod on its way out", pods, nil, leaving, false}, {"a pod that is gone", pods, mine, nil, false},
		{"its claim", claims, nil, claim("p-a", of(mine)), false}, {"its claim is gone", claims, claim("p-a", of(mine)), nil, true},
		{"a claim that is not the pod's", claims, nil, claim("p-a"), true}, {"a namesake's claim", claims, nil, claim("p-a", of(before)), true},
		{"another claim is gone", claims, claim("p-b"), nil, false},
	} {
		got := world.Keys(Controller, c.kind, c.was, c.now)
		if want := []events.Key{{Namespace: mine.Namespace, Name: "p"}}; c.want && !slices.Equal(got, want) || !c.want && len(got) > 0 {
			t.Errorf("%s: turns of %v", c.what, got)
		}
	}
	if got := world.Keys(Controller, claims, nil, claim("robbed-a", of(robbed))); len(got) != 1 || got[0].Name != "robbed" {
		t.Errorf("the claim of a pod that waits for another asks for turns of %v", got)
	}
}
