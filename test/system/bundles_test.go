package system

import (
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/clustertest"
)

// TestTheRootCertificateInABundle: if the API server serves bundles and the gate is on, Millrace publishes
// the root certificate as a bundle of the API server's signer, restores it after a user deletes it, and
// deletes the bundle of an older certificate; bundles of other signers stay.
func TestTheRootCertificateInABundle(t *testing.T) {
	t.Parallel()
	const gate = "--feature-gates=ClusterTrustBundle=true"
	s, err := begin(t.Context(), t.TempDir(), clustertest.Tracing{}, gate, "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	bundles := s.kube.CertificatesV1beta1().ClusterTrustBundles()
	ca, err := os.ReadFile(s.RootCAFile())
	must(t, err)
	put := func(name, signer string) {
		_, err := bundles.Create(t.Context(), &certificatesv1beta1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(ca)},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	put("kubernetes.io:kube-apiserver-serving:older", "kubernetes.io/kube-apiserver-serving")
	put("example.com:signer:other", "example.com/signer")
	s.run(t, gate)
	sum := sha256.Sum256(ca)
	name := fmt.Sprintf("kubernetes.io:kube-apiserver-serving:%x", sum[:12])
	published := func() string {
		b, err := bundles.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if b.Spec.SignerName != "kubernetes.io/kube-apiserver-serving" || b.Spec.TrustBundle != string(ca) {
			return fmt.Sprintf("it is %+v", b.Spec)
		}
		return ""
	}
	within(t, patience, "the root certificate is published", published)
	within(t, patience, "the older bundle goes", func() string {
		_, err := bundles.Get(t.Context(), "kubernetes.io:kube-apiserver-serving:older", metav1.GetOptions{})
		return gone(err)
	})
	must(t, bundles.Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, patience, "it is published again", published)
	if _, err := bundles.Get(t.Context(), "example.com:signer:other", metav1.GetOptions{}); err != nil {
		t.Errorf("get the bundle of another signer: %v, want it to be there", err)
	}
}
