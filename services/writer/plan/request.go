package plan

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// Verb is the kind of a request.
type Verb string

// The verbs of requests. Look reads the metadata of an object, Read all of it. Search finds out
// what no single request can tell; the subresource says what.
const (
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
	Look   Verb = "look"
	Read   Verb = "read"
	Search Verb = "search"
)

// Writes is true for the verbs that change something.
func (v Verb) Writes() bool { return v != Look && v != Read && v != Search }

// Request is one request to the API server, for one command.
type Request struct {
	// Command is the position of the command in the turn. A command has at most one request in
	// flight.
	Command int
	Verb    Verb

	// Kind and Version address the object. Or Owner does, as an owner reference names it; the door
	// then looks up its resource and scope.
	Kind                         kinds.Name
	Version                      string
	Namespace, Name, Subresource string
	Owner                        *metav1.OwnerReference

	Body      []byte
	PatchType types.PatchType
	// Manager is the name in managedFields; empty means the writer's.
	Manager string
	Delete  *metav1.DeleteOptions
	// Try counts the writes of one command, from 1.
	Try int
	// Doubtful is true for a create that may have happened before: an earlier answer was lost, or
	// the turn was delivered before. The created object may have been deleted since, so that its
	// name is free again; it must not be created twice.
	Doubtful bool
	// Seen is the sequence up to which the log of the kind had been read when the create was
	// decided. The create cannot have happened before it.
	Seen uint64
	// InDoubt is how long the create has been in doubt. The caller that carries out the plan sets
	// it.
	InDoubt time.Duration
	// Stood is the API server's version when it was first asked in this doubt; "" if it has not
	// been asked. The record has to reach that version, and need not catch up with later changes.
	Stood string
	// Wait is true for a request that repeats one. It waits for After, the time that the API
	// server asked for, or with exponential back-off if that is 0.
	Wait  bool
	After time.Duration
}

// FillsToken is true for a patch that the door completes with a token ([query.SubToken]).
func (r Request) FillsToken() bool {
	return events.Command{Verb: events.Verb(r.Verb), Kind: r.Kind, Subresource: r.Subresource}.FillsToken()
}

// Signs is true for a patch whose body the door makes from the live object
// ([query.SubSignatures]).
func (r Request) Signs() bool {
	return events.Command{Verb: events.Verb(r.Verb), Kind: r.Kind, Subresource: r.Subresource}.Signs()
}

// Certifies is true for a patch that the door answers with a certificate
// ([query.SubCertificate]).
func (r Request) Certifies() bool {
	return events.Command{Verb: events.Verb(r.Verb), Kind: r.Kind, Subresource: r.Subresource}.Certifies()
}

// Response is the result of a request.
type Response struct {
	// Code is the HTTP status, 0 when no answer came.
	Code int
	// Object is the metadata in the answer to a successful request.
	Object Object
	// Body is the whole object for Read, and the answer for Search.
	Body json.RawMessage

	Reason, Message string
	// Cause and Field are the first detail of a refusal.
	Cause, Field string
	// RetryAfter is how long the API server asks the writer to wait.
	RetryAfter time.Duration
	// Spent is true when the command has no time left for another try.
	Spent   bool
	AuditID string
	// Stood is the [Request]'s Stood from now on.
	Stood string
}

// The reasons that the door itself answers with.
const (
	// ReasonNoMatch: the API server serves no resource for the owner's kind.
	ReasonNoMatch = query.NoMatch
	// ReasonUnresolvable: a cluster-scoped object names a namespaced owner.
	ReasonUnresolvable = "UnresolvableOwner"
	// ReasonLacking: the resource does not have the requested subresource.
	ReasonLacking = query.NoSubresource
	// ReasonPanicked: the request made the door panic. It is not repeated.
	ReasonPanicked = "Panicked"
	// ReasonNotImpersonated: the writer may not act as the controller, or may not do this as
	// any controller.
	ReasonNotImpersonated = "MayNotImpersonate"
	// ReasonUnaddressable: there is no path for the request.
	ReasonUnaddressable = "Malformed"
)

// Object is the metadata that the plan judges by.
type Object struct {
	UID             types.UID
	ResourceVersion string
	Deleting        bool
	Grace           *int64 // deletionGracePeriodSeconds
	Finalizers      bool
	// Waiting: the object is being deleted and waits for its dependents to go first.
	Waiting bool
	Owners  []metav1.OwnerReference
}

// ok is true for a request that succeeded.
func (r Response) ok() bool { return r.Code >= 200 && r.Code < 300 }

// notFound is true when the object does not exist. A 404 for the whole resource says nothing about
// objects: the API server may serve the kind in another version.
func (r Response) notFound() bool { return r.Code == 404 && r.Cause != "UnexpectedServerResponse" }

// again is true for answers after which the same request may still succeed.
func (r Response) again() bool {
	switch r.Code {
	case 0, 401, 408, 429:
		return r.Reason != ReasonNoMatch && r.Reason != ReasonUnresolvable
	default:
		return r.Code >= 500 && r.Reason != ReasonLacking
	}
}

// lost is true when a write may have taken effect despite the answer.
func (r Response) lost() bool { return r.again() && r.Code != 429 && r.Code != 401 }

// maxMessage bounds the message of an answer in an outcome: that of an invalid object can be as
// long as the object.
const maxMessage = 1024

// result converts the answer to the result of a command.
func (r Response) result(command int, c events.Command, status events.Status) events.Result {
	result := events.Result{
		Command: command, Status: status, Ref: c.Ref(),
		UID: r.Object.UID, Version: r.Object.ResourceVersion, AuditID: r.AuditID,
	}
	if result.OK() {
		// The answer to a delete that removes the object at once may name no object. A turn that
		// waits for the deletion must know which object of that name it was.
		result.UID = cmp.Or(result.UID, uidOf(c))
	} else {
		result.Code, result.Reason, result.Cause, result.Message = r.Code, r.Reason, r.Cause, r.Message
		if len(result.Message) > maxMessage {
			result.Message = strings.ToValidUTF8(result.Message[:maxMessage], "") + " …"
		}
	}
	return result
}
