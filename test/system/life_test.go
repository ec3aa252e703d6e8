package system

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	first  = "nginx:1.28"
	second = "nginx:1.29"
)

// TestLife runs typical actions of users side by side, and then checks the whole: the writes are those in the
// record, the record has no secret, and at rest no request writes.
func TestLife(t *testing.T) {
	s := here(t)
	since := s.mark(t)
	m := s.run(t)
	canary := s.plantSecret(t)
	var stories sync.WaitGroup // as parallel tests they would wait until all tests of the package have begun
	for name, play := range map[string]func(*testing.T, *site){
		"deployment": playDeployment, "namespace": playNamespace, "quota": playQuota,
		"foreground": playForeground, "orphan": playOrphan, "custom resource": playCustomResource,
	} {
		stories.Go(func() { t.Run(name, func(t *testing.T) { play(t, s) }) })
	}
	stories.Wait()
	s.expectRest(t)
	b := connect(t, m.nats)
	expectComplete(t, s.writes(t, since), ended(t, b), outcomes(t, b))
	expectNoSecret(t, b, canary)
	m.stop(t) // a file that is being replaced cannot be read
	expectNoSecretOnDisk(t, m.dataDir, canary)
}

func playDeployment(t *testing.T, s *site) {
	a := s.arena(t, "life")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))

	created := a.Created()
	_, err := a.DeletePod(t.Context())
	must(t, err)
	until(t, a, clustertest.Replaced(created, 3))

	must(t, a.SetImage(t.Context(), "web", second))
	until(t, a, clustertest.RolledOut("web", second, 3))
	must(t, a.Undo(t.Context(), "web"))
	until(t, a, clustertest.RolledOut("web", first, 3))

	clear(t, a)
	if most := a.Most(); most > 4 {
		t.Errorf("%d pods at a time, want at most 3 and 1 more while rolling out", most)
	}
	// Upstream: the reasons and components that people's alerts look for.
	for _, want := range []string{
		"Deployment ScalingReplicaSet deployment-controller",
		"ReplicaSet SuccessfulCreate replicaset-controller",
		"ReplicaSet SuccessfulDelete replicaset-controller",
	} {
		within(t, patience, "an Event "+want, func() string {
			told, err := s.kube.CoreV1().Events(a.Namespace).List(t.Context(), everything)
			if err != nil {
				return err.Error()
			}
			seen := map[string]bool{}
			for _, e := range told.Items {
				seen[e.InvolvedObject.Kind+" "+e.Reason+" "+e.Source.Component] = true
			}
			if !seen[want] {
				return fmt.Sprintf("there are %v", seen)
			}
			return ""
		})
	}
}

