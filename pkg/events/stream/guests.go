package stream

import (
	"crypto/subtle"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/access"
)

// Guests read the record and can do nothing else. They are in an account of their own,
// that has no streams, and that is lent a few questions of JetStream's API under
// another name. An answer goes to wherever the question says, also to a subject that is
// stored: in an account without streams that leads nowhere. They also hear what is
// published, so that they need not ask all the time.

const (
	// GuestUser is the name under which guests come, and GuestPrefix that of the
	// questions that they may ask.
	GuestUser, GuestPrefix = access.Reader, access.GuestAPI
	guestAccount           = access.Readers
	api                    = "$JS.API."
)

// MainUser is the name of the user of a server without accounts who may do all.
const MainUser = "millrace"

// door lets in the users who know their password, and this process. It sends everybody
// else away, those who give no name too. An empty password lets no one in.
type door struct {
	main, guest string
	guests      func() *server.Account
}

// fromWithin tells whether a connection comes from this process: then it is a [net.Pipe].
func fromWithin(c server.ClientAuthentication) bool {
	address := c.RemoteAddress()
	return address != nil && address.Network() == "pipe"
}

// knows tells whether a user comes with its password.
func (d door) knows(user, password string) bool {
	is := func(name, own string) bool {
		return user == name && own != "" && subtle.ConstantTimeCompare([]byte(password), []byte(own)) == 1
	}
	return is(MainUser, d.main) || is(GuestUser, d.guest)
}

// Check is [server.Authentication].
func (d *door) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	switch {
	case fromWithin(c):
		return true
	case !d.knows(given.Username, given.Password):
		return false
	case given.Username == MainUser:
		return true
	}
	account := d.guests()
	if account == nil {
		return false // not yet
	}
	ask := make([]string, len(access.GuestQuestions))
	for i, question := range access.GuestQuestions {
		ask[i] = GuestPrefix + "." + question
	}
	c.RegisterUser(&server.User{Username: GuestUser, Account: account, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: ask}, Subscribe: &server.SubjectPermission{Allow: []string{access.Inbox(GuestUser) + ".>", HeardPrefix + ".>"}},
	}})
	return true
}

// admitGuests makes the guests' account.
func (s *Server) admitGuests() error {
	if s.options.GuestPassword == "" {
		return nil
	}
	guests, err := s.nats.RegisterAccount(guestAccount)
	if err != nil {
		return fmt.Errorf("make the readers' account: %w", err)
	}
	services := s.nats.GlobalAccount()
	for _, question := range access.GuestQuestions {
		if err := services.AddServiceExport(api+question, []*server.Account{guests}); err != nil {
			return fmt.Errorf("lend %s to readers: %w", question, err)
		}
		if err := guests.AddServiceImport(services, GuestPrefix+"."+question, api+question); err != nil {
			return fmt.Errorf("lend %s to readers: %w", question, err)
		}
	}
	for _, said := range access.Published {
		if err := services.AddStreamExport(said, []*server.Account{guests}); err != nil {
			return fmt.Errorf("lend %s to readers: %w", said, err)
		}
		if err := guests.AddStreamImport(services, said, HeardPrefix); err != nil {
			return fmt.Errorf("lend %s to readers: %w", said, err)
		}
	}
	s.guests.Store(guests)
	return nil
}
