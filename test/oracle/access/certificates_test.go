package access_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
)

func TestRequestsAreCleanedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.RequestCleaner, oracletest.ClusterKey, oldRequest)
}

// Both delete the same requests in the end, although the API server refuses some deletes.
func TestRefusedRequestsAreCleanedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, access.RequestCleanerAtRest, agingRequest, stage.Refusal{Verb: plan.Delete})
}

func TestPodsRequestsAreCleanedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.PodRequestCleaner, oracletest.Key, func(r *rapid.T) []runtime.Object {
		return []runtime.Object{podsRequest(r, []int{0, 1, 300, 899, 900, 901, 7200})}
	})
}

// Both delete the same requests in the end, although the API server refuses some deletes.
func TestRefusedPodsRequestsAreCleanedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, access.PodRequestCleanerAtRest, func(r *rapid.T) []runtime.Object {
		return []runtime.Object{podsRequest(r, []int{30, 150, 870, 930, 7200})}
	}, stage.Refusal{Verb: plan.Delete})
}

// podsRequest is a request for the certificate of a pod, with one of some ages in seconds.
func podsRequest(t *rapid.T, ages []int) *certificatesv1beta1.PodCertificateRequest {
	r := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: oracletest.Namespace, Name: oracletest.Owner, UID: "request", ResourceVersion: "10"}}
	r.CreationTimestamp = oracletest.Before(objects.Now, rapid.SampledFrom(ages).Draw(t, "age"))
	r.Spec.SignerName = "example.com/pods"
	if rapid.Bool().Draw(t, "answered") {
		r.Status.Conditions = []metav1.Condition{{Type: rapid.SampledFrom([]string{"Issued", "Denied", "Failed"}).Draw(t, "how"), Status: metav1.ConditionTrue, LastTransitionTime: oracletest.Before(objects.Now, 1)}}
	}
	if rapid.IntRange(0, 7).Draw(t, "held") == 7 {
		r.Finalizers = []string{"example.com/held"}
		if rapid.Bool().Draw(t, "deleted") {
			r.DeletionTimestamp = oracletest.Ptr(oracletest.Before(objects.Now, 1))
		}
	}
	return r
}

func TestRequestsAreApprovedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.RequestApprover, oracletest.ClusterKey, kubeletRequest)
}

// Both approve the same requests in the end, although the API server refuses some approvals and gives some
// permissions later.
func TestRefusedRequestsAreApprovedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, access.RequestApproverAtRest, kubeletRequest, stage.Refusal{Verb: plan.Update})
}

func TestRequestsAreSignedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.RequestSigner, oracletest.ClusterKey, approvedRequest)
}

// Both sign the same requests in the end, although the API server refuses some answers.
func TestRefusedRequestsAreSignedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, access.RequestSignerAtRest, approvedRequest, oracletest.Reports)
}

// approvedRequest is a request for a certificate that is approved in most cases.
func approvedRequest(t *rapid.T) []runtime.Object {
	r := kubeletRequest(t)[0].(*certificatesv1.CertificateSigningRequest)
	r.Spec.SignerName = rapid.SampledFrom([]string{
		certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeAPIServerClientSignerName, "kubernetes.io/legacy-unknown", "example.com/signer",
	}).Draw(t, "of the signer")
	r.Spec.Usages = rapid.OneOf(rapid.Just(r.Spec.Usages), rapid.Just([]certificatesv1.KeyUsage{"digital signature", "server auth"}), rapid.SliceOfN(rapid.SampledFrom([]certificatesv1.KeyUsage{
		"client auth", "server auth", "digital signature", "signing", "key encipherment", "s/mime", "email protection", "cert sign", "any", "flying",
	}), 0, 4)).Draw(t, "for")
	if rapid.IntRange(0, 2).Draw(t, "for how long") > 0 {
		r.Spec.ExpirationSeconds = rapid.SampledFrom([]*int32{oracletest.Ptr(int32(-1)), oracletest.Ptr(int32(0)), oracletest.Ptr(int32(600)), oracletest.Ptr(int32(599)), oracletest.Ptr(int32(28799)), oracletest.Ptr(int32(28800)), oracletest.Ptr(int32(30 * 86400)), oracletest.Ptr(int32(50 * 86400)), oracletest.Ptr(int32(70 * 86400))}).Draw(t, "seconds")
	}
	if rapid.IntRange(0, 3).Draw(t, "approved") > 0 {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: "True"})
	}
	return []runtime.Object{r}
}

