package devicetainteviction

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

const namespace = reconciletest.Namespace

var withRules = New(gate.Set{gate.DRADeviceTaintRules: true})

// slice returns a slice with devices of a pool: "d0" has the first taint, "d1" the second.
func slice(name string, generation int64, taints ...resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec.Driver, s.Spec.Pool = "d", resourcev1.ResourcePool{Name: "p", Generation: generation}
	s.Spec.Devices = []resourcev1.Device{{Name: "d0"}, {Name: "d1"}}
	for i, taint := range taints {
		if taint.Key != "" {
			s.Spec.Devices[i].Taints = []resourcev1.DeviceTaint{taint}
		}
	}
	return s
}

// claim returns a claim with the device "d0" that is reserved for pods.
func claim(name string, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "d", Pool: "p", Device: "d0"}}}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	return c
}

func pod(name, claim string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"))
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "e", ResourceClaimName: &claim}}
	return p
}

func world() *reconciletest.World {
	return reconciletest.NewWorld(kinds.Pods.Kind, kinds.ResourceClaims.Kind, kinds.ResourceSlices.Kind)
}

func TestWhichTaintsAPodSees(t *testing.T) {
	p := pod("p", "c")
	made := reconciletest.Pod("p", reconciletest.On("n1"))
	made.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "e", ResourceClaimTemplateName: ptr.To("t")}}
	made.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "e", ResourceClaimName: ptr.To("c")}}
	owned := claim("c", p)
	owned.OwnerReferences = []metav1.OwnerReference{owner.Reference(kinds.Pods.Kind, p)}
	homeless := pod("p", "c")
	homeless.Spec.NodeName = ""
	earlier := pod("p", "c")
	earlier.UID = "earlier"
	empty := claim("c", p)
	empty.Status.Allocation = nil
	soft := drive("a", time.Minute)
	soft.Effect = resourcev1.DeviceTaintEffectNoSchedule
	tainted := slice("s", 1, drive("a", time.Minute))
	for what, c := range map[string]struct {
		pod    *corev1.Pod
		claim  *resourcev1.ResourceClaim
		slices []*resourcev1.ResourceSlice
		want   int
	}{
		"its device":                    {p, claim("c", p), []*resourcev1.ResourceSlice{tainted}, 1},
		"another device":                {p, claim("c", p), []*resourcev1.ResourceSlice{slice("s", 1, resourcev1.DeviceTaint{}, drive("a", time.Minute))}, 0},
		"a taint that drives none away": {p, claim("c", p), []*resourcev1.ResourceSlice{slice("s", 1, soft)}, 0},
		"an earlier slice":              {p, claim("c", p), []*resourcev1.ResourceSlice{tainted, slice("t", 2)}, 0},
		"a later slice":                 {p, claim("c", p), []*resourcev1.ResourceSlice{slice("s", 1), slice("t", 2, drive("a", time.Minute))}, 1},
		"no slice":                      {p, claim("c", p), nil, 0},
		"without a node":                {homeless, claim("c", p), []*resourcev1.ResourceSlice{tainted}, 0},
		"reserved for the pod before":   {p, claim("c", earlier), []*resourcev1.ResourceSlice{tainted}, 0},
		"not allocated":                 {p, empty, []*resourcev1.ResourceSlice{tainted}, 0},
		"of a template":                 {made, owned, []*resourcev1.ResourceSlice{tainted}, 1},
		"of a template, and another's":  {made, claim("c", p), []*resourcev1.ResourceSlice{tainted}, 0},
		"the claim of another name":     {pod("p", "d"), claim("c", p), []*resourcev1.ResourceSlice{tainted}, 0},
	} {
		w := world().Put(kinds.Pods.Kind, c.pod).Put(kinds.ResourceClaims.Kind, c.claim)
		for _, s := range c.slices {
			w.Put(kinds.ResourceSlices.Kind, s)
		}
		v, ok := observe(w, keyOf(namespace, "p"))
		if !ok || len(v.Devices) != c.want {
			t.Errorf("%s: the view has %+v, found: %v", what, v.Devices, ok)
		}
	}
	if _, ok := observe(world(), keyOf(namespace, "p")); ok {
		t.Error("observe finds a pod that is not there")
	}
}

