package system

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	shadowManifests = "../../deployments/kubernetes-shadow"
	shadowHome      = "millrace-shadow"
)

// TestShadowInTheCluster applies deployments/kubernetes-shadow as docs/deploy-shadow.md says, and runs its
// services with the rights, the configuration and the passwords in it, and no others.
func TestShadowInTheCluster(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kubectl"))
	since := s.mark(t)
	s.applyShadow(t)
	s.expectPowerless(t)

	p := s.shadowPods(t)
	const shop = "shadowed"
	must(t, s.arenas.CreateNamespace(t.Context(), shop))
	_, err := s.kube.AppsV1().ReplicaSets(shop).Create(t.Context(), replicaSet("lonely", 1), metav1.CreateOptions{})
	must(t, err)
	b := p.connect(t, stream.ShadowUser)
	within(t, patience, "the shadow wants the pod that no controller makes", func() string { return wanted(t, b, "lonely") })

	for _, user := range []string{stream.ShadowUser, embedded.GuestUser} {
		for _, args := range [][]string{
			{"shadow"}, {"history", "rs/lonely", "-n=" + shop}, {"get", "rs", "-n=" + shop},
			{"why", "rs/lonely", "-n=" + shop}, {"lag"}, {"parked"}, {"retention"}, {"verify"},
		} {
			cmd := exec.CommandContext(t.Context(), s.binary, append(args, "--nats-url="+p.url(user), "--nats-ca-file="+p.ca)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("as the user %s: millrace %s: %v\n%s", user, strings.Join(args, " "), err, out)
			}
		}
		s.tails(t, p.url(user), p.ca, shop, "lonely")
	}
	for _, service := range p.services {
		if code, metrics := service.get(t, "/metrics"); code != http.StatusOK || !strings.Contains(metrics, "millrace_bus_forbidden_total 0\n") {
			t.Errorf("the metrics of the %s lack millrace_bus_forbidden_total 0: the bus has forbidden it something", service.Name)
		}
	}
	if pods, err := s.kube.CoreV1().Pods(shop).List(t.Context(), everything); err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods were created (%v), want none: a shadow writes nothing", len(pods.Items), err)
	}
	if written := s.writtenBy(t, since, shadowHome); written != "" {
		t.Errorf("the shadow has written, want no write: %s", written)
	}
	must(t, s.kube.AppsV1().ReplicaSets(shop).DeleteCollection(t.Context(), metav1.DeleteOptions{}, everything))
}

// tails runs millrace tail as a user of the bus, and changes a ReplicaSet until tail prints it. tail must end
// cleanly when it is interrupted.
func (s *site) tails(t *testing.T, url, ca, namespace, set string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, "tail", "-n="+namespace, "--kind=rs", "--name="+set, "--nats-url="+url, "--nats-ca-file="+ca)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, patience
	var said bytes.Buffer
	cmd.Stderr = &said
	told, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		first, _ := bufio.NewReader(told).ReadString('\n')
		line <- first
		ended <- cmd.Wait()
	}()
	first, changes := "", 0
	within(t, patience, "a change of the set is told", func() string {
		changes++
		change := fmt.Appendf(nil, `{"metadata":{"annotations":{"change":"%d"}}}`, changes)
		_, err := s.kube.AppsV1().ReplicaSets(namespace).Patch(t.Context(), set, types.MergePatchType, change, metav1.PatchOptions{})
		must(t, err)
		select {
		case first = <-line:
			return ""
		case <-time.After(200 * time.Millisecond):
			return "nothing is told"
		}
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(first, set) { // the expected end after an interrupt
		t.Errorf("millrace tail at %s prints %q first and ends with %v, %s; want the ReplicaSet, and the interrupt", url, first, err, said.String())
	}
}

// applyShadow applies the manifests. A warning would mean that Pod Security rejects the pods. It deletes the
// workloads again, because the services run here.
func (s *site) applyShadow(t *testing.T) {
	t.Helper()
	s.kubectl(t, "apply", "-f", filepath.Join(shadowManifests, "namespace.yaml"))
	secrets, err := exec.CommandContext(t.Context(), s.binary, "bus", "secrets", "--dir="+t.TempDir(), "--namespace="+shadowHome).Output()
	must(t, err)
	file := filepath.Join(t.TempDir(), "secrets.yaml")
	must(t, os.WriteFile(file, secrets, 0o600))
	s.kubectl(t, "apply", "-f", file)
	s.kubectl(t, "apply", "-k", shadowManifests, "--dry-run=server", "--warnings-as-errors")
	s.kubectl(t, "apply", "-k", shadowManifests)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		must(t, s.kube.RbacV1().ClusterRoleBindings().Delete(ctx, "millrace-shadow-watcher", metav1.DeleteOptions{}))
		must(t, s.kube.RbacV1().ClusterRoles().Delete(ctx, "millrace-shadow-watcher", metav1.DeleteOptions{}))
	})
	for _, kind := range []string{"deployments", "statefulsets"} {
		s.kubectl(t, "delete", kind, "--all", "--namespace="+shadowHome)
	}
}

