package csrsigning

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	now        = reconciletest.Now
	controller = New(Config{Signers: csr.Signers()})
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now,
		reconciletest.Content(2, carriedOut), reconciletest.Law[View]{Name: "approved", Holds: approved}, reconciletest.Law[View]{Name: "answered", Holds: answered})
}

// anyView returns a request for a certificate, which may be approved.
func anyView(t *rapid.T) View {
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "u", ResourceVersion: "7"}}
	r.Spec.SignerName = rapid.SampledFrom(append(csr.Signers(), "example.com/signer")).Draw(t, "signer")
	r.Spec.Request = rapid.SampledFrom([][]byte{asks("system:node:n1", "system:nodes"), asks("system:node:n1", "system:nodes"), asks("jane"), []byte("none")}).Draw(t, "request")
	r.Spec.Usages = rapid.SliceOfN(rapid.SampledFrom([]certificatesv1.KeyUsage{"client auth", "digital signature", "key encipherment", "server auth", "flying"}), 0, 3).Draw(t, "usages")
	for range rapid.IntRange(0, 3).Draw(t, "conditions") {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type:   rapid.SampledFrom([]certificatesv1.RequestConditionType{"Approved", "Approved", "Denied", "Failed", "Noted"}).Draw(t, "condition"),
			Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", ""}).Draw(t, "status"),
		})
	}
	if rapid.IntRange(0, 7).Draw(t, "issued") == 7 {
		r.Status.Certificate = []byte("a certificate")
	}
	return View{Request: r, Signs: r.Spec.SignerName != "example.com/signer" && rapid.IntRange(0, 4).Draw(t, "no key") < 4}
}

// carriedOut answers the request as the writer does.
func carriedOut(v View, d reconcile.Decision, _ time.Time) View {
	if len(d.Commands) > 0 {
		next := v.Request.DeepCopy()
		asked, err := csr.Read(next.Spec.Request)
		if err != nil || csr.Violation(next.Spec.SignerName, asked, next.Spec.Usages) != "" {
			next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue})
		} else {
			next.Status.Certificate = []byte("a certificate")
		}
		v.Request = next
	}
	return v
}

// approved checks that only a request that is approved, not denied, and not answered is
// signed, by the signer that it asks for, and in the version of the view.
func approved(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		var said certificatesv1.CertificateSigningRequest
		if err := json.Unmarshal(command.Body, &said); err != nil {
			return err
		}
		has := map[certificatesv1.RequestConditionType]bool{}
		for _, condition := range v.Request.Status.Conditions {
			has[condition.Type] = has[condition.Type] || condition.Type != "Failed" || condition.Status != "False"
		}
		switch {
		case !has["Approved"] || has["Denied"] || has["Failed"] || len(v.Request.Status.Certificate) > 0:
			return fmt.Errorf("a request with the status %+v is to be signed", v.Request.Status)
		case !v.Signs || said.Spec.SignerName != v.Request.Spec.SignerName || !command.Certifies():
			return fmt.Errorf("%s signs: %v", said.Spec.SignerName, v.Signs)
		case command.If == nil || command.If.UID != "u" || command.If.ResourceVersion != "7":
			return fmt.Errorf("any version of the request is to be signed: %+v", command.If)
		case bytes.Contains(command.Body, []byte("certificate\"")) || len(said.Spec.Request) > 0 || len(said.Spec.Usages) > 0:
			return fmt.Errorf("the command says more than which signer: %s", command.Body)
		}
	}
	return nil
}

// answered checks that a request that is approved, can be signed and is not answered gets an answer.
func answered(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	asked, err := csr.Read(v.Request.Spec.Request)
	_, _, impossible := csr.Usages(v.Request.Spec.Usages)
	if !v.Signs || csr.Settled(v.Request.Status) != "" || err != nil {
		return nil
	}
	fails := csr.Violation(v.Request.Spec.SignerName, asked, v.Request.Spec.Usages) != ""
	if d := c.Decide(v, now); (fails || impossible == nil) && len(d.Commands) != 1 {
		return fmt.Errorf("nothing comes of it: %s", d.Because)
	}
	return nil
}

// asks returns a request in PEM.
func asks(name string, groups ...string) []byte {
	text, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: text})
}

// The view shows if the key of a signer is elsewhere.
func TestObserve(t *testing.T) {
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "u", ResourceVersion: "7"}}
	request.Spec.SignerName = csr.KubeletServing
	key := events.Key{Name: "csr-1"}
	world := reconciletest.NewWorld().Put(kinds.CertificateSigningRequests.Kind, request)
	for _, c := range []struct {
		signers []string
		want    bool
	}{{csr.Signers(), true}, {[]string{csr.KubeletServing}, true}, {[]string{csr.KubeletClient}, false}, {nil, false}} {
		if v, ok := New(Config{Signers: c.signers}).Observe(world, key); !ok || v.Request != request || v.Signs != c.want {
			t.Errorf("where %v sign it sees %+v, %v", c.signers, v, ok)
		}
	}
	if _, ok := controller.Observe(world, events.Key{Name: "csr-2"}); ok {
		t.Error("observe finds a request that is not there")
	}
}
