package sim

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
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// Requests is what nodes and users do that request certificates, and administrators that decide
// about the requests. In the last hours they request none.
var Requests = []Operation{
	inLastHours(askCertificate), inLastHours(askCertificate), inLastHours(askCertificate), inLastHours(judgeRequest), inLastHours(judgeRequest),
	inLastHours(permit), inLastHours(failRequest), inLastHours(touchRequest), inLastHours(dropRequest), passHours,
}

const (
	// lastHours is how many times time passes at the end, each time by more than a day.
	lastHours = 3
	bootstrap = "system:bootstrap:abcdef"
	// believed is for how long a revoked permission may still take effect: an answer counts for
	// half a minute, and a writer carries out a turn for [maxAge].
	believed = 30*time.Second + maxAge
)

// inLastHours lets time pass instead, once few operations are left.
func inLastHours(do Operation) Operation {
	return func(w *World) {
		if w.changes < lastHours {
			passHours(w)
			return
		}
		do(w)
	}
}

// passHours lets time pass: some minutes, an hour, or in the end more than a day.
func passHours(w *World) {
	d := []time.Duration{10 * time.Minute, 61 * time.Minute, 25 * time.Hour}[w.roll(3)]
	if w.changes < lastHours {
		d = 25 * time.Hour
		w.lull = w.now.Add(d + time.Minute)
	}
	w.note("%v pass", d)
	w.advance(w.now.Add(d))
}

func requestRef(w *World) events.Ref {
	return events.Ref{Kind: kinds.CertificateSigningRequests.Name, Name: fmt.Sprint("csr-", w.roll(4))}
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

// askCertificate requests a certificate: as a kubelet, as a user, or with a content that no
// kubelet may request.
func askCertificate(w *World) {
	ref := requestRef(w)
	if w.api.Get(ref) != nil {
		return
	}
	r := &certificatesv1.CertificateSigningRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: [][]byte{ofNode, ofUser}[w.roll(2)], Username: bootstrap, SignerName: []string{csr.KubeletClient, csr.KubeletClient, csr.KubeAPIServerClient, "example.com/other"}[w.roll(4)],
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}
	w.note("user: ask for a certificate %s of %s", ref.Name, r.Spec.SignerName)
	w.create(ref, r)
}

// condition adds a condition to a request, once.
func (w *World) condition(ref events.Ref, kind certificatesv1.RequestConditionType) {
	w.note("administrator: %s is %s", ref.Name, kind)
	w.api.Change(ref, func(obj metav1.Object) {
		s := &obj.(*certificatesv1.CertificateSigningRequest).Status
		at := metav1.NewTime(w.now.Truncate(time.Second))
		s.Conditions = append(s.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "Admin", LastUpdateTime: at, LastTransitionTime: at,
		})
	})
}

// judgeRequest has an administrator approve or deny a request, once.
func judgeRequest(w *World) {
	ref := requestRef(w)
	r, ok := w.api.Get(ref).(*certificatesv1.CertificateSigningRequest)
	if ok && !judgedAs(r, certificatesv1.CertificateApproved) && !judgedAs(r, certificatesv1.CertificateDenied) {
		w.condition(ref, []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}[w.roll(3)])
	}
}

// failRequest has another program mark a request as failed.
func failRequest(w *World) {
	ref := requestRef(w)
	if r, ok := w.api.Get(ref).(*certificatesv1.CertificateSigningRequest); ok && !judgedAs(r, certificatesv1.CertificateFailed) && len(r.Status.Certificate) == 0 {
		w.condition(ref, certificatesv1.CertificateFailed)
	}
}

func touchRequest(w *World) {
	if ref := requestRef(w); w.api.Get(ref) != nil {
		w.Annotate(ref, fmt.Sprint(w.tally.Steps))
	}
}

