package access

import (
	"slices"
	"strings"
)

// File is the content of an accounts file.
type File struct{ Accounts []Account }

// Account is an account of the server.
type Account struct {
	Name string
	// JetStream is true for an account with streams.
	JetStream bool
	Exports   []Export
	Imports   []Import
	Users     []User
}

// Export is a subject that an account offers to others: a service, which answers requests, or a
// stream of published messages.
type Export struct {
	Service bool
	Subject string
	// Many: a request has many answers. The server passes answers on until none has come for
	// this duration, in NATS' notation.
	Many string
	To   []string // accounts
}

// Import is a subject that an account gets from another one.
type Import struct {
	Service       bool
	From, Subject string
	// To is the subject in this account, empty: the same; Prefix is a prefix for it.
	To, Prefix string
}

// User is a user with its permissions. A user without any list may do everything in the account.
type User struct {
	Name               string
	Publish, Never     []string // Never takes precedence
	Subscribe          []string
	AnswersWhatItHears bool
}

const (
	// pulling is how long a pull request may stay without an answer: the server sends an idle
	// heartbeat at least every 5 s.
	pulling = "1m"
	// lookingUp is the longest pause between the answers to one request.
	lookingUp = "5s"
)

// New gives the accounts of a bus for services that run these controllers, or some of them.
func New(controllers []string) File {
	controllers = slices.Sorted(slices.Values(controllers))
	main := Account{Name: Main, JetStream: true, Users: []User{{Name: All}, provisioner(controllers)}}
	var others []Account
	for _, s := range services(controllers) {
		others = append(others, s.alone())
		main.lend(s)
	}
	for _, s := range services(controllers) {
		for _, t := range s.tells {
			tell(others, s.account, t)
		}
		for _, subject := range Published {
			if slices.ContainsFunc(s.says, func(own string) bool { return strings.HasPrefix(own, strings.TrimSuffix(subject, ">")) }) {
				publish(others, s.account, subject)
			}
		}
	}
	return File{Accounts: append([]Account{main}, others...)}
}

// provisioner is the user that creates streams and consumers, deletes those of a kind, and does
// nothing else.
func provisioner(controllers []string) User {
	u := User{Name: Provisioner, AnswersWhatItHears: true, Subscribe: []string{Inbox(Provisioner) + ".>", Provision + ".*.*"}}
	for _, question := range []string{
		"STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.*", "STREAM.CREATE.*", "STREAM.UPDATE.*", "STREAM.DELETE.*",
		"CONSUMER.CREATE.>", "CONSUMER.INFO.*.*", "CONSUMER.LIST.*", "CONSUMER.DELETE.*.*",
	} {
		u.Publish = append(u.Publish, jetStream+"."+question)
	}
	for _, name := range Fixed {
		u.Never = append(u.Never, jetStream+".STREAM.DELETE."+name)
	}
	for _, c := range controllers {
		for _, prefix := range PerController {
			u.Never = append(u.Never, jetStream+".STREAM.DELETE."+prefix+c)
		}
	}
	return u
}

// lend exports the subjects that a service imports.
func (a *Account) lend(s service) {
	for _, i := range s.imports() {
		at := slices.IndexFunc(a.Exports, func(e Export) bool { return e.Service == i.Service && e.Subject == i.Subject })
		if at < 0 {
			at = len(a.Exports)
			a.Exports = append(a.Exports, Export{Service: i.Service, Subject: i.Subject, Many: answers(i.Subject)})
		}
		a.Exports[at].To = append(a.Exports[at].To, s.account)
	}
}

// answers is the longest pause between the answers to a request; "" for requests with one
// answer.
func answers(subject string) string {
	switch subject {
	case jetStream + "." + next:
		return pulling
	case directGet:
		return lookingUp
	}
	return ""
}

// imports are the subjects that a service imports from the account of the streams.
func (s service) imports() []Import {
	lent := func(subject, to string) Import { return Import{Service: true, From: Main, Subject: subject, To: to} }
	var all []Import
	for _, question := range s.asks {
		all = append(all, lent(jetStream+"."+question, s.api+"."+question))
	}
	if s.many {
		all = append(all, lent(directGet, Many+".>"))
	}
	if len(s.acks) > 0 {
		all = append(all, lent("$JS.ACK.>", ""))
	}
	for _, subject := range s.says {
		all = append(all, lent(subject, ""))
	}
	if len(s.orders) > 0 {
		all = append(all, lent(Provision+"."+s.user+".*", ""))
	}
	for _, subject := range s.hears {
		all = append(all, Import{From: Main, Subject: subject, Prefix: Heard})
	}
	return all
}

// alone is the service's account.
func (s service) alone() Account {
	u := User{Name: s.user, Subscribe: []string{Inbox(s.user) + ".>"}}
	u.Publish = append(u.Publish, s.says...)
	for _, topic := range s.own {
		u.Publish, u.Subscribe = append(u.Publish, peer+topic), append(u.Subscribe, peer+topic)
	}
	for _, t := range s.tells {
		if !slices.Contains(s.own, t.topic) {
			u.Publish = append(u.Publish, peer+t.topic)
		}
	}
	for _, consumer := range s.acks {
		u.Publish = append(u.Publish, "$JS.ACK."+consumer+".>")
	}
	for _, verb := range s.orders {
		u.Publish = append(u.Publish, Provision+"."+s.user+"."+verb)
	}
	for _, question := range s.asks {
		u.Publish = append(u.Publish, s.api+"."+question)
	}
	if s.many {
		u.Publish = append(u.Publish, Many+".*")
	}
	for _, question := range s.never {
		u.Never = append(u.Never, s.api+"."+question)
	}
	for _, consumer := range s.neverAcks {
		u.Never = append(u.Never, "$JS.ACK."+consumer+".>")
	}
	if len(s.hears) > 0 {
		u.Subscribe = append(u.Subscribe, Heard+".>")
	}
	return Account{Name: s.account, Imports: s.imports(), Users: []User{u}}
}

const peer = "peer."

// tell makes other accounts receive a topic of one account.
func tell(accounts []Account, from string, t telling) {
	for i := range accounts {
		a := &accounts[i]
		switch {
		case a.Name == from:
			a.Exports = append(a.Exports, Export{Subject: peer + t.topic, To: t.to})
		case slices.Contains(t.to, a.Name):
			a.Imports = append(a.Imports, Import{From: from, Subject: peer + t.topic})
			if !slices.Contains(a.Users[0].Subscribe, peer+t.topic) {
				a.Users[0].Subscribe = append(a.Users[0].Subscribe, peer+t.topic)
			}
		}
	}
}

// publish makes readers and shadows receive what a service publishes. They import it from the
// service, because the account of the streams does not pass imported messages on.
func publish(accounts []Account, from, subject string) {
	for i := range accounts {
		switch a := &accounts[i]; a.Name {
		case from:
			a.Exports = append(a.Exports, Export{Subject: subject, To: []string{Readers, Shadows}})
		case Readers, Shadows:
			a.Imports = append(a.Imports, Import{From: from, Subject: subject, Prefix: Heard})
		}
	}
}
