// Package access defines the permissions on the bus, as data: the accounts of the services, and
// what each of them may publish, subscribe to and request from JetStream. [File.String] writes a
// server's accounts file from it.
//
// The streams are in an account of their own. Each service is in another account without
// streams, which imports the subjects that the service publishes on, and the part of JetStream's
// API that it needs under another name. The server does not check the reply subject of a
// request; in an account without streams, no reply is stored.
//
// A stream or a consumer names subjects to which the server sends stored messages. So no service
// may create one: it asks the provisioner, which decides on the configuration.
package access

import (
	"slices"
	"strings"
)

// The accounts.
const (
	Main        = "MILLRACE" // owns the streams
	Watchers    = "WATCHERS"
	Reconcilers = "RECONCILERS"
	Writers     = "WRITERS"
	Notary      = "NOTARY"
	Readers     = "READERS"
	Shadows     = "SHADOWS"
)

// The users. All may do everything in the account of the streams; it is for a process that runs
// all services, and for administrators.
const (
	All         = "millrace"
	Provisioner = "provisioner"
	Watcher     = "watcher"
	Reconciler  = "reconcilers"
	Writer      = "writer"
	NotaryUser  = "notary"
	Reader      = "reader"
	Shadow      = "shadow"
)

// Users are all users. [PasswordOf] names the variable with each user's password, which is set
// in the server's environment or configuration.
var Users = []string{
	All, Provisioner, Watcher, Reconciler, Writer, WriterWorkloads, WriterCollectors, WriterCredentials, NotaryUser, Reader, Shadow,
}

// PasswordOf names the variable with a user's password.
func PasswordOf(user string) string {
	return strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

const (
	// API is the prefix under which services reach JetStream's API, GuestAPI that of readers and
	// shadows, and Many that of requests for many subjects at once, which have many answers.
	API, GuestAPI, Many = "millrace.api", "millrace.read", "millrace.many"
	// Heard is the prefix under which readers and shadows receive what is published.
	Heard = "millrace.heard"
	// Provision is the prefix of requests to the provisioner: provision.<user>.<verb>.
	Provision = "provision"

	jetStream = "$JS.API"
	directGet = jetStream + ".DIRECT.GET.>"
)

// The verbs of requests to the provisioner.
const (
	MakeKind       = "kind"
	ForgetKind     = "forget"
	MakeController = "controller"
	MakeShadow     = "shadow"
	MakeNotary     = "notary"
	MakeConsumer   = "consumer"
	Leave          = "leave"
)

// Login is how a user connects to the server.
type Login struct {
	// API replaces $JS.API; empty: no replacement.
	API string
	// Inbox replaces _INBOX.
	Inbox string
	// Guest users read without consumers.
	Guest bool
	// Asks is true for users that ask the provisioner for streams and consumers.
	Asks bool
}

// LoginOf is how a user connects to the server; ok is false for a name that is not in [Users],
// and for [All].
func LoginOf(user string) (l Login, ok bool) {
	l.Inbox = Inbox(user)
	switch user {
	case Provisioner:
		return l, true
	case Watcher, Reconciler, Writer, WriterWorkloads, WriterCollectors, WriterCredentials:
		l.API, l.Asks = API, true
		return l, true
	case NotaryUser:
		l.API, l.Asks, l.Guest = API, true, true
		return l, true
	case Reader, Shadow:
		l.API, l.Guest = GuestAPI, true
		return l, true
	}
	return Login{}, false
}

// Inbox is the prefix of a user's inboxes.
func Inbox(user string) string { return "_INBOX_" + user }

// Reading are the requests to JetStream's API that a reader may make: for lists of streams and
// consumers, and for single messages. None of them changes anything, or names a subject to which
// the server would send messages.
var Reading = []string{"STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.*", "DIRECT.GET.*.>"}

// GuestQuestions are the requests that readers and shadows may make.
var GuestQuestions = append(slices.Clone(Reading), listing)

// Published are the subjects that readers and shadows may receive.
var Published = []string{"ev.>", "turn.>", "outcome.>"}

// Fixed are the streams that belong to no kind and no controller.
var Fixed = []string{"NOTARY", "STATUS", "WAKE"}

// PerController are the prefixes of the streams of a controller.
var PerController = []string{"TURN_", "OUTCOME_", "SHADOW_"}

// WriterConsumer is the name of the writers' consumer of a controller's turns. The reconcilers'
// consumers have the name of their controller.
const WriterConsumer = "writer"
