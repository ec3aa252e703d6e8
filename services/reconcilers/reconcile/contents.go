package reconcile

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// AskContents asks what a namespace holds, if it still has that uid. The writer asks after
// it has carried out all earlier commands of the turn. While objects of the kinds that come
// first remain, the writer does not look at others. The outcome ([Snapshot].Last) holds the
// answer, [query.Contents], so the controller must set [Controller.Remembers].
func AskContents(namespace metav1.Object, question query.ContentsQuestion) events.Command {
	c := command(events.VerbAsk, kinds.Namespaces.Kind, "", namespace.GetName())
	c.Subresource, c.Body = query.SubContents, Body(question)
	c.If = &events.If{UID: namespace.GetUID()}
	return c
}

// AskUsers asks which pods may need a claim, if the claim still has that uid. The outcome
// holds the answer, [query.Users].
func AskUsers(claim metav1.Object) events.Command {
	c := command(events.VerbAsk, kinds.PersistentVolumeClaims.Kind, claim.GetNamespace(), claim.GetName())
	c.Subresource = query.SubUsers
	c.If = &events.If{UID: claim.GetUID()}
	return c
}

// AskReview asks whether a user may do something, if the object that the question is about
// still has that uid. The outcome holds the answer, [query.Review].
func AskReview(kind kinds.Kind, obj metav1.Object, question authorizationv1.SubjectAccessReviewSpec) events.Command {
	c := command(events.VerbAsk, kind, obj.GetNamespace(), obj.GetName())
	c.Subresource, c.Body = query.SubReview, Body(question)
	c.If = &events.If{UID: obj.GetUID()}
	return c
}

// AskExpiry asks when a bootstrap token expires, if the Secret is unchanged. The outcome
// holds the answer, [query.Expiry].
func AskExpiry(secret metav1.Object) events.Command {
	c := command(events.VerbAsk, kinds.Secrets.Kind, secret.GetNamespace(), secret.GetName())
	c.Subresource = query.SubExpiry
	c.If = &events.If{UID: secret.GetUID(), ResourceVersion: secret.GetResourceVersion()}
	return c
}

// AskObjects asks for a page of the objects of a resource, if the object that asks still has
// that uid. The writer asks after it has carried out all earlier commands of the turn. The
// outcome holds the answer, [query.Objects], and the question as the note.
func AskObjects(kind kinds.Kind, asks metav1.Object, question query.ObjectsQuestion) events.Command {
	c := command(events.VerbAsk, kind, asks.GetNamespace(), asks.GetName())
	c.Subresource, c.Body = query.SubObjects, Body(question)
	c.Note = c.Body
	c.If = &events.If{UID: asks.GetUID()}
	return c
}

// AskTypes asks which expressions of an admission policy do not fit the types that the
// policy matches, if the policy still has that uid. The outcome holds the answer,
// [query.Types].
func AskTypes(policy metav1.Object) events.Command {
	c := command(events.VerbAsk, kinds.ValidatingAdmissionPolicies.Kind, "", policy.GetName())
	c.Subresource, c.Body = query.SubTypes, Body(policy)
	c.If = &events.If{UID: policy.GetUID()}
	return c
}
