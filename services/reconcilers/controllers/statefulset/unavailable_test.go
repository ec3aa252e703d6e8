package statefulset

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// several returns a set of ten pods of the previous revision; the given ones are not available.
func several(most *intstr.IntOrString, partition int32, unavailable ...int) View {
	set := stateful("web", 10)
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	set.Spec.VolumeClaimTemplates = nil
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: most}
	v := View{Set: set, Gates: gate.Set{gate.MaxUnavailableStatefulSet: true}}
	for i, image := range []string{"nginx:1", "nginx:2"} {
		set.Spec.Template.Spec.Containers[0].Image = image
		r := v.revision(revision.Patch(&set.Spec.Template), int64(i+1))
		r.UID, r.ResourceVersion = types.UID(r.Name), "1"
		v.Revisions = append(v.Revisions, r)
	}
	set.Status.CurrentRevision = v.Revisions[0].Name
	for i := range 10 {
		name := fmt.Sprintf("web-%d", i)
		p := reconciletest.Pod(name, of(set), reconciletest.On("n1"), reconciletest.ReadySince(now.Add(-1000)))
		if slices.Contains(unavailable, i) {
			p.Status.Conditions = nil
		}
		p.Labels = map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: name, appsv1.StatefulSetRevisionLabel: v.Revisions[0].Name}
		v.Pods = append(v.Pods, p)
	}
	return v
}

// With the gate on, as many pods are replaced together as may be unavailable.
func TestSeveralRollTogether(t *testing.T) {
	number := func(n int32) *intstr.IntOrString { return ptr.To(intstr.FromInt32(n)) }
	percent := func(s string) *intstr.IntOrString { return ptr.To(intstr.FromString(s)) }
	for what, c := range map[string]struct {
		view View
		with func(*View)
		want []string
	}{
		"three":                                  {view: several(number(3), 0), want: []string{"web-9", "web-8", "web-7"}},
		"of ten a third, which is three":         {view: several(percent("33%"), 0), want: []string{"web-9", "web-8", "web-7"}},
		"less than one is one":                   {view: several(percent("1%"), 0), want: []string{"web-9"}},
		"one, where nothing is said":             {view: several(nil, 0), want: []string{"web-9"}},
		"one, before a default of the API":       {view: several(number(3), 0), with: func(v *View) { v.Set.Spec.UpdateStrategy.RollingUpdate = nil }, want: []string{"web-9"}},
		"none where what is said is not valid":   {view: several(percent("all"), 0)},
		"one that is unavailable counts":         {view: several(number(3), 0, 4), want: []string{"web-9", "web-8"}},
		"so does one below the partition":        {view: several(number(3), 5, 4), want: []string{"web-9", "web-8"}},
		"one of before that is unavailable goes": {view: several(number(3), 0, 9), want: []string{"web-9", "web-8"}},
		"but not where it is all that may be":    {view: several(number(1), 0, 9)},
		"the partition stays":                    {view: several(number(3), 8), want: []string{"web-9", "web-8"}},
		"one that is on its way out counts": {view: several(number(3), 0), with: func(v *View) {
			reconciletest.Deleted[*corev1.Pod](now)(v.Pods[9])
		}, want: []string{"web-8", "web-7"}},
		"one of the new revision stays": {view: several(number(3), 0), with: func(v *View) {
			v.Pods[8].Labels[appsv1.StatefulSetRevisionLabel] = v.Revisions[1].Name
		}, want: []string{"web-9", "web-7", "web-6"}},
		"in order, too": {view: several(number(3), 0), with: func(v *View) { v.Set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement }, want: []string{"web-9", "web-8", "web-7"}},
		"but in order one that is not ready is waited for": {view: several(number(3), 0, 9), with: func(v *View) { v.Set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement }},
		"those that their users delete": {view: several(number(3), 0), with: func(v *View) {
			v.Set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
		}},
		"the gate is off": {view: several(number(3), 0), with: func(v *View) { v.Gates = nil }, want: []string{"web-9"}},
	} {
		if c.with != nil {
			c.with(&c.view)
		}
		var got []string
		for _, command := range Controller.Decide(c.view, now).Commands {
			if command.Verb == events.VerbDelete {
				got = append(got, command.Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v are deleted, want %v", what, got, c.want)
		}
	}
}

// With the gate on, every decision has the gauges, unless maxUnavailable is invalid.
func TestUnavailablePodsAreMeasured(t *testing.T) {
	most := ptr.To(intstr.FromInt32(3))
	deletedByUsers := func(v *View) {
		v.Set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	}
	for what, c := range map[string]struct {
		view View
		with func(*View)
		want map[string]float64
	}{
		"two that are not ready":        {view: several(most, 0, 1, 2), want: map[string]float64{maxUnavailable: 3, unavailableReplicas: 2}},
		"one is missing":                {view: several(most, 0), with: func(v *View) { v.Pods = v.Pods[1:] }, want: map[string]float64{maxUnavailable: 3, unavailableReplicas: 1}},
		"a pod has to be adopted first": {view: several(most, 0), with: func(v *View) { v.Pods[3].OwnerReferences = nil }, want: map[string]float64{maxUnavailable: 3, unavailableReplicas: 0}},
		"nothing rolls":                 {view: several(most, 0, 1), with: deletedByUsers, want: map[string]float64{maxUnavailable: 1}},
		"what may be is not valid":      {view: several(ptr.To(intstr.FromString("all")), 0, 1)},
		"the gate is off":               {view: several(most, 0, 1), with: func(v *View) { v.Gates = nil }},
	} {
		if c.with != nil {
			c.with(&c.view)
		}
		got := map[string]float64{}
		for _, f := range Controller.Decide(c.view, now).Figures {
			got[f.Metric] = f.Value
			if !slices.Equal(f.Labels, []string{reconciletest.Namespace, "web", "Parallel"}) {
				t.Errorf("%s: the labels are %v", what, f.Labels)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// The settings have the controller's gates that differ from the defaults, and no others.
func TestGates(t *testing.T) {
	set := gate.Set{gate.MaxUnavailableStatefulSet: true}
	if text := string(New(set).Settings); text != `{"gates":{"MaxUnavailableStatefulSet":true}}` || New(gate.Set{gate.StorageVersionAPI: true}).Settings != nil {
		t.Errorf("the settings are %s", text)
	}
}

// With the gate off, a revision from before a default of the API counts as another template.
func TestRevisionsAreComparedByTheGate(t *testing.T) {
	v := several(nil, 0)
	v.Set.Spec.Template = *revision.Defaulted(&v.Set.Spec.Template)
	for _, c := range []struct {
		gates gate.Set
		same  bool
	}{{nil, true}, {gate.Set{gate.StatefulSetSemanticRevisionComparison: false}, false}} {
		v.Gates = c.gates
		if _, made := v.history(); (made == nil) != c.same {
			t.Errorf("under %v the revision is held to be the same: %v", c.gates, made == nil)
		}
	}
}
