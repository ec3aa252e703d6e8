package csrcleaner

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(2, func(v View, _ reconcile.Decision, now time.Time) View {
			gone := *v.Request
			gone.DeletionTimestamp = &metav1.Time{Time: now}
			return View{Request: &gone}
		}),
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			other := *v.Request
			other.Status.Conditions = slices.Clone(other.Status.Conditions)
			slices.Reverse(other.Status.Conditions)
			return View{Request: &other}
		}),
		reconciletest.Law[View]{Name: "kept", Holds: kept})
}

// kept checks that a request whose times are all less than an hour old is not deleted
// unless it has a certificate, and that a request with a condition older than a day is.
func kept(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	oldest, said := v.Request.CreationTimestamp.Time, now
	for _, condition := range v.Request.Status.Conditions {
		if at := condition.LastUpdateTime.Time; !at.IsZero() && at.Before(said) {
			said = at
		}
	}
	if said.Before(oldest) {
		oldest = said
	}
	deleted := len(c.Decide(v, now).Commands) > 0
	switch {
	case deleted && now.Sub(oldest) < time.Hour && len(v.Request.Status.Certificate) == 0:
		return fmt.Errorf("it is deleted, and nothing is older than %v", oldest)
	case !deleted && now.Sub(said) > 24*time.Hour && v.Request.DeletionTimestamp == nil:
		return fmt.Errorf("it is kept, and something was said at %v", said)
	default:
		return nil
	}
}

// anyView returns a request of some age, with some conditions and perhaps a certificate.
func anyView(t *rapid.T) View {
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u", ResourceVersion: "7"}}
	ago := func(what string) metav1.Time {
		minutes := rapid.SampledFrom([]int{0, 1, 59, 60, 61, 24*60 - 1, 24 * 60, 24*60 + 1, 48 * 60}).Draw(t, what)
		return metav1.NewTime(now.Add(-time.Duration(minutes) * time.Minute))
	}
	r.CreationTimestamp = ago("created, minutes ago")
	r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		c := certificatesv1.CertificateSigningRequestCondition{
			Type: rapid.SampledFrom([]certificatesv1.RequestConditionType{
				certificatesv1.CertificateApproved, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
			}).Draw(t, "condition"),
			Status: corev1.ConditionTrue,
		}
		if rapid.IntRange(0, 7).Draw(t, "since") > 0 {
			c.LastUpdateTime = ago("since, minutes ago")
		}
		r.Status.Conditions = append(r.Status.Conditions, c)
	}
	r.Status.Certificate = rapid.SampledFrom(certificates).Draw(t, "certificate")
	if rapid.IntRange(0, 7).Draw(t, "deleted") == 7 {
		r.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return View{Request: r}
}

// certificates are no certificate, an expired one, a valid one, and invalid texts.
var certificates = [][]byte{
	nil, certificate(now.Add(-time.Minute)), certificate(now.Add(time.Minute)), []byte("no PEM"),
	pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}),
}

// certificate returns a certificate with this expiry, in PEM.
func certificate(expiry time.Time) []byte {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: expiry.Add(-time.Hour), NotAfter: expiry}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
}

func TestObserve(t *testing.T) {
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	world := reconciletest.NewWorld().Put(kinds.CertificateSigningRequests.Kind, request)
	if v, ok := observe(world, events.Key{Name: "node-1"}); !ok || v.Request != request {
		t.Errorf("the view is %v, found: %v", v.Request, ok)
	}
	if _, ok := observe(world, events.Key{Name: "node-2"}); ok {
		t.Error("observe finds a request that is not there")
	}
	if keys := world.Keys(Controller, kinds.CertificateSigningRequests.Kind, request, nil); !slices.Equal(keys, []events.Key{{Name: "node-1"}}) {
		t.Errorf("a new request makes it the turn of %v", keys)
	}
}

// The earliest end decides, to the second, and gives the reason.
func TestWhatEndsFirst(t *testing.T) {
	hour := func(kind certificatesv1.RequestConditionType, ago time.Duration) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(now.Add(-ago))}
	}
	approved, denied, failed := certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	type conditions = []certificatesv1.CertificateSigningRequestCondition
	for name, c := range map[string]struct {
		conditions  conditions
		certificate []byte
		end         time.Time
		because     string
	}{
		"pending":                 {nil, nil, now.Add(time.Hour), "the request has waited a day for its approval"},
		"pending, with a text":    {nil, []byte("x"), now.Add(time.Hour), "the request has waited a day for its approval"},
		"denied":                  {conditions{hour(denied, time.Minute)}, nil, now.Add(59 * time.Minute), "the request was denied an hour ago"},
		"failed":                  {conditions{hour(failed, time.Minute)}, nil, now.Add(59 * time.Minute), "the request failed an hour ago"},
		"approved":                {conditions{hour(approved, time.Minute)}, nil, now.Add(24*time.Hour - time.Minute), "the request was approved a day ago and has no certificate"},
		"issued":                  {conditions{hour(approved, time.Minute)}, certificate(now.Add(time.Hour)), now.Add(59 * time.Minute), "the request was approved an hour ago and has its certificate"},
		"issued for a minute":     {conditions{hour(approved, 0)}, certificate(now.Add(time.Minute)), now.Add(time.Minute), "the certificate of the request has expired"},
		"approved, then failed":   {conditions{hour(approved, 2*time.Hour), hour(failed, time.Minute)}, nil, now.Add(59 * time.Minute), "the request failed an hour ago"},
		"a condition of others":   {conditions{hour("Noted", 48*time.Hour)}, nil, time.Time{}, ""},
		"issued, and not said so": {conditions{hour("Noted", 48*time.Hour)}, certificate(now.Add(-time.Hour)), time.Time{}, ""},
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-23 * time.Hour))}}
		r.Status.Conditions, r.Status.Certificate = c.conditions, c.certificate
		if end, because := (View{Request: r}).end(); !end.Equal(c.end) || because != c.because {
			t.Errorf("%s: the request ends at %v (%s), want %v (%s)", name, end, because, c.end, c.because)
		}
	}
}
