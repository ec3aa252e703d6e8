package system

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/clustertest"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// signingRequest is a certificate signing request in PEM.
func signingRequest(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	text, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: text})
}

// TestOldRequestsForCertificates: the cleaner deletes a request that was denied hours ago, and keeps one that
// was denied just now for its requester.
func TestOldRequestsForCertificates(t *testing.T) {
	s := here(t)
	m := s.run(t)
	requests := s.kube.CertificatesV1().CertificateSigningRequests()
	denied := func(name string, ago time.Duration) {
		r, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: signingRequest(t, pkix.Name{CommonName: name}), SignerName: "example.com/none", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.NewTime(time.Now().Add(-ago)),
		}}
		_, err = requests.UpdateApproval(t.Context(), name, r, metav1.UpdateOptions{})
		must(t, err)
	}
	t.Cleanup(func() { must(t, requests.Delete(context.Background(), "denied-now", metav1.DeleteOptions{})) })
	denied("denied-now", time.Minute)
	denied("denied-before", 2*time.Hour)
	within(t, patience, "the request that was denied before is deleted", func() string {
		_, err := requests.Get(t.Context(), "denied-before", metav1.GetOptions{})
		return gone(err)
	})
	asker{site: s, nats: m.nats}.awaitLook(t, "certificatesigningrequests.certificates.k8s.io/denied-now", "certificatesigningrequest-cleaner-controller")
	if _, err := requests.Get(t.Context(), "denied-now", metav1.GetOptions{}); err != nil {
		t.Errorf("get the request that was denied just now: %v, want it to be there", err)
	}
}

// as is a client that acts as a user in groups.
func (s *site) as(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return client
}

// permit binds a group to a built-in role for the duration of the test. It waits until the API server applies
// the binding, which happens a moment after it is stored.
func (s *site) permit(t *testing.T, group, role string) {
	t.Helper()
	bindings := s.kube.RbacV1().ClusterRoleBindings()
	b, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "certificates-test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, bindings.Delete(context.Background(), b.Name, metav1.DeleteOptions{})) })
	r, err := s.kube.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{})
	must(t, err)
	for _, rule := range r.Rules {
		resource, sub, _ := strings.Cut(rule.Resources[0], "/")
		within(t, patience, group+" has "+role, func() string {
			review, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{Groups: []string{group}, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: sub,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return err.Error()
			}
			if !review.Status.Allowed {
				return fmt.Sprintf("not yet: %+v", rule)
			}
			return ""
		})
	}
}

