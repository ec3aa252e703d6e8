package connect

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events/stream"
)

// A bus on this machine that has made its own users saves their passwords, by the bus's
// address, where commands of the same system user find them. No other system user may read them.

// loginsOf is the directory with the passwords of the users of the bus at an address.
//
// Errors: the user has no home.
func loginsOf(address string) (string, error) {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the logins of the bus: %w", err)
		}
		base = filepath.Join(home, ".local", "share")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("find the logins of the bus: %w", err)
	}
	if at, err := netip.ParseAddr(host); host == "localhost" || host == "" || err == nil && at.IsUnspecified() {
		host = "127.0.0.1"
	}
	return filepath.Join(base, "millrace", "logins", strings.ReplaceAll(host, ":", "_")+"_"+port), nil
}

// SaveLogins saves the passwords of the users of the bus that listens on an address.
//
// Errors: the files cannot be written.
func SaveLogins(address string, passwords map[string]string) error {
	dir, err := loginsOf(address)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save the logins of the bus: %w", err)
	}
	for user, password := range passwords {
		if err := WritePrivate(filepath.Join(dir, user), []byte(password+"\n")); err != nil {
			return fmt.Errorf("save the logins of the bus: %w", err)
		}
	}
	return nil
}

// WritePrivate writes a file that only its owner may read, also if it existed with a looser
// mode.
func WritePrivate(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	// The mode is set before the file has content.
	err = errors.Join(f.Chmod(0o600), f.Truncate(0))
	if err == nil {
		_, err = f.Write(text)
	}
	return errors.Join(err, f.Close())
}

// BusURL is the URL of a bus on this machine, with the login that its main user had at its last
// start; without such a login it is the address alone.
func BusURL(address string) string {
	at := url.URL{Scheme: "nats", Host: address}
	if dir, err := loginsOf(address); err == nil {
		if text, err := os.ReadFile(filepath.Join(dir, embedded.MainUser)); err == nil {
			at.User = url.UserPassword(embedded.MainUser, strings.TrimSpace(string(text)))
		}
	}
	return at.String()
}

// local adds the login that a bus on this machine has saved for a user, unless the options
// name a user or credentials.
func local(o stream.Options, user string) stream.Options {
	address := o.URL
	if !strings.Contains(address, "://") { // the client library takes HOST:PORT too
		address = "nats://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.User != nil || o.User != "" || o.Credentials != "" || strings.Contains(o.URL, ",") {
		return o
	}
	dir, err := loginsOf(u.Host)
	if err != nil {
		return o
	}
	file := filepath.Join(dir, user)
	if _, err := os.Stat(file); err != nil {
		return o
	}
	o.User, o.PasswordFile = user, file
	if user == embedded.GuestUser {
		o.Guest, o.APIPrefix = true, embedded.GuestPrefix
	}
	return o
}
