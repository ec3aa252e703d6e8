package statefulset

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(shuffled),
		reconciletest.Content(40, applied),
		reconciletest.Law[View]{Name: "careful", Holds: careful},
		reconciletest.Law[View]{Name: "orderly", Holds: orderly},
		reconciletest.Law[View]{Name: "held", Holds: held},
		reconciletest.Law[View]{Name: "arrives", Holds: arrives},
		reconciletest.Law[View]{Name: "gentle", Holds: gentle},
		reconciletest.Law[View]{Name: "durable", Holds: durable},
	)
}

// careful: the controller uses no name of another pod, and deletes only the set's own pods.
func careful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		at := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == command.Name })
		switch {
		case command.Kind != kinds.Pods.Name:
		case command.Verb == events.VerbCreate && (at >= 0 || slices.Contains(v.Squatters, command.Name)):
			return fmt.Errorf("%s is to be created, and is there", command.Name)
		case command.Verb == events.VerbDelete && !owner.Controls(v.Set, v.Pods[at]):
			return fmt.Errorf("%s is not the set's to delete", command.Name)
		}
	}
	return nil
}

// orderly: where order matters, a turn creates or deletes one pod at a time, and creates
// none after one that is not available. With the feature gate MaxUnavailableStatefulSet it
// deletes as many as may be unavailable.
func orderly(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.atOnce() {
		return nil
	}
	var moved []events.Command
	for _, command := range c.Decide(v, now).Commands {
		if command.Kind == kinds.Pods.Name && command.Verb != events.VerbPatch {
			moved = append(moved, command)
		}
	}
	most := 1
	if limit, _ := v.maxUnavailable(); v.Gates.On(gate.MaxUnavailableStatefulSet) && len(moved) > 0 && moved[0].Verb == events.VerbDelete {
		most = limit
	}
	if len(moved) > most {
		return fmt.Errorf("%d pods are created or deleted at once", len(moved))
	}
	if len(moved) == 0 || moved[0].Verb != events.VerbCreate {
		return nil
	}
	s := v.stage(v.members(), history{}, now)
	for at := range v.ordinal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: moved[0].Name}}) - v.start() {
		if p := s.replicas[at]; p == nil || s.unavailable(p) {
			return fmt.Errorf("%s is created, and the pod before it is not available", moved[0].Name)
		}
	}
	return nil
}

func anyView(t *rapid.T) View {
	set := stateful("web", int32(rapid.IntRange(0, 4).Draw(t, "replicas")))
	set.Spec.PodManagementPolicy = rapid.SampledFrom([]appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement}).Draw(t, "policy")
	set.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 0, 30}).Draw(t, "minReadySeconds")
	set.Spec.RevisionHistoryLimit = ptr.To(int32(rapid.IntRange(0, 1).Draw(t, "history")))
	set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(int32(rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "partition")))
	retention := rapid.SampledFrom([]appsv1.PersistentVolumeClaimRetentionPolicyType{appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType})
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: retention.Draw(t, "when deleted"), WhenScaled: retention.Draw(t, "when scaled"),
	}
	if rapid.IntRange(0, 5).Draw(t, "start") == 0 {
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
	}
	if rapid.IntRange(0, 5).Draw(t, "deletes itself") == 0 {
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	}
	v := View{Set: set}
	if rapid.Bool().Draw(t, "several may be unavailable") {
		v.Gates = gate.Set{gate.MaxUnavailableStatefulSet: true}
		if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
			r.MaxUnavailable = ptr.To(rapid.SampledFrom([]intstr.IntOrString{intstr.FromInt32(2), intstr.FromString("80%")}).Draw(t, "max unavailable"))
		}
	}
	images := []string{"nginx:1", "nginx:2", "nginx:3"}[:rapid.IntRange(0, 3).Draw(t, "revisions")]
	for i, image := range images {
		past := set.DeepCopy()
		past.Spec.Template.Spec.Containers[0].Image = image
		r := View{Set: past}.revision(revision.Patch(&past.Spec.Template), int64(i+1))
		r.UID, r.ResourceVersion = types.UID(r.Name), "1"
		v.Revisions = append(v.Revisions, r)
		set.Status.CurrentRevision = r.Name
	}
	set.Spec.Template.Spec.Containers[0].Image = rapid.SampledFrom([]string{"nginx:1", "nginx:3"}).Draw(t, "image")
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		if rapid.IntRange(0, 4).Draw(t, "missing") > 0 {
			v.Pods = append(v.Pods, anyPod(t, fmt.Sprintf("web-%d", i), v))
		}
		if rapid.Bool().Draw(t, "claim") {
			v.Claims = append(v.Claims, anyClaim(t, i, v))
		}
	}
	if rapid.IntRange(0, 7).Draw(t, "deleted") == 0 {
		reconciletest.Deleted[*appsv1.StatefulSet](now)(set)
	}
	return v
}