func playNamespace(t *testing.T, s *site) {
	ca, err := os.ReadFile(s.RootCAFile())
	must(t, err)
	a := s.arena(t, "furnished") // which waits for the service account
	published := func() string {
		m, err := s.kube.CoreV1().ConfigMaps(a.Namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case m.Data["ca.crt"] != string(ca):
			return fmt.Sprintf("it holds %q", m.Data["ca.crt"])
		}
		return ""
	}
	within(t, patience, "kube-root-ca.crt", published)
	before, err := s.kube.CoreV1().ConfigMaps(a.Namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	must(t, err)
	before.Data["ca.crt"] = "of a user"
	_, err = s.kube.CoreV1().ConfigMaps(a.Namespace).Update(t.Context(), before, metav1.UpdateOptions{})
	must(t, err)
	within(t, patience, "kube-root-ca.crt, after it was changed", published)

	account, err := s.kube.CoreV1().ServiceAccounts(a.Namespace).Get(t.Context(), "default", metav1.GetOptions{})
	must(t, err)
	must(t, s.kube.CoreV1().ServiceAccounts(a.Namespace).Delete(t.Context(), "default", metav1.DeleteOptions{}))
	must(t, s.kube.CoreV1().ConfigMaps(a.Namespace).Delete(t.Context(), "kube-root-ca.crt", metav1.DeleteOptions{}))
	within(t, patience, "kube-root-ca.crt, after it was deleted", published)
	within(t, patience, "the default service account, after it was deleted", func() string {
		now, err := s.kube.CoreV1().ServiceAccounts(a.Namespace).Get(t.Context(), "default", metav1.GetOptions{})
		if err == nil && now.UID == account.UID {
			return "it is the old one"
		}
		return ask(err)
	})
}

func playQuota(t *testing.T, s *site) {
	a := s.arena(t, "quota")
	s.allowPods(t, a.Namespace, "2")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.Ready(2))
	failing := func(d *appsv1.Deployment) *appsv1.DeploymentCondition {
		for i := range d.Status.Conditions {
			if c := &d.Status.Conditions[i]; c.Type == appsv1.DeploymentReplicaFailure {
				return c
			}
		}
		return nil
	}
	within(t, patience, "the ReplicaFailure condition", func() string {
		d, err := s.kube.AppsV1().Deployments(a.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		c := failing(d)
		if c == nil || c.Status != corev1.ConditionTrue || c.Reason != "FailedCreate" || !strings.Contains(c.Message, "exceeded quota") {
			return fmt.Sprintf("the conditions are %+v", d.Status.Conditions)
		}
		return ""
	})
	s.allowPods(t, a.Namespace, "10")
	until(t, a, clustertest.RolledOut("web", first, 3))
	within(t, patience, "no ReplicaFailure condition", func() string {
		d, err := s.kube.AppsV1().Deployments(a.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if c := failing(d); c != nil {
			return c.Message
		}
		return ""
	})
	clear(t, a)
}

// allowPods limits the pods of a namespace, and waits until the API server enforces the limit.
func (s *site) allowPods(t *testing.T, namespace, n string) {
	t.Helper()
	quotas, limit := s.kube.CoreV1().ResourceQuotas(namespace), resource.MustParse(n)
	hard := corev1.ResourceList{corev1.ResourcePods: limit, corev1.ResourceServices: resource.MustParse("0")}
	within(t, patience, "a quota of "+n+" pods", func() string {
		quota, err := quotas.Get(t.Context(), "pods", metav1.GetOptions{})
		if err != nil {
			_, err = quotas.Create(t.Context(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
			}, metav1.CreateOptions{})
			return made(err)
		}
		quota.Spec.Hard = hard
		_, err = quotas.Update(t.Context(), quota, metav1.UpdateOptions{})
		return ask(err)
	})
	within(t, patience, "the limit in the quota's status", func() string {
		quota, err := quotas.Get(t.Context(), "pods", metav1.GetOptions{})
		if err == nil && limit.Cmp(quota.Status.Hard[corev1.ResourcePods]) != 0 {
			return fmt.Sprintf("it is %+v", quota.Status)
		}
		return ask(err)
	})
	// The API server's quota plugin reads quotas from a cache of its own, and does not enforce one that it
	// has not seen yet. The refusal of a service, which the quota forbids, shows that it has.
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	within(t, patience, "the quota in force", func() string {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := s.kube.CoreV1().Services(namespace).Create(t.Context(), service, dry); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			return fmt.Sprintf("a service is refused with: %v", err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: first}}}}
		_, err := s.kube.CoreV1().Pods(namespace).Create(t.Context(), pod, dry)
		return ask(err)
	})
}

func playForeground(t *testing.T, s *site) {
	a := s.arena(t, "foreground")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))
	// A pod with a finalizer of the test delays the whole deletion.
	pods, err := s.kube.CoreV1().Pods(a.Namespace).List(t.Context(), everything)
	must(t, err)
	held := pods.Items[0].Name
	s.setFinalizers(t, a.Namespace, held, "millrace.io/held")

	policy := metav1.DeletePropagationForeground
	must(t, s.kube.AppsV1().Deployments(a.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &policy}))
	within(t, patience, "only the held pod is left", func() string {
		pods, err := s.kube.CoreV1().Pods(a.Namespace).List(t.Context(), everything)
		if err != nil {
			return err.Error()
		}
		if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp == nil {
			return fmt.Sprintf("there are %d pods", len(pods.Items))
		}
		return ""
	})
	d, err := s.kube.AppsV1().Deployments(a.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	if !slices.Contains(d.Finalizers, metav1.FinalizerDeleteDependents) {
		t.Errorf("the deployment has the finalizers %v while a pod is left, want %s", d.Finalizers, metav1.FinalizerDeleteDependents)
	}
	if sets, err := s.kube.AppsV1().ReplicaSets(a.Namespace).List(t.Context(), everything); err != nil || len(sets.Items) != 1 {
		t.Errorf("%d replica sets while a pod is left (%v), want 1", len(sets.Items), err)
	}
	s.setFinalizers(t, a.Namespace, held)
	until(t, a, clustertest.Empty())
}

