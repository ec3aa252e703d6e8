package access

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Requests is what nodes and users do that request certificates, and administrators that decide
// about the requests. In the last hours they request none.
var Requests = []cluster.Operation{
	cluster.InLastHours(AskCertificate), cluster.InLastHours(AskCertificate), cluster.InLastHours(AskCertificate), cluster.InLastHours(judgeRequest), cluster.InLastHours(judgeRequest),
	cluster.InLastHours(permit), cluster.InLastHours(failRequest), cluster.InLastHours(touchRequest), cluster.InLastHours(dropRequest), cluster.PassHours,
}

const (
	bootstrap = "system:bootstrap:abcdef"
	// believed is for how long a revoked permission may still take effect: an answer counts for
	// half a minute, and a writer carries out a turn for [cluster.MaxAge].
	believed = 30*time.Second + cluster.MaxAge
)

// RequestRef is the place of one of the certificate requests.
func RequestRef(w *cluster.Cluster) events.Ref {
	return events.Ref{Kind: kinds.CertificateSigningRequests.Name, Name: fmt.Sprint("csr-", w.Roll(4))}
}

// asked is a certificate request in PEM, by a key that is always the same.
func asked(subject pkix.Name) []byte {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		panic(err) // the template is a whole one
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

var (
	ofNode = asked(pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:node-1"})
	ofUser = asked(pkix.Name{Organization: []string{"people"}, CommonName: "jane"})
)

// AskCertificate requests a certificate: as a kubelet, as a user, or with a content that no
// kubelet may request.
func AskCertificate(w *cluster.Cluster) {
	ref := RequestRef(w)
	if w.API.Get(ref) != nil {
		return
	}
	r := &certificatesv1.CertificateSigningRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: [][]byte{ofNode, ofUser}[w.Roll(2)], Username: bootstrap, SignerName: []string{csr.KubeletClient, csr.KubeletClient, csr.KubeAPIServerClient, "example.com/other"}[w.Roll(4)],
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}
	w.Note("user: ask for a certificate %s of %s", ref.Name, r.Spec.SignerName)
	w.Create(ref, r)
}

// Condition adds a condition to a request, once.
func Condition(w *cluster.Cluster, ref events.Ref, kind certificatesv1.RequestConditionType) {
	w.Note("administrator: %s is %s", ref.Name, kind)
	w.API.Change(ref, func(obj metav1.Object) {
		s := &obj.(*certificatesv1.CertificateSigningRequest).Status
		at := metav1.NewTime(w.Now.Truncate(time.Second))
		s.Conditions = append(s.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "Admin", LastUpdateTime: at, LastTransitionTime: at,
		})
	})
}

// judgeRequest has an administrator approve or deny a request, once.
func judgeRequest(w *cluster.Cluster) {
	ref := RequestRef(w)
	r, ok := w.API.Get(ref).(*certificatesv1.CertificateSigningRequest)
	if ok && !judgedAs(r, certificatesv1.CertificateApproved) && !judgedAs(r, certificatesv1.CertificateDenied) {
		Condition(w, ref, []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}[w.Roll(3)])
	}
}

// failRequest has another program mark a request as failed.
func failRequest(w *cluster.Cluster) {
	ref := RequestRef(w)
	if r, ok := w.API.Get(ref).(*certificatesv1.CertificateSigningRequest); ok && !judgedAs(r, certificatesv1.CertificateFailed) && len(r.Status.Certificate) == 0 {
		Condition(w, ref, certificatesv1.CertificateFailed)
	}
}

func touchRequest(w *cluster.Cluster) {
	if ref := RequestRef(w); w.API.Get(ref) != nil {
		w.Annotate(ref, fmt.Sprint(w.Counts.Steps))
	}
}

