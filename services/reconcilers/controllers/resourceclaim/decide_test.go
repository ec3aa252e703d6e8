package resourceclaim

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

// pod returns a pod that asks for claims by the template "t", one for each entry.
func pod(name string, entries ...string) *corev1.Pod {
	p := reconciletest.Pod(name)
	for _, e := range entries {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: e, ResourceClaimTemplateName: ptr.To("t")})
	}
	return p
}

// says adds the claim of an entry to a pod's status.
func says(p *corev1.Pod, entry, claim string) *corev1.Pod {
	p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: entry, ResourceClaimName: &claim})
	return p
}

func plan(name string) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec: resourcev1.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "b"}},
			Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu"}}}},
		},
	}
}

// claim returns a claim that has devices and is reserved for pods.
func claim(name string, reservedFor ...*corev1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Finalizers: []string{protection},
	}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, p := range reservedFor {
		c.Status.ReservedFor = append(c.Status.ReservedFor, reference(p.Name, p.UID))
	}
	return c
}

func reference(name string, uid types.UID) resourcev1.ResourceClaimConsumerReference {
	return resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: uid}
}

// of marks a claim as made for an entry of a pod.
func of(p *corev1.Pod, entry string, c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	c.OwnerReferences = []metav1.OwnerReference{owner.Reference(kinds.Pods.Kind, p)}
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, resourcev1.PodResourceClaimAnnotation, entry)
	return c
}

func deleted[T metav1.Object](obj T) T {
	reconciletest.Deleted[T](now)(obj)
	return obj
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLawsOfPods(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyPod), now, reconciletest.Content(4, applied),
		reconciletest.Law[View]{Name: "one claim for an entry", Holds: single})
}

func TestLawsOfClaims(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyClaim), now, reconciletest.Content(12, applied),
		reconciletest.Law[View]{Name: "careful with reservations", Holds: keeping},
		reconciletest.Law[View]{Name: "careful with devices", Holds: lending})
}

func anyPod(t *rapid.T) View {
	entries := []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "entries")]
	p := pod("p", entries...)
	v := View{Pod: p, Templates: []*resourcev1.ResourceClaimTemplate{plan("t")}, Names: map[string]string{}}
	for i, e := range entries {
		v.Names[e] = "p-" + e + "-new"
		switch rapid.IntRange(0, 7).Draw(t, "entry "+e) {
		case 0:
			p.Spec.ResourceClaims[i].ResourceClaimTemplateName = ptr.To("missing")
		case 1:
			p.Spec.ResourceClaims[i] = corev1.PodResourceClaim{Name: e, ResourceClaimName: ptr.To("given")}
		case 2:
			p.Spec.ResourceClaims[i].ResourceClaimTemplateName = nil
		}
		had := "p-" + e + "-old"
		switch rapid.IntRange(0, 4).Draw(t, "status "+e) {
		case 0:
			says(p, e, had)
		case 1:
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: e})
		}
		switch rapid.IntRange(0, 3).Draw(t, "claim "+e) {
		case 0:
			v.Claims = append(v.Claims, of(p, e, claim(had)))
		case 1:
			v.Claims = append(v.Claims, claim(had))
		}
	}
	switch rapid.IntRange(0, 5).Draw(t, "end") {
	case 0:
		deleted(p)
	case 1:
		p.Status.Phase = corev1.PodFailed
	}
	if rapid.IntRange(0, 5).Draw(t, "gates") == 0 {
		v.Gates = gate.Set{gate.DRAPrioritizedList: false}
		v.Templates[0].Spec.Spec.Devices.Requests[0].FirstAvailable = []resourcev1.DeviceSubRequest{{Name: "x"}}
	}
	return v
}