func (s *site) setFinalizers(t *testing.T, namespace, pod string, finalizers ...string) {
	t.Helper()
	within(t, patience, "the finalizers of "+pod, func() string {
		p, err := s.kube.CoreV1().Pods(namespace).Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		p.Finalizers = finalizers
		_, err = s.kube.CoreV1().Pods(namespace).Update(t.Context(), p, metav1.UpdateOptions{})
		return ask(err)
	})
}

func playOrphan(t *testing.T, s *site) { playOrphanIn(t, s, "orphan") }

func playOrphanIn(t *testing.T, s *site, namespace string) {
	a := s.arena(t, namespace)
	must(t, a.Deploy(t.Context(), "web", first, 2))
	until(t, a, clustertest.RolledOut("web", first, 2))
	policy := metav1.DeletePropagationOrphan
	must(t, s.kube.AppsV1().Deployments(a.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &policy}))
	within(t, patience, "the deployment is gone", func() string {
		_, err := s.kube.AppsV1().Deployments(a.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return gone(err)
	})
	sets, err := s.kube.AppsV1().ReplicaSets(a.Namespace).List(t.Context(), everything)
	must(t, err)
	if len(sets.Items) != 1 || len(sets.Items[0].OwnerReferences) != 0 || sets.Items[0].DeletionTimestamp != nil {
		t.Errorf("the replica sets are %+v, want one without an owner", sets.Items)
	}
	if created := a.Created(); created != 2 {
		t.Errorf("%d pods were created, want the first 2 only", created)
	}
	background := metav1.DeletePropagationBackground
	must(t, s.kube.AppsV1().ReplicaSets(a.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: &background}, everything))
	until(t, a, clustertest.Empty())
}

func playCustomResource(t *testing.T, s *site) {
	a := s.arena(t, "custom")
	widgets := s.defineWidgets(t).Namespace(a.Namespace)
	owner, err := s.kube.CoreV1().ConfigMaps(a.Namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	must(t, err)
	for _, name := range []string{"owned", "free"} {
		widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "system.millrace.io/v1", "kind": "Widget"}}
		widget.SetName(name)
		if name == "owned" {
			widget.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
		}
		within(t, patience, "a widget can be created", func() string {
			_, err := widgets.Create(t.Context(), widget, metav1.CreateOptions{})
			return made(err)
		})
	}
	must(t, s.kube.CoreV1().ConfigMaps(a.Namespace).Delete(t.Context(), owner.Name, metav1.DeleteOptions{}))
	within(t, patience, "the owned widget is collected", func() string {
		_, err := widgets.Get(t.Context(), "owned", metav1.GetOptions{})
		return gone(err)
	})
	if _, err := widgets.Get(t.Context(), "free", metav1.GetOptions{}); err != nil {
		t.Errorf("get the widget without an owner: %v, want it to be there", err)
	}
}

var (
	definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgetsResource     = schema.GroupVersionResource{Group: "system.millrace.io", Version: "v1", Resource: "widgets"}
)

// expectRest watches the audit log until no request has written for a while. Upstream's status updates and
// Events end at once; half a minute is longer than any retry.
func (s *site) expectRest(t *testing.T) {
	t.Helper()
	const rest, busy = 30 * time.Second, 10 * time.Second
	since, begun, quiet := s.mark(t), time.Now(), time.Now()
	seen, known := since, 0
	var last []write
	within(t, patience, fmt.Sprintf("nothing is written for %v", rest), func() string {
		if end := s.mark(t); end != seen {
			seen = end
			if written := s.writes(t, since); len(written) > known {
				last, known, quiet = written[known:], len(written), time.Now()
			}
		}
		if still := time.Since(quiet); still < rest {
			return fmt.Sprintf("the last writes were %v, %v after the last story", last, quiet.Sub(begun))
		}
		return ""
	})
	went := quiet.Sub(begun)
	t.Logf("writing went on for %v after the last story had ended", went.Round(time.Millisecond))
	if went > busy {
		t.Errorf("the writer went on writing for %v after the last story had ended, the last writes were %v", went, last)
	}
}

