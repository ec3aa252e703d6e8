package statefulset

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	now = reconciletest.Now
	web = events.Key{Namespace: reconciletest.Namespace, Name: "web"}
)

// stateful returns a set like a ReplicaSet, with one claim for each pod.
func stateful(name string, replicas int32) *appsv1.StatefulSet {
	like := reconciletest.ReplicaSet(name, replicas)
	set := &appsv1.StatefulSet{ObjectMeta: like.ObjectMeta, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: like.Spec.Selector, Template: like.Spec.Template, ServiceName: "web",
		UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)},
		},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
	}}
	return set
}

func of(set *appsv1.StatefulSet) reconciletest.Edit[*corev1.Pod] {
	return reconciletest.OwnedBy[*corev1.Pod](kinds.StatefulSets.Kind, set)
}

func claimed(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1",
	}}
}

func revised(name string, set *appsv1.StatefulSet) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}}}
	if set != nil {
		reconciletest.OwnedBy[*appsv1.ControllerRevision](kinds.StatefulSets.Kind, set)(r)
	}
	return r
}

func TestObserve(t *testing.T) {
	set, other := stateful("web", 3), stateful("other", 1)
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	stranger := reconciletest.Pod("web-1", of(other))
	world := reconciletest.NewWorld().Put(kinds.StatefulSets.Kind, set, other).
		Put(kinds.Pods.Kind, reconciletest.Pod("web-0", of(set)), stranger, reconciletest.Pod("stray"), reconciletest.Pod("far", reconciletest.In[*corev1.Pod]("far"))).
		Put(kinds.PersistentVolumeClaims.Kind, claimed("data-web-0"), claimed("data-web-x"), claimed("logs-web-0"), claimed("data-web-7")).
		Put(kinds.ControllerRevisions.Kind, revised("web-1", set), revised("web-2", nil), revised("web-3", other), revised("x-1", other))
	v, ok := observe(world, web)
	if !ok || len(v.Pods) != 2 || len(v.Claims) != 2 || len(v.Revisions) != 2 {
		t.Fatalf("the view has %d pods, %d claims and %d revisions", len(v.Pods), len(v.Claims), len(v.Revisions))
	}
	if !slices.Equal(v.Taken, []string{"web-3"}) || !slices.Equal(v.Squatters, []string{"web-1"}) {
		t.Errorf("taken are %v and %v", v.Taken, v.Squatters)
	}
	if _, ok := observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "absent"}); ok {
		t.Error("observe finds a set that is not there")
	}
}

func TestWhoseTurn(t *testing.T) {
	set := stateful("web", 1)
	world := reconciletest.NewWorld(kinds.Pods.Kind, kinds.PersistentVolumeClaims.Kind).Put(kinds.StatefulSets.Kind, set)
	unlabelled := reconciletest.Labelled[*corev1.Pod](nil)
	for _, c := range []struct {
		what     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		{"a pod of it", kinds.Pods.Kind, nil, reconciletest.Pod("web-0", of(set)), []events.Key{web}},
		{"an orphan that it selects", kinds.Pods.Kind, nil, reconciletest.Pod("stray"), []events.Key{web}},
		{"another pod that had a name of it", kinds.Pods.Kind, reconciletest.Pod("web-0", unlabelled), nil, []events.Key{web}},
		{"another pod", kinds.Pods.Kind, nil, reconciletest.Pod("stray", unlabelled), nil},
		{"a claim of it is gone", kinds.PersistentVolumeClaims.Kind, claimed("data-web-0"), nil, []events.Key{web}},
		{"another claim", kinds.PersistentVolumeClaims.Kind, nil, claimed("data-web-"), nil},
		{"a revision of it", kinds.ControllerRevisions.Kind, nil, revised("web-1", set), []events.Key{web}},
	} {
		if got := world.Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}

// The names of revisions are upstream's, so that a set which changes its
// controller gets no revision twice. The bytes and the hash are those of
// kube-controller-manager 1.36.
func TestRevisionsAreUpstreams(t *testing.T) {
	if got := hashOf([]byte(`{"spec":{"template":{"$patch":"replace"}}}`), 0); got != "589f85db5b" {
		t.Errorf("the hash is %s", got)
	}
	if got := hashOf([]byte(`{"spec":{"template":{"$patch":"replace"}}}`), 7); got != "589f85db67" {
		t.Errorf("after seven collisions the hash is %s", got)
	}
	set := stateful("db", 1)
	grace := int64(30)
	set.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "c", Image: "nginx:1", ImagePullPolicy: corev1.PullIfNotPresent,
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}},
		RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: corev1.DNSClusterFirst,
		SecurityContext: &corev1.PodSecurityContext{}, SchedulerName: "default-scheduler",
	}
	v := View{Set: set}
	if r := v.revision(revision.Patch(&set.Spec.Template), 1); r.Name != "db-79c7b7dfff" || r.Labels[hashLabel] != "79c7b7dfff" || r.Labels["app"] != "web" {
		t.Errorf("the revision is %s, with %v", r.Name, r.Labels)
	}
	v.Taken = []string{"db-79c7b7dfff"}
	if r := v.revision(revision.Patch(&set.Spec.Template), 1); r.Name != "db-79c7b7dffd" {
		t.Errorf("where that is taken it is %s", r.Name)
	}
}
