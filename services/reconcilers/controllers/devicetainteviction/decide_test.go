package devicetainteviction

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func drive(key string, before time.Duration) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: ago(before)}
}

func ago(d time.Duration) *metav1.Time {
	at := metav1.NewTime(now.Add(-d))
	return &at
}

func tolerates(key string, seconds *int64) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: seconds}
}

func has(taints []resourcev1.DeviceTaint, tolerations ...resourcev1.DeviceToleration) Device {
	return Device{Taints: taints, Tolerations: tolerations, Rules: make([]types.UID, len(taints))}
}

func rule(effect resourcev1beta2.DeviceTaintEffect) *resourcev1beta2.DeviceTaintRule {
	at := metav1.NewTime(now.Add(-time.Minute))
	r := &resourcev1beta2.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "uid-r", ResourceVersion: "1", Generation: 1}}
	r.Spec.DeviceSelector = &resourcev1beta2.DeviceTaintSelector{Driver: ptr.To("d")}
	r.Spec.Taint = resourcev1beta2.DeviceTaint{Key: "k", Effect: effect, TimeAdded: &at}
	return r
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLawsOfPods(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyPod), now, reconciletest.Content(4, applied), reconciletest.Law[View]{Name: "patient with pods", Holds: mild})
}

func TestLawsOfRules(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyRule), now, reconciletest.Content(2, applied), reconciletest.Law[View]{Name: "seldom", Holds: seldom})
}

func anyPod(t *rapid.T) View {
	v := View{Pod: reconciletest.Pod("p", reconciletest.On("n1")), Announced: rapid.Bool().Draw(t, "announced")}
	for range rapid.IntRange(0, 2).Draw(t, "devices") {
		var d Device
		for range rapid.IntRange(1, 2).Draw(t, "taints") {
			taint := drive(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "taint"), time.Duration(rapid.IntRange(-10, 60).Draw(t, "since"))*time.Second)
			if rapid.IntRange(0, 9).Draw(t, "dated") == 0 {
				taint.TimeAdded = nil
			}
			d.Taints, d.Rules = append(d.Taints, taint), append(d.Rules, "")
		}
		for range rapid.IntRange(0, 2).Draw(t, "tolerations") {
			by := tolerates(rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "of"), nil)
			if rapid.IntRange(0, 3).Draw(t, "limited") > 0 {
				by.TolerationSeconds = ptr.To(rapid.Int64Range(-1, 90).Draw(t, "seconds"))
			}
			if rapid.IntRange(0, 3).Draw(t, "of any effect") == 0 {
				by.Effect = ""
			}
			d.Tolerations = append(d.Tolerations, by)
		}
		v.Devices = append(v.Devices, d)
	}
	if rapid.Bool().Draw(t, "marked") {
		v.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: why}}
	}
	if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
		reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
	}
	return v
}

func anyRule(t *rapid.T) View {
	v := View{Rule: rule(rapid.SampledFrom([]resourcev1beta2.DeviceTaintEffect{"NoExecute", "NoExecute", "None", "NoSchedule"}).Draw(t, "effect"))}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		d := Driven{Namespace: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"), UID: types.UID(fmt.Sprint("u", i)), Leaving: rapid.Bool().Draw(t, "leaving")}
		if d.Leaving && rapid.Bool().Draw(t, "evicted") {
			d.Evicted = ago(time.Duration(rapid.IntRange(0, 20).Draw(t, "evicted ago")) * time.Second)
		}
		v.Driven = append(v.Driven, d)
	}
	v.Published, v.Allocated = rapid.IntRange(0, 2).Draw(t, "published"), rapid.IntRange(0, 2).Draw(t, "allocated")
	v.Tally.Evicted = rapid.IntRange(0, 2).Draw(t, "evicted")
	if rapid.Bool().Draw(t, "has said") {
		said := v.report(rapid.IntRange(0, 1).Draw(t, "said evicted"), rapid.IntRange(0, 2).Draw(t, "said pending"), 1)
		said.LastTransitionTime = metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ago")) * time.Second))
		said.ObservedGeneration = int64(rapid.IntRange(0, 1).Draw(t, "generation"))
		v.Rule.Status.Conditions = []metav1.Condition{{Type: "Other"}, said}
	}
	return v
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		if v.Rule != nil {
			var next resourcev1beta2.DeviceTaintRule
			if err := json.Unmarshal(c.Body, &next); err != nil {
				panic(err)
			}
			v.Rule = v.Rule.DeepCopy()
			v.Rule.Status.Conditions = next.Status.Conditions
			if err := json.Unmarshal(c.Note, &v.Tally); err != nil {
				panic(err)
			}
			continue
		}
		v.Pod = v.Pod.DeepCopy()
		switch c.Verb {
		case events.VerbDelete:
			reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
		case events.VerbPatch:
			v.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: why}}
			v.Announced = len(c.Note) > 0
		default:
			v.Announced = len(c.Note) > 0
		}
	}
	return v
}

