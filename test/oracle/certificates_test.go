package oracle_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle"
)

var requestKey = events.Key{Name: owner}

func TestRequestsAreCleanedAsUpstreams(t *testing.T) {
	agree(t, oracle.RequestCleaner, requestKey, oldRequest)
}

// Both delete the same requests in the end, though some deletes are refused.
func TestRefusedRequestsAreCleanedAsUpstreams(t *testing.T) {
	restAlike(t, oracle.RequestCleanerAtRest, agingRequest, oracle.Refusal{Verb: plan.Delete})
}

// oldRequest is a request of some age; each moment is near to one at which something ends.
func oldRequest(t *rapid.T) []runtime.Object {
	return []runtime.Object{aRequest(t, []time.Duration{
		time.Minute, 59 * time.Minute, time.Hour - time.Second, time.Hour, 61 * time.Minute, 23 * time.Hour, 24*time.Hour - time.Second, 24 * time.Hour, 48 * time.Hour,
	})}
}

// agingRequest is one whose times are up half an hour before or after upstream looks.
func agingRequest(t *rapid.T) []runtime.Object {
	var ages []time.Duration
	for hours := range 26 {
		ages = append(ages, time.Duration(hours)*time.Hour+30*time.Minute)
	}
	return []runtime.Object{aRequest(t, ages)}
}

// aRequest is a request for a certificate, perhaps with an answer.
func aRequest(t *rapid.T, ages []time.Duration) *certificatesv1.CertificateSigningRequest {
	at := func(what string) metav1.Time {
		return before(oracle.Now, int(rapid.SampledFrom(ages).Draw(t, what).Seconds()))
	}
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: "request", ResourceVersion: "10", CreationTimestamp: at("created")}}
	r.Spec.SignerName, r.Spec.Request = certificatesv1.KubeletServingSignerName, []byte("a request")
	for range rapid.IntRange(0, 3).Draw(t, "conditions") {
		c := certificatesv1.CertificateSigningRequestCondition{
			Type: rapid.SampledFrom([]certificatesv1.RequestConditionType{
				certificatesv1.CertificateApproved, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed, "Noted",
			}).Draw(t, "condition"),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "True", "False", "Unknown"}).Draw(t, "status"),
		}
		if rapid.IntRange(0, 5).Draw(t, "says when") > 0 {
			c.LastUpdateTime = at("updated")
		}
		if rapid.Bool().Draw(t, "says since when") {
			c.LastTransitionTime = at("since")
		}
		r.Status.Conditions = append(r.Status.Conditions, c)
	}
	r.Status.Certificate = rapid.SampledFrom(issued).Draw(t, "certificate")
	if rapid.IntRange(0, 7).Draw(t, "held") == 7 {
		r.Finalizers = []string{"example.com/held"}
		if rapid.Bool().Draw(t, "deleted") {
			r.DeletionTimestamp = ptr(at("deleted at"))
		}
	}
	return r
}

// issued are no certificates, some that have expired or will, and what is none.
var issued = [][]byte{
	nil, nil, nil, certificate(-30 * time.Minute), certificate(-time.Second), certificate(30 * time.Minute), certificate(4*time.Hour + 30*time.Minute), certificate(9000 * time.Hour),
	append([]byte("an explanation\n"), certificate(-time.Hour)...), append(certificate(9000*time.Hour), certificate(-time.Hour)...),
	[]byte("no certificate"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}),
}

// certificate is one that expires so long after the question.
func certificate(after time.Duration) []byte {
	key, expiry := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), oracle.Now.Add(after)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: expiry.Add(-time.Hour), NotAfter: expiry}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
}
