// Package csrcleaner deletes CertificateSigningRequests that are no longer useful: one hour after a
// request was denied, failed or got its certificate; as soon as that certificate has expired; and
// one day after a request was created or approved without any result.
package csrcleaner

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller deletes requests whose time is up.
var Controller = reconcile.Controller[View]{
	Name:     "certificatesigningrequest-cleaner-controller",
	Aliases:  []string{"csrcleaner"},
	Identity: "certificate-controller",
	Owns:     &kinds.CertificateSigningRequests.Kind,
	Inputs:   []reconcile.Input{reconcile.Own(kinds.CertificateSigningRequests.Kind)},
	Writes: reconcile.Writes{
		{Verb: events.VerbDelete, Kind: kinds.CertificateSigningRequests.Name, On: reconcile.Itself, Unchanged: true},
	},
	Observe: observe,
	Decide:  decide,
}

// View is the input of one turn.
type View struct {
	Request *certificatesv1.CertificateSigningRequest `json:"request"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	request, ok := reconcile.Get(s, kinds.CertificateSigningRequests, "", k.Name)
	return View{Request: request}, ok
}
