package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	upstream "k8s.io/kubernetes/pkg/controller/disruption"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/disruption"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/settle"
)

// Budgets is a world of budgets, with the scales of its custom objects by name. Some objects of kind Foo have
// a scale, none of kind Bar has, and there is no other custom kind.
type Budgets struct {
	World  []runtime.Object
	Scales map[string]Scale
}

// Scale is the scale of a custom object.
type Scale struct {
	UID      types.UID
	Replicas int32
}

// Custom is the group of the custom kinds.
var Custom = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Compare leaves both alone with a world and shows how the budgets, the pods' disruptions and the Events
// differ in the end.
//
// Not compared: which of several reasons is given for an unknown number of pods, because upstream checks them
// in no order; which of several budgets of a pod is named, which is random in upstream; upstream's repeated
// Events at each sync of a status that already has the news; and the name of the budget in NotDeleted, where
// upstream writes the namespace twice.
func (b Budgets) Compare(t *testing.T) (diff string, err error) {
	ours, err := b.ours()
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	var theirs []string
	failed := kcm.WithGates(nil, func() { synctest.Test(t, func(*testing.T) { theirs, err = b.theirs() }) })
	if err = errors.Join(failed, err); err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	return b.diff(theirs, ours), nil
}

func (b Budgets) diff(theirs, ours []string) string {
	var page strings.Builder
	for _, line := range effect.Missing(theirs, ours) {
		if event, told := strings.CutPrefix(line, "told "); told && !b.isNews(event, ours) {
			exemption.Uses("budget-told-again")
			continue
		}
		fmt.Fprintln(&page, "-", line)
	}
	for _, line := range effect.Missing(ours, theirs) {
		fmt.Fprintln(&page, "+", line)
	}
	return page.String()
}

// isNews reports whether upstream's Event about a budget comes with a new status.
func (b Budgets) isNews(event string, ours []string) bool {
	for _, obj := range b.World {
		if was, ok := obj.(*policyv1.PodDisruptionBudget); ok && strings.Contains(event, " "+was.Name+" ") {
			return !slices.Contains(ours, budgetLine(was))
		}
	}
	return true
}

// theirs is the final state with upstream's controller.
func (b Budgets) theirs() ([]string, error) {
	var tracker clienttesting.ObjectTracker
	build := func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
		client := c.(*fake.Clientset)
		tracker = client.Tracker()
		client.PrependReactor("update", "*", unchanged(tracker))
		client.Resources = scaled()
		dc := upstream.NewDisruptionController(ctx, f.Core().V1().Pods(), f.Policy().V1().PodDisruptionBudgets(),
			f.Core().V1().ReplicationControllers(), f.Apps().V1().ReplicaSets(), f.Apps().V1().Deployments(), f.Apps().V1().StatefulSets(),
			client, mapper(), b.scaler(), client.Discovery())
		return func() {
			var changes sync.WaitGroup
			changes.Go(func() { changed(ctx, tracker) })
			dc.Run(ctx)
			changes.Wait()
		}, nil
	}
	settled, err := settle.SettleTheirs(build, objects.Copied(b.World), objects.Now, 2*time.Second)
	if err != nil {
		return nil, err
	}
	lines := heard(settled.Told)
	for _, kind := range []kinds.Kind{kinds.PodDisruptionBudgets.Kind, kinds.Pods.Kind} {
		list, err := tracker.List(kind.GVR(), kind.GVK(), settle.NamespaceOf(b.World))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Name, err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, fmt.Errorf("read the list of %s: %w", kind.Name, err)
		}
		lines = append(lines, picture(objects)...)
	}
	return lines, nil
}

// changed updates every pod once, without a relevant change. Upstream emits Events about the budgets of a pod
// when it sees the pod, and at its start it may see pods before it knows a budget.
func changed(ctx context.Context, tracker clienttesting.ObjectTracker) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(10 * time.Millisecond):
	}
	list, err := tracker.List(kinds.Pods.GVR(), kinds.Pods.GVK(), metav1.NamespaceAll)
	if err != nil {
		panic(err) // a tracker has all objects that it was made with
	}
	for _, p := range list.(*corev1.PodList).Items {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "example.com/changed", "once")
		if err := tracker.Update(kinds.Pods.GVR(), &p, p.Namespace); err != nil {
			panic(err)
		}
	}
}

// scaled is the discovery document: the resources with a scale.
func scaled() (all []*metav1.APIResourceList) {
	for version, resources := range map[string][]string{
		"v1": {"replicationcontrollers"}, "apps/v1": {"replicasets", "statefulsets"}, Custom.String(): {"foos"},
	} {
		list := &metav1.APIResourceList{GroupVersion: version}
		for _, r := range resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: r + "/scale", Group: "autoscaling", Version: "v1", Kind: "Scale"})
		}
		all = append(all, list)
	}
	return all
}

