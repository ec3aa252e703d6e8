package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// restored is a namespace of a cluster whose storage goes back in time.
type restored struct {
	*site
	namespace string
}

// TestStorageIsRestored makes a backup of etcd, continues, and restores it while Millrace runs.
// resourceVersions are assigned a second time, and objects that were deleted, and proven absent, exist again
// with the same uids. Millrace must delete none of them, and must manage the objects as if nothing had
// happened.
func TestStorageIsRestored(t *testing.T) {
	r := beginRestored(t)
	m := r.run(t)
	r.open(t)
	r.deploy(t, "kept", 3)
	r.deploy(t, "dropped", 2)
	r.expectPods(t, map[string]int{"kept": 3, "dropped": 2})

	backup := filepath.Join(t.TempDir(), "backup")
	must(t, r.RestartStorage(t.Context(), func(dir string) error { return os.CopyFS(backup, os.DirFS(dir)) }))
	before := r.expectPods(t, map[string]int{"kept": 3, "dropped": 2})

	r.scale(t, "kept", 6)
	r.deploy(t, "late", 2)
	r.remove(t, "dropped")
	r.expectPods(t, map[string]int{"kept": 6, "late": 2})
	r.expectStatus(t, map[string]int32{"kept": 6, "late": 2})
	expectSettled(t, connect(t, m.nats))

	must(t, r.RestartStorage(t.Context(), func(dir string) error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(backup))
	}))
	r.scale(t, "dropped", 4) // which is a decision of the new epoch
	there := r.expectPods(t, map[string]int{"kept": 3, "dropped": 4})
	r.expectKept(t, m, before, there)
	r.deploy(t, "late", 1) // a name that exists in no epoch so far
	victim := there["kept"][0]
	must(t, r.kube.CoreV1().Pods(r.namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{}))
	within(t, patience, "a pod of the Deployment is replaced", func() string {
		now := r.pods(t)
		if slices.ContainsFunc(now["kept"], func(p corev1.Pod) bool { return p.UID == victim.UID }) {
			return "it is still there"
		}
		return differs(now, map[string]int{"kept": 3, "dropped": 4, "late": 1})
	})
	r.expectStatus(t, map[string]int32{"kept": 3, "dropped": 4, "late": 1})
	r.expectNewEpoch(t, m)
}

func beginRestored(t *testing.T) *restored {
	t.Helper()
	t.Parallel()
	binary, err := sites.binary()
	must(t, err)
	r := &restored{site: &site{binary: binary}, namespace: "restored"}
	r.Cluster = clustertest.Start(t, clustertest.Options{Nodes: -1})
	must(t, r.connect())
	return r
}

// open creates the namespace, and waits for the service account, without which no pod can be created.
func (r *restored) open(t *testing.T) {
	t.Helper()
	must(t, r.arenas.CreateNamespace(t.Context(), r.namespace))
	must(t, r.arenas.AwaitAccount(t.Context(), r.namespace))
}

func (r *restored) deploy(t *testing.T, name string, replicas int32) {
	t.Helper()
	within(t, patience, "deploy "+name, func() string {
		_, err := r.kube.AppsV1().Deployments(r.namespace).Create(t.Context(), deployment(replicaSet(name, replicas)), metav1.CreateOptions{})
		return made(err)
	})
}

// deployment is a Deployment with the spec of a ReplicaSet.
func deployment(set *appsv1.ReplicaSet) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: set.Name},
		Spec:       appsv1.DeploymentSpec{Replicas: set.Spec.Replicas, Selector: set.Spec.Selector, Template: set.Spec.Template},
	}
}

func (r *restored) scale(t *testing.T, name string, replicas int32) {
	t.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	within(t, patience, "scale "+name, func() string {
		_, err := r.kube.AppsV1().Deployments(r.namespace).UpdateScale(t.Context(), name, scale, metav1.UpdateOptions{})
		return ask(err)
	})
}

// remove deletes a Deployment and waits until its ReplicaSets and pods are deleted.
func (r *restored) remove(t *testing.T, name string) {
	t.Helper()
	background := metav1.DeletePropagationBackground
	must(t, r.kube.AppsV1().Deployments(r.namespace).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}))
	within(t, patience, "nothing of "+name+" is left", func() string {
		sets, err := r.kube.AppsV1().ReplicaSets(r.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err == nil && len(sets.Items) > 0 {
			return sets.Items[0].Name + " is there"
		}
		return ask(err)
	})
}

