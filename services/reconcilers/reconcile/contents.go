package reconcile

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// AskContents asks what a namespace holds, once everything before it in the turn has
// been done, as long as it is the one with that uid. While there is something of the
// kinds that come first, no others are looked at. The answer, [events.Contents], is in
// the outcome ([Snapshot].Last); so who asks must be a controller that remembers.
func AskContents(namespace metav1.Object, question events.ContentsQuestion) events.Command {
	c := command(events.VerbAsk, kinds.Namespaces.Kind, "", namespace.GetName())
	c.Subresource, c.Body = events.SubContents, Body(question)
	c.If = &events.If{UID: namespace.GetUID()}
	return c
}

// AskUsers asks which pods may need a claim, as long as it is the one with that uid.
// The answer, [events.Users], is in the outcome.
func AskUsers(claim metav1.Object) events.Command {
	c := command(events.VerbAsk, kinds.PersistentVolumeClaims.Kind, claim.GetNamespace(), claim.GetName())
	c.Subresource = events.SubUsers
	c.If = &events.If{UID: claim.GetUID()}
	return c
}

// AskReview asks whether a user may do something, as long as there is an object with that
// uid, which the question is about. The answer, [events.Review], is in the outcome.
func AskReview(kind kinds.Kind, obj metav1.Object, question authorizationv1.SubjectAccessReviewSpec) events.Command {
	c := command(events.VerbAsk, kind, obj.GetNamespace(), obj.GetName())
	c.Subresource, c.Body = events.SubReview, Body(question)
	c.If = &events.If{UID: obj.GetUID()}
	return c
}

// AskExpiry asks when a bootstrap token expires, as long as it is as it is seen. The answer,
// [events.Expiry], is in the outcome.
func AskExpiry(secret metav1.Object) events.Command {
	c := command(events.VerbAsk, kinds.Secrets.Kind, secret.GetNamespace(), secret.GetName())
	c.Subresource = events.SubExpiry
	c.If = &events.If{UID: secret.GetUID(), ResourceVersion: secret.GetResourceVersion()}
	return c
}

// AskObjects asks for a page of the objects of a resource, once everything before it in the
// turn has been done, as long as the object that asks is the one with that uid. The answer,
// [events.Objects], is in the outcome, with the question as its note.
func AskObjects(kind kinds.Kind, asks metav1.Object, question events.ObjectsQuestion) events.Command {
	c := command(events.VerbAsk, kind, asks.GetNamespace(), asks.GetName())
	c.Subresource, c.Body = events.SubObjects, Body(question)
	c.Note = c.Body
	c.If = &events.If{UID: asks.GetUID()}
	return c
}

// AskTypes asks which expressions of an admission policy do not fit the types that it is
// about, as long as there is one with that uid. The answer, [events.Types], is in the
// outcome.
func AskTypes(policy metav1.Object) events.Command {
	c := command(events.VerbAsk, kinds.ValidatingAdmissionPolicies.Kind, "", policy.GetName())
	c.Subresource, c.Body = events.SubTypes, Body(policy)
	c.If = &events.If{UID: policy.GetUID()}
	return c
}
