package disruption

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(3, carriedOut),
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Several = rapid.Permutation(v.Several).Draw(t, "several")
			return v
		}),
		reconciletest.Law[View]{Name: "careful", Holds: careful})
}

// careful checks that no more disruptions are allowed than healthy pods exceed the
// desired number, and none if the expected number is not known.
func careful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Kind != kinds.PodDisruptionBudgets.Name {
			continue
		}
		var b policyv1.PodDisruptionBudget
		if err := json.Unmarshal(command.Body, &b); err != nil {
			return err
		}
		serving := int32(0)
		for _, p := range v.Pods {
			since, evicted := v.Budget.Status.DisruptedPods[p.Name]
			if p.DeletionTimestamp == nil && pod.Ready(p) && !(evicted && now.Before(since.Add(2*time.Minute))) {
				serving++
			}
		}
		if allowed := b.Status.DisruptionsAllowed; allowed > max(0, serving-b.Status.DesiredHealthy) {
			return fmt.Errorf("%d may go, of %d that serve and %d that must", allowed, serving, b.Status.DesiredHealthy)
		}
	}
	return nil
}

// carriedOut returns the view after the commands are applied and answered.
func carriedOut(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		switch {
		case v.Pod != nil && c.Verb == events.VerbRecord:
			v.Told = v.Several
		case c.Verb == events.VerbAsk:
			var note Note
			if err := json.Unmarshal(c.Note, &note); err != nil {
				panic(err)
			}
			said := map[types.UID]Answer{note.UID: {UID: note.UID, Replicas: 2, Note: note, At: now}}
			for uid, a := range v.Answers {
				if uid != note.UID {
					said[uid] = a
				}
			}
			v.Answers = said
		case c.Kind == kinds.PodDisruptionBudgets.Name:
			v.Budget = &policyv1.PodDisruptionBudget{}
			if err := json.Unmarshal(c.Body, v.Budget); err != nil {
				panic(err)
			}
		case c.Kind == kinds.Pods.Name:
			v.Pod = v.Pod.DeepCopy()
			v.Pod.Status.Conditions = nil
		}
	}
	return v
}

func anyView(t *rapid.T) View {
	if rapid.IntRange(0, 4).Draw(t, "a pod") == 0 {
		any := rapid.SampledFrom([][]string{nil, {"a", "b"}, {"a", "c"}})
		return View{Pod: anyPod(t, "p"), Several: any.Draw(t, "several"), Told: any.Draw(t, "told")}
	}
	v := View{Budget: anyBudget(t), Sizes: map[types.UID]Size{}, Answers: map[types.UID]Answer{}}
	for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
		p := anyPod(t, fmt.Sprint("p", i))
		v.Pods = append(v.Pods, p)
		if rapid.IntRange(0, 3).Draw(t, "evicted") == 0 {
			if v.Budget.Status.DisruptedPods == nil {
				v.Budget.Status.DisruptedPods = map[string]metav1.Time{}
			}
			v.Budget.Status.DisruptedPods[p.Name] = metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 240).Draw(t, "evicted ago")) * time.Second))
		}
	}
	for _, uid := range []types.UID{"rs", "sts"} {
		if rapid.IntRange(0, 4).Draw(t, "known") > 0 {
			v.Sizes[uid] = Size{Of: rapid.SampledFrom([]types.UID{uid, "d"}).Draw(t, "of"), Replicas: int32(rapid.IntRange(0, 6).Draw(t, "replicas"))}
		}
	}
	if rapid.Bool().Draw(t, "asked") {
		v.Answers["foo"] = Answer{
			UID: rapid.SampledFrom([]types.UID{"foo", "", "other"}).Draw(t, "whose"), Replicas: 3,
			Failure: rapid.SampledFrom([]string{"", "", "no"}).Draw(t, "failure"),
			Note:    Note{UID: "foo", Occasion: rapid.SampledFrom([]string{v.occasion(), "another"}).Draw(t, "occasion")},
			At:      now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "asked ago")) * time.Second / 2),
		}
	}
	return v
}