func dropRequest(w *cluster.Cluster) {
	if ref := RequestRef(w); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// permit allows joining nodes to have certificates, or revokes that.
func permit(w *cluster.Cluster) {
	may := w.Roll(2) == 0
	w.Note("administrator: nodes that join may have certificates: %v", may)
	w.API.Allows = func(asked authorizationv1.SubjectAccessReviewSpec, _ time.Time) bool {
		return may && asked.User == bootstrap && asked.ResourceAttributes.Subresource == "nodeclient"
	}
	if w.Access.Joins {
		w.Access.Joined = w.Now
	}
	w.Access.Joins = may
}

func judgedAs(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
}

// Answered checks a request that is signed, fails, is approved or deleted. It is signed once,
// by the signer that was asked, when it was approved and neither denied nor failed, and breaks
// no rule of that signer (C2).
func Answered(g *cluster.Guard, old, now metav1.Object) {
	was, ok := old.(*certificatesv1.CertificateSigningRequest)
	if !ok || g.Record.Restoring || g.Turns.Doing == nil {
		return
	}
	r, there := now.(*certificatesv1.CertificateSigningRequest)
	if !there {
		switch {
		case worn(g.World, was):
		case g.Passed(g.Turns.Doing.Turn, time.Hour):
			g.Spare(cluster.ClockAhead)
		default:
			g.Breaks("C2", "%s goes before its time: %+v", was.Name, was.Status)
		}
		return
	}
	signed(g, was, r)
	if judgedAs(r, certificatesv1.CertificateApproved) && !judgedAs(was, certificatesv1.CertificateApproved) {
		if judgedAs(was, certificatesv1.CertificateDenied) || was.Spec.SignerName != csr.KubeletClient || string(was.Spec.Request) != string(ofNode) {
			g.Breaks("C2", "%s of %s is approved: %+v", was.Name, was.Spec.SignerName, was.Status.Conditions)
		}
		if w := g.World; !w.Access.Joins && (w.Access.Joined.IsZero() || w.Now.Sub(w.Access.Joined) > believed) {
			g.Breaks("C2", "%s is approved, and its requester has no permission since %v", was.Name, w.Access.Joined)
		}
	}
}

// signed checks a request that a signer answers.
func signed(g *cluster.Guard, was, r *certificatesv1.CertificateSigningRequest) {
	asked, _ := csr.Read(was.Spec.Request)
	settled, wrong := csr.Settled(was.Status), csr.Violation(was.Spec.SignerName, asked, was.Spec.Usages)
	ours := slices.Contains(csr.Signers(), was.Spec.SignerName)
	if got := string(r.Status.Certificate); string(was.Status.Certificate) != got {
		if settled != "" || wrong != "" || !ours {
			g.Breaks("C2", "%s of %s is signed, and %s %s", was.Name, was.Spec.SignerName, settled, wrong)
		}
		if got != string(apiserver.Certificate(was, was.Spec.SignerName)) {
			g.Breaks("C2", "%s of %s has the %s", was.Name, was.Spec.SignerName, got)
		}
	}
	if judgedAs(r, certificatesv1.CertificateFailed) && !judgedAs(was, certificatesv1.CertificateFailed) && (settled != "" || wrong == "" || !ours) {
		g.Breaks("C2", "%s of %s fails, and %q; the rule that it breaks is %q", was.Name, was.Spec.SignerName, settled, wrong)
	}
}

// worn reports whether a request is of no use any more, and should be deleted.
//
// Upstream: pkg/controller/certificates/cleaner.
func worn(w *cluster.Cluster, r *certificatesv1.CertificateSigningRequest) bool {
	age := func(at metav1.Time, most time.Duration) bool { return w.Now.Sub(at.Time) >= most }
	if age(r.CreationTimestamp, 24*time.Hour) && len(r.Status.Conditions) == 0 {
		return true
	}
	for _, c := range r.Status.Conditions {
		switch settled := c.Type != certificatesv1.CertificateApproved || len(r.Status.Certificate) > 0; {
		case settled && age(c.LastUpdateTime, time.Hour), age(c.LastUpdateTime, 24*time.Hour):
			return true
		}
	}
	return false
}

// RequestsAnswered reports whether every request is answered that should be, and no expired one
// is left.
func RequestsAnswered(w *cluster.Cluster) error {
	if !w.Runs("certificatesigningrequest-signing-controller") {
		return nil
	}
	for _, obj := range w.API.List(kinds.CertificateSigningRequests.Name) {
		r := obj.(*certificatesv1.CertificateSigningRequest)
		if slices.Contains(csr.Signers(), r.Spec.SignerName) && csr.Settled(r.Status) == "" {
			return fmt.Errorf("%s is approved, and was not answered: %+v", r.Name, r.Status)
		}
		if worn(w, r) {
			return fmt.Errorf("%s is of no use any more, and still there: %+v", r.Name, r.Status)
		}
	}
	return nil
}
