package reconcile

import (
	"encoding/json"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// Create creates an object under a name. body holds no name, so that creates with the same
// body share it.
func Create(kind kinds.Kind, namespace, name string, body json.RawMessage, with ...Option) events.Command {
	c := command(events.VerbCreate, kind, namespace, name)
	c.Body = body
	return options(c, with)
}

// Update replaces an object. It is conditional on the uid and the resourceVersion of obj.
func Update(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := command(events.VerbUpdate, kind, obj.GetNamespace(), obj.GetName())
	c.Body = Body(obj)
	c.If = &events.If{UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}
	return options(c, with)
}

// UpdateStatus replaces an object's status, under the conditions of [Update].
func UpdateStatus(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := Update(kind, obj, with...)
	c.Subresource = "status"
	return c
}

// UpdateApproval replaces the approval conditions of a certificate request, under the
// conditions of [Update].
func UpdateApproval(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := Update(kind, obj, with...)
	c.Subresource = query.SubApproval
	return c
}

// Patch changes an object, on the condition that it has obj's uid.
func Patch(kind kinds.Kind, obj metav1.Object, how types.PatchType, patch json.RawMessage, with ...Option) events.Command {
	c := command(events.VerbPatch, kind, obj.GetNamespace(), obj.GetName())
	c.PatchType, c.Body = how, patch
	c.If = &events.If{UID: obj.GetUID()}
	return options(c, with)
}

// Delete deletes an object, on the condition that it has obj's uid.
func Delete(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := command(events.VerbDelete, kind, obj.GetNamespace(), obj.GetName())
	c.If = &events.If{UID: obj.GetUID()}
	return options(c, with)
}

// AskOf reads a subresource of an object of any kind that an owner reference names. The
// outcome ([Snapshot].Last) holds the answer and the note, so the controller must set
// [Controller.Remembers].
func AskOf(namespace string, of metav1.OwnerReference, subresource string, note any) events.Command {
	return events.Command{
		Verb: events.VerbAsk, Namespace: namespace, Name: of.Name, Of: &of, Subresource: subresource, Note: Body(note),
	}
}

// AskFor reads an object of a kind, or finds that there is none of that name. The outcome
// ([Snapshot].Last) holds the answer, so the controller must set
// [Controller.Remembers].
func AskFor(kind kinds.Kind, namespace, name string) events.Command {
	return command(events.VerbAsk, kind, namespace, name)
}

// Record writes a Kubernetes Event and changes nothing else.
func Record(n events.Notice) events.Command {
	return events.Command{Verb: events.VerbRecord, OnApplied: &n}
}

// Option changes a command.
type Option func(*events.Command)

// IfUnchanged makes the command conditional on obj's resourceVersion.
func IfUnchanged(obj metav1.Object) Option {
	return func(c *events.Command) { condition(c).ResourceVersion = obj.GetResourceVersion() }
}

// IfAbsent makes the command conditional on the absence of all owners, checked live.
func IfAbsent(owners ...metav1.OwnerReference) Option {
	return func(c *events.Command) { condition(c).Absent = owners }
}

// IfLeaving makes the command conditional on each owner being absent, or being deleted and
// waiting for its dependents, checked live.
func IfLeaving(owners ...metav1.OwnerReference) Option {
	return func(c *events.Command) { condition(c).Leaving = owners }
}

// IfSameOwners lets a delete survive a resourceVersion conflict if the owner references have
// not changed.
func IfSameOwners(obj metav1.Object) Option {
	return func(c *events.Command) { condition(c).SameOwners = obj.GetOwnerReferences() }
}

// IfAlive makes the command conditional on an object that exists and is not being deleted,
// checked live.
func IfAlive(kind kinds.Kind, obj metav1.Object) Option {
	return func(c *events.Command) {
		condition(c).Alive = &events.Alive{
			Kind: kind.Name, Version: kind.Version, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		}
	}
}

// IfUnused makes the command conditional on no other object needing its object
// ([query.UserKinds]), checked live.
func IfUnused() Option {
	return func(c *events.Command) { condition(c).Unused = true }
}

// IfUnshared makes the command conditional on no other object of its kind having an address
// in the ranges of the body ([query.HasRanges]), checked live.
func IfUnshared() Option {
	return func(c *events.Command) { condition(c).Unshared = true }
}

// Propagate sets how a delete treats the dependents of its object.
func Propagate(how metav1.DeletionPropagation) Option {
	return func(c *events.Command) { c.Propagation = how }
}

// WithEvents sets the Events that the writer records when the command was applied and when it
// failed. Either may be nil.
func WithEvents(applied, failed *events.Notice) Option {
	return func(c *events.Command) { c.OnApplied, c.OnFailed = applied, failed }
}

// About is the reference to an object that its Events carry.
func About(kind kinds.Kind, obj metav1.Object) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: kind.APIVersion(), Kind: kind.Kind,
		Namespace: obj.GetNamespace(), Name: obj.GetName(),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}
}

