package system

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/notary"
)

// TestTheRecordIsVerified signs the record of a Deployment's life, and verifies it with the key, with the API
// server's own audit log, and with what a witness saw.
func TestTheRecordIsVerified(t *testing.T) {
	s := here(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		must(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	private, public, err := notary.Generate("notary.test")
	must(t, err)
	key, witness := "--key="+file("key.pub", public), "--witness="+filepath.Join(dir, "witness.json")
	m := s.run(t, "--notary-key="+file("key", private), "--notary-interval=1s")
	r := asker{site: s, nats: m.nats, namespace: "signed"}
	a := s.arena(t, "signed")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))
	clear(t, a)

	proven(t, r, key, witness, "--audit-log="+s.audit)
	older := filepath.Join(dir, "older.millrace")
	if out, err := r.ask(t, "export", older); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	b := s.arena(t, "signed-too")
	must(t, b.Deploy(t.Context(), "web", first, 2))
	until(t, b, clustertest.RolledOut("web", first, 2))
	clear(t, b)
	proven(t, r, key, witness, "--audit-log="+s.audit)

	s.tampered(t, r, a.Created()+b.Created(), file)
	if out, err := r.ask(t, "verify", key, witness, "--record="+older); err == nil || !strings.Contains(out, "the record went back") {
		t.Errorf("verify of an older record: %v, want an error, and that the record went back:\n%s", err, out)
	}
}

// tampered makes the API server's audit log and the record contradict each other, in each possible way.
// creates are the pods that were created.
func (s *site) tampered(t *testing.T, r asker, creates int, file func(name, text string) string) {
	// The log also has creates of other records under the same ids, and a create that was sent once more
	// without effect.
	ofCreate := func(line string) bool {
		return strings.Contains(line, `"auditID":"TURN_replicaset-controller.`) && strings.Contains(line, `"verb":"create"`) &&
			strings.Contains(line, `"namespace":"signed`) && strings.Contains(line, `"code":201`)
	}
	within(t, patience, "the audit log has the creates", func() string {
		found := 0
		for line := range strings.Lines(s.audited(t)) {
			if ofCreate(line) {
				found++
			}
		}
		if found != creates || creates < 5 {
			return fmt.Sprintf("it has %d of %d", found, creates)
		}
		return ""
	})
	finds := func(what string, findings int, says string, tamper func(line string) string) {
		t.Helper()
		within(t, patience, what+" is found", func() string {
			var told strings.Builder
			for line := range strings.Lines(s.audited(t)) {
				told.WriteString(tamper(line))
			}
			out, err := r.ask(t, "verify", "--audit-log="+file("audit.log", told.String()))
			if err != nil && strings.Count(out, says) == findings {
				return ""
			}
			return fmt.Sprintf("%v\n%s", err, out)
		})
	}
	finds("an outcome that tells of a write that was never made", creates, "is on record as applied", func(line string) string {
		if ofCreate(line) {
			return ""
		}
		return line
	})
	forged := regexp.MustCompile(`"auditID":"TURN_replicaset-controller\.\d+`)
	finds("a write that no outcome tells of", creates, "the record has no outcome of it", func(line string) string {
		if ofCreate(line) {
			return line + forged.ReplaceAllString(line, `"auditID":"TURN_replicaset-controller.4711`)
		}
		return line
	})
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(clustertest.Millrace))
	must(t, err)
	config.Impersonate.UserName = "system:serviceaccount:kube-system:root-ca-cert-publisher"
	behind, err := kubernetes.NewForConfig(config)
	must(t, err)
	_, err = behind.CoreV1().ConfigMaps(r.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "behind-the-back"}}, metav1.CreateOptions{})
	must(t, err)
	finds("a write by the writer's own identity for no turn", 1, "create of configmaps:signed/behind-the-back", func(line string) string { return line })
}

// audited is the API server's audit log as written so far.
func (s *site) audited(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.audit)
	must(t, err)
	return string(text)
}

// proven waits until a record is proven: the newest messages wait for their page.
func proven(t *testing.T, r asker, args ...string) {
	t.Helper()
	within(t, patience, "the record is proven", func() string {
		out, err := r.ask(t, append([]string{"verify"}, args...)...)
		if err == nil && strings.Contains(out, "exactly those that were signed") {
			return ""
		}
		return fmt.Sprintf("%v\n%s", err, out)
	})
}
