package csrcleaner

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// done is how long an answered request is kept, so that its requester can read the answer.
	done = time.Hour
	// pending is how long a request that waits for its approval or its certificate is kept.
	pending = 24 * time.Hour
)

// decide deletes a request whose time is up, on condition that it is unchanged: it may have been
// approved, or got its certificate, in the meantime.
//
// Upstream: pkg/controller/certificates/cleaner, which looks at all requests once an hour.
func decide(v View, now time.Time) reconcile.Decision {
	end, because := v.end()
	switch {
	case v.Request.DeletionTimestamp != nil:
		return reconcile.Nothing("the request is being deleted")
	case end.IsZero():
		return reconcile.Nothing("the request has no time of its last condition")
	case now.Before(end):
		return reconcile.Wake(end, "the request has not expired")
	default:
		return reconcile.Do(because, reconcile.Delete(kinds.CertificateSigningRequests.Kind, v.Request, reconcile.IfUnchanged(v.Request)))
	}
}

// end returns the earliest time at which the request may be deleted, and the reason; zero if it is
// kept forever. Among equal times the reason does not depend on the order of the conditions. The
// status of a condition does not matter, because the API server accepts only True.
func (v View) end() (first time.Time, because string) {
	sooner := func(at time.Time, why string) {
		if !at.IsZero() && (first.IsZero() || at.Before(first) || at.Equal(first) && why < because) {
			first, because = at, why
		}
	}
	status, issued := v.Request.Status, len(v.Request.Status.Certificate) > 0
	if len(status.Conditions) == 0 {
		sooner(after(v.Request.CreationTimestamp, pending), "the request has waited a day for its approval")
	}
	for _, c := range status.Conditions {
		switch {
		case c.Type == certificatesv1.CertificateDenied:
			sooner(after(c.LastUpdateTime, done), "the request was denied an hour ago")
		case c.Type == certificatesv1.CertificateFailed:
			sooner(after(c.LastUpdateTime, done), "the request failed an hour ago")
		case c.Type != certificatesv1.CertificateApproved: // another program's condition
		case issued:
			sooner(after(c.LastUpdateTime, done), "the request was approved an hour ago and has its certificate")
			sooner(expiry(status.Certificate), "the certificate of the request has expired")
		default:
			sooner(after(c.LastUpdateTime, pending), "the request was approved a day ago and has no certificate")
		}
	}
	return first, because
}

// after returns a time plus a duration; zero if the time is not set.
func after(at metav1.Time, while time.Duration) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return at.Add(while)
}

// expiry returns when the first certificate in a PEM text expires; zero if none can be parsed.
func expiry(text []byte) time.Time {
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}
	}
	certificates, err := x509.ParseCertificates(block.Bytes)
	if err != nil || len(certificates) == 0 {
		return time.Time{}
	}
	return certificates[0].NotAfter
}