// The taints of rules count beside those of slices, if the controller reads rules.
func TestWhichRulesAPodSees(t *testing.T) {
	p := pod("p", "c")
	about := func(change func(*resourcev1beta2.DeviceTaintSelector)) *resourcev1beta2.DeviceTaintRule {
		r := rule(resourcev1beta2.DeviceTaintEffectNoExecute)
		change(r.Spec.DeviceSelector)
		return r
	}
	none := rule(resourcev1beta2.DeviceTaintEffectNoExecute)
	none.Spec.DeviceSelector = nil
	for what, c := range map[string]struct {
		rule *resourcev1beta2.DeviceTaintRule
		want int
	}{
		"of the driver":     {rule(resourcev1beta2.DeviceTaintEffectNoExecute), 1},
		"of all":            {about(func(s *resourcev1beta2.DeviceTaintSelector) { s.Driver = nil }), 1},
		"of the device":     {about(func(s *resourcev1beta2.DeviceTaintSelector) { s.Pool, s.Device = ptr.To("p"), ptr.To("d0") }), 1},
		"of another driver": {about(func(s *resourcev1beta2.DeviceTaintSelector) { s.Driver = ptr.To("x") }), 0},
		"of another pool":   {about(func(s *resourcev1beta2.DeviceTaintSelector) { s.Pool = ptr.To("x") }), 0},
		"of another device": {about(func(s *resourcev1beta2.DeviceTaintSelector) { s.Device = ptr.To("d1") }), 0},
		"of none":           {none, 0},
		"without effect":    {rule(resourcev1beta2.DeviceTaintEffectNone), 0},
	} {
		w := world().Put(kinds.Pods.Kind, p).Put(kinds.ResourceClaims.Kind, claim("c", p)).Put(kinds.DeviceTaintRules.Kind, c.rule)
		if v, _ := observe(w, keyOf(namespace, "p")); len(v.Devices) != c.want {
			t.Errorf("a rule %s: it sees %+v", what, v.Devices)
		}
	}
}

func TestWhatIsRemembered(t *testing.T) {
	p, key := pod("p", "c"), keyOf(namespace, "p")
	w := world().Put(kinds.Pods.Kind, p)
	for text, want := range map[string]bool{`{"announced":true}`: true, `{}`: false, `x`: false} {
		w.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: p.UID, Results: []events.Result{{Status: events.Applied, Answer: &events.Answer{Note: json.RawMessage(text)}}, {}}})
		if v, _ := observe(w, key); v.Announced != want {
			t.Errorf("of the note %s the view has %v", text, v.Announced)
		}
	}
}

func TestWhatARuleSees(t *testing.T) {
	leaving, evicted, other, tolerant := pod("leaving", "c"), pod("evicted", "c"), pod("other", "d"), pod("tolerant", "e")
	reconciletest.Deleted[*corev1.Pod](now)(leaving)
	reconciletest.Deleted[*corev1.Pod](now)(evicted)
	evicted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: why, LastTransitionTime: *ago(time.Second)}}
	p := pod("p", "c")
	unlike := claim("d", other)
	unlike.Status.Allocation.Devices.Results[0].Driver = "x"
	patient := claim("e", tolerant)
	patient.Status.Allocation.Devices.Results[0].Tolerations = []resourcev1.DeviceToleration{tolerates("k", nil)}
	w := world().Put(kinds.Pods.Kind, p, leaving, evicted, other, tolerant, reconciletest.Pod("plain")).
		Put(kinds.ResourceClaims.Kind, claim("c", p, leaving, evicted), unlike, patient).
		Put(kinds.ResourceSlices.Kind, slice("s", 1), slice("t", 2))
	key := keyOfRule(rule(""))
	w.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: "uid-r", Results: []events.Result{{Status: events.Applied, Answer: &events.Answer{Note: json.RawMessage(`{"evicted":3,"leaving":["x"]}`)}}}})
	want := []Driven{{namespace, evicted.UID, ago(time.Second), true}, {namespace, leaving.UID, nil, true}, {namespace, p.UID, nil, false}}
	for effect, counts := range map[resourcev1beta2.DeviceTaintEffect][3]int{
		resourcev1beta2.DeviceTaintEffectNoExecute: {3, 0, 0}, resourcev1beta2.DeviceTaintEffectNone: {3, 2, 2}, resourcev1beta2.DeviceTaintEffectNoSchedule: {0, 0, 0},
	} {
		w.Put(kinds.DeviceTaintRules.Kind, rule(effect))
		v, ok := observe(w, key)
		if !ok || len(v.Driven) != counts[0] || v.Published != counts[1] || v.Allocated != counts[2] || v.Tally.Evicted != 3 || len(v.Tally.Leaving) != 1 {
			t.Errorf("a rule of the effect %s sees %+v, %v", effect, v, ok)
		}
		if counts[0] > 0 && !equality.Semantic.DeepEqual(v.Driven, want) {
			t.Errorf("a rule of the effect %s sees %+v", effect, v.Driven)
		}
	}
	if _, ok := observe(world().Put(kinds.DeviceTaintRules.Kind), key); ok {
		t.Error("observe finds a rule that is not there")
	}
}