func anyClaim(t *rapid.T) View {
	v := View{Claim: claim("c")}
	for _, name := range []string{"a", "b"} {
		p := reconciletest.Pod(name)
		if rapid.Bool().Draw(t, name+" has a node") {
			p.Spec.NodeName = "n"
		}
		switch rapid.IntRange(0, 5).Draw(t, name+" ends") {
		case 0:
			p.Status.Phase = corev1.PodSucceeded
		case 1:
			deleted(p)
		}
		switch rapid.IntRange(0, 3).Draw(t, name+" is seen") {
		case 0:
		case 1:
			p.UID = "another-" + p.UID
			v.Pods = append(v.Pods, p)
		default:
			v.Pods = append(v.Pods, p)
		}
		if rapid.Bool().Draw(t, "reserved for "+name) {
			v.Claim.Status.ReservedFor = append(v.Claim.Status.ReservedFor, reference(name, types.UID("uid-"+name)))
		}
		if rapid.Bool().Draw(t, name+" was asked for") {
			if v.Live == nil {
				v.Live, v.At = map[string]types.UID{}, now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds ago"))*time.Second)
			}
			v.Live[name] = rapid.SampledFrom([]types.UID{"", types.UID("uid-" + name), "another"}).Draw(t, "the answer")
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "made for a") == 0 {
		of(reconciletest.Pod("a"), "e", v.Claim)
	}
	if rapid.IntRange(0, 5).Draw(t, "of a group") == 0 {
		v.Claim.Status.ReservedFor = append(v.Claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "a", UID: "g"})
	}
	if rapid.IntRange(0, 3).Draw(t, "waiting") == 0 {
		v.Waiting = append(v.Waiting, reconciletest.Pod("w", reconciletest.On("n")))
	}
	if rapid.IntRange(0, 3).Draw(t, "deleted") == 0 {
		deleted(v.Claim)
		v.Waiting = nil
	}
	if rapid.IntRange(0, 3).Draw(t, "without devices") == 0 {
		v.Claim.Status.Allocation, v.Claim.Status.ReservedFor, v.Waiting = nil, nil, nil
		v.Deallocated = rapid.Bool().Draw(t, "let go of")
	}
	if rapid.IntRange(0, 3).Draw(t, "unprotected") == 0 {
		v.Claim.Finalizers = nil
	}
	return v
}

// applied returns the view after every command succeeded; a pod that was asked about does not exist.
func applied(v View, d reconcile.Decision, now time.Time) View {
	v.Claims = slices.Clone(v.Claims)
	for _, c := range d.Commands {
		switch {
		case c.Verb == events.VerbRecord:
			v.Told = append(v.Told, c.Name)
		case c.Verb == events.VerbAsk:
			live := map[string]types.UID{}
			for name, uid := range v.Live {
				if now.Before(v.At.Add(lasting)) {
					live[name] = uid
				}
			}
			live[c.Name], v.Live, v.At = "", live, now
		case c.Verb == events.VerbCreate:
			v.Claims = append(v.Claims, decoded(c.Body, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}))
		case c.Verb == events.VerbPatch:
			v.Pod = v.Pod.DeepCopy()
			for _, said := range decoded(c.Body, &corev1.Pod{}).Status.ResourceClaimStatuses {
				v.Pod.Status.ResourceClaimStatuses = slices.DeleteFunc(v.Pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == said.Name })
				v.Pod.Status.ResourceClaimStatuses = append(v.Pod.Status.ResourceClaimStatuses, said)
			}
		case c.Verb == events.VerbUpdate:
			v.Claim = decoded(c.Body, &resourcev1.ResourceClaim{})
			v.Deallocated, v.Live, v.Waiting = c.Subresource == "status", nil, nil
		case c.Verb == events.VerbDelete:
			v.Claim = deleted(v.Claim.DeepCopy())
		}
	}
	return v
}

func decoded[T any](body json.RawMessage, into *T) *T {
	if err := json.Unmarshal(body, into); err != nil {
		panic(err)
	}
	return into
}

