package owner_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
)

var (
	web = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "4f1c"}}
	// widgets are a kind that no Go type is known for.
	widgets = kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Namespaced: true, Form: kinds.Metadata}
)

func pod(name, app string, owners ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "9",
		Labels: map[string]string{"app": app}, OwnerReferences: owners,
	}}
}

func reference(o metav1.Object) metav1.OwnerReference {
	return owner.Reference(kinds.ReplicaSets.Kind, o)
}

func TestReference(t *testing.T) {
	yes := true
	want := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "4f1c", Controller: &yes, BlockOwnerDeletion: &yes}
	if diff := cmp.Diff(want, reference(web)); diff != "" {
		t.Errorf("Reference (-want +got):\n%s", diff)
	}
}

func TestRefers(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*metav1.OwnerReference)
		want   bool
	}{
		"as it is":        {func(*metav1.OwnerReference) {}, true},
		"another version": {func(r *metav1.OwnerReference) { r.APIVersion = "apps/v1beta2" }, true},
		"another group":   {func(r *metav1.OwnerReference) { r.APIVersion = "v1" }, false},
		"no group at all": {func(r *metav1.OwnerReference) { r.APIVersion = "a/b/c" }, false},
		"another kind":    {func(r *metav1.OwnerReference) { r.Kind = "Deployment" }, false},
		"another name":    {func(r *metav1.OwnerReference) { r.Name = "api" }, false},
		"another uid":     {func(r *metav1.OwnerReference) { r.UID = "5" }, false},
	} {
		ref := reference(web)
		c.change(&ref)
		if got := owner.Refers(ref, kinds.ReplicaSets.Kind, web); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

func TestClaims(t *testing.T) {
	now := metav1.Now()
	other := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "5"}}
	plain := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: "4f1c"}
	going := pod("orphan-going", "web")
	going.DeletionTimestamp = &now
	far := pod("orphan-far", "web")
	far.Namespace = "elsewhere"
	mineGoing := pod("mine-going", "web", reference(web))
	mineGoing.DeletionTimestamp = &now
	pods := []*corev1.Pod{
		pod("theirs", "web", reference(other)), pod("mine", "web", reference(web)), mineGoing,
		pod("strayed", "db", reference(web)), pod("orphan", "web"), pod("orphan-strange", "db"), going, far,
		pod("owned-not-controlled", "web", plain),
	}
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	names := func(pods []*corev1.Pod) (names []string) {
		for _, p := range pods {
			names = append(names, p.Name)
		}
		return names
	}
	leaving := web.DeepCopy()
	leaving.DeletionTimestamp = &now
	for what, c := range map[string]struct {
		owner                            metav1.Object
		mine, adopted, released, changes []string
	}{
		"alive": {web, []string{"mine", "mine-going"}, []string{"orphan", "owned-not-controlled"}, []string{"strayed"},
			[]string{"orphan", "owned-not-controlled", "strayed"}},
		"leaving": {leaving, []string{"mine", "mine-going"}, nil, nil, nil},
	} {
		claim := owner.Claims(owner.Claimant{Kind: kinds.ReplicaSets.Kind, Owner: c.owner, Selector: selector}, kinds.Pods, pods)
		var changes []string
		for _, command := range claim.Commands {
			changes = append(changes, command.Name)
		}
		got := [][]string{names(claim.Mine), names(claim.Adopted), names(claim.Released), changes}
		if diff := cmp.Diff([][]string{c.mine, c.adopted, c.released, c.changes}, got); diff != "" {
			t.Errorf("%s: mine, adopted, released, changes (-want +got):\n%s", what, diff)
		}
	}
}