func TestWhoseTurn(t *testing.T) {
	p, other := pod("p", "c"), pod("q", "x")
	w := world().Put(kinds.Pods.Kind, p, other).Put(kinds.ResourceClaims.Kind, claim("c", p)).Put(kinds.ResourceSlices.Kind, slice("s", 1, drive("a", 0)))
	mine := []events.Key{keyOf(namespace, "p")}
	plain, moved := slice("s", 1), slice("s", 2, drive("a", 0))
	elsewhere := slice("z", 1, drive("a", 0))
	elsewhere.Spec.Pool.Name = "elsewhere"
	free := claim("c")
	unallocated := claim("c", p)
	unallocated.Status.Allocation = nil
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		"a pod whose device drives it away":  {kinds.Pods.Kind, nil, p, mine},
		"one whose device does not":          {kinds.Pods.Kind, nil, other, nil},
		"one without claims":                 {kinds.Pods.Kind, nil, reconciletest.Pod("p"), nil},
		"one that has gone":                  {kinds.Pods.Kind, p, nil, nil},
		"a claim that is reserved":           {kinds.ResourceClaims.Kind, free, claim("c", p), mine},
		"one that is not any more":           {kinds.ResourceClaims.Kind, claim("c", p), free, mine},
		"one that is allocated":              {kinds.ResourceClaims.Kind, unallocated, claim("c", p), mine},
		"one that has gone with its devices": {kinds.ResourceClaims.Kind, claim("c", p), nil, mine},
		"one that stays as it is":            {kinds.ResourceClaims.Kind, claim("c", p), claim("c", p), nil},
		"a slice that drives away":           {kinds.ResourceSlices.Kind, nil, slice("s", 1, drive("a", 0)), mine},
		"one that does not any more":         {kinds.ResourceSlices.Kind, slice("s", 1, drive("a", 0)), plain, mine},
		"one that says the same":             {kinds.ResourceSlices.Kind, slice("s", 1, drive("a", 0)), slice("s", 1, drive("a", 0)), nil},
		"one of a later generation":          {kinds.ResourceSlices.Kind, slice("s", 1, drive("a", 0)), moved, mine},
		"another one of its pool":            {kinds.ResourceSlices.Kind, nil, slice("t", 2), mine},
		"one that has gone, as it was":       {kinds.ResourceSlices.Kind, slice("t", 2), nil, mine},
		"one of another pool":                {kinds.ResourceSlices.Kind, nil, elsewhere, nil},
	} {
		if got := w.Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
	if got := world().Put(kinds.ResourceClaims.Kind, claim("c", p)).Put(kinds.ResourceSlices.Kind, plain).Keys(Controller, kinds.ResourceSlices.Kind, nil, plain); len(got) > 0 {
		t.Errorf("a slice of a pool without such taints makes it the turn of %v", got)
	}
}

func TestWhoseTurnWithRules(t *testing.T) {
	p := pod("p", "c")
	itself, mine := keyOfRule(rule("")), keyOf(namespace, "p")
	drives, idle := rule(resourcev1beta2.DeviceTaintEffectNoExecute), rule(resourcev1beta2.DeviceTaintEffectNone)
	said := rule(resourcev1beta2.DeviceTaintEffectNoExecute)
	said.Status.Conditions = []metav1.Condition{{Type: "x"}}
	again := rule(resourcev1beta2.DeviceTaintEffectNoExecute)
	again.UID = "another"
	w := world().Put(kinds.Pods.Kind, p).Put(kinds.ResourceClaims.Kind, claim("c", p)).Put(kinds.DeviceTaintRules.Kind, drives)
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		"a rule that drives away":      {kinds.DeviceTaintRules.Kind, nil, drives, []events.Key{itself, mine}},
		"one without effect":           {kinds.DeviceTaintRules.Kind, nil, idle, []events.Key{itself}},
		"one that does not any more":   {kinds.DeviceTaintRules.Kind, drives, idle, []events.Key{itself, mine}},
		"one that says something":      {kinds.DeviceTaintRules.Kind, drives, said, []events.Key{itself}},
		"one that was made anew":       {kinds.DeviceTaintRules.Kind, drives, again, []events.Key{itself, mine}},
		"one that has gone":            {kinds.DeviceTaintRules.Kind, drives, nil, []events.Key{mine}},
		"a pod that it drives away":    {kinds.Pods.Kind, nil, p, []events.Key{itself, mine}},
		"one that has gone, a pod":     {kinds.Pods.Kind, p, nil, []events.Key{itself}},
		"a claim that is not reserved": {kinds.ResourceClaims.Kind, claim("c", p), claim("c"), []events.Key{itself, mine}},
	} {
		if got := w.Keys(withRules, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
}

// The controller reads rules only with their gate.
func TestGates(t *testing.T) {
	reads := func(gates gate.Set) bool {
		for _, in := range New(gates).Inputs {
			if in.Kind.Name == kinds.DeviceTaintRules.Name {
				return true
			}
		}
		return false
	}
	if reads(nil) || !reads(gate.Set{gate.DRADeviceTaintRules: true}) {
		t.Error("rules are read where they may not be served, or not where they are")
	}
	if Controller.Settings != nil || string(withRules.Settings) != `{"gates":{"DRADeviceTaintRules":true}}` {
		t.Errorf("the settings are %s and %s", Controller.Settings, withRules.Settings)
	}
}