// kubeletRequest is a request that may be a kubelet's, of a user with or without the permission.
func kubeletRequest(t *rapid.T) []runtime.Object {
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, UID: "request", ResourceVersion: "10"}}
	r.CreationTimestamp = oracletest.Before(objects.Now, rapid.IntRange(0, 30).Draw(t, "created, seconds ago"))
	r.Spec = certificatesv1.CertificateSigningRequestSpec{
		SignerName: rapid.SampledFrom([]string{
			certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
			certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientSignerName,
		}).Draw(t, "signer"),
		Request:  rapid.SampledFrom(asked).Draw(t, "request"),
		Username: rapid.SampledFrom([]string{"system:node:n1", "system:node:n1", "system:node:n2", "system:bootstrap:abc", ""}).Draw(t, "user"),
		UID:      rapid.SampledFrom([]string{"", "one", "one", "another"}).Draw(t, "uid"),
		Usages: rapid.SliceOfN(rapid.SampledFrom([]certificatesv1.KeyUsage{
			certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
		}), 0, 1).Draw(t, "usages"),
	}
	if rapid.IntRange(0, 4).Draw(t, "as a kubelet's") > 0 {
		r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth)
	}
	for _, permission := range []string{"nodeclient", "selfnodeclient"} {
		if group := rapid.SampledFrom([]string{"", access.May, access.MayLater}).Draw(t, permission); group != "" {
			r.Spec.Groups = append(r.Spec.Groups, group+permission)
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "extra") == 2 {
		r.Spec.Extra = map[string]certificatesv1.ExtraValue{access.Extra: rapid.SampledFrom([]certificatesv1.ExtraValue{{"a", "b"}, {"a", "b"}, {"b", "a"}}).Draw(t, "values")}
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "conditions") {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: rapid.SampledFrom([]certificatesv1.RequestConditionType{
				certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed, "Noted",
			}).Draw(t, "condition"),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False"}).Draw(t, "status"), LastUpdateTime: oracletest.Before(objects.Now, 60), LastTransitionTime: oracletest.Before(objects.Now, 60),
		})
	}
	if rapid.IntRange(0, 7).Draw(t, "issued") == 7 {
		r.Status.Certificate = []byte("a certificate")
	}
	if rapid.IntRange(0, 7).Draw(t, "held") == 7 {
		r.Finalizers, r.DeletionTimestamp = []string{"example.com/held"}, oracletest.Ptr(oracletest.Before(objects.Now, 5))
	}
	return []runtime.Object{r}
}

// asked are requests of kubelets for their client certificates, and others.
var asked = [][]byte{
	forCertificate(nil), forCertificate(nil), forCertificate(nil), forCertificate(nil), forCertificate(nil), forCertificate(nil),
	forCertificate(func(r *x509.CertificateRequest) { r.Subject.CommonName = "n1" }),
	forCertificate(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:nodes", "system:masters"} }),
	forCertificate(func(r *x509.CertificateRequest) { r.Subject.Organization = nil }),
	forCertificate(func(r *x509.CertificateRequest) { r.DNSNames = []string{"n1"} }),
	forCertificate(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }),
	forCertificate(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }),
	forCertificate(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "n1"}} }),
	forCertificate(func(r *x509.CertificateRequest) { r.Subject.Locality = []string{"Basel"} }),
	[]byte("none"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("none")}), certificate(time.Hour),
	append(forCertificate(nil), certificate(time.Hour)...), append([]byte("an explanation\n"), forCertificate(nil)...),
}

// forCertificate is a kubelet's request in PEM, modified by change.
func forCertificate(change func(*x509.CertificateRequest)) []byte {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}
	if change != nil {
		change(template)
	}
	text, err := x509.CreateCertificateRequest(rand.Reader, template, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: text})
}

// oldRequest is a request of some age; each age is close to a limit.
func oldRequest(t *rapid.T) []runtime.Object {
	return []runtime.Object{aRequest(t, []time.Duration{
		time.Minute, 59 * time.Minute, time.Hour - time.Second, time.Hour, 61 * time.Minute, 23 * time.Hour, 24*time.Hour - time.Second, 24 * time.Hour, 48 * time.Hour,
	})}
}

// agingRequest is a request that expires half an hour before or after upstream polls.
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
		return oracletest.Before(objects.Now, int(rapid.SampledFrom(ages).Draw(t, what).Seconds()))
	}
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: oracletest.Owner, UID: "request", ResourceVersion: "10", CreationTimestamp: at("created")}}
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
			r.DeletionTimestamp = oracletest.Ptr(at("deleted at"))
		}
	}
	return r
}

// issued are answers: none, certificates that have expired or will expire, and invalid ones.
var issued = [][]byte{
	nil, nil, nil, certificate(-30 * time.Minute), certificate(-time.Second), certificate(30 * time.Minute), certificate(4*time.Hour + 30*time.Minute), certificate(9000 * time.Hour),
	append([]byte("an explanation\n"), certificate(-time.Hour)...), append(certificate(9000*time.Hour), certificate(-time.Hour)...),
	[]byte("no certificate"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}),
}

// certificate is a certificate that expires so long after the start.
func certificate(after time.Duration) []byte {
	key, expiry := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), objects.Now.Add(after)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: expiry.Add(-time.Hour), NotAfter: expiry}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
}
