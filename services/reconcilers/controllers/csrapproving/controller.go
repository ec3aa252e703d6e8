// Package csrapproving approves requests of kubelets for their client certificates. Only a
// request that asks for a certificate of a node and for nothing else is looked at, and only
// where its requester may have it: a node the next certificate of its own
// (certificatesigningrequests/selfnodeclient), or a user such as a node that is joining with
// a bootstrap token that of any node (certificatesigningrequests/nodeclient).
//
// The API server's authorizers know who may, so the writer is asked to make a
// SubjectAccessReview. The answer is on record, and the approval rests on one that is not
// old. Where the permission is not given it is asked for again, at growing distances: it may
// be given later, and that changes no request.
package csrapproving

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
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
			Verb: events.VerbAsk, Kind: kinds.CertificateSigningRequests.Name, Subresource: events.SubReview, On: reconcile.Itself,
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
			Verb: events.VerbUpdate, Kind: kinds.CertificateSigningRequests.Name, Subresource: events.SubApproval, On: reconcile.Itself,
			Values:   []reconcile.Value{{Path: ".spec.signerName", One: []string{certificatesv1.KubeAPIServerClientKubeletSignerName}}},
			Elements: []reconcile.Elements{{Path: ".status.conditions", By: "type", One: []string{string(certificatesv1.CertificateApproved)}}},
			Changes:  []string{".status.conditions"},
		},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one request can see.
type View struct {
	Request *certificatesv1.CertificateSigningRequest `json:"request"`
	// Review is the last answer, and At when it was given, when it was asked about the request
	// as it is seen now; nil when it was not.
	Review *events.Review `json:"review,omitempty"`
	At     time.Time      `json:"at,omitzero"`
	// Unread is an answer that could not be read.
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

// hear takes in an answer.
func (v *View) hear(r events.Result, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	review := new(events.Review)
	if err := reconcile.Read(r, review); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	v.Review, v.At = review, at
}