func dropRequest(w *World) {
	if ref := requestRef(w); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// permit allows joining nodes to have certificates, or revokes that.
func permit(w *World) {
	may := w.roll(2) == 0
	w.note("administrator: nodes that join may have certificates: %v", may)
	w.api.Allows = func(asked authorizationv1.SubjectAccessReviewSpec, _ time.Time) bool {
		return may && asked.User == bootstrap && asked.ResourceAttributes.Subresource == "nodeclient"
	}
	if w.joins {
		w.joined = w.now
	}
	w.joins = may
}

func judgedAs(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
}

// certificate is what a signer issues for a request.
func certificate(r *certificatesv1.CertificateSigningRequest, signer string) []byte {
	return fmt.Appendf(nil, "certificate of %s by %s", r.UID, signer)
}

// certify answers a request like the writer's door, but checks nothing except the version, and
// signs with the key of the named signer. So it shows whether the decision by itself is right.
func (a *API) certify(c *collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	said, refused := wantedOf(r.Body, old)
	if refused != nil {
		return *refused
	}
	next := clone(old).(*certificatesv1.CertificateSigningRequest)
	asked, err := csr.Read(next.Spec.Request)
	if err != nil {
		return refusal(403, query.NotToBeSigned, err.Error())
	}
	if why := csr.Violation(said.Spec.SignerName, asked, next.Spec.Usages); why != "" {
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: csr.Failure, Message: why, LastUpdateTime: metav1.NewTime(a.now()),
		})
	} else {
		next.Status.Certificate = certificate(next, said.Spec.SignerName)
	}
	return answer(a.store(c, ref, old, next))
}

// answered checks a request that is signed, fails, is approved or deleted. It is signed once,
// by the signer that was asked, when it was approved and neither denied nor failed, and breaks
// no rule of that signer (C2).
func (g *guard) answered(old, now metav1.Object) {
	was, ok := old.(*certificatesv1.CertificateSigningRequest)
	if !ok || g.restoring || g.doing == nil {
		return
	}
	r, there := now.(*certificatesv1.CertificateSigningRequest)
	if !there {
		switch {
		case g.world.worn(was):
		case g.passed(g.doing.turn, time.Hour):
			g.spare(clockAhead)
		default:
			g.breaks("C2", "%s goes before its time: %+v", was.Name, was.Status)
		}
		return
	}
	g.signed(was, r)
	if judgedAs(r, certificatesv1.CertificateApproved) && !judgedAs(was, certificatesv1.CertificateApproved) {
		if judgedAs(was, certificatesv1.CertificateDenied) || was.Spec.SignerName != csr.KubeletClient || string(was.Spec.Request) != string(ofNode) {
			g.breaks("C2", "%s of %s is approved: %+v", was.Name, was.Spec.SignerName, was.Status.Conditions)
		}
		if w := g.world; !w.joins && (w.joined.IsZero() || w.now.Sub(w.joined) > believed) {
			g.breaks("C2", "%s is approved, and its requester has no permission since %v", was.Name, w.joined)
		}
	}
}

// signed checks a request that a signer answers.
func (g *guard) signed(was, r *certificatesv1.CertificateSigningRequest) {
	asked, _ := csr.Read(was.Spec.Request)
	settled, wrong := csr.Settled(was.Status), csr.Violation(was.Spec.SignerName, asked, was.Spec.Usages)
	ours := slices.Contains(csr.Signers(), was.Spec.SignerName)
	if got := string(r.Status.Certificate); string(was.Status.Certificate) != got {
		if settled != "" || wrong != "" || !ours {
			g.breaks("C2", "%s of %s is signed, and %s %s", was.Name, was.Spec.SignerName, settled, wrong)
		}
		if got != string(certificate(was, was.Spec.SignerName)) {
			g.breaks("C2", "%s of %s has the %s", was.Name, was.Spec.SignerName, got)
		}
	}
	if judgedAs(r, certificatesv1.CertificateFailed) && !judgedAs(was, certificatesv1.CertificateFailed) && (settled != "" || wrong == "" || !ours) {
		g.breaks("C2", "%s of %s fails, and %q; the rule that it breaks is %q", was.Name, was.Spec.SignerName, settled, wrong)
	}
}

// worn reports whether a request is of no use any more, and should be deleted.
//
// Upstream: pkg/controller/certificates/cleaner.
func (w *World) worn(r *certificatesv1.CertificateSigningRequest) bool {
	age := func(at metav1.Time, most time.Duration) bool { return w.now.Sub(at.Time) >= most }
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

// requestsAnswered reports whether every request is answered that should be, and no expired one
// is left.
func (w *World) requestsAnswered() error {
	if !w.runs("certificatesigningrequest-signing-controller") {
		return nil
	}
	for _, obj := range w.api.List(kinds.CertificateSigningRequests.Name) {
		r := obj.(*certificatesv1.CertificateSigningRequest)
		if slices.Contains(csr.Signers(), r.Spec.SignerName) && csr.Settled(r.Status) == "" {
			return fmt.Errorf("%s is approved, and was not answered: %+v", r.Name, r.Status)
		}
		if w.worn(r) {
			return fmt.Errorf("%s is of no use any more, and still there: %+v", r.Name, r.Status)
		}
	}
	return nil
}