// Body encodes an object as the JSON body of a command.
func Body(obj any) json.RawMessage {
	text, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("a Kubernetes object of type %T has no JSON form: %v", obj, err)) // impossible for API types
	}
	return text
}

func command(verb events.Verb, kind kinds.Kind, namespace, name string) events.Command {
	return events.Command{Verb: verb, Kind: kind.Name, Version: kind.Version, Namespace: namespace, Name: name}
}

func condition(c *events.Command) *events.If {
	if c.If == nil {
		c.If = &events.If{}
	}
	return c.If
}

func options(c events.Command, with []Option) events.Command {
	for _, option := range with {
		option(&c)
	}
	return c
}

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

// Certify asks the writer to answer a certificate request as one of Kubernetes' signers
// ([query.SubCertificate]), if the request is unchanged.
func Certify(request metav1.Object, signer string, with ...Option) events.Command {
	body := Body(map[string]any{"spec": map[string]any{"signerName": signer}})
	c := Patch(kinds.CertificateSigningRequests.Kind, request, types.MergePatchType, body, IfUnchanged(request))
	c.Subresource = query.SubCertificate
	return options(c, with)
}

// FillToken asks the writer to fill in the token of a service account, if the Secret is
// unchanged ([query.SubToken]).
func FillToken(secret metav1.Object, account string, uid types.UID, with ...Option) events.Command {
	annotations := map[string]string{corev1.ServiceAccountNameKey: account, corev1.ServiceAccountUIDKey: string(uid)}
	body := Body(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	c := Patch(kinds.Secrets.Kind, secret, types.MergePatchType, body, IfUnchanged(secret))
	c.Subresource = query.SubToken
	return options(c, with)
}

// SignClusterInfo asks the writer to sign cluster-info with the bootstrap tokens that sign,
// if the ConfigMap is unchanged ([query.SubSignatures]).
func SignClusterInfo(configMap metav1.Object, with ...Option) events.Command {
	c := Patch(kinds.ConfigMaps.Kind, configMap, types.MergePatchType, Body(map[string]any{}), IfUnchanged(configMap))
	c.Subresource = query.SubSignatures
	return options(c, with)
}

// ProveToken proves that a Secret is a service account token with a patch that sets the type.
// The patch changes nothing in a token. The API server refuses it as invalid for every other
// Secret, because a Secret's type is immutable.
func ProveToken(secret metav1.Object, with ...Option) events.Command {
	body := Body(map[string]any{"type": corev1.SecretTypeServiceAccountToken})
	c := Patch(kinds.Secrets.Kind, secret, types.MergePatchType, body, IfUnchanged(secret))
	return options(c, with)
}

// Noting attaches a note to the command, which comes back with its result, whatever that is.
func Noting(note any) Option {
	return func(c *events.Command) { c.Note = Body(note) }
}
