// Package csrapproving approves kubelets' requests for client certificates. It handles only
// requests that ask for a node's certificate and nothing else, and approves one only if its
// requester has a permission: a node for its own next certificate
// (certificatesigningrequests/selfnodeclient), or another user, such as a node joining with a
// bootstrap token, for that of any node (certificatesigningrequests/nodeclient).
//
// Only the API server's authorizers know the permissions, so the controller asks the writer for a
// SubjectAccessReview. The answer is on record, and an approval needs a recent one. If the
// permission is missing, the controller asks again at growing intervals, because the permission may
// be granted later and that changes no request.
package csrapproving

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller approves requests of kubelets.
var Controller = reconcile.Controller[View]{
	Name:     "certificatesigningrequest-approving-controller",
	Aliases:  []string{"csrapproving"},
	Identity: "certificate-controller",
	Queue:    "certificate",
	Owns:     &kinds.CertificateSigningRequests.Kind,
	Inputs:   []reconcile.Input{reconcile.Own(kinds.CertificateSigningRequests.Kind)},
	Writes: reconcile.Writes{
		{
			Verb: events.VerbAsk, Kind: kinds.CertificateSigningRequests.Name, Subresource: query.SubReview, On: reconcile.Itself,
			Fields: []string{".user", ".uid", ".groups", ".extra", ".resourceAttributes"},
			Copies: []reconcile.Copy{
				{To: ".user", From: ".spec.username"}, {To: ".uid", From: ".spec.uid"}, {To: ".groups", From: ".spec.groups"}, {To: ".extra", From: ".spec.extra"},
			},
			Values: []reconcile.Value{
				{Path: ".resourceAttributes.group", One: []string{group}}, {Path: ".resourceAttributes.resource", One: []string{resource}},
				{Path: ".resourceAttributes.subresource", One: []string{selfNodeClient, nodeClient}}, {Path: ".resourceAttributes.verb", One: []string{"create"}},
			},
		},
		{
			Verb: events.VerbUpdate, Kind: kinds.CertificateSigningRequests.Name, Subresource: query.SubApproval, On: reconcile.Itself,
			Values:   []reconcile.Value{{Path: ".spec.signerName", One: []string{certificatesv1.KubeAPIServerClientKubeletSignerName}}},
			Elements: []reconcile.Elements{{Path: ".status.conditions", By: "type", One: []string{string(certificatesv1.CertificateApproved)}}},
			Changes:  []string{".status.conditions"},
		},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is the input of the turn of one request.
type View struct {
	Request *certificatesv1.CertificateSigningRequest `json:"request"`
	// Review is the last answer about the present version of the request, given at At; nil if there
	// is none.
	Review *query.Review `json:"review,omitempty"`
	At     time.Time     `json:"at,omitzero"`
	// Unread is an answer that could not be decoded.
	Unread *reconcile.Unread `json:"unread,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	request, ok := reconcile.Get(s, kinds.CertificateSigningRequests, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Request: request}
	if last, ok := reconcile.Answers(s, k, request); ok {
		for _, r := range last.Results {
			v.hear(r, last.At)
		}
	}
	return v, true
}

// hear reads an answer.
func (v *View) hear(r events.Result, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	review := new(query.Review)
	if err := reconcile.Read(r, review); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	v.Review, v.At = review, at
}