// expectComplete compares the audit log with the record. Kubernetes Events are sent beside the turns, dropped
// when there are too many, and have no outcomes.
func expectComplete(t *testing.T, written []write, ended map[string]bool, results []events.Result) {
	t.Helper()
	applied, stored := 0, map[string]bool{}
	for _, w := range written {
		if w.Object.Resource == "events" || !w.stored() {
			continue
		}
		stored[w.AuditID] = true
		if !ended[command(w.AuditID)] {
			t.Errorf("the audit log has a write without an outcome: %v (%s)", w, w.AuditID)
		}
		if !strings.HasPrefix(w.Impersonated.Username, "system:serviceaccount:kube-system:") {
			t.Errorf("a write was made under the writer's own name, not as a controller's service account: %v", w)
		}
	}
	for _, r := range results {
		if r.Status != events.Applied {
			continue
		}
		applied++
		noted := r.Ref == (events.Ref{}) // a controller's note to itself is in the turn alone
		if !noted && !r.Unsure && !stored[r.AuditID] {
			t.Errorf("an outcome says that a command was applied, and the audit log has no such write: %+v", r)
		}
	}
	if applied < 20 {
		t.Errorf("%d commands were applied, want at least 20: so few show nothing", applied)
	}
}

// command is the command of an audit id: the id is stream.turn.command, and later tries append a number.
func command(auditID string) string {
	parts := strings.Split(auditID, ".")
	return strings.Join(parts[:min(3, len(parts))], ".")
}

// ended are the commands whose effect exists, or may exist, according to the record. If a response was lost,
// or reached a writer that had to give the turn up, the writer that checked again found the effect, and names
// no request. A turn that was stored again has the outcome of its repetition.
func ended(t *testing.T, b bus.Bus) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, controller := range running() {
		stream, before := subject.TurnStream(controller), map[uint64]uint64{}
		for _, m := range read(t, b, stream) {
			var turn events.Turn
			must(t, events.DecodeJSON(m, &turn))
			before[m.Sequence] = turn.Repeats
		}
		for _, m := range read(t, b, subject.OutcomeStream(controller)) {
			var o events.Outcome
			must(t, events.DecodeJSON(m, &o))
			for _, r := range o.Results {
				for turn := o.Turn; turn != 0 && (r.OK() || r.Unsure); turn = before[turn] {
					all[fmt.Sprintf("%s.%d.%d", stream, turn, r.Command)] = true
				}
			}
		}
	}
	return all
}

// secret has a value that must appear nowhere, and a label that must appear, to show that the search works.
type secret struct{ value, label string }

func (s *site) plantSecret(t *testing.T) secret {
	t.Helper()
	canary := secret{value: "canary-8c1f20b7e5d94a63", label: "planted-2f6e91d04b"}
	_, err := s.kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "canary", Labels: map[string]string{"label": canary.label}},
		StringData: map[string]string{"value": canary.value},
	}, metav1.CreateOptions{})
	must(t, err)
	return canary
}

// forms are the encodings of the value.
func (s secret) forms() []string {
	return []string{s.value, base64.StdEncoding.EncodeToString([]byte(s.value))}
}

// expectNoSecret searches every message for the value.
func expectNoSecret(t *testing.T, b bus.Bus, canary secret) {
	t.Helper()
	labels := 0
	for _, name := range streams(t, b) {
		for _, m := range read(t, b, name) {
			text := fmt.Sprint(m.Subject, m.Header) + string(m.Data)
			for _, form := range canary.forms() {
				if strings.Contains(text, form) {
					t.Errorf("the value of a Secret is in message %d of %s", m.Sequence, name)
				}
			}
			if strings.Contains(text, canary.label) {
				labels++
			}
		}
	}
	if labels == 0 {
		t.Error("the label of the Secret is in no stream, where its metadata is recorded: the search looked in the wrong place")
	}
}

// expectNoSecretOnDisk searches every file of a Millrace that has ended for the value.
func expectNoSecretOnDisk(t *testing.T, dataDir string, canary secret) {
	t.Helper()
	must(t, filepath.WalkDir(dataDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, form := range canary.forms() {
			if bytes.Contains(content, []byte(form)) {
				t.Errorf("the value of a Secret is in %s", path)
			}
		}
		return err
	}))
}

// defineWidgets creates a custom kind, and deletes it at the end of the test.
func (s *site) defineWidgets(t *testing.T) dynamic.NamespaceableResourceInterface {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.system.millrace.io"},
		"spec": map[string]any{
			"group": widgetsResource.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	definitions := s.dynamic.Resource(definitionsResource)
	_, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := definitions.Delete(context.WithoutCancel(t.Context()), definition.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return s.dynamic.Resource(widgetsResource)
}