// mild checks that a pod is marked or deleted only if a taint of its devices is not
// tolerated, and the times of all its tolerations are over.
func mild(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	due := slices.ContainsFunc(v.Devices, func(d Device) bool {
		return slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool {
			if t.TimeAdded == nil {
				return false
			}
			shortest := int64(-1)
			for _, by := range d.Tolerations {
				if by.Effect != resourcev1.DeviceTaintEffectNoExecute || by.Key != "" && by.Key != t.Key {
					continue
				}
				if by.TolerationSeconds == nil {
					return false
				}
				if s := max(*by.TolerationSeconds, 0); shortest < 0 || s < shortest {
					shortest = s
				}
			}
			return !now.Before(t.TimeAdded.Add(time.Duration(max(shortest, 0)) * time.Second))
		})
	})
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbRecord && !due {
			return fmt.Errorf("the decision does %v", command.Verb)
		}
	}
	return nil
}

// seldom checks that the status for an unchanged spec of a rule is updated at most every ten seconds.
func seldom(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, said := range v.Rule.Status.Conditions {
		if said.ObservedGeneration == v.Rule.Generation && said.Type != "Other" && now.Sub(said.LastTransitionTime.Time) < 10*time.Second && len(c.Decide(v, now).Commands) > 0 {
			return fmt.Errorf("it writes again what was said %v ago", now.Sub(said.LastTransitionTime.Time))
		}
	}
	return nil
}

func TestWhenAPodHasToLeave(t *testing.T) {
	a, b := drive("a", time.Minute), drive("b", time.Second)
	undated := a
	undated.TimeAdded = nil
	anyEffect := tolerates("a", nil)
	anyEffect.Effect = ""
	for what, c := range map[string]struct {
		devices []Device
		after   time.Duration
		never   bool
	}{
		"none":                                   {nil, 0, true},
		"a taint":                                {[]Device{has([]resourcev1.DeviceTaint{a})}, -time.Minute, false},
		"without a date":                         {[]Device{has([]resourcev1.DeviceTaint{undated})}, 0, true},
		"tolerated":                              {[]Device{has([]resourcev1.DeviceTaint{a}, tolerates("a", nil))}, 0, true},
		"tolerated for another effect":           {[]Device{has([]resourcev1.DeviceTaint{a}, anyEffect)}, -time.Minute, false},
		"tolerated for a while":                  {[]Device{has([]resourcev1.DeviceTaint{a}, tolerates("a", ptr.To(int64(90))))}, 30 * time.Second, false},
		"tolerated for no time":                  {[]Device{has([]resourcev1.DeviceTaint{a}, tolerates("a", ptr.To(int64(-5))))}, -time.Minute, false},
		"tolerated twice":                        {[]Device{has([]resourcev1.DeviceTaint{a}, tolerates("a", ptr.To(int64(90))), tolerates("", ptr.To(int64(70))))}, 10 * time.Second, false},
		"tolerated for a while and for good":     {[]Device{has([]resourcev1.DeviceTaint{a}, tolerates("a", ptr.To(int64(90))), tolerates("", nil))}, 0, true},
		"two taints":                             {[]Device{has([]resourcev1.DeviceTaint{b, a})}, -time.Minute, false},
		"two devices, of which one is tolerated": {[]Device{has([]resourcev1.DeviceTaint{a}, tolerates("a", nil)), has([]resourcev1.DeviceTaint{b})}, -time.Second, false},
	} {
		at, ok := View{Devices: c.devices}.end()
		if ok == c.never || ok && !at.Equal(now.Add(c.after)) {
			t.Errorf("%s: the pod has to leave at %v, %v", what, at, ok)
		}
	}
}

// The steps of a deletion, and its metric values.
func TestADeletion(t *testing.T) {
	v := View{Pod: reconciletest.Pod("p", reconciletest.On("n1")), Devices: []Device{has([]resourcev1.DeviceTaint{drive("a", 5*time.Second)})}}
	d := decide(v, now)
	if len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbPatch || len(d.Figures) > 0 {
		t.Fatalf("first it wants %+v", d)
	}
	d = decide(applied(v, d, now), now)
	if len(d.Commands) != 1 || d.Commands[0].Verb != events.VerbDelete || d.Commands[0].OnApplied.Message != "Marking for deletion" {
		t.Fatalf("then the decision has the commands %+v", d.Commands)
	}
	if len(d.Figures) != 2 || d.Figures[0].Metric != deletions || d.Figures[1].Value != 5 || d.Figures[1].Of.Name != "p" {
		t.Errorf("the figures are %+v", d.Figures)
	}
}

