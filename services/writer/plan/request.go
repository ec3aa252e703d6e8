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
)

// Verb is what a request does.
type Verb string

// The verbs of requests. Look reads the metadata of an object, Read all of it. Search
// finds out what no single request can tell; the subresource says what.
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

// Request is one request of the API server, for one command.
type Request struct {
	// Command is the position of the command in the turn. A command has at most
	// one request under way.
	Command int
	Verb    Verb

	// Kind and Version address the object, or Owner does, as an owner reference
	// names it: the door finds its resource and where it lives.
	Kind                         kinds.Name
	Version                      string
	Namespace, Name, Subresource string
	Owner                        *metav1.OwnerReference

	Body      []byte
	PatchType types.PatchType
	// Manager is the name in managedFields; empty means the writer's.
	Manager string
	Delete  *metav1.DeleteOptions
	// Try counts the requests of one command that write, from 1.
	Try int
	// Doubtful is true for a create that may have happened before: the answer to an
	// earlier request was lost, or the turn was delivered before. What was created
	// may be deleted by now, and its name free again; it must not be created twice.
	Doubtful bool
	// Seen is how far the log of the kind had been read when the create was decided: it
	// cannot have happened before.
	Seen uint64
	// InDoubt is for how long it has been so; the caller that carries out the plan says.
	InDoubt time.Duration
	// Stood is where the API server stood when it was first asked since then: the record has
	// to come as far, and need not catch up with what happens while it does. "" where it has
	// not been asked.
	Stood string
	// Wait is true for a request that repeats one: it waits as long as the API
	// server asked for (After), or else with backoff.
	Wait  bool
	After time.Duration
}

// FillsToken is true for a patch that the maker of the request completes with a token
// ([events.SubToken]).
func (r Request) FillsToken() bool {
	return events.Command{Verb: events.Verb(r.Verb), Kind: r.Kind, Subresource: r.Subresource}.FillsToken()
}

// Signs is true for a patch whose body the door makes of what it finds
// ([events.SubSignatures]).
func (r Request) Signs() bool {
	return events.Command{Verb: events.Verb(r.Verb), Kind: r.Kind, Subresource: r.Subresource}.Signs()
}

// Certifies is true for a patch that the door answers with a certificate
// ([events.SubCertificate]).
func (r Request) Certifies() bool {
	return events.Command{Verb: events.Verb(r.Verb), Kind: r.Kind, Subresource: r.Subresource}.Certifies()
}

// Response is what came of a request.
type Response struct {
	// Code is the HTTP status, 0 when no answer came.
	Code int
	// Object is the metadata in the answer to a successful request.
	Object Object
	// Body is the whole object, for Read, and the answer to what asks for one.
	Body json.RawMessage

	Reason, Message string
	// Cause and Field are the first detail of a refusal.
	Cause, Field string
	// RetryAfter is how long the API server asks to stay away.
	RetryAfter time.Duration
	// Spent is true when the command has no time left for another try.
	Spent   bool
	AuditID string
	// Stood is the [Request]'s from now on.
	Stood string
}

// The reasons that the door itself answers with.
const (
	// ReasonNoMatch: no resource is served under the owner's kind.
	ReasonNoMatch = events.NoMatch
	// ReasonUnresolvable: a cluster-scoped object names an owner that lives in
	// a namespace.
	ReasonUnresolvable = "UnresolvableOwner"
	// ReasonLacking: the resource does not have the subresource that was asked for.
	ReasonLacking = events.NoSubresource
	// ReasonPanicked: the door has a fault that this request shows. It is not made again.
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
	// Waiting: it is being deleted and waits for its dependents to go first.
	Waiting bool
	Owners  []metav1.OwnerReference
}

// ok is true for a request that succeeded.
func (r Response) ok() bool { return r.Code >= 200 && r.Code < 300 }

// notFound is true when the object is not there. A 404 for the whole resource
// says nothing about objects: the kind may be served in another version.
func (r Response) notFound() bool { return r.Code == 404 && r.Cause != "UnexpectedServerResponse" }

// again is true for answers after which the same request may yet succeed.
func (r Response) again() bool {
	switch r.Code {
	case 0, 401, 408, 429:
		return r.Reason != ReasonNoMatch && r.Reason != ReasonUnresolvable
	default:
		return r.Code >= 500 && r.Reason != ReasonLacking
	}
}

// lost is true when the write may have taken effect nevertheless.
func (r Response) lost() bool { return r.again() && r.Code != 429 && r.Code != 401 }

// maxMessage bounds what an outcome repeats of an answer: the message of an
// invalid object can be as long as the object.
const maxMessage = 1024

// result is the answer as the result of a command.
func (r Response) result(command int, c events.Command, status events.Status) events.Result {
	result := events.Result{
		Command: command, Status: status, Ref: c.Ref(),
		UID: r.Object.UID, Version: r.Object.ResourceVersion, AuditID: r.AuditID,
	}
	if result.OK() {
		// The answer to a delete that ends the object at once may name no object.
		// A turn that waits for its end must know which one of that name it was.
		result.UID = cmp.Or(result.UID, uidOf(c))
	} else {
		result.Code, result.Reason, result.Cause, result.Message = r.Code, r.Reason, r.Cause, r.Message
		if len(result.Message) > maxMessage {
			result.Message = strings.ToValidUTF8(result.Message[:maxMessage], "") + " …"
		}
	}
	return result
}
