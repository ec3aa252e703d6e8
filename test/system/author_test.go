package system

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/millrace/millrace/pkg/events/record"
)

// unnamed is the author of a write without a field manager.
const unnamed = "unknown"

// changedBy is one change of an object: the author of a version.
type changedBy struct{ object, author, version string }

// authors make changes as fast as they can, each in the way of the tool that it is named after.
type authors struct {
	*testing.T
	kube      kubernetes.Interface
	namespace string
	made      []changedBy
}

// TestAuthors: for every way to change an object, within a second of changes by other managers, the record
// names the right author or none.
func TestAuthors(t *testing.T) {
	s := here(t)
	m := s.run(t, "--kinds=*")
	const namespace = "authors"
	s.arena(t, namespace)
	s.abandon(t, namespace)
	a := &authors{T: t, kube: s.kube, namespace: namespace}
	ways := a.ways()
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		ways[name](strings.ReplaceAll(name, " ", "-"))
	}
	r := asker{site: s, nats: m.nats, namespace: namespace}
	right, unknown := 0, 0
	for name := range ways {
		good, known := a.judge(r, strings.ReplaceAll(name, " ", "-"))
		if good && known {
			right++
		} else if good {
			unknown++
		}
	}
	t.Logf("%d of %d ways to change an object have the right author, %d are unknown", right, len(ways), unknown)
	if right+unknown != len(ways) {
		t.Errorf("%d ways have a wrong author", len(ways)-right-unknown)
	}
	if want := len(ways) - 2; right < want {
		t.Errorf("%d ways have the right author, want at least %d: only a client that removes a field, and one that writes the same fields twice in a second, leaves no entry in managedFields", right, want)
	}
	a.ours(r, "our-controller")
	a.audited(r, s.audit)
}

// ways are the ways to change an object of a name: a Deployment or a Pod that other managers write just
// before and after.
func (a *authors) ways() map[string]func(name string) {
	patch := func(manager string, kind types.PatchType, text string) func(string) {
		return func(name string) {
			a.between(name, manager, func() metav1.Object { return a.patch(name, manager, kind, text) })
		}
	}
	image := func(version string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"nginx:` + version + `"}]}}}}`
	}
	return map[string]func(name string){
		"create":   func(name string) { a.deployment(name); a.label(name, "kubectl-label", "a") },
		"apply":    func(name string) { a.between(name, "kubectl", func() metav1.Object { return a.apply(name) }) },
		"replace":  func(name string) { a.between(name, "kubectl-replace", func() metav1.Object { return a.replace(name) }) },
		"edit":     patch("kubectl-edit", types.StrategicMergePatchType, `{"spec":{"minReadySeconds":3}}`),
		"patch":    patch("kubectl-patch", types.MergePatchType, `{"spec":{"progressDeadlineSeconds":100}}`),
		"annotate": patch("kubectl-annotate", types.MergePatchType, `{"metadata":{"annotations":{"way":"annotate"}}}`),
		"unlabel":  patch(unnamed, types.MergePatchType, `{"metadata":{"labels":{"before":null}}}`),
		"image":    patch("kubectl-set", types.StrategicMergePatchType, image("2")),
		"apply on the client": patch("kubectl-client-side-apply", types.StrategicMergePatchType,
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}},"spec":{"paused":true}}`),
		"undo": func(name string) {
			a.between(name, "kubectl-rollout", func() metav1.Object {
				a.made = append(a.made, changedBy{"deploy/" + name, "kubectl-set", a.patch(name, "kubectl-set", types.StrategicMergePatchType, image("2")).GetResourceVersion()})
				return a.patch(name, "kubectl-rollout", types.JSONPatchType, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1"}]`)
			})
		},
		"scale": func(name string) {
			a.between(name, "kubectl (scale)", func() metav1.Object { return a.scale(name, 1) })
		},
		"scale again": a.scaleAgain,
		"status":      func(name string) { a.pod(name); a.status(name, "kubelet", "first"); a.status(name, "agent", "second") },
		"status again": func(name string) {
			a.pod(name)
			a.status(name, "kubelet", "first")
			a.status(name, "kubelet", "second")
		},
		"bind":   a.bind,
		"evict":  func(name string) { a.pod(name); a.labelPod(name); a.evict(name) },
		"delete": func(name string) { a.pod(name); a.labelPod(name); a.delete(name) },
		"our controller": func(name string) {
			a.deployment(name)
			a.did("deploy/"+name, "kubectl (scale)", a.scale(name, 2), nil)
			a.label(name, "kubectl-label", "a")
		},
	}
}

