package system

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

// found is the result of one check of millrace doctor.
type found struct{ Check, State, Found, Do string }

// doctor runs millrace doctor against a bus, and returns its results by check, and its exit code.
func (s *site) doctor(t *testing.T, nats string, args ...string) (map[string]found, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.binary, append([]string{"doctor", "--nats-url=nats://" + nats, "--timeout=" + patience.String(), "-o", "json"}, args...)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var all []found
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("millrace doctor %v prints no JSON, %q: %v", args, out, err)
	}
	by := map[string]found{}
	for _, f := range all {
		by[f.Check] = f
	}
	return by, cmd.ProcessState.ExitCode()
}

// expectFound demands that a check has a state, that its texts have some words, and that the exit code fits.
func expectFound(t *testing.T, all map[string]found, code int, check, state string, says ...string) {
	t.Helper()
	f := all[check]
	if f.State != state {
		t.Errorf("the check %s is %q, want %q: %+v", check, f.State, state, f)
	}
	for _, word := range says {
		if !strings.Contains(f.Found+"\n"+f.Do, word) {
			t.Errorf("the check %s does not mention %q: %+v", check, word, f)
		}
	}
	failed := 0
	for _, one := range all {
		if one.State == "failed" {
			failed = 1
		}
	}
	if code != failed {
		t.Errorf("millrace doctor ended with %d, want %d: %+v", code, failed, all)
	}
}

// TestDoctor: all checks pass where Millrace runs. The command, and the service at its start, find a missing
// right, and a kube-controller-manager that is active at the same time.
func TestDoctor(t *testing.T) {
	s := here(t)
	s.holdManagersLease(t)
	m := s.run(t)
	within(t, patience, "the service says at its start that a kube-controller-manager is active", func() string {
		if log := tail(m.Log); !strings.Contains(log, `check="kube-controller-manager"`) {
			return log
		}
		return ""
	})
	run := "--kubeconfig=" + s.Kubeconfig(clustertest.Millrace)
	t.Run("well", func(t *testing.T) {
		all, code := s.doctor(t, m.nats, run)
		for _, check := range []string{"kubeconfig", "api-server", "api-server-tls", "identity", "clock-api-server", "rights-watcher", "rights-writer",
			"bus", "bus-tls", "bus-version", "jetstream", "bus-servers", "bus-account", "bus-payload", "clock-bus", "settings"} {
			expectFound(t, all, code, check, "ok")
		}
		expectFound(t, all, code, "identity", "ok", string(clustertest.Millrace))
		version, err := s.Programs.Kubernetes()
		must(t, err)
		tested := "ok"
		if classic(t) {
			tested = "warning" // the controllers decide as those of a newer version
		}
		expectFound(t, all, code, "version", tested, version)
		expectFound(t, all, code, "bus-audit-grade", "warning", "--stream-replicas=3")
		expectFound(t, all, code, "kube-controller-manager", "warning", "kcm-of-a-test", "--controllers='*,-", "--shadow")
		if code != 0 {
			t.Errorf("millrace doctor ended with %d, want 0: %+v", code, all)
		}
	})
	t.Run("rights are missing", func(t *testing.T) { s.doctorWithoutRights(t, m.nats) })
	t.Run("a kube-controller-manager runs", func(t *testing.T) { s.doctorBesideManager(t, m.nats, run) })
	t.Run("nothing answers", func(t *testing.T) {
		all, code := s.doctor(t, loopback(t), "--kubeconfig="+s.kubeconfig(t, "https://"+loopback(t), ""))
		expectFound(t, all, code, "api-server", "failed", "does not answer")
		expectFound(t, all, code, "bus", "failed", "start NATS")
		expectFound(t, all, code, "rights-writer", "not checked")
	})
	t.Run("credentials are unknown", func(t *testing.T) {
		all, code := s.doctor(t, m.nats, "--kubeconfig="+s.kubeconfig(t, s.Server, "a-token-of-no-cluster"))
		expectFound(t, all, code, "identity", "failed", "token")
	})
}

// managersLease is the name of the Lease of kube-controller-manager.
const managersLease = "kube-controller-manager"

func (s *site) managersLease() coordinationclient.LeaseInterface {
	return s.kube.CoordinationV1().Leases(metav1.NamespaceSystem)
}

// freeManagersLease deletes the Lease of kube-controller-manager that an earlier test has left: a process
// that was killed holds it for fifteen more seconds.
func (s *site) freeManagersLease(t *testing.T) {
	t.Helper()
	within(t, patience, "an earlier test's Lease is gone", func() string {
		if err := s.managersLease().Delete(t.Context(), managersLease, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return ask(err)
		}
		return ""
	})
}