// unchanged answers an update without a change as an API server does: no watch sees it.
func unchanged(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		next := action.(clienttesting.UpdateAction).GetObject()
		was, err := tracker.Get(action.GetResource(), action.GetNamespace(), objects.NameOf(next))
		return err == nil && equality.Semantic.DeepEqual(was, next), was, nil
	}
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{Custom})
	m.Add(Custom.WithKind("Foo"), meta.RESTScopeNamespace)
	m.Add(Custom.WithKind("Bar"), meta.RESTScopeNamespace)
	for _, kind := range []kinds.Kind{kinds.ReplicationControllers.Kind, kinds.ReplicaSets.Kind, kinds.StatefulSets.Kind} {
		m.Add(kind.GVK(), meta.RESTScopeNamespace)
	}
	return m
}

// scaler serves the scales of all objects.
func (b Budgets) scaler() *scalefake.FakeScaleClient {
	client := &scalefake.FakeScaleClient{}
	client.AddReactor("get", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource, name := action.GetResource().GroupResource(), action.(clienttesting.GetAction).GetName()
		scale, ok := b.scale(resource, name)
		if !ok {
			return true, nil, apierrors.NewNotFound(resource, name)
		}
		return true, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: scale.UID}, Spec: autoscalingv1.ScaleSpec{Replicas: scale.Replicas},
		}, nil
	})
	return client
}

func (b Budgets) scale(resource schema.GroupResource, name string) (Scale, bool) {
	if resource.Resource == "foos" {
		s, ok := b.Scales[name]
		return s, ok
	}
	for _, obj := range b.World {
		if objects.ResourceOf(obj) == resource.Resource && obj.(objects.Object).GetName() == name {
			n, ok := wants(obj)
			return Scale{UID: obj.(objects.Object).GetUID(), Replicas: n}, ok
		}
	}
	return Scale{}, false
}

// wants is the number of pods that a built-in object wants.
func wants(obj runtime.Object) (n int32, ok bool) {
	var replicas *int32
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		replicas = o.Spec.Replicas
	case *appsv1.StatefulSet:
		replicas = o.Spec.Replicas
	case *corev1.ReplicationController:
		replicas = o.Spec.Replicas
	}
	if replicas == nil {
		return 0, false
	}
	return *replicas, true
}

// ours is the final state with our controller.
func (b Budgets) ours() ([]string, error) {
	settled, err := settle.SettleAsking(disruption.Controller, b.World, objects.Now, b.answer)
	if err != nil {
		return nil, err
	}
	return append(heard(settled.Told), picture(settled.World)...), nil
}

// answer answers a question about a scale as the writer does.
func (b Budgets) answer(c events.Command) events.Result {
	r := events.Result{Status: events.Answered, Answer: &events.Answer{Note: c.Note}}
	kind := schema.FromAPIVersionAndKind(c.Of.APIVersion, c.Of.Kind)
	mapping, err := mapper().RESTMapping(kind.GroupKind(), kind.Version)
	scale, there := Scale{}, false
	if err == nil {
		scale, there = b.scale(mapping.Resource.GroupResource(), c.Of.Name)
	}
	switch {
	case err != nil:
		r.Status, r.Reason, r.Message = events.Refused, query.NoMatch, err.Error()
	case kind.Kind == "Bar":
		r.Status, r.Code, r.Reason = events.Refused, http.StatusNotImplemented, query.NoSubresource
		r.Message = fmt.Sprintf("%s does not implement the scale subresource", mapping.Resource.GroupResource())
	case !there:
		r.Status = events.Absent
	default:
		r.Answer.Body = reconcile.Body(autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{UID: scale.UID}, Spec: autoscalingv1.ScaleSpec{Replicas: scale.Replicas},
		})
	}
	return r
}

// picture are the compared lines of a world.
func picture(world []runtime.Object) (lines []string) {
	for _, obj := range world {
		switch o := obj.(type) {
		case *policyv1.PodDisruptionBudget:
			lines = append(lines, budgetLine(o))
		case *corev1.Pod:
			for _, c := range o.Status.Conditions {
				if c.Type == corev1.DisruptionTarget {
					lines = append(lines, fmt.Sprintf("pod %s: %s", o.Name, effect.JSON(effect.NonEmpty(settle.Timeless(effect.Parse(reconcile.Body(c)))))))
				}
			}
		}
	}
	return lines
}

func budgetLine(b *policyv1.PodDisruptionBudget) string {
	return unblamed(fmt.Sprintf("budget %s: %s", b.Name, effect.JSON(effect.NonEmpty(settle.Timeless(effect.Parse(reconcile.Body(b.Status)))))))
}

// heard are the Events, each once.
func heard(told []string) (lines []string) {
	for _, event := range told {
		if before, _, several := strings.Cut(event, "matches multiple PodDisruptionBudgets"); several {
			exemption.Uses("which-budget")
			event = before
		}
		if before, _, late := strings.Cut(event, "Pod was expected by PDB"); late {
			exemption.Uses("not-deleted")
			event = before + "Pod was expected to be deleted"
		}
		if line := "told " + unblamed(event); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// blame matches the reason why the number of pods is unknown.
var blame = regexp.MustCompile(`found no controllers for pod \\?"[^"]*"|no matches for kind \\?"[^"]*" in version \\?"[^"]*"|bars\.example\.com does not implement the scale subresource`)

func unblamed(line string) string {
	if blame.MatchString(line) {
		exemption.Uses("why-no-size")
	}
	return blame.ReplaceAllString(line, "*")
}
