// Package access says who may do what on the bus, as data: the accounts of the services,
// what each of them publishes, hears and asks of JetStream, and nothing else. The accounts
// file of a server is written from it ([File.String]).
//
// The streams are in an account of their own. Each service is in another one, without
// streams, which imports what the service publishes, and the part of JetStream's API that
// it needs under another name. The server does not check on which subject an answer is
// wanted; in an account without streams no such subject is stored.
//
// A stream or a consumer names subjects to which the server sends what is stored. So no
// service may make one: it asks the provisioner, who decides what it looks like.
package access

import (
	"slices"
	"strings"
)

// The accounts.
const (
	Main        = "MILLRACE" // has the streams
	Watchers    = "WATCHERS"
	Reconcilers = "RECONCILERS"
	Writers     = "WRITERS"
	Notary      = "NOTARY"
	Readers     = "READERS"
	Shadows     = "SHADOWS"
)

// The users. All may do everything in the account of the streams; it is who runs all
// services in one process, and who administers.
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

// Users are all users. The password of each is in a variable, of the server's environment
// or of its configuration, that [PasswordOf] names.
var Users = []string{
	All, Provisioner, Watcher, Reconciler, Writer, WriterWorkloads, WriterCollectors, WriterCredentials, NotaryUser, Reader, Shadow,
}

// PasswordOf names the variable with a user's password.
func PasswordOf(user string) string {
	return strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

const (
	// API is under what services find JetStream's API, GuestAPI readers and shadows, and
	// Many the question about many subjects at once, which has many answers.
	API, GuestAPI, Many = "millrace.api", "millrace.read", "millrace.many"
	// Heard is under what readers and shadows hear what is published.
	Heard = "millrace.heard"
	// Provision is under what a service asks the provisioner: provision.<user>.<verb>.
	Provision = "provision"

	jetStream = "$JS.API"
	directGet = jetStream + ".DIRECT.GET.>"
)

// What a service asks the provisioner for.
const (
	MakeKind       = "kind"
	RenewKind      = "renew"
	ForgetKind     = "forget"
	StepDown       = "stepdown"
	MakeController = "controller"
	MakeShadow     = "shadow"
	MakeNotary     = "notary"
	MakeConsumer   = "consumer"
	Leave          = "leave"
)

// Login is how a user talks to the server.
type Login struct {
	// API replaces $JS.API; empty: it does not.
	API string
	// Inbox replaces _INBOX.
	Inbox string
	// Guest reads without consumers.
	Guest bool
	// Asks the provisioner for streams and consumers.
	Asks bool
}

// LoginOf is how a user talks to the server; ok is false for a name that is not one of
// [Users], and for [All].
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

// Reading is what one may ask of JetStream's API who reads: what there is, and messages
// one by one. Nothing of it changes anything, or names a subject to which the server
// would send something.
var Reading = []string{"STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "STREAM.MSG.GET.*", "DIRECT.GET.*", "DIRECT.GET.*.>"}

// GuestQuestions are what readers and shadows may ask of it.
var GuestQuestions = append(slices.Clone(Reading), listing)

// Published are the subjects of which readers and shadows hear what is published.
var Published = []string{"ev.>", "turn.>", "outcome.>"}

// Fixed are the streams that belong to no kind and no controller.
var Fixed = []string{"NOTARY", "STATUS", "WAKE"}

// PerController are the prefixes of the streams of a controller.
var PerController = []string{"TURN_", "OUTCOME_", "SHADOW_"}

// WriterConsumer is the name of the writers' consumer of a controller's turns. Those of
// the reconcilers have the name of their controller.
const WriterConsumer = "writer"
