package shadow

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream"
)

// patience is the time-out of every step on a busy machine.
const patience = 2 * time.Minute

// auditPolicy records all requests except reviews, which ask a question and store nothing.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, resources: [{group: authorization.k8s.io}, {group: authentication.k8s.io}]}
- {level: Metadata}
`

// site is a control plane with the real kube-controller-manager, and Millrace in
// shadow beside it.
type site struct {
	*clustertest.Cluster
	audit string
	kube  kubernetes.Interface
	bus   *stream.Bus
	// health is the address of the shadow's metrics.
	health string
}

func begin(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{audit: filepath.Join(dir, "audit.log")}
	policy, binary := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "millrace")
	must(t, os.WriteFile(policy, []byte(auditPolicy), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/millrace/millrace/cmd/millrace")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build millrace: %v\n%s", err, out)
	}
	s.Cluster = clustertest.Start(t, clustertest.Options{
		Dir: filepath.Join(dir, "cluster"), Nodes: 4, Lean: true, KCM: []clustertest.KCM{{}},
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + s.audit},
	})
	config, err := s.Config()
	must(t, err)
	s.kube, err = kubernetes.NewForConfig(config)
	must(t, err)
	s.shadow(t, binary)
	return s
}

// shadow starts Millrace with the watcher's credentials, which do not allow any write.
func (s *site) shadow(t *testing.T, binary string) {
	t.Helper()
	nats, health := loopback(t), loopback(t)
	s.health = health
	args := []string{
		"run", "--controllers=deployment-controller,replicaset-controller", "--shadow=*",
		"--kubeconfig=" + s.Kubeconfig(clustertest.Watcher), "--data-dir=" + t.TempDir(), "--nats-listen=" + nats, "--health-address=" + health,
	}
	minor, err := clustertest.Minor()
	must(t, err)
	if minor < 35 { // as in the kube-controller-manager of that version
		args = append(args, "--feature-gates=DeploymentReplicaSetTerminatingReplicas=false")
	}
	p, err := s.Run("millrace", binary, args...)
	must(t, err)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, p.Ready(ctx, "http://"+health+"/readyz"))
	s.bus, err = stream.Connect(t.Context(), stream.Options{URL: clustertest.BusURL(nats), Name: "shadow-test"})
	must(t, err)
	t.Cleanup(func() { _ = s.bus.Close() })
}

func loopback(t *testing.T) string {
	t.Helper()
	port, err := clustertest.FreePort()
	must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// application is a Deployment as a user would write it.
func application(name string, replicas int32, image string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"team": "mill"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
			},
		},
	}
}

// patch patches a Deployment.
func (s *site) patch(t *testing.T, namespace, name, how string) {
	t.Helper()
	_, err := s.kube.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(how), metav1.PatchOptions{})
	must(t, err)
}

// settled waits until a Deployment has all of its pods and no others.
func (s *site) settled(t *testing.T, namespace, name, image string) {
	t.Helper()
	eventually.Complete(t, patience, name+" has rolled out", func() string {
		d, err := s.kube.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		want, st := *d.Spec.Replicas, d.Status
		if d.Spec.Template.Spec.Containers[0].Image != image || st.ObservedGeneration < d.Generation ||
			st.UpdatedReplicas != want || st.AvailableReplicas != want || st.Replicas != want {
			return fmt.Sprintf("%+v", st)
		}
		return ""
	})
}

// namespace creates a namespace that has its service account.
func (s *site) namespace(t *testing.T, name string) string {
	t.Helper()
	client, err := clustertest.Connect(s.Kubeconfig(clustertest.Admin))
	must(t, err)
	must(t, client.CreateNamespace(t.Context(), name))
	must(t, client.AwaitAccount(t.Context(), name))
	return name
}

func (s *site) deploy(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	_, err := s.kube.AppsV1().Deployments(namespace).Create(t.Context(), application(name, replicas, first), metav1.CreateOptions{})
	must(t, err)
	s.settled(t, namespace, name, first)
}

func (s *site) image(t *testing.T, namespace, name, image string) {
	t.Helper()
	s.patch(t, namespace, name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image))
}

// replicaSet is a ReplicaSet with the fields of a Deployment.
func replicaSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: d.ObjectMeta,
		Spec:       appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
}

func (s *site) scaleSet(t *testing.T, namespace, name string, replicas int32) {
	t.Helper()
	_, err := s.kube.AppsV1().ReplicaSets(namespace).Patch(t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	must(t, err)
}

// pods reports whether so many pods with a label are alive.
func (s *site) pods(t *testing.T, namespace, app string, want int) string {
	t.Helper()
	pods, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return err.Error()
	}
	live := 0
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			live++
		}
	}
	if live != want {
		return fmt.Sprintf("%d pods", live)
	}
	return ""
}

// ready reports whether a ReplicaSet counts so many pods, all of them available.
func (s *site) ready(t *testing.T, namespace, name string, want int32) string {
	t.Helper()
	set, err := s.kube.AppsV1().ReplicaSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if st := set.Status; st.Replicas != want || st.AvailableReplicas != want || st.ObservedGeneration != set.Generation {
		return fmt.Sprintf("%+v", st)
	}
	return ""
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// open reports whether the shadow still waits for an effect.
func (s *site) open(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + s.health + "/metrics")
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	for _, controller := range both {
		if !strings.Contains(string(text), fmt.Sprintf("millrace_shadow_open{controller=%q} 0\n", controller)) {
			return controller + " still wants something"
		}
	}
	return ""
}

// request has the fields of an audit log line that the tests read.
type request struct {
	Verb, UserAgent string
	User            struct{ Username string }
	ObjectRef       struct{ Resource, Namespace, Name string }
}

// requests are the requests of user agents that begin with "millrace".
func (s *site) requests(t *testing.T) (ours []request) {
	t.Helper()
	text, err := os.ReadFile(s.audit)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		var r request
		if json.Unmarshal([]byte(line), &r) == nil && strings.HasPrefix(r.UserAgent, "millrace") {
			ours = append(ours, r)
		}
	}
	return ours
}