func anyBudget(t *rapid.T) *policyv1.PodDisruptionBudget {
	b := budget("b", nil)
	number := rapid.SampledFrom([]intstr.IntOrString{
		intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(9), intstr.FromString("30%"), intstr.FromString("100%"), intstr.FromString("a lot"),
	}).Draw(t, "number")
	switch rapid.IntRange(0, 2).Draw(t, "which") {
	case 0:
		b.Spec.MaxUnavailable = &number
	case 1:
		b.Spec.MinAvailable = &number
	}
	b.Status.ObservedGeneration = int64(rapid.IntRange(0, 1).Draw(t, "seen"))
	b.Status.DisruptionsAllowed = int32(rapid.IntRange(0, 2).Draw(t, "allowed"))
	return b
}

func anyPod(t *rapid.T, name string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.InPhase(rapid.SampledFrom([]corev1.PodPhase{"Running", "Running", "Pending", "Failed"}).Draw(t, "phase")))
	if rapid.Bool().Draw(t, "ready") {
		reconciletest.ReadySince(now.Add(-time.Minute))(p)
	}
	if rapid.IntRange(0, 5).Draw(t, "leaving") == 0 {
		reconciletest.Deleted[*corev1.Pod](now)(p)
	}
	if rapid.Bool().Draw(t, "disrupted") {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False"}).Draw(t, "so"),
			Reason:             rapid.SampledFrom([]string{"EvictionByEvictionAPI", corev1.PodReasonTerminationByKubelet}).Draw(t, "reason"),
			LastTransitionTime: metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 240).Draw(t, "disrupted ago")) * time.Second)),
		})
	}
	switch rapid.IntRange(0, 4).Draw(t, "whose") {
	case 0:
		p.OwnerReferences = []metav1.OwnerReference{reference("apps/v1", "ReplicaSet", "rs")}
	case 1:
		p.OwnerReferences = []metav1.OwnerReference{reference("apps/v1", "StatefulSet", "sts")}
	case 2:
		p.OwnerReferences = []metav1.OwnerReference{reference("example.com/v1", "Foo", "foo")}
	}
	return p
}

func reference(version, kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true)}
}

func budget(name string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: types.UID("u-" + name), ResourceVersion: "1", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector},
	}
}

var (
	everything = &metav1.LabelSelector{}
	ofWeb      = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	nonsense   = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Foo"}}}
)

func keyOf(name string) events.Key {
	return events.Key{Namespace: reconciletest.Namespace, Name: name}
}