// TestKubeletsGetTheirCertificates: the request of a joining node is approved once its group has the
// permission, and that of a node that renews its certificate if nodes may renew; then both are signed.
// Requests for more than that are left to other approvers.
func TestKubeletsGetTheirCertificates(t *testing.T) {
	s := here(t)
	m := s.run(t, s.signers()...)
	requests := s.kube.CertificatesV1().CertificateSigningRequests()
	asks := func(as kubernetes.Interface, name string, subject pkix.Name) {
		_, err := as.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: signingRequest(t, subject), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { must(t, requests.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	}
	approved := func(name, message string) {
		within(t, patience, name+" is approved", func() string {
			r, err := requests.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if len(r.Status.Conditions) == 0 {
				return "it is not"
			}
			if c := r.Status.Conditions[0]; c.Type != certificatesv1.CertificateApproved || c.Status != corev1.ConditionTrue || c.Reason != "AutoApproved" || c.Message != message || c.LastUpdateTime.IsZero() {
				return fmt.Sprintf("it says %+v", c)
			}
			return ""
		})
	}
	node := func(name string) pkix.Name {
		return pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}
	}

	const joiners = "example.com:joiners"
	s.permit(t, joiners, "system:node-bootstrapper")
	joiner := s.as(t, "joiner", joiners, "system:authenticated")
	asks(joiner, "administrator", pkix.Name{CommonName: "joiner", Organization: []string{"system:nodes", "system:admins"}})
	asks(joiner, "joining", node("n1"))
	r := asker{site: s, nats: m.nats}
	const controller = "certificatesigningrequest-approving-controller"
	r.awaitLook(t, "certificatesigningrequests.certificates.k8s.io/joining", controller)
	if now, err := requests.Get(t.Context(), "joining", metav1.GetOptions{}); err != nil || len(now.Status.Conditions) > 0 {
		t.Errorf("without the permission the request has become %+v, %v; want no condition", now, err)
	}
	s.permit(t, joiners, "system:certificates.k8s.io:certificatesigningrequests:nodeclient")
	approved("joining", "Auto approving kubelet client certificate after SubjectAccessReview.")

	s.permit(t, "system:nodes", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient")
	asks(s.as(t, "system:node:n1", "system:nodes", "system:authenticated"), "renewal", node("n1"))
	approved("renewal", "Auto approving self kubelet client certificate after SubjectAccessReview.")
	for _, name := range []string{"joining", "renewal"} {
		if c := s.certified(t, name); c.Subject.String() != "CN=system:node:n1,O=system:nodes" || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || c.IsCA {
			t.Errorf("the certificate of %s has the subject %s, the usages %v, CA: %v; want system:node:n1 of system:nodes, client authentication alone, no CA", name, c.Subject, c.ExtKeyUsage, c.IsCA)
		}
	}

	r.awaitLook(t, "certificatesigningrequests.certificates.k8s.io/administrator", controller)
	if now, err := requests.Get(t.Context(), "administrator", metav1.GetOptions{}); err != nil || len(now.Status.Conditions) > 0 {
		t.Errorf("a request for more than a kubelet needs has become %+v, %v; want no condition", now, err)
	}
}

// TestOldRequestsForPodsCertificates: if the API server serves the API and its gate is on, the cleaner
// deletes a request that is older than 15 minutes, and keeps a new one.
func TestOldRequestsForPodsCertificates(t *testing.T) {
	if !served(t) {
		return
	}
	t.Parallel()
	const gate = "--feature-gates=PodCertificateRequest=true"
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{}, gate, "--runtime-config=certificates.k8s.io/v1beta1/podcertificaterequests=true")
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	requests := s.kube.CertificatesV1beta1().PodCertificateRequests("default")
	made := func(name string) *certificatesv1beta1.PodCertificateRequest {
		block, _ := pem.Decode(signingRequest(t, pkix.Name{}))
		hour := int32(3600)
		r, err := requests.Create(t.Context(), &certificatesv1beta1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1beta1.PodCertificateRequestSpec{
				SignerName: "example.com/none", PodName: "web", PodUID: "p", ServiceAccountName: "default", ServiceAccountUID: "s", NodeName: "n1", NodeUID: "n",
				MaxExpirationSeconds: &hour, StubPKCS10Request: block.Bytes,
			},
		}, metav1.CreateOptions{})
		must(t, err)
		return r
	}
	made("now")
	s.age(t, made("before"), "certificates.k8s.io/v1beta1", "PodCertificateRequest", "/registry/podcertificaterequests/default/before")
	m := s.run(t, gate)
	within(t, patience, "the request that was made before is deleted", func() string {
		_, err := requests.Get(t.Context(), "before", metav1.GetOptions{})
		return gone(err)
	})
	asker{site: s, nats: m.nats}.awaitLook(t, "podcertificaterequests.certificates.k8s.io/now", "podcertificaterequest-cleaner-controller")
	if _, err := requests.Get(t.Context(), "now", metav1.GetOptions{}); err != nil {
		t.Errorf("get the request that was just made: %v, want it to be there", err)
	}
}

// age makes an object an hour older in etcd, because the API server itself sets the creation time of a new
// object.
func (s *site) age(t *testing.T, obj runtime.Object, apiVersion, kind, key string) {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	must(t, err)
	aged := unstructured.Unstructured{Object: fields}
	aged.SetAPIVersion(apiVersion)
	aged.SetKind(kind)
	aged.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second)))
	aged.SetResourceVersion("") // which the storage sets
	text, err := aged.MarshalJSON()
	must(t, err)
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": text})
	must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.EtcdEndpoint()+"/v3/kv/put", bytes.NewReader(body))
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { must(t, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("put %s into the storage: %s", key, response.Status)
	}
}

// signers are the flags for signing with the cluster's own authority.
func (s *site) signers() []string {
	return []string{"--cluster-signing-cert-file=" + s.RootCAFile(), "--cluster-signing-key-file=" + s.RootCAKeyFile()}
}