// holdManagersLease holds the Lease of kube-controller-manager, as an active one does.
func (s *site) holdManagersLease(t *testing.T) {
	t.Helper()
	s.freeManagersLease(t)
	t.Cleanup(func() {
		if err := s.managersLease().Delete(context.Background(), managersLease, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	holder, seconds, now := "kcm-of-a-test", int32(3600), metav1.NewMicroTime(time.Now())
	within(t, patience, "the Lease is held", func() string {
		_, err := s.managersLease().Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: managersLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
		}, metav1.CreateOptions{})
		return made(err)
	})
}

// doctorWithoutRights removes one right of the writer and one of the watcher, and restores them.
func (s *site) doctorWithoutRights(t *testing.T, nats string) {
	const identity = "replicaset-controller"
	watcher, writer := "--kubeconfig="+s.Kubeconfig(clustertest.Watcher), "--kubeconfig="+s.Kubeconfig(clustertest.Writer)
	roles := s.kube.RbacV1().ClusterRoles()
	identities, err := roles.Get(t.Context(), "localcluster-writer-identities", metav1.GetOptions{})
	must(t, err)
	reads, err := roles.Get(t.Context(), "localcluster-watcher", metav1.GetOptions{})
	must(t, err)
	t.Cleanup(func() {
		for _, role := range []string{identities.Name, reads.Name} { // in whatever state the steps below leave them
			now, err := roles.Get(context.Background(), role, metav1.GetOptions{})
			must(t, err)
			now.Rules = identities.Rules
			if role == reads.Name {
				now.Rules = reads.Rules
			}
			_, err = roles.Update(context.Background(), now, metav1.UpdateOptions{})
			must(t, err)
		}
	})
	less := identities.DeepCopy()
	less.Rules[0].ResourceNames = slices.DeleteFunc(less.Rules[0].ResourceNames, func(n string) bool { return n == identity })
	_, err = roles.Update(t.Context(), less, metav1.UpdateOptions{})
	must(t, err)
	fewer := reads.DeepCopy()
	for i := range fewer.Rules {
		fewer.Rules[i].Verbs = slices.DeleteFunc(fewer.Rules[i].Verbs, func(v string) bool { return v == "watch" })
	}
	_, err = roles.Update(t.Context(), fewer, metav1.UpdateOptions{})
	must(t, err)
	// The API server applies a change of a role with a delay.
	within(t, patience, "the missing rights are found", func() string {
		all, _ := s.doctor(t, nats, "--of=writer", writer)
		others, _ := s.doctor(t, nats, "--of=watcher", watcher)
		if all["rights-writer"].State != "failed" || others["rights-watcher"].State != "failed" {
			return all["rights-writer"].Found + "\n" + others["rights-watcher"].Found
		}
		return ""
	})
	all, code := s.doctor(t, nats, "--of=writer", writer)
	expectFound(t, all, code, "rights-writer", "failed", "1 of", identity, "millrace rbac --of=writer")
	all, code = s.doctor(t, nats, "--of=watcher", "--controllers=replicaset", watcher)
	expectFound(t, all, code, "rights-watcher", "failed", "watch pods", "millrace rbac --of=watcher")
	all, code = s.doctor(t, nats, "--of=writer", "--as="+string(clustertest.Writer), "--kubeconfig="+s.Kubeconfig(clustertest.Admin))
	expectFound(t, all, code, "rights-writer", "failed", identity)
	all, code = s.doctor(t, nats, "--of=writer", "--controllers=deployment", writer)
	expectFound(t, all, code, "rights-writer", "ok")
}

// doctorBesideManager creates pods of kube-controller-manager with flags that exclude some of our
// controllers, or none.
func (s *site) doctorBesideManager(t *testing.T, nats, run string) {
	must(t, s.arenas.AwaitAccount(t.Context(), metav1.NamespaceSystem))
	pods, now := s.kube.CoreV1().Pods(metav1.NamespaceSystem), int64(0)
	for _, c := range []struct {
		flag, state string
		says        []string
	}{
		{"--controllers=*,-deployment", "failed", []string{"run twice", "replicaset-controller"}},
		{"--controllers=-*", "ok", []string{"leaves to Millrace"}},
	} {
		name := "kube-controller-manager-" + c.state
		remove := func(ctx context.Context) {
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
		within(t, patience, "the pod is made", func() string {
			_, err := pods.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"component": "kube-controller-manager"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-controller-manager", Image: "kcm", Command: []string{"kube-controller-manager", c.flag}}}},
			}, metav1.CreateOptions{})
			return made(err)
		})
		t.Cleanup(func() { remove(context.Background()) })
		all, code := s.doctor(t, nats, run, "--controllers=replicaset,deployment")
		expectFound(t, all, code, "kube-controller-manager", c.state, c.says...)
		remove(t.Context())
	}
}
