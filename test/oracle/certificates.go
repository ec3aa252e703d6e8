package oracle

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrcleaner"
)

// RequestCleaner is the controller that deletes requests for certificates whose time is up.
var RequestCleaner = Pair{Theirs: buildRequestCleaner, Ours: csrcleaner.Controller, Alone: never, Fair: deletedOnce}

// RequestCleanerAtRest leaves it alone for longer than any request is kept, and until
// upstream's has looked once more.
var RequestCleanerAtRest = Rest{
	Theirs: buildRequestCleaner, Ours: csrcleaner.Controller, Kinds: []kinds.Kind{kinds.CertificateSigningRequests.Kind}, Long: 27 * time.Hour,
}

func buildRequestCleaner(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	certificates := f.Certificates().V1().CertificateSigningRequests()
	certificates.Informer() // it asks for no cache to be read before it begins
	cc := cleaner.NewCSRCleanerController(c.CertificatesV1().CertificateSigningRequests(), certificates)
	return func() { cc.Run(ctx, 1) }, nil
}

// deletedOnce leaves out that upstream deletes what is being deleted.
func deletedOnce(world []runtime.Object, theirs, ours []Effect) ([]Effect, []Effect) {
	if world[0].(object).GetDeletionTimestamp() != nil {
		theirs = lets("deleted-again", theirs, only(theirs, func(e Effect) bool { return e.Verb != remove }))
	}
	return theirs, ours
}