// pods are the pods that are not being deleted, by the label of their Deployment; none while the API server
// does not answer.
func (r *restored) pods(t *testing.T) map[string][]corev1.Pod {
	t.Helper()
	found := map[string][]corev1.Pod{}
	list, err := r.kube.CoreV1().Pods(r.namespace).List(t.Context(), everything)
	if err != nil {
		return found
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			found[p.Labels["app"]] = append(found[p.Labels["app"]], p)
		}
	}
	return found
}

func differs(pods map[string][]corev1.Pod, want map[string]int) string {
	have := map[string]int{}
	for name, list := range pods {
		have[name] = len(list)
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		return fmt.Sprintf("there are %v, want %v", have, want)
	}
	return ""
}

func (r *restored) expectPods(t *testing.T, want map[string]int) (there map[string][]corev1.Pod) {
	t.Helper()
	within(t, patience, "the pods that are asked for", func() string { there = r.pods(t); return differs(there, want) })
	return there
}

// expectSettled waits until every turn has its outcome. A turn that has none when the storage is restored may
// be carried out for about a second longer, as docs/reliability.md says.
func expectSettled(t *testing.T, b bus.Bus) {
	t.Helper()
	within(t, patience, "every turn has its outcome", func() string {
		for _, controller := range running() {
			settled := map[string]uint64{}
			for _, m := range read(t, b, subject.OutcomeStream(controller)) {
				var o events.Outcome
				must(t, events.DecodeJSON(m, &o))
				of := fmt.Sprint(o.Lane, " ", o.Key)
				settled[of] = max(settled[of], o.Turn)
			}
			for _, m := range read(t, b, subject.TurnStream(controller)) {
				_, lane, key, err := subject.ParseTurn(m.Subject)
				must(t, err)
				if lane != events.LanePark && settled[fmt.Sprint(lane, " ", key)] < m.Sequence {
					return fmt.Sprintf("turn %d of %s, about %v, has none", m.Sequence, controller, key)
				}
			}
		}
		return ""
	})
}

// expectKept demands that every pod of the backup exists, because no user asked for fewer.
func (r *restored) expectKept(t *testing.T, m *together, before, now map[string][]corev1.Pod) {
	t.Helper()
	there := map[types.UID]bool{}
	for _, list := range now {
		for _, p := range list {
			there[p.UID] = true
		}
	}
	for _, list := range before {
		for _, p := range list {
			if !there[p.UID] {
				t.Errorf("the pod %s, which the backup has, was deleted after the restore; its history is\n%s", p.Name, r.history(t, m, "pod/"+p.Name)+r.history(t, m, "rs/"+p.OwnerReferences[0].Name))
			}
		}
	}
}

// history is the history of an object in the record.
func (r *restored) history(t *testing.T, m *together, of string) string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), r.binary, "history", of, "-n="+r.namespace, "--limit=0", "--nats-url="+m.nats).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v\n", text, err)
	}
	return string(text)
}

func (r *restored) expectStatus(t *testing.T, want map[string]int32) {
	t.Helper()
	within(t, patience, "every Deployment says what it has", func() string {
		list, err := r.kube.AppsV1().Deployments(r.namespace).List(t.Context(), everything)
		if err != nil {
			return err.Error()
		}
		var wrong []string
		for _, d := range list.Items {
			if d.Status.Replicas != want[d.Name] || d.Status.ObservedGeneration != d.Generation {
				wrong = append(wrong, fmt.Sprintf("%s has %d, seen %d of %d", d.Name, d.Status.Replicas, d.Status.ObservedGeneration, d.Generation))
			}
		}
		if len(list.Items) != len(want) {
			wrong = append(wrong, fmt.Sprintf("there are %d Deployments", len(list.Items)))
		}
		return strings.Join(wrong, "; ")
	})
}

// expectNewEpoch demands that the record separates the two histories.
func (r *restored) expectNewEpoch(t *testing.T, m *together) {
	t.Helper()
	b := connect(t, m.nats)
	for _, kind := range []kinds.Name{"pods", "replicasets.apps", "deployments.apps"} {
		log := read(t, b, subject.LogStream(kind))
		epochs := map[string]bool{}
		for _, message := range log {
			epochs[message.Get(events.HeaderEpoch)] = true
		}
		if len(epochs) < 2 {
			t.Errorf("the log of %s has the storage epochs %v, want another one after the restore", kind, epochs)
		}
	}
}
