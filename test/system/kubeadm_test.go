package system

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/query"
)

// kubeadms are the flags with which kubeadm starts kube-controller-manager in a cluster with a range of pods,
// as test/oracle has written them down. They name the files of this cluster, and a loopback address of its
// own.
func (s *site) kubeadms(t *testing.T, address string) (args []string) {
	t.Helper()
	text, err := os.ReadFile("../../cmd/internal/command/testdata/kubeadm-flags.txt")
	must(t, err)
	_, rest, found := strings.Cut(string(text), "# with a range of pods\n")
	lines, _, _ := strings.Cut(rest, "\n#")
	here := strings.NewReplacer(
		"/etc/kubernetes/controller-manager.conf", s.Kubeconfig(clustertest.ControllerManager),
		"/etc/kubernetes/pki/", filepath.Dir(s.RootCAFile())+"/",
		"=127.0.0.1", "="+address)
	for line := range strings.Lines(lines) {
		args = append(args, here.Replace(strings.TrimSpace(line)))
	}
	if !found || len(args) < 17 {
		t.Fatalf("the manifest of kubeadm gives kube-controller-manager the flags %q, want at least 17", args)
	}
	return args
}

// asKubeadm starts millrace run with these flags and a directory for the record, and returns its health
// address.
func (s *site) asKubeadm(t *testing.T, n int) (*service, string) {
	t.Helper()
	address := fmt.Sprintf("127.%d.%d.%d", 64+n, os.Getpid()>>8&255, os.Getpid()&255)
	args := append([]string{"run", "--data-dir=" + t.TempDir()}, s.kubeadms(t, address)...)
	p, err := s.Run(fmt.Sprintf("%s-%d", t.Name(), n), s.binary, args...)
	must(t, err)
	started := &service{Process: p, health: address + ":10257", args: args}
	t.Cleanup(func() {
		started.stop(t)
		if t.Failed() {
			t.Logf("the end of the log of %d:\n%s", n, tail(p.Log))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, p.Ready(ctx, "https://"+started.health+"/healthz")) // as kubeadm's probes do
	return started, started.health
}

// scraped is the status code of the health address for a user with a certificate, or without one, as if from
// another machine.
func scraped(t *testing.T, kubeconfig, url string) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		must(t, err)
		of, err := rest.TLSConfigFor(config)
		must(t, err)
		transport.TLSClientConfig.Certificates, transport.TLSClientConfig.GetClientCertificate = of.Certificates, of.GetClientCertificate
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	request.Header.Set("X-Forwarded-For", "192.0.2.1")
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	must(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	must(t, err)
	return response.StatusCode
}

// TestKubeadmsFlags starts millrace run twice, with exactly the flags that kubeadm gives
// kube-controller-manager on two nodes, and with its user. One process acts: it rolls out a Deployment, gives
// a node a range, signs a certificate and lets a token expire. It serves its metrics to users that the API
// server authorizes. The other one takes over when the first has stopped.
func TestKubeadmsFlags(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kubectl"))
	roles := "../../deployments/static-pod/kube-controller-manager.yaml"
	if classic(t) {
		roles = s.classicRoles(t, roles)
	}
	s.kubectl(t, "apply", "-f", roles)
	s.freeManagersLease(t)
	first, address := s.asKubeadm(t, 0)
	s.leads(t, "none yet", func(string) bool { return true })
	second, _ := s.asKubeadm(t, 1)

	s.actsAsKubeadms(t, "kubeadm-first")
	for kubeconfig, want := range map[string]int{
		"": http.StatusUnauthorized, s.Kubeconfig(clustertest.Admin): http.StatusOK, s.Kubeconfig(clustertest.Watcher): http.StatusForbidden,
	} {
		for _, page := range []string{"/metrics", "/configz", "/flagz", "/statusz"} {
			if got := scraped(t, kubeconfig, "https://"+address+page); got != want {
				t.Errorf("GET %s with the kubeconfig %q is answered %d, want %d", page, filepath.Base(kubeconfig), got, want)
			}
		}
	}
	if got := scraped(t, "", "http://"+address+"/healthz"); got != http.StatusBadRequest {
		t.Errorf("GET /healthz by plain HTTP is answered %d, want 400", got)
	}
	if text, err := os.ReadFile(first.Log); err != nil || !strings.Contains(string(text), "This process leads") {
		t.Errorf("the log of the first process does not have \"This process leads\" (%v)", err)
	}
	if text, err := os.ReadFile(second.Log); err != nil || strings.Contains(string(text), "This process leads") {
		t.Errorf("the log of the second process has \"This process leads\", while the first leads (%v)", err)
	}

	leader := s.leads(t, "the first", func(string) bool { return true })
	first.stop(t)
	s.leads(t, "the second", func(who string) bool { return who != leader })
	s.actsAsKubeadms(t, "kubeadm-second")
	second.stop(t)
	s.kubectl(t, "delete", "-f", roles)
}

// classicRoles are the roles of a manifest for an older API server: made by the same command, with classic
// impersonation.
func (s *site) classicRoles(t *testing.T, manifest string) string {
	t.Helper()
	text, err := os.ReadFile(manifest)
	must(t, err)
	_, command, found := strings.Cut(string(text), "# Made by: millrace ")
	command, _, _ = strings.Cut(command, "\n")
	if !found {
		t.Fatalf("%s has no line \"# Made by: millrace ...\" with the command that made it", manifest)
	}
	out, err := exec.CommandContext(t.Context(), s.binary, append(strings.Fields(command), rbacFlags(t)...)...).Output()
	must(t, err)
	file := filepath.Join(t.TempDir(), "roles.yaml")
	must(t, os.WriteFile(file, out, 0o600))
	return file
}

// leads waits until a process that fits is the leader, and returns its name.
func (s *site) leads(t *testing.T, what string, fits func(who string) bool) (leader string) {
	t.Helper()
	within(t, patience, what+" leads", func() string {
		lease, err := s.managersLease().Get(t.Context(), managersLease, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || !fits(*lease.Spec.HolderIdentity) {
			return fmt.Sprintf("%+v", lease.Spec)
		}
		leader = *lease.Spec.HolderIdentity
		return ""
	})
	return leader
}

// actsAsKubeadms: everything that kubeadm's flags turn on works.
func (s *site) actsAsKubeadms(t *testing.T, name string) {
	t.Helper()
	a := s.arena(t, name)
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))

	nodes := s.kube.CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, nodes.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	within(t, patience, "the node has a range", func() string {
		n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if r, err := netip.ParsePrefix(n.Spec.PodCIDR); err != nil || r.Bits() != 24 || !netip.MustParsePrefix("10.244.0.0/16").Contains(r.Addr()) {
			return fmt.Sprintf("it has %q", n.Spec.PodCIDR)
		}
		return ""
	})

	requests := s.kube.CertificatesV1().CertificateSigningRequests()
	r, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: signingRequest(t, pkix.Name{CommonName: "jane"}), SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, requests.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
	_, err = requests.UpdateApproval(t.Context(), name, r, metav1.UpdateOptions{})
	must(t, err)
	s.certified(t, name)

	token := s.join(t, fmt.Sprintf("%06d", len(name)), query.BootstrapToken, expiring(time.Now().Add(-time.Hour)))
	s.secretGoes(t, metav1.NamespaceSystem, token.Name)
	clear(t, a)
}
