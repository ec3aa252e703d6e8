package system

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// signingRequest is a request for a certificate in PEM.
func signingRequest(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	text, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: text})
}

// TestOldRequestsForCertificates: a request that was denied hours ago is deleted, and one that
// was denied just now is there for its requester.
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
	eventually(t, "the request that was denied before is deleted", func() string {
		_, err := requests.Get(t.Context(), "denied-before", metav1.GetOptions{})
		return gone(err)
	})
	asker{site: s, nats: m.nats}.awaitLook(t, "certificatesigningrequests.certificates.k8s.io/denied-now", "certificatesigningrequest-cleaner-controller")
	if _, err := requests.Get(t.Context(), "denied-now", metav1.GetOptions{}); err != nil {
		t.Errorf("the request that was denied just now: %v", err)
	}
}
