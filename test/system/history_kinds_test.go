package system

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/evidence"
)

var (
	restores     = flag.Int("restores", 3, "how often TestStorageLosesKinds replaces the storage")
	lossEvidence = flag.String("evidence", "", "file that TestStorageLosesKinds writes its figures to")
)

// collectedWithin is how long the garbage collection of a Deployment may take after the storage was replaced.
const collectedWithin = 30 * time.Second

// loss is one replacement of the storage by one that lacks kinds.
type loss struct {
	Shape string `json:"shape"`
	// Seconds from the deletion of a Deployment until its ReplicaSet and pods are deleted.
	Seconds float64 `json:"seconds"`
}

// TestStorageLosesKinds replaces the storage by one that lacks a custom kind: a backup that is older than the
// kind, or an empty one, with Millrace running, or restarted on the streams of the previous cluster. The
// garbage collector reads every kind: it must not wait for a kind that is not served, and it must not take
// the absence of that kind for the absence of owners.
func TestStorageLosesKinds(t *testing.T) {
	commit, err := evidence.Commit(t.Context())
	must(t, err)
	r := beginRestored(t)
	m := r.run(t)
	var found []loss
	for round := range *restores {
		shape, lose := r.loses(round)
		began := time.Now()
		lose(t, m)
		took := r.collected(t, m)
		t.Logf("%s: collected %.1f s after the deletion, %.0f s after the beginning", shape, took.Seconds(), time.Since(began).Seconds())
		found = append(found, loss{shape, took.Seconds()})
	}
	writeEvidence(t, commit, found)
}

// loses returns what happens to the storage in a round. Afterwards there is a Deployment of two pods, named
// lost.
func (r *restored) loses(round int) (shape string, lose func(*testing.T, *together)) {
	name := fmt.Sprint("lost", round)
	lost := func(t *testing.T) { must(t, r.RestartStorage(t.Context(), os.RemoveAll)) }
	anew := func(t *testing.T) {
		r.namespace = name
		r.open(t)
		r.deploy(t, "lost", 2)
		r.expectPods(t, map[string]int{"lost": 2})
	}
	switch round % 3 {
	case 0:
		return "a backup from before the kind", func(t *testing.T, m *together) { r.beforeTheKind(t, m, name) }
	case 1:
		return "nothing at all", func(t *testing.T, m *together) { r.define(t, m, name); lost(t); anew(t) }
	default:
		return "nothing at all, and Millrace is started anew", func(t *testing.T, m *together) {
			r.define(t, m, name)
			m.stop(t)
			lost(t)
			m.again(t, r.site)
			anew(t)
		}
	}
}

// beforeTheKind makes a backup, defines a kind and restores the backup.
func (r *restored) beforeTheKind(t *testing.T, m *together, name string) {
	t.Helper()
	r.namespace = name
	r.open(t)
	r.deploy(t, "lost", 2)
	r.expectPods(t, map[string]int{"lost": 2})
	owner := metav1.OwnerReference{APIVersion: churn + "/v1", Kind: name, Name: "owner", UID: "of-a-kind-that-is-not-served"}
	_, err := r.kube.CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{owner}},
	}, metav1.CreateOptions{})
	must(t, err)
	backup := filepath.Join(t.TempDir(), "backup")
	must(t, r.RestartStorage(t.Context(), func(dir string) error { return os.CopyFS(backup, os.DirFS(dir)) }))
	r.define(t, m, name)
	must(t, r.RestartStorage(t.Context(), func(dir string) error {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(backup))
	}))
}

// define creates a kind with an object, and waits until the record has it.
func (r *restored) define(t *testing.T, m *together, name string) {
	t.Helper()
	if r.namespace != name {
		r.namespace = name
		r.open(t)
	}
	within(t, patience, "define a kind", func() string { return made(r.defineKind(t.Context(), name)) })
	objects := r.dynamic.Resource(kindResource(name)).Namespace(r.namespace)
	within(t, patience, "make an object of it", func() string {
		object := customObject(name, "one", metav1.OwnerReference{})
		object.SetOwnerReferences(nil)
		_, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
		return made(err)
	})
	within(t, patience, "the record has it", func() string {
		if said, err := r.told(t, m, "get", name+"s."+churn+"/one", "-n="+r.namespace); err != nil {
			return said
		}
		return ""
	})
}

// collected deletes the Deployment and returns how long its ReplicaSet and pods stayed.
func (r *restored) collected(t *testing.T, m *together) time.Duration {
	t.Helper()
	background := metav1.DeletePropagationBackground
	within(t, patience, "delete the Deployment", func() string {
		return ask(r.kube.AppsV1().Deployments(r.namespace).Delete(t.Context(), "lost", metav1.DeleteOptions{PropagationPolicy: &background}))
	})
	began := time.Now()
	within(t, patience, "its ReplicaSet and pods go", func() string {
		sets, err := r.kube.AppsV1().ReplicaSets(r.namespace).List(t.Context(), everything)
		if err != nil {
			return err.Error()
		}
		pods, err := r.kube.CoreV1().Pods(r.namespace).List(t.Context(), everything)
		if err != nil {
			return err.Error()
		}
		if left := len(sets.Items) + len(pods.Items); left > 0 {
			return fmt.Sprintf("%d are there", left)
		}
		return ""
	})
	took := time.Since(began)
	if took > collectedWithin {
		lag, _ := r.told(t, m, "lag")
		t.Errorf("the dependent was collected %v after its owner was deleted, want at most %v; millrace lag says\n%s", took, collectedWithin, lag)
	}
	r.keeps(t)
	return took
}

// keeps demands that no object whose owner is of a kind that is not served is being deleted.
func (r *restored) keeps(t *testing.T) {
	t.Helper()
	kept, err := r.kube.CoreV1().ConfigMaps(r.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=owned"})
	must(t, err)
	for _, c := range kept.Items {
		if c.DeletionTimestamp != nil {
			t.Errorf("the ConfigMap %s is deleted, want it to stay: its owner is of a kind that is not served", c.Name)
		}
	}
}

// told returns the output of a command about the record.
func (r *restored) told(t *testing.T, m *together, args ...string) (string, error) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), r.binary, append(args, "--nats-url="+m.nats)...).CombinedOutput()
	return string(text), err
}

// writeEvidence writes the figures to the file that the flag names.
func writeEvidence(t *testing.T, commit string, found []loss) {
	t.Helper()
	if *lossEvidence == "" {
		return
	}
	within := 0
	for _, l := range found {
		if l.Seconds <= collectedWithin.Seconds() {
			within++
		}
	}
	must(t, evidence.Write(t.Context(), *lossEvidence, map[string]any{
		"test": t.Name(), "commit": commit, "seed": "none: the order of the shapes is fixed", "limitSeconds": collectedWithin.Seconds(),
		"times": len(found), "within": within, "losses": found,
	}))
}
