package embedded

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

// MainAccount is the account of the services, which owns the streams, on a server with accounts
// (deployments/nats/accounts.conf).
const MainAccount = access.Main

// Users are the users in that file. Each has its password in a variable, of the server's
// environment or configuration, that [PasswordOf] names.
var Users = access.Users

// PasswordOf is the name of the variable with a user's password.
func PasswordOf(user string) string { return access.PasswordOf(user) }

// account is the name of the account that owns the streams.
func (o Options) account() string {
	if o.Accounts != "" {
		return MainAccount
	}
	return server.DEFAULT_GLOBAL_ACCOUNT
}

// streams is the folder of the streams.
func (o Options) streams() string {
	return filepath.Join(o.Dir, "jetstream", o.account(), "streams")
}

// admit reads accounts and users from the file, and takes no other setting from it.
func (o Options) admit(settings *server.Options) error {
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

// onlyAccounts refuses a file with settings that admit would ignore: an operator would believe
// that a limit or a certificate in the file has an effect.
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
