package embedded

import (
	"crypto/subtle"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/access"
)

// Guests may only read the record. They have an account of their own, without streams, which
// imports a few JetStream API requests under another name. A request names the reply subject,
// which could be a subject of a stream: in an account without streams such an answer is not
// stored. Guests also hear published messages, so that they need not poll.

const (
	// GuestUser is the user name of guests, and GuestPrefix the API prefix of the requests that
	// they may make.
	GuestUser, GuestPrefix = access.Reader, access.GuestAPI
	guestAccount           = access.Readers
	api                    = "$JS.API."
)

// MainUser is the user who may do everything, on a server without accounts.
const MainUser = "millrace"

// authenticator admits users with the right password, and this process. It refuses all others, also
// clients without a user, unless the server is open to all. An empty password admits no user.
type authenticator struct {
	main, guest string
	guests      func() *server.Account
	open        bool
	// outside is told of each connection of another process that may publish.
	outside func()
}

// isInProcess reports whether a connection comes from this process, that is through a [net.Pipe].
func isInProcess(c server.ClientAuthentication) bool {
	address := c.RemoteAddress()
	return address != nil && address.Network() == "pipe"
}

// verify checks a user's password.
func (d authenticator) verify(user, password string) bool {
	is := func(name, own string) bool {
		return user == name && own != "" && subtle.ConstantTimeCompare([]byte(password), []byte(own)) == 1
	}
	return is(MainUser, d.main) || is(GuestUser, d.guest)
}

// Check implements [server.Authentication].
func (d *authenticator) Check(c server.ClientAuthentication) bool {
	given := c.GetOpts()
	switch {
	case isInProcess(c):
		return true
	case d.open:
		d.outside()
		return true
	case !d.verify(given.Username, given.Password):
		return false
	case given.Username == MainUser:
		d.outside()
		return true
	}
	account := d.guests()
	if account == nil {
		return false // the account does not exist yet
	}
	ask := make([]string, len(access.GuestQuestions))
	for i, question := range access.GuestQuestions {
		ask[i] = GuestPrefix + "." + question
	}
	c.RegisterUser(&server.User{Username: GuestUser, Account: account, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: ask}, Subscribe: &server.SubjectPermission{Allow: []string{access.Inbox(GuestUser) + ".>", access.Heard + ".>"}},
	}})
	return true
}

// admitGuests creates the guests' account.
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
		if err := guests.AddStreamImport(services, said, access.Heard); err != nil {
			return fmt.Errorf("lend %s to readers: %w", said, err)
		}
	}
	s.guests.Store(guests)
	return nil
}