func (a *authors) did(object, author string, of metav1.Object, err error) metav1.Object {
	a.Helper()
	must(a.T, err)
	a.made = append(a.made, changedBy{object, author, of.GetResourceVersion()})
	return of
}

// between makes a change of a new Deployment between those of other managers.
func (a *authors) between(name, author string, change func() metav1.Object) {
	a.Helper()
	a.deployment(name)
	a.label(name, "zeta", "before")
	a.did("deploy/"+name, author, change(), nil)
	a.label(name, "alpha", "after")
}

func (a *authors) deployment(name string) {
	a.Helper()
	labels := map[string]string{"app": name}
	d, err := a.kube.AppsV1().Deployments(a.namespace).Create(a.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx:1"}}},
			},
		},
	}, metav1.CreateOptions{FieldManager: "kubectl-create"})
	a.did("deploy/"+name, "kubectl-create", d, err)
}

func (a *authors) patch(name, manager string, kind types.PatchType, text string) metav1.Object {
	a.Helper()
	d, err := a.kube.AppsV1().Deployments(a.namespace).Patch(a.Context(), name, kind, []byte(text), metav1.PatchOptions{FieldManager: manager})
	must(a.T, err)
	return d
}

func (a *authors) label(name, manager, label string) {
	a.Helper()
	a.did("deploy/"+name, manager, a.patch(name, manager, types.MergePatchType, `{"metadata":{"labels":{"`+label+`":"x"}}}`), nil)
}