func TestWhoseTurnItIs(t *testing.T) {
	world := reconciletest.NewWorld().Put(kinds.PodDisruptionBudgets.Kind,
		budget("all", everything), budget("web", ofWeb), budget("none", nil), budget("odd", nonsense))
	web, other := reconciletest.Pod("p"), reconciletest.Pod("p", reconciletest.Labelled[*corev1.Pod](map[string]string{"app": "x"}))
	disrupted := other.DeepCopy()
	disrupted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	for what, c := range map[string]struct {
		was, now metav1.Object
		want     []events.Key
	}{
		"a pod":                         {nil, web, []events.Key{keyOf("all"), keyOf("web"), podKey("p")}},
		"one that went":                 {web, nil, []events.Key{keyOf("all"), keyOf("web"), podKey("p")}},
		"one with new labels":           {web, other, []events.Key{keyOf("all"), keyOf("web"), podKey("p")}},
		"one that only all selects":     {other, other, []events.Key{keyOf("all")}},
		"one that has DisruptionTarget": {nil, disrupted, []events.Key{keyOf("all"), {Kind: kinds.Pods.Name, Namespace: reconciletest.Namespace, Name: "p"}}},
	} {
		if got := world.Keys(Controller, kinds.Pods.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
	one, two := reconciletest.ReplicaSet("rs", 1), reconciletest.ReplicaSet("rs", 2)
	if got := world.Keys(Controller, kinds.ReplicaSets.Kind, one, two); len(got) != 4 {
		t.Errorf("a set that was scaled makes it the turn of %v", got)
	}
	if got := world.Keys(Controller, kinds.ReplicaSets.Kind, one, one); len(got) != 0 {
		t.Errorf("a set that was not makes it the turn of %v", got)
	}
	if got := world.Keys(Controller, kinds.ReplicaSets.Kind, one, nil); len(got) != 4 {
		t.Errorf("a set that went makes it the turn of %v", got)
	}
}

func TestObserve(t *testing.T) {
	above, set := reconciletest.Deployment("d", 5), reconciletest.ReplicaSet("rs", 2)
	lonely := reconciletest.ReplicaSet("lonely", 3)
	set.OwnerReferences = []metav1.OwnerReference{owner.Reference(kinds.Deployments.Kind, above)}
	lonely.OwnerReferences = []metav1.OwnerReference{reference("apps/v1", "Deployment", "gone")}
	old := reconciletest.Pod("old", reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, set))
	old.OwnerReferences[0].APIVersion = "extensions/v1beta1"
	away := reconciletest.Pod("away", reconciletest.In[*corev1.Pod]("elsewhere"))
	foo := reconciletest.Pod("foo")
	foo.OwnerReferences = []metav1.OwnerReference{reference("example.com/v1", "Foo", "foo")}
	world := reconciletest.NewWorld().
		Put(kinds.PodDisruptionBudgets.Kind, budget("a", everything), budget("b", ofWeb), budget("odd", nonsense)).
		Put(kinds.Deployments.Kind, above).Put(kinds.ReplicaSets.Kind, set, lonely).
		Put(kinds.Pods.Kind, old, away, foo, reconciletest.Pod("own", reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, lonely)))
	v, ok := observe(world, keyOf("a"))
	if !ok || len(v.Pods) != 3 {
		t.Errorf("the view has %d pods", len(v.Pods))
	}
	if want := (Size{Of: above.UID, Replicas: 5}); v.Sizes[set.UID] != want {
		t.Errorf("the set of a deployment is %+v", v.Sizes[set.UID])
	}
	if want := (Size{Of: lonely.UID, Replicas: 3}); v.Sizes[lonely.UID] != want {
		t.Errorf("the set of a deployment that is gone is %+v", v.Sizes[lonely.UID])
	}
	if v, ok := observe(world, keyOf("odd")); !ok || v.Select == "" || len(v.Pods) > 0 {
		t.Errorf("of a budget whose selector is none the view has %+v", v)
	}
	if _, ok := observe(world, keyOf("absent")); ok {
		t.Error("observe finds a budget that is not there")
	}
	if v, ok := observe(world, events.Key{Kind: kinds.Pods.Name, Namespace: reconciletest.Namespace, Name: "foo"}); !ok || v.Pod == nil || v.Budget != nil || !slices.Equal(v.Several, []string{"a", "b"}) {
		t.Errorf("of a pod the view has %+v", v)
	}
}

// A changed budget asks for turns of the pods that have another budget, too, unless its
// selector is unchanged.
func TestWhoseTurnABudgetMakesIt(t *testing.T) {
	db := map[string]string{"app": "db"}
	ofDB := &metav1.LabelSelector{MatchLabels: db}
	world := reconciletest.NewWorld().
		Put(kinds.PodDisruptionBudgets.Kind, budget("web", ofWeb), budget("more", ofWeb)).
		Put(kinds.Pods.Kind, reconciletest.Pod("p"), reconciletest.Pod("q", reconciletest.Labelled[*corev1.Pod](db)))
	allowing := budget("web", ofWeb)
	allowing.Status.DisruptionsAllowed = 3
	self := keyOf("web")
	for what, c := range map[string]struct {
		was, now metav1.Object
		want     []events.Key
	}{
		"it is new":               {nil, budget("web", ofWeb), []events.Key{self, podKey("p")}},
		"it is gone":              {budget("web", ofWeb), nil, []events.Key{self, podKey("p")}},
		"its status":              {budget("web", ofWeb), allowing, []events.Key{self}},
		"it selects others":       {budget("web", ofWeb), budget("web", ofDB), []events.Key{self, podKey("p")}},
		"it selects those":        {budget("web", ofDB), budget("web", ofWeb), []events.Key{self, podKey("p")}},
		"it selects what has one": {nil, budget("web", ofDB), []events.Key{self}},
	} {
		if got := world.Keys(Controller, kinds.PodDisruptionBudgets.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", what, got, c.want)
		}
	}
}

