// Package podcertificaterequestcleaner deletes PodCertificateRequests a quarter of an hour after
// their creation. A kubelet gets a pod's certificate within seconds and reads it at once, so
// older requests would only pile up.
//
// The API is off by default: the controller runs where --feature-gates says that the API server
// serves it, as upstream's does.
package podcertificaterequestcleaner

import (
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// kept is for how long a request is kept.
const kept = 15 * time.Minute

// Controller deletes expired requests.
var Controller = reconcile.Controller[View]{
	Name:     "podcertificaterequest-cleaner-controller",
	Identity: "podcertificaterequestcleaner",
	Owns:     &kinds.PodCertificateRequests.Kind,
	Inputs:   []reconcile.Input{reconcile.Own(kinds.PodCertificateRequests.Kind)},
	Writes: reconcile.Writes{
		{Verb: events.VerbDelete, Kind: kinds.PodCertificateRequests.Name, On: reconcile.Itself},
	},
	Settings: gate.Set{gate.PodCertificateRequest: true}.Settings(), // the controller runs only where they are served
	Observe:  observe,
	Decide:   decide,
}

// View is what one turn can see.
type View struct {
	Request *certificatesv1beta1.PodCertificateRequest `json:"request"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	request, ok := reconcile.Get(s, kinds.PodCertificateRequests, k.Namespace, k.Name)
	return View{Request: request}, ok
}

// decide deletes an expired request, whatever its result. The uid protects a new request of the
// same name.
//
// Upstream: pkg/controller/certificates/cleaner, PCRCleanerController, which looks at all
// requests every five minutes.
func decide(v View, now time.Time) reconcile.Decision {
	switch end := v.Request.CreationTimestamp.Add(kept); {
	case v.Request.DeletionTimestamp != nil:
		return reconcile.Nothing("the request is being deleted")
	case now.Before(end):
		return reconcile.Wake(end, "the request is not older than 15 minutes")
	default:
		return reconcile.Do("the request is older than 15 minutes", reconcile.Delete(kinds.PodCertificateRequests.Kind, v.Request))
	}
}