func (a *authors) apply(name string) metav1.Object {
	a.Helper()
	force := true
	d, err := a.kube.AppsV1().Deployments(a.namespace).Patch(a.Context(), name, types.ApplyPatchType,
		[]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"`+name+`"},"spec":{"revisionHistoryLimit":3}}`),
		metav1.PatchOptions{FieldManager: "kubectl", Force: &force})
	must(a.T, err)
	return d
}

func (a *authors) replace(name string) (made metav1.Object) {
	a.Helper()
	must(a.T, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		d, err := a.kube.AppsV1().Deployments(a.namespace).Get(a.Context(), name, metav1.GetOptions{})
		if err == nil {
			d.Spec.MinReadySeconds = 7
			made, err = a.kube.AppsV1().Deployments(a.namespace).Update(a.Context(), d, metav1.UpdateOptions{FieldManager: "kubectl-replace"})
		}
		return err
	}))
	return made
}

// scale writes the scale subresource; the version in the response is the Deployment's.
func (a *authors) scale(name string, n int32) metav1.Object {
	a.Helper()
	var made *autoscalingv1.Scale
	must(a.T, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale, err := a.kube.AppsV1().Deployments(a.namespace).GetScale(a.Context(), name, metav1.GetOptions{})
		if err == nil {
			scale.Spec.Replicas = n
			made, err = a.kube.AppsV1().Deployments(a.namespace).UpdateScale(a.Context(), name, scale, metav1.UpdateOptions{FieldManager: "kubectl"})
		}
		return err
	}))
	return made
}

// scaleAgain: at the second scale the managed fields entry of the scaler does not change.
func (a *authors) scaleAgain(name string) {
	a.Helper()
	a.between(name, "kubectl (scale)", func() metav1.Object {
		a.did("deploy/"+name, "kubectl (scale)", a.scale(name, 1), nil)
		a.label(name, "zeta", "between")
		return a.scale(name, 2)
	})
}

// pod creates a pod that no scheduler handles.
func (a *authors) pod(name string) {
	a.Helper()
	p, err := a.kube.CoreV1().Pods(a.namespace).Create(a.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{SchedulerName: "by-hand", Containers: []corev1.Container{{Name: "main", Image: "nginx:1"}}},
	}, metav1.CreateOptions{FieldManager: "kubectl-run"})
	a.did("pod/"+name, "kubectl-run", p, err)
}

func (a *authors) labelPod(name string) {
	a.Helper()
	p, err := a.kube.CoreV1().Pods(a.namespace).Patch(a.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{FieldManager: "kubectl-label"})
	a.did("pod/"+name, "kubectl-label", p, err)
}

func (a *authors) status(name, manager, message string) {
	a.Helper()
	text, err := json.Marshal(map[string]any{"status": map[string]any{"message": message}})
	must(a.T, err)
	p, err := a.kube.CoreV1().Pods(a.namespace).Patch(a.Context(), name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: manager}, "status")
	a.did("pod/"+name, manager+" (status)", p, err)
}

func (a *authors) bind(name string) {
	a.Helper()
	a.pod(name)
	a.status(name, "by-hand", "not yet")
	nodes, err := a.kube.CoreV1().Nodes().List(a.Context(), everything)
	must(a.T, err)
	must(a.T, a.kube.CoreV1().Pods(a.namespace).Bind(a.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodes.Items[0].Name},
	}, metav1.CreateOptions{FieldManager: "by-hand"}))
	a.labelPod(name)
}

func (a *authors) evict(name string) {
	a.Helper()
	must(a.T, a.kube.PolicyV1().Evictions(a.namespace).Evict(a.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}}))
}

func (a *authors) delete(name string) {
	a.Helper()
	must(a.T, a.kube.CoreV1().Pods(a.namespace).Delete(a.Context(), name, metav1.DeleteOptions{}))
}

// judge compares the history of the object of a way with what was done. good is false if a version has a
// wrong author; known is true if each has the right one. A version that no write of the test returned belongs
// to a controller, a kubelet, or a client without a field manager: the record must not attribute it to a
// manager of this test.
func (a *authors) judge(r asker, name string) (good, known bool) {
	a.Helper()
	good, known = true, true
	want, managers, last := map[string]string{}, map[string]bool{}, changedBy{}
	for _, c := range a.made {
		if strings.HasSuffix(c.object, "/"+name) {
			want[c.version], managers[c.author], last = c.author, c.author != unnamed, c
		}
	}
	h := a.history(r, last)
	for _, v := range h.Versions {
		author, ours := want[v.ResourceVersion]
		got := v.By.String()
		delete(want, v.ResourceVersion)
		switch {
		case ours && got == author, !ours && !managers[got]:
		case ours && got == unnamed:
			known = false
			a.Logf("%s: version %s, of %s, is unknown: %s", name, v.ResourceVersion, author, v.By.Unknown)
		default:
			good = false
			a.Errorf("%s: version %s is recorded as by %s, want %q, which made it; it changed %+v", name, v.ResourceVersion, got, author, v.Changes)
		}
		if ours && author == unnamed {
			known = false
		}
	}
	if len(want) > 0 {
		a.Errorf("%s: the history lacks the versions %v", name, want)
	}
	return good, known
}

// history waits until the record has the last of the changes, and returns the object's history.
func (a *authors) history(r asker, last changedBy) (h record.History) {
	a.Helper()
	within(a.T, patience, fmt.Sprintf("version %s of %s is on record", last.version, last.object), func() string {
		out, err := r.ask(a.T, "history", last.object, "--limit=0", "--output=json")
		if err != nil {
			return err.Error()
		}
		h = record.History{}
		must(a.T, json.Unmarshal([]byte(out), &h))
		if !slices.ContainsFunc(h.Versions, func(v record.Version) bool { return v.ResourceVersion == last.version }) {
			return "it is not"
		}
		return ""
	})
	return h
}

// ours: only our controllers write a ReplicaSet, and the record attributes each of its versions to a turn.
func (a *authors) ours(r asker, app string) {
	a.Helper()
	within(a.T, patience, "every version of the replica set is a controller's", func() string {
		sets, err := a.kube.AppsV1().ReplicaSets(a.namespace).List(a.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		must(a.T, err)
		if len(sets.Items) != 1 || sets.Items[0].Status.Replicas != 2 {
			return fmt.Sprintf("there are %d sets", len(sets.Items))
		}
		set := sets.Items[0]
		for _, v := range a.history(r, changedBy{"rs/" + set.Name, "", set.ResourceVersion}).Versions {
			if v.By.Controller == "" {
				return fmt.Sprintf("version %s is by %+v", v.ResourceVersion, v.By)
			}
		}
		return ""
	})
}

// audited: the API server's audit log names the user who deleted a pod.
func (a *authors) audited(r asker, file string) {
	a.Helper()
	var c record.Cause
	within(a.T, patience, "the audit log tells who deleted the pod", func() string {
		out, err := r.ask(a.T, "why", "pod/delete", "--audit-log="+file, "--output=json")
		if err != nil {
			return err.Error()
		}
		c = record.Cause{}
		must(a.T, json.Unmarshal([]byte(out), &c))
		if c.Version.By.User == "" {
			return fmt.Sprintf("by %+v", c.Version.By)
		}
		return ""
	})
	if c.Version.By.User != "kubernetes-admin" || c.Version.By.Manager != "" {
		a.Errorf("the pod was deleted by %+v, want the user kubernetes-admin", c.Version.By)
	}
}