func anyPod(t *rapid.T, name string, v View) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.On("n1"))
	p.Labels = map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: name}
	if len(v.Revisions) > 0 {
		p.Labels[appsv1.StatefulSetRevisionLabel] = rapid.SampledFrom(v.Revisions).Draw(t, "revision").Name
	}
	if rapid.IntRange(0, 5).Draw(t, "orphan") > 0 {
		of(v.Set)(p)
	}
	if rapid.IntRange(0, 3).Draw(t, "ready") > 0 {
		reconciletest.ReadySince(now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "since")) * time.Second))(p)
	}
	switch rapid.IntRange(0, 9).Draw(t, "odd pod") {
	case 0:
		p.Status.Phase = corev1.PodFailed
	case 1:
		p.Status.Phase = corev1.PodPending
	case 2:
		reconciletest.Deleted[*corev1.Pod](now)(p)
	case 3:
		delete(p.Labels, appsv1.StatefulSetPodNameLabel)
	}
	return p
}

func anyClaim(t *rapid.T, i int, v View) *corev1.PersistentVolumeClaim {
	c := claimed(fmt.Sprintf("data-web-%d", i))
	switch rapid.IntRange(0, 4).Draw(t, "owner") {
	case 0:
		c.OwnerReferences = []metav1.OwnerReference{owner.Reference(kinds.StatefulSets.Kind, v.Set)}
	case 1:
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprintf("web-%d", i), UID: "before", Controller: ptr.To(true)}}
	case 2:
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "x", Controller: ptr.To(true)}}
	}
	if rapid.IntRange(0, 7).Draw(t, "claim deleted") == 0 {
		reconciletest.Deleted[*corev1.PersistentVolumeClaim](now)(c)
	}
	return c
}

func shuffled(t *rapid.T, v View) View {
	v.Pods = rapid.Permutation(v.Pods).Draw(t, "pods in another order")
	v.Claims = rapid.Permutation(v.Claims).Draw(t, "claims in another order")
	v.Revisions = rapid.Permutation(v.Revisions).Draw(t, "revisions in another order")
	return v
}

// applied returns the view after every command succeeded and new pods became ready long ago.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	v.Pods, v.Claims, v.Revisions = slices.Clone(v.Pods), slices.Clone(v.Claims), slices.Clone(v.Revisions)
	for _, c := range d.Commands {
		switch c.Kind {
		case kinds.Pods.Name:
			v.Pods = changed(v.Pods, c)
			if c.Verb == events.VerbPatch {
				v = patched(v, c.Name)
			}
		case kinds.PersistentVolumeClaims.Name:
			v.Claims = changed(v.Claims, c)
		case kinds.ControllerRevisions.Name:
			v.Revisions = changed(v.Revisions, c)
		case kinds.StatefulSets.Name:
			v.Set = parsed[appsv1.StatefulSet](c.Body)
		}
		if c.Verb == events.VerbRecord && c.Note != nil {
			v.Told = parsed[note](c.Note).Told
		}
	}
	return v
}

func patched(v View, name string) View {
	at := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == name })
	p := v.Pods[at].DeepCopy()
	p.Labels[appsv1.StatefulSetPodNameLabel] = p.Name
	p.OwnerReferences = nil
	of(v.Set)(p)
	v.Pods[at] = p
	return v
}