// A pod that has the condition DisruptionTarget for another reason keeps its transition time.
func TestADisruptedPodKeepsItsTime(t *testing.T) {
	since := metav1.NewTime(now.Add(-time.Hour))
	v := View{Pod: reconciletest.Pod("p", reconciletest.On("n1")), Devices: []Device{has([]resourcev1.DeviceTaint{drive("a", time.Second)})}}
	v.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: since}}
	var next corev1.Pod
	if err := json.Unmarshal(decide(v, now).Commands[0].Body, &next); err != nil || !next.Status.Conditions[0].LastTransitionTime.Equal(&since) {
		t.Errorf("the written status says %+v, %v", next.Status.Conditions, err)
	}
}

// The conditions of a rule, from its first pod until after its last.
func TestWhatARuleSays(t *testing.T) {
	v := View{Rule: rule(resourcev1beta2.DeviceTaintEffectNoExecute), Driven: []Driven{{Namespace: "x", UID: "1"}, {Namespace: "y", UID: "2"}}}
	moment := now
	for _, c := range []struct {
		driven          []Driven
		reason, message string
	}{
		{v.Driven, "PodsPendingEviction", "2 pods need to be evicted in 2 different namespaces."},
		{[]Driven{{"x", "1", ago(0), true}, {"y", "2", nil, false}}, "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller."},
		{[]Driven{{"x", "1", ago(0), true}, {"y", "2", ago(0), true}}, "Completed", "2 pods evicted since starting the controller."},
		{nil, "Completed", "2 pods evicted since starting the controller."},
		{[]Driven{{"y", "3", nil, true}}, "Completed", "2 pods evicted since starting the controller."},
		{[]Driven{{"y", "3", ago(0), true}}, "Completed", "3 pods evicted since starting the controller."},
	} {
		v.Driven = c.driven
		v = applied(v, decide(v, moment), moment)
		moment = moment.Add(time.Minute)
		if said := v.condition(); said.Reason != c.reason || said.Message != c.message || (said.Status == metav1.ConditionTrue) != (c.reason == "PodsPendingEviction") || said.ObservedGeneration != 1 {
			t.Errorf("with %+v it says %+v", c.driven, said)
		}
	}
}

// Pods that were evicted before a rule was created, or had its spec, are not counted.
func TestWhoLeftBeforeARule(t *testing.T) {
	for what, c := range map[string]struct {
		created, evicted time.Duration
		said             int64
		want             int
	}{
		"created before":                       {time.Minute, 30 * time.Second, 1, 1},
		"at the same moment":                   {time.Minute, time.Minute, 1, 1},
		"created since":                        {29 * time.Second, 30 * time.Second, 1, 0},
		"with another spec before":             {time.Minute, 30 * time.Second, 0, 0},
		"with another spec at the same moment": {time.Minute, time.Second, 0, 1},
	} {
		v := View{Rule: rule(resourcev1beta2.DeviceTaintEffectNoExecute), Driven: []Driven{{"x", "1", ago(c.evicted), true}}}
		v.Rule.CreationTimestamp = *ago(c.created)
		v.Rule.Status.Conditions = []metav1.Condition{{Type: resourcev1beta2.DeviceTaintConditionEvictionInProgress, ObservedGeneration: c.said}}
		if tally, _, _ := v.count(now); tally.Evicted != c.want || len(tally.Leaving) != 1 {
			t.Errorf("%s: it counts %+v", what, tally)
		}
	}
}

// The condition of a rule without effect is written once for each spec.
func TestWhatARuleWouldDo(t *testing.T) {
	v := View{Rule: rule(resourcev1beta2.DeviceTaintEffectNone), Driven: []Driven{{Namespace: "x", UID: "1"}, {Namespace: "x", UID: "2", Leaving: true, Evicted: ago(0)}}, Published: 1, Allocated: 2}
	v = applied(v, decide(v, now), now)
	want := "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	if said := v.condition(); said.Reason != "NoEffect" || said.Message != want || said.Status != metav1.ConditionFalse {
		t.Errorf("the written status says %+v", said)
	}
	v.Driven = nil
	if d := decide(v, now.Add(time.Hour)); len(d.Commands) > 0 || !d.WakeAt.IsZero() {
		t.Errorf("an hour later the decision has the commands %+v", d)
	}
	v.Rule.Generation = 2
	if d := decide(v, now.Add(time.Second)); len(d.Commands) != 1 {
		t.Errorf("of another spec the decision has the commands %+v", d)
	}
}