// single: a claim is created only for an entry that has none, and only one.
func single(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	had := map[string]bool{}
	for _, c := range v.Claims {
		if owner.Controls(v.Pod, c) {
			had[c.Annotations[resourcev1.PodResourceClaimAnnotation]] = true
		}
	}
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbCreate {
			continue
		}
		made := decoded(command.Body, &resourcev1.ResourceClaim{})
		entry := made.Annotations[resourcev1.PodResourceClaimAnnotation]
		if had[entry] || !owner.Controls(v.Pod, made) {
			return fmt.Errorf("the decision creates %s for the entry %s", command.Name, entry)
		}
		had[entry] = true
	}
	return nil
}

// keeping: a reservation is removed only from a pod that is seen to have ended, or that the
// API server did not have a moment ago; a claim is deleted only for such a pod.
func keeping(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	certain := func(name string, uid types.UID) bool {
		for _, p := range v.Pods {
			if p.Name == name && p.UID == uid {
				return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
			}
		}
		live, told := v.Live[name]
		return told && live != uid && now.Sub(v.At) < lasting
	}
	for _, command := range c.Decide(v, now).Commands {
		switch {
		case command.Verb == events.VerbDelete:
			if o := v.Claim.OwnerReferences[0]; len(v.Claim.Status.ReservedFor) > 0 || !certain(o.Name, o.UID) {
				return fmt.Errorf("the decision deletes the claim of a pod that may run")
			}
		case command.Verb == events.VerbUpdate && command.Subresource == "status":
			left := decoded(command.Body, &resourcev1.ResourceClaim{}).Status.ReservedFor
			for _, by := range v.Claim.Status.ReservedFor {
				if !slices.Contains(left, by) && (by.APIGroup != "" || !certain(by.Name, by.UID)) {
					return fmt.Errorf("it takes the reservation of %s", by.Name)
				}
			}
		}
	}
	return nil
}

// lending: devices are deallocated only when the claim is reserved for no pod, and the
// finalizer stays while the claim has devices.
func lending(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbUpdate {
			continue
		}
		next := decoded(command.Body, &resourcev1.ResourceClaim{})
		lost := v.Claim.Status.Allocation != nil && next.Status.Allocation == nil
		if lost && (len(next.Status.ReservedFor) > 0 || !finalizer.Has(v.Claim, protection)) {
			return fmt.Errorf("it lets go of devices that are reserved, or of another allocator")
		}
		if !finalizer.Has(next, protection) && finalizer.Has(v.Claim, protection) && (next.Status.Allocation != nil || len(next.Status.ReservedFor) > 0) {
			return fmt.Errorf("it removes the finalizer of a claim that has devices")
		}
	}
	return nil
}