// expectPowerless asks the API server for the rights of the shadow's only account.
func (s *site) expectPowerless(t *testing.T) {
	t.Helper()
	right := func(verb, group, resource string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource}
	}
	// The role has one binding: if one of its rights is in force, all are.
	s.awaitRight(t, shadowHome, "millrace-watcher", true, right("watch", "", "pods"))
	for _, of := range []struct{ group, resource string }{
		{"apps", "deployments"}, {"apps", "replicasets"}, {"", "pods"}, {"", "secrets"}, {"", "configmaps"}, {"", "serviceaccounts"}, {"*", "*"},
	} {
		for _, verb := range []string{"list", "watch", "get", "create", "update", "patch", "delete", "deletecollection", "impersonate", "escalate", "bind"} {
			read := slices.Contains([]string{"list", "watch"}, verb) && slices.Contains([]string{"deployments", "replicasets", "pods"}, of.resource)
			if s.may(t, shadowHome, "millrace-watcher", right(verb, of.group, of.resource)) != read {
				t.Errorf("the shadow may %s %s: %t, want the opposite", verb, of.resource, !read)
			}
		}
	}
}

// shadowed are the services of the shadow, with the files that their pods would have.
type shadowed struct {
	nats     string
	ca       string // file with the CA of the bus's certificate
	secrets  map[string]map[string][]byte
	services []*service
}

func (s *site) shadowPods(t *testing.T) *shadowed {
	t.Helper()
	core := s.kube.CoreV1()
	secrets, err := core.Secrets(shadowHome).List(t.Context(), everything)
	must(t, err)
	maps, err := core.ConfigMaps(shadowHome).List(t.Context(), everything)
	must(t, err)
	dir := t.TempDir()
	for _, m := range maps.Items {
		if strings.HasPrefix(m.Name, "millrace") {
			unfold(t, dir, m)
		}
	}
	p := &shadowed{nats: loopback(t), ca: filepath.Join(dir, "ca.crt"), secrets: map[string]map[string][]byte{}}
	for _, secret := range secrets.Items {
		p.secrets[secret.Name] = secret.Data
	}
	for name, text := range p.secrets["millrace-bus"] {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	s.start(t, "shadow-bus", "bus", "--data-dir="+t.TempDir(), "--nats-listen="+p.nats,
		"--nats-accounts="+filepath.Join(dir, "accounts.conf"), "--nats-passwords-file="+filepath.Join(dir, "passwords"),
		"--nats-tls-cert-file="+filepath.Join(dir, "tls.crt"), "--nats-tls-key-file="+filepath.Join(dir, "tls.key"))
	config := func(name string) string { return "--config=" + filepath.Join(dir, name) }
	hour := int64(3600)
	token, err := core.ServiceAccounts(shadowHome).CreateToken(t.Context(), "millrace-watcher",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	must(t, err)
	p.services = append(p.services,
		s.launch(t, "shadow-provisioner", "provisioner", config("provisioner.yaml"), "--nats-ca-file="+p.ca, "--nats-url="+p.url("provisioner")),
		s.launch(t, "shadow-watcher", "watcher", config("services.yaml"), "--nats-ca-file="+p.ca, "--nats-url="+p.url("watcher"), "--kubeconfig="+s.kubeconfig(t, s.Server, token.Status.Token)),
		s.launch(t, "shadow-reconcilers", "reconcilers", config("services.yaml"), "--nats-ca-file="+p.ca, "--nats-url="+p.url(stream.ShadowUser)))
	for _, service := range p.services {
		service.ready(t)
	}
	return p
}

// unfold writes a ConfigMap as its volume would have it.
func unfold(t *testing.T, dir string, m corev1.ConfigMap) {
	t.Helper()
	for name, text := range m.Data {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// url is the URL of the bus for a user.
func (p *shadowed) url(user string) string {
	return fmt.Sprintf("tls://%s:%s@%s", user, p.secrets["millrace-"+user+"-bus"]["password"], p.nats)
}

func (p *shadowed) connect(t *testing.T, user string) *stream.Bus {
	t.Helper()
	b, err := stream.Connect(t.Context(), stream.Options{URL: p.url(user), CAFile: p.ca, Guest: true, APIPrefix: embedded.GuestPrefix})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// wanted returns "" if the shadow of replicaset-controller has stored a turn that creates a pod of a
// ReplicaSet, and the reason otherwise.
func wanted(t *testing.T, b bus.Archive, set string) (missing string) {
	t.Helper()
	missing = "no turn of the shadow is about it"
	must(t, b.Read(t.Context(), bus.Passage{Stream: subject.ShadowStream("replicaset-controller")}, func(batch []events.Message) error {
		for _, m := range batch {
			var turn events.Turn
			if events.DecodeJSON(m, &turn) == nil && turn.Key.Name == set && len(turn.Commands) > 0 {
				missing = ""
			}
		}
		return nil
	}))
	return missing
}

// writtenBy is the first write in the audit log by an account of a namespace; "" means none.
func (s *site) writtenBy(t *testing.T, since int64, namespace string) string {
	t.Helper()
	text, err := os.ReadFile(s.audit)
	must(t, err)
	for line := range strings.Lines(string(text[since:])) {
		if strings.Contains(line, `"username":"system:serviceaccount:`+namespace+":") {
			return line
		}
	}
	return ""
}
