package csrsigning

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide asks the writer to answer an approved request that has no result yet.
//
// Upstream: pkg/controller/certificates/signer, handle.
func decide(v View, _ time.Time) reconcile.Decision {
	settled := csr.Settled(v.Request.Status)
	asked, unreadable := csr.Read(v.Request.Spec.Request)
	_, _, impossible := csr.Usages(v.Request.Spec.Usages)
	switch {
	case !v.Signs:
		return reconcile.Nothing("this controller has no key of the signer")
	case settled != "":
		return reconcile.Nothing(settled)
	case unreadable != nil:
		return reconcile.Nothing("the certificate request is malformed")
	case csr.Violation(v.Request.Spec.SignerName, asked, v.Request.Spec.Usages) != "":
		return reconcile.Do("the request is approved, and violates the rules of its signer", v.certify())
	case impossible != nil:
		return reconcile.Nothing("the requested usages are not allowed for the signer")
	default:
		return reconcile.Do("the request is approved and has no certificate yet", v.certify())
	}
}

// certify asks the writer to answer the present version of the request.
func (v View) certify() events.Command {
	return reconcile.Certify(v.Request, v.Request.Spec.SignerName)
}