// The patches do to an object what the API server's own merge does with them.
func TestPatchesChangeOwnersAndNothingElse(t *testing.T) {
	keeper := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "keeper", UID: "k"}

	adopted := merged(t, owner.Adopt(kinds.Pods.Kind, pod("p", "web", keeper), kinds.ReplicaSets.Kind, web), pod("p", "web", keeper))
	if want := pod("p", "web", reference(web), keeper); !cmp.Equal(adopted, want) {
		t.Errorf("adopted (-want +got):\n%s", cmp.Diff(want, adopted))
	}
	released := merged(t, owner.Release(kinds.Pods.Kind, pod("p", "web", keeper, reference(web)), web.UID), pod("p", "web", keeper, reference(web)))
	if want := pod("p", "web", keeper); !cmp.Equal(released, want) {
		t.Errorf("released (-want +got):\n%s", cmp.Diff(want, released))
	}
}

func merged(t *testing.T, c events.Command, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	if c.Verb != events.VerbPatch || c.PatchType != types.StrategicMergePatchType || c.If.UID != p.UID {
		t.Errorf("%+v is no patch of %s by its uid", c, p.Name)
	}
	before, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, c.Body, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var changed corev1.Pod
	if err := json.Unmarshal(after, &changed); err != nil {
		t.Fatal(err)
	}
	return &changed
}

func TestAdoptionDependsOnALivingOwner(t *testing.T) {
	want := &events.If{UID: "uid-p", Alive: &events.Alive{
		Kind: "replicasets.apps", Version: "v1", Namespace: "shop", Name: "web", UID: "4f1c",
	}}
	if got := owner.Adopt(kinds.Pods.Kind, pod("p", "web"), kinds.ReplicaSets.Kind, web).If; !cmp.Equal(got, want) {
		t.Errorf("condition (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// A custom resource's list is replaced, so no client may have changed it.
func TestCustomResourcesGetTheWholeList(t *testing.T) {
	keeper := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "keeper", UID: "k"}
	for what, c := range map[string]struct {
		command events.Command
		want    string
	}{
		"adopt": {owner.Adopt(widgets, pod("p", "web", keeper), kinds.ReplicaSets.Kind, web),
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"keeper","uid":"k"},` +
				`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"4f1c","controller":true,"blockOwnerDeletion":true}],` +
				`"resourceVersion":"9","uid":"uid-p"}}`},
		"release one": {owner.Release(widgets, pod("p", "web", reference(web), keeper), web.UID),
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"keeper","uid":"k"}],"resourceVersion":"9","uid":"uid-p"}}`},
		"release the last": {owner.Release(widgets, pod("p", "web", reference(web)), web.UID),
			`{"metadata":{"ownerReferences":null,"resourceVersion":"9","uid":"uid-p"}}`},
	} {
		if c.command.PatchType != types.MergePatchType || c.command.If.UID != "uid-p" || c.command.If.ResourceVersion != "9" {
			t.Errorf("%s: %s, conditional on %+v", what, c.command.PatchType, c.command.If)
		}
		if got := string(c.command.Body); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, c.want)
		}
	}
}

// What changes hands with a finalizer gets it and loses it with the owner.
func TestClaimsMarkWhatIsCounted(t *testing.T) {
	with := func(p *corev1.Pod, finalizers ...string) *corev1.Pod {
		p.Finalizers = finalizers
		return p
	}
	claimant := owner.Claimant{
		Kind: kinds.ReplicaSets.Kind, Owner: web, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), Finalizer: "example.com/counted",
	}
	for _, c := range []struct{ was, want *corev1.Pod }{
		{with(pod("p", "web"), "keep"), with(pod("p", "web", reference(web)), "example.com/counted", "keep")},
		{with(pod("p", "db", reference(web)), "keep", "example.com/counted"), with(pod("p", "db"), "keep")},
	} {
		commands := owner.Claims(claimant, kinds.Pods, []*corev1.Pod{c.was}).Commands
		if len(commands) != 1 {
			t.Fatalf("%v changes hands by %v", c.was, commands)
		}
		got := merged(t, commands[0], c.was)
		if len(got.OwnerReferences) == 0 {
			got.OwnerReferences = nil
		}
		if !cmp.Equal(c.want, got) {
			t.Errorf("(-want +got):\n%s", cmp.Diff(c.want, got))
		}
	}
}
