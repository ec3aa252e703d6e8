package stream

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/access"
)

// MainAccount is the account of the services, which has the streams, where a server has
// accounts (deployments/nats/accounts.conf).
const MainAccount = access.Main

// Users are those of that file. The password of each is in a variable, of the server's
// environment or of its configuration, that [PasswordOf] names.
var Users = access.Users

// PasswordOf names the variable with a user's password.
func PasswordOf(user string) string { return access.PasswordOf(user) }

// account is the one that has the streams.
func (o ServerOptions) account() string {
	if o.Accounts != "" {
		return MainAccount
	}
	return server.DEFAULT_GLOBAL_ACCOUNT
}

// streams is the folder of the streams.
func (o ServerOptions) streams() string {
	return filepath.Join(o.Dir, "jetstream", o.account(), "streams")
}

// admit has the server know the accounts and users of a file, and takes nothing else
// from it.
func (o ServerOptions) admit(settings *server.Options) error {
	if o.Accounts == "" {
		return nil
	}
	if o.GuestPassword != "" || o.Password != "" {
		return fmt.Errorf("both a password of readers and accounts: those in %s say who reads", o.Accounts)
	}
	if err := onlyAccounts(o.Accounts); err != nil {
		return fmt.Errorf("read the accounts: %w", err)
	}
	file, err := server.ProcessConfigFile(o.Accounts)
	if err != nil {
		return fmt.Errorf("read the accounts: %w", err)
	}
	for _, a := range file.Accounts {
		if a.Name == MainAccount {
			settings.Accounts, settings.Users, settings.Nkeys, settings.SystemAccount = file.Accounts, file.Users, file.Nkeys, file.SystemAccount
			return nil
		}
	}
	return fmt.Errorf("read the accounts: %s has no account %s, which has the streams", o.Accounts, MainAccount)
}

// onlyAccounts refuses a file with settings that would not be taken over: a limit or a
// certificate that stands there and does nothing is believed to do something.
func onlyAccounts(file string) error {
	found, err := conf.ParseFileWithChecks(file)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		switch strings.ToLower(name) {
		case "accounts", "system_account", "system":
			continue
		}
		if token, is := found[name].(interface{ IsUsedVariable() bool }); is && token.IsUsedVariable() {
			continue
		}
		return fmt.Errorf("%s has %q, and accounts, system_account and variables are all that is taken from it: the rest is said with flags of millrace bus, such as --nats-tls-cert-file", file, name)
	}
	return nil
}