// certified waits for the certificate of a request, and checks that the cluster's authority signed it.
func (s *site) certified(t *testing.T, name string) (c *x509.Certificate) {
	t.Helper()
	ca, err := os.ReadFile(s.RootCAFile())
	must(t, err)
	block, _ := pem.Decode(ca)
	own, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	within(t, patience, name+" has its certificate", func() string {
		r, err := s.kube.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(r.Status.Certificate) == 0 {
			return fmt.Sprintf("it has none: %+v, %v", r.Status.Conditions, err)
		}
		block, rest := pem.Decode(r.Status.Certificate)
		if block == nil || len(rest) > 0 {
			return "it has something else"
		}
		c, err = x509.ParseCertificate(block.Bytes)
		must(t, err)
		must(t, c.CheckSignatureFrom(own))
		return ""
	})
	return c
}

// TestApprovedRequestsAreSigned: a user whose request is approved gets a valid certificate from services of
// which only the writer has the keys. A request that breaks the rules of its signer fails, an unapproved one
// waits, and the key is nowhere else.
func TestApprovedRequestsAreSigned(t *testing.T) {
	s := here(t)
	const none = "/not/read/here"
	elsewhere := []string{"--cluster-signing-cert-file=" + none, "--cluster-signing-key-file=" + none}
	m := s.apartWith(t, map[string][]string{"watcher": elsewhere, "reconcilers": append(elsewhere, "-v=10"), "writer": append(s.signers(), "-v=10")})
	requests := s.kube.CertificatesV1().CertificateSigningRequests()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	asks := func(name, signer string, lasts *int32, usages ...certificatesv1.KeyUsage) *certificatesv1.CertificateSigningRequest {
		text, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"system:nodes"}}}, key)
		must(t, err)
		r, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: text}), SignerName: signer, ExpirationSeconds: lasts, Usages: usages,
			},
		}, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() { must(t, requests.Delete(context.Background(), name, metav1.DeleteOptions{})) })
		return r
	}
	approve := func(r *certificatesv1.CertificateSigningRequest) {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
		_, err := requests.UpdateApproval(t.Context(), r.Name, r, metav1.UpdateOptions{})
		must(t, err)
	}
	asks("waiting", certificatesv1.KubeAPIServerClientSignerName, nil, certificatesv1.UsageClientAuth)
	approve(asks("jane", certificatesv1.KubeAPIServerClientSignerName, new(int32(3600)), certificatesv1.UsageClientAuth))
	approve(asks("broken", certificatesv1.KubeletServingSignerName, nil, certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature))

	c := s.certified(t, "jane")
	if lasts := c.NotAfter.Sub(c.NotBefore); lasts != time.Hour+5*time.Minute {
		t.Errorf("the certificate is valid for %v, want the hour that was asked for and five minutes before it", lasts)
	}
	private, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	config := rest.AnonymousClientConfig(s.config)
	config.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	config.KeyData = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
	jane, err := kubernetes.NewForConfig(config)
	must(t, err)
	who, err := jane.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "jane" {
		t.Errorf("with the certificate the API server sees the user %+v, %v; want jane", who, err)
	}
	within(t, patience, "what breaks the rules fails", func() string {
		r, err := requests.Get(t.Context(), "broken", metav1.GetOptions{})
		must(t, err)
		if n := len(r.Status.Conditions); n != 2 || r.Status.Conditions[1].Reason != "SignerValidationFailure" || r.Status.Conditions[1].Message != "DNS or IP subjectAltName is required" || len(r.Status.Certificate) > 0 {
			return fmt.Sprintf("it says %+v", r.Status)
		}
		return ""
	})
	asker{site: s, nats: m.nats}.awaitLook(t, "certificatesigningrequests.certificates.k8s.io/waiting", "certificatesigningrequest-signing-controller")
	if r, err := requests.Get(t.Context(), "waiting", metav1.GetOptions{}); err != nil || len(r.Status.Certificate)+len(r.Status.Conditions) > 0 {
		t.Errorf("a request that is not approved has the status %+v, %v; want neither certificate nor condition", r.Status, err)
	}
	secret, err := os.ReadFile(s.RootCAKeyFile())
	must(t, err)
	lines := bytes.Split(bytes.TrimSpace(secret), []byte("\n"))
	m.holdsNone(t, lines[1:2], controllers.Whole(), "csrsigning")
}