func changed[T any, P interface {
	*T
	metav1.Object
}](all []P, c events.Command) []P {
	at := slices.IndexFunc(all, func(o P) bool { return o.GetName() == c.Name })
	switch c.Verb {
	case events.VerbCreate:
		created := P(parsed[T](c.Body))
		created.SetName(c.Name)
		created.SetUID(types.UID("uid-" + c.Name))
		created.SetResourceVersion("1")
		if p, ok := any(created).(*corev1.Pod); ok {
			p.Status.Phase = corev1.PodRunning
			reconciletest.ReadySince(now.Add(-time.Hour))(p)
		}
		return append(all, created)
	case events.VerbUpdate:
		all[at] = parsed[T](c.Body)
	case events.VerbDelete:
		return slices.Delete(all, at, at+1)
	}
	return all
}

func parsed[T any](body json.RawMessage) *T {
	var value T
	if err := json.Unmarshal(body, &value); err != nil {
		panic(err)
	}
	return &value
}

// A revision that an older API server encoded differently holds the same template, so no
// pod is replaced for it.
func TestARevisionInOtherWordsIsTheSame(t *testing.T) {
	v := View{Set: stateful("web", 0)}
	r := v.revision(revision.Patch(&v.Set.Spec.Template), 1)
	r.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"nginx:1"}]}}}}`)
	v.Revisions = []*appsv1.ControllerRevision{r}
	if h, create := v.history(); create != nil || h.update != r {
		t.Errorf("a revision with the same template is taken for another, and %+v is created", create)
	}
}

// A decision that depends on the status says so: it must wait for a report in flight.
func TestCreatesRestOnTheStatusOnlyWhereItSaysWhatTheyAreMadeOf(t *testing.T) {
	rolling := func(r *appsv1.RollingUpdateStatefulSetStrategy) appsv1.StatefulSetUpdateStrategy {
		return appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: r}
	}
	for name, c := range map[string]struct {
		strategy appsv1.StatefulSetUpdateStrategy
		blind    bool
	}{
		"no partition":            {rolling(&appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)}), true},
		"partition":               {rolling(&appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](1)}), false},
		"partition not filled in": {rolling(nil), false},
		"replaced when deleted":   {appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}, true},
	} {
		set := stateful("web", 1)
		set.Spec.UpdateStrategy, set.Spec.VolumeClaimTemplates = c.strategy, nil
		v := View{Set: set}
		for i, image := range []string{"nginx:0", "nginx:1"} {
			past := set.DeepCopy()
			past.Spec.Template.Spec.Containers[0].Image = image
			r := View{Set: past}.revision(revision.Patch(&past.Spec.Template), int64(i+1))
			v.Revisions = append(v.Revisions, r)
		}
		set.Status.CurrentRevision, set.Status.CurrentReplicas = v.Revisions[0].Name, 1
		before := decide(v, now)
		set.Status = appsv1.StatefulSetStatus{CurrentRevision: v.Revisions[1].Name}
		after := decide(v, now)
		same := events.Digest(before.In(events.LaneWrite).Commands) == events.Digest(after.In(events.LaneWrite).Commands)
		if len(before.In(events.LaneWrite).Commands) != 1 || same != c.blind || before.StatusBlind != c.blind {
			t.Errorf("%s: it says that it is blind to the status: %v, and with another status it does the same: %v; want %v", name, before.StatusBlind, same, c.blind)
		}
	}
}

// A default that the API newly gives to a field of the template replaces no pods, even if the
// set changes otherwise at the same time.
func TestANewDefaultIsNoOtherRevision(t *testing.T) {
	v := View{Set: stateful("web", 0)}
	r := v.revision(revision.Patch(&v.Set.Spec.Template), 1)
	v.Revisions = []*appsv1.ControllerRevision{r}
	v.Set.Spec.Template = *revision.Defaulted(&v.Set.Spec.Template)
	v.Set.Generation++
	if h, created := v.history(); created != nil || h.update != r {
		t.Errorf("a revision with the same template is taken for another, and %+v is created", created)
	}
	v.Set.Spec.Template.Spec.DNSPolicy = corev1.DNSDefault
	if h, created := v.history(); created == nil || h.update == r {
		t.Error("another template is taken for the same")
	}
}