// A reference to a controller with another name or in another namespace finds none, and
// only a ReplicaSet counts as a Deployment's set.
func TestSizesOfOddControllers(t *testing.T) {
	three := int32(3)
	above, set := reconciletest.Deployment("d", 5), reconciletest.ReplicaSet("rs", 2)
	away := reconciletest.ReplicaSet("rs", 4, reconciletest.In[*appsv1.ReplicaSet]("elsewhere"))
	away.UID = "away"
	stateful := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "s", UID: "s"}, Spec: appsv1.StatefulSetSpec{Replicas: &three}}
	stateful.OwnerReferences = []metav1.OwnerReference{owner.Reference(kinds.Deployments.Kind, above)}
	unsized := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "u", UID: "u"}}
	world := reconciletest.NewWorld().Put(kinds.Deployments.Kind, above).Put(kinds.ReplicaSets.Kind, set, away).Put(kinds.StatefulSets.Kind, stateful, unsized)
	for what, c := range map[string]struct {
		ref  metav1.OwnerReference
		want int32 // 0: none
	}{
		"a set":                     {owner.Reference(kinds.ReplicaSets.Kind, set), 2},
		"a set under another name":  {reference("apps/v1", "ReplicaSet", string(set.UID)), 0},
		"one of another namespace":  {owner.Reference(kinds.ReplicaSets.Kind, away), 0},
		"one of another kind":       {owner.Reference(kinds.StatefulSets.Kind, set), 0},
		"one that is gone":          {reference("apps/v1", "ReplicaSet", "gone"), 0},
		"one that has an odd owner": {owner.Reference(kinds.StatefulSets.Kind, stateful), 3},
		"one that says no number":   {owner.Reference(kinds.StatefulSets.Kind, unsized), 0},
	} {
		p := reconciletest.Pod("p")
		p.OwnerReferences = []metav1.OwnerReference{c.ref}
		found := sizes(world, []*corev1.Pod{p})
		size, ok := found[c.ref.UID]
		if size.Replicas != c.want || ok != (c.want > 0) {
			t.Errorf("%s is of %d (%v), want %d", what, size.Replicas, ok, c.want)
		}
	}
	if _, ok := observe(world, podKey("p")); ok {
		t.Error("observe finds a pod that is not there")
	}
}

// The outcome returns the note of each question.
func TestAnswers(t *testing.T) {
	note := func(uid string) *events.Answer {
		return &events.Answer{Note: json.RawMessage(fmt.Sprintf(`{"uid":%q,"occasion":"o"}`, uid))}
	}
	said := note("a")
	said.Body = json.RawMessage(`{"metadata":{"uid":"a"},"spec":{"replicas":4}}`)
	wrong := note("d")
	wrong.Body = json.RawMessage(`[]`)
	other := note("g")
	other.Body = json.RawMessage(`{"kind":"Status","metadata":{},"code":200}`)
	world := reconciletest.NewWorld().Put(kinds.PodDisruptionBudgets.Kind, budget("web", everything)).Remember(events.Outcome{
		Key: keyOf("web"), UID: "u-web", Lane: events.LaneWrite, At: now, Results: []events.Result{
			{Status: events.Answered, Answer: said}, {Status: events.Absent, Answer: note("b"), Message: "not found"},
			{Status: events.Refused, Answer: note("c"), Message: "no such thing"}, {Status: events.Answered, Answer: wrong}, {Status: events.Answered, Answer: other}, {Status: events.Applied},
			{Status: events.Refused, Reason: "Stale", Answer: note("e")}, {Status: events.Skipped, Answer: note("f")},
		},
	})
	v, _ := observe(world, keyOf("web"))
	for uid, want := range map[types.UID]Answer{
		"a": {UID: "a", Replicas: 4}, "b": {}, "c": {Failure: "no such thing"}, "d": {Failure: "the answer cannot be read: it is no object"}, "g": {Failure: "the answer cannot be read: it is no Scale"},
	} {
		want.Note, want.At = Note{UID: uid, Occasion: "o"}, now
		if v.Answers[uid] != want {
			t.Errorf("the answer about %s is %+v, want %+v", uid, v.Answers[uid], want)
		}
	}
	if len(v.Answers) != 5 {
		t.Errorf("there are the answers %v", v.Answers)
	}
}