// The names of claims leave room for both names that they are made of.
func TestStem(t *testing.T) {
	long := "a123456789b123456789c123456789d123456789e123456789"
	for _, c := range [][3]string{
		{"web", "gpu", "web-gpu-"},
		{long, "gpu2345", "a123456789b123456789c123456789d123456789e123456789-gpu2345"[:len(long)*57/59] + "-" + "gpu2345"[:7*57/59]},
		{long, long, long[:50*57/102] + "-" + long[:50*57/102]},
	} {
		if got := stem(c[0], c[1]); got != c[2] {
			t.Errorf("stem(%s, %s) = %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// A claim that cannot be created is reported once; those before it are created first.
func TestWhatCannotBeMadeIsToldOnce(t *testing.T) {
	p := pod("p", "a", "b")
	p.Spec.ResourceClaims[1].ResourceClaimTemplateName = ptr.To("missing")
	v := View{Pod: p, Templates: []*resourcev1.ResourceClaimTemplate{plan("t")}, Names: map[string]string{"a": "p-a-1", "b": "p-b-1"}}
	d := decide(v, now)
	if len(d.Commands) != 1 || d.Commands[0].Name != "p-a-1" || len(d.Figures) != 2 {
		t.Fatalf("the decision has the commands %+v", d)
	}
	v = applied(v, d, now)
	d = decide(v, now)
	want := `PodResourceClaim b: resource claim template "missing": resourceclaimtemplate.resource.k8s.io "missing" not found`
	if len(d.Commands) != 1 || d.Commands[0].OnApplied == nil || d.Commands[0].OnApplied.Message != want {
		t.Fatalf("with the first claim it wants %+v", d.Commands)
	}
	v = applied(v, d, now)
	if d = decide(v, now); len(d.Commands) > 0 {
		t.Fatalf("then the decision has the commands %+v", d.Commands)
	}
	other := plan("missing")
	other.Spec.Spec.Devices.Requests[0].FirstAvailable = []resourcev1.DeviceSubRequest{{Name: "x"}}
	v.Templates, v.Gates = append(v.Templates, other), gate.Set{gate.DRAPrioritizedList: false}
	if d = decide(v, now); len(d.Commands) != 1 || d.Commands[0].OnApplied == nil {
		t.Fatalf("with a template that may not be used the commands are %+v, want one Event", d.Commands)
	}
	if v.Gates = nil; len(decide(v, now).Commands) != 1 || decide(v, now).Commands[0].Name != "p-b-1" {
		t.Fatalf("of one that may the decision has the commands %+v", decide(v, now).Commands)
	}
}

// More pods than a claim can be reserved for have to wait.
func TestAFullClaim(t *testing.T) {
	v := View{Claim: claim("c"), Waiting: []*corev1.Pod{reconciletest.Pod("w", reconciletest.On("n")), reconciletest.Pod("x", reconciletest.On("n"))}}
	for i := range resourcev1.ResourceClaimReservedForMaxSize - 1 {
		p := reconciletest.Pod(fmt.Sprint("p", i), reconciletest.On("n"))
		v.Pods = append(v.Pods, p)
		v.Claim.Status.ReservedFor = append(v.Claim.Status.ReservedFor, reference(p.Name, p.UID))
	}
	d := decide(v, now)
	if len(d.Commands) != 1 || !d.Sure {
		t.Fatalf("the decision has the commands %+v", d)
	}
	if left := decoded(d.Commands[0].Body, &resourcev1.ResourceClaim{}).Status.ReservedFor; len(left) != 256 || left[255].Name != "w" {
		t.Errorf("the claim is reserved for %d pods, the last is %v; want 256 and w", len(left), left[len(left)-1])
	}
}

// A claim whose pod exists, by an answer of the API server, has a turn when the answer is old.
func TestAPodThatIsNotSeen(t *testing.T) {
	v := View{Claim: claim("c", reconciletest.Pod("a")), Live: map[string]types.UID{"a": "uid-a"}, At: now}
	if d := decide(v, now); !d.WakeAt.Equal(now.Add(lasting)) || len(d.Commands) > 0 {
		t.Errorf("with a pod that exists the decision is %+v, want a wake when the answer is old", d)
	}
	v.Unread = &reconcile.Unread{Because: "no", At: now}
	v.Live = nil
	if d := decide(v, now); len(d.Commands) > 0 || d.WakeAt.IsZero() {
		t.Errorf("with an answer that cannot be read the decision is %+v, want a wake", d)
	}
}

// The gauge's labels are whether a claim has devices, whether it has admin access, and its origin.
func TestCounted(t *testing.T) {
	plain, admin, extended := claim("c"), of(reconciletest.Pod("p"), "e", claim("c")), claim("c")
	plain.Status.Allocation = nil
	admin.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "a", Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: ptr.To(true)}}}
	extended.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true", resourcev1.PodResourceClaimAnnotation: "e"}
	for _, c := range []struct {
		claim *resourcev1.ResourceClaim
		want  []string
	}{
		{plain, []string{"false", "false", ""}}, {admin, []string{"true", "true", "resource_claim_template"}}, {extended, []string{"true", "false", "extended_resource"}},
	} {
		d := decide(View{Claim: c.claim}, now)
		if f := d.Figures[len(d.Figures)-1]; f.Metric != claims || f.Value != 1 || !slices.Equal(f.Labels, c.want) {
			t.Errorf("the figures are %+v, want %v", f, c.want)
		}
	}
}
