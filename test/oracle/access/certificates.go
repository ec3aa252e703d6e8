package access

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/certificates/approver"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/utils/clock"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrapproving"
	"github.com/millrace/millrace/services/reconcilers/controllers/csrcleaner"
	"github.com/millrace/millrace/services/reconcilers/controllers/podcertificaterequestcleaner"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
)

// RequestCleaner is the controller that deletes expired requests for certificates.
var RequestCleaner = frozen.Pair{Theirs: buildRequestCleaner, Ours: csrcleaner.Controller, Alone: frozen.NeverAlone, Fair: frozen.DeletedOnce}

// RequestCleanerAtRest leaves it alone for longer than any request is kept, and until upstream's has polled
// once more.
var RequestCleanerAtRest = stage.Rest{
	Theirs: buildRequestCleaner, Ours: csrcleaner.Controller, Kinds: []kinds.Kind{kinds.CertificateSigningRequests.Kind}, Long: 27 * time.Hour,
}

// PodRequestCleaner is the controller that deletes requests for the certificates of pods.
var PodRequestCleaner = frozen.Pair{Theirs: buildPodRequestCleaner, Ours: podcertificaterequestcleaner.Controller, Alone: frozen.NeverAlone, Fair: frozen.DeletedOnce}

// PodRequestCleanerAtRest leaves it alone for longer than any request is kept, and until upstream's has
// polled some times more.
var PodRequestCleanerAtRest = stage.Rest{
	Theirs: buildPodRequestCleaner, Ours: podcertificaterequestcleaner.Controller, Kinds: []kinds.Kind{kinds.PodCertificateRequests.Kind}, Long: 41 * time.Minute,
}

func buildPodRequestCleaner(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	requests := f.Certificates().V1beta1().PodCertificateRequests()
	requests.Informer() // it waits for no informer before it begins
	// Upstream: cmd/kube-controller-manager/app, newPodCertificateRequestCleanerController.
	pc := cleaner.NewPCRCleanerController(c, requests, clock.RealClock{}, 15*time.Minute, 5*time.Minute)
	return func() { pc.Run(ctx, 1) }, nil
}

func buildRequestCleaner(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	certificates := f.Certificates().V1().CertificateSigningRequests()
	certificates.Informer() // it waits for no informer before it begins
	cc := cleaner.NewCSRCleanerController(c.CertificatesV1().CertificateSigningRequests(), certificates)
	return func() { cc.Run(ctx, 1) }, nil
}

// RequestApprover is the controller that approves requests of kubelets.
var RequestApprover = frozen.Pair{Theirs: buildRequestApprover, Ours: csrapproving.Controller, Asked: reviewed, Alone: frozen.NeverAlone, Fair: frozen.NothingLeftOut}

// RequestApproverAtRest leaves it alone until it has retried some times after a permission was given.
var RequestApproverAtRest = stage.Rest{
	Theirs: buildRequestApprover, Ours: csrapproving.Controller, Kinds: []kinds.Kind{kinds.CertificateSigningRequests.Kind}, Long: 5 * time.Minute, Allows: permitted,
}

func buildRequestApprover(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	c.(*fake.Clientset).PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = permitted(review.Spec, time.Now())
		return true, review, nil
	})
	ac := approver.NewCSRApprovingController(ctx, c, f.Certificates().V1().CertificateSigningRequests())
	return func() { ac.Run(ctx, 1) }, nil
}

// The prefixes of groups whose members have the permission in the name: from before the start, or from Later
// after it. If a user has the key Extra, it must have the value.
const (
	May      = "may-"
	MayLater = "may-later-"
	Later    = 20 * time.Second
	Extra    = "example.com/extra"
)

// permitted reports whether a user has a permission. It checks all fields of the question.
func permitted(asked authorizationv1.SubjectAccessReviewSpec, now time.Time) bool {
	of := asked.ResourceAttributes
	if of == nil || of.Group != "certificates.k8s.io" || of.Resource != "certificatesigningrequests" || of.Verb != "create" || of.Version != "*" || of.Namespace != "" || of.Name != "" {
		return false
	}
	if extra, ok := asked.Extra[Extra]; ok && !slices.Equal(extra, []string{"a", "b"}) || asked.User == "" || asked.UID == "another" {
		return false
	}
	return slices.Contains(asked.Groups, May+of.Subresource) || slices.Contains(asked.Groups, MayLater+of.Subresource) && now.After(objects.Now.Add(Later))
}

// reviewed answers whether the user of a request has a permission at the start.
func reviewed(_ []runtime.Object, c events.Command) events.Result {
	var asked authorizationv1.SubjectAccessReviewSpec
	if err := json.Unmarshal(c.Body, &asked); err != nil {
		panic(err) // ours wrote it
	}
	return frozen.Answered(query.Review{Of: asked.ResourceAttributes, Status: authorizationv1.SubjectAccessReviewStatus{Allowed: permitted(asked, objects.Now)}})
}
