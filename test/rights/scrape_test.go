package rights

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/millrace/millrace/cmd/clustertest"
)

// account creates a service account, and returns its token.
func (s *site) account(t *testing.T, name string) (rbacv1.Subject, string) {
	t.Helper()
	_, err := s.kube.CoreV1().ServiceAccounts(home).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	ok(t, err)
	token, err := s.kube.CoreV1().ServiceAccounts(home).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	ok(t, err)
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: name}, token.Status.Token
}

// delegator creates the bindings of the manifest that lets a service review scrapers, for an account of the
// test, and returns that account's kubeconfig.
func (s *site) delegator(t *testing.T) (kubeconfig string) {
	t.Helper()
	subject, token := s.account(t, "service")
	for _, b := range bindings(t, "kubernetes", "rbac.yaml") {
		if !strings.HasSuffix(b.Name, "-delegator") {
			continue
		}
		meta := metav1.ObjectMeta{Name: b.Name}
		var err error
		if b.Kind == "ClusterRoleBinding" {
			_, err = s.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: b.RoleRef}, metav1.CreateOptions{})
		} else {
			_, err = s.kube.RbacV1().RoleBindings(b.Namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: b.RoleRef}, metav1.CreateOptions{})
		}
		ok(t, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: s.config.Host, CertificateAuthority: s.config.CAFile, CertificateAuthorityData: s.config.CAData}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	config.CurrentContext = "a"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	ok(t, clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig
}

// serveMetrics runs a bus, a service that has little more than metrics, until the test ends. The test scrapes
// it as a pod on another node would, as far as one machine can: loopback has no privilege
// (--authorization-of-loopback).
func serveMetrics(t *testing.T, kubeconfig string, more ...string) (address string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "millrace")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/millrace")
	build.Dir = "../.."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	port, err := clustertest.FreePort()
	ok(t, err)
	address = fmt.Sprintf("127.0.0.1:%d", port)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	args := append([]string{
		"bus", "--data-dir=" + t.TempDir(), "--nats-listen=127.0.0.1:0", "--health-address=" + address,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--authorization-webhook-cache-unauthorized-ttl=1ms",
	}, more...)
	cmd := exec.CommandContext(ctx, binary, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	ok(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if got, _ := scrapeAs(t, "https://"+address, "/readyz", "", nil); got == http.StatusOK {
			return address
		}
		if time.Now().After(until) {
			t.Fatalf("the service does not become ready:\n%s", said.String())
		}
	}
}

// scrapeAs returns the response to a request with a bearer token or a client certificate.
func scrapeAs(t *testing.T, base, path, token string, certificate *tls.Certificate) (int, string) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
	ok(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	ok(t, err)
	return response.StatusCode, string(body)
}

// TestScrapes: the API server decides who may read metrics, and the service needs no other rights than those
// of the manifests.
func TestScrapes(t *testing.T) {
	s := begin(t)
	address := serveMetrics(t, s.delegator(t), "--authorization-of-loopback", "--profiling")
	scraper, allowed := s.account(t, "scraper")
	_, other := s.account(t, "other")
	s.role(t, "scraper", []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}, scraper)
	admin := adminCertificate(t, s.config)
	secure := "https://" + address
	eventually := func(token string, certificate *tls.Certificate) {
		for until := time.Now().Add(patience); ; {
			if code, _ := scrapeAs(t, secure, "/metrics", token, certificate); code == http.StatusOK || time.Now().After(until) {
				return
			}
		}
	}
	eventually(allowed, nil) // the API server sees new roles, and the service new authorities, with a delay
	eventually("", admin)
	for name, c := range map[string]struct {
		base, path, token string
		certificate       *tls.Certificate
		want              int
		says              string
	}{
		"who may":                         {secure, "/metrics", allowed, nil, 200, "millrace_build_info"},
		"who may, another page":           {secure, "/debug/pprof/cmdline", allowed, nil, 403, "system:serviceaccount:" + home + ":scraper"},
		"who may not":                     {secure, "/metrics", other, nil, 403, "forbidden"},
		"who shows nothing":               {secure, "/metrics", "", nil, 401, "unknown"},
		"who shows a made-up token":       {secure, "/metrics", "made-up", nil, 401, "unknown"},
		"who shows a token that was cut":  {secure, "/metrics", allowed[:len(allowed)-4], nil, 401, "unknown"},
		"an administrator's certificate":  {secure, "/debug/pprof/cmdline", "", admin, 200, ""},
		"health, by no one in particular": {secure, "/readyz", "", nil, 200, "ok"},
		"health, over plain HTTP":         {"http://" + address, "/readyz", "", nil, 200, "ok"},
		"nothing, over plain HTTP":        {"http://" + address, "/metrics", "", nil, 401, "unknown"},
	} {
		if code, text := scrapeAs(t, c.base, c.path, c.token, c.certificate); code != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s: got %d %.200q, want %d with %q", name, code, text, c.want, c.says)
		}
	}
}

// adminCertificate is the administrator's certificate, with which the test authenticates.
func adminCertificate(t *testing.T, config *rest.Config) *tls.Certificate {
	t.Helper()
	ok(t, rest.LoadTLSFiles(config))
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	ok(t, err)
	return &pair
}
