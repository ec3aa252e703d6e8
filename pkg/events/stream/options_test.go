package stream

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
)

// What is left out has a default that loses nothing; what cannot be is named, all of it.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	o, err := Options{URL: "nats://a"}.withDefaults()
	if err != nil || o.Replicas != 1 || o.LogAge != 24*time.Hour || o.Timeout != 5*time.Second || time.Since(o.Began) > time.Minute || o.Log == nil {
		t.Errorf("the defaults are %+v, %v", o, err)
	}
	began, log := time.Unix(7, 0), slog.New(slog.DiscardHandler)
	given := Options{Server: &embedded.Server{}, Replicas: 3, LogAge: time.Second, Timeout: time.Minute, Began: began, LogBytes: 7, Log: log}
	if o, err = given.withDefaults(); err != nil || o.Replicas != 3 || o.LogAge != time.Second || o.Timeout != time.Minute || !o.Began.Equal(began) || o.LogBytes != 7 || o.Log != log {
		t.Errorf("the given options have become %+v, %v", o, err)
	}
	for says, o := range map[string]Options{
		"neither a URL nor a server":  {},
		"2 replicas":                  {URL: "a", Replicas: 2},
		"4 replicas":                  {URL: "a", Replicas: 4},
		"-1 replicas":                 {URL: "a", Replicas: -1},
		"a log age of 999ms":          {URL: "a", LogAge: 999 * time.Millisecond},
		"-1 log bytes":                {URL: "a", LogBytes: -1},
		"a timeout of -1ns":           {URL: "a", Timeout: -1},
		"of pods 999ms and 0 bytes":   {URL: "a", Retention: map[string]bus.Retention{"pods": {Age: 999 * time.Millisecond}}},
		"of pods 0s and -1 bytes":     {URL: "a", Retention: map[string]bus.Retention{"pods": {Bytes: -1}}},
		"a timeout of -2ns\nof pods ": {URL: "a", Timeout: -2, Retention: map[string]bus.Retention{"pods": {Bytes: -1}}},
	} {
		if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
	for _, o := range []Options{{URL: "a", Replicas: 5}, {URL: "a", Retention: map[string]bus.Retention{"pods": {Age: time.Second}, "nodes": {Bytes: 1}}}} {
		if _, err := o.withDefaults(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Of the users of the accounts each has its own way to speak to the server, which what is given
// goes before; of others nothing is known.
func TestAUserIsIntroduced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options Options
		user    string
		asks    bool
		guest   bool
		api     string
		inbox   string
	}{
		"by the URL":              {Options{URL: "nats://watcher:x@a:1,nats://b:2"}, "watcher", true, false, access.API, "_INBOX_watcher"},
		"by the URL, with spaces": {Options{URL: " nats://watcher:x@a:1 , nats://b:2"}, "watcher", true, false, access.API, "_INBOX_watcher"},
		"by name":                 {Options{URL: "nats://watcher:x@a:1", User: "reader"}, "reader", false, true, access.GuestAPI, "_INBOX_reader"},
		"with its own":            {Options{User: "writer", APIPrefix: "api", InboxPrefix: "in", Guest: true}, "writer", true, true, "api", "in"},
		"someone else":            {Options{User: "stranger", InboxPrefix: "in"}, "stranger", false, false, "", "in"},
		"the administrator":       {Options{User: access.All}, access.All, false, false, "", ""},
		"no one":                  {Options{URL: "nats://a:1"}, "", false, false, "", ""},
		"no URL":                  {Options{URL: "://"}, "", false, false, "", ""},
	} {
		o := c.options.forUser()
		if o.user != c.user || o.orders != c.asks || o.Guest != c.guest || o.APIPrefix != c.api || o.InboxPrefix != c.inbox {
			t.Errorf("%s: the login is %q, asks: %t, guest: %t, with the prefixes %q and %q", name, o.user, o.orders, o.Guest, o.APIPrefix, o.InboxPrefix)
		}
	}
}

// The password is in a file, which may be missing for a while, or in the URL.
func TestWhereThePasswordIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	o := Options{User: "u", PasswordFile: file, Log: slog.New(slog.DiscardHandler), URL: "nats://v:w@a:1"}
	if user, password := o.ownLogin(); user != "" || password != "" {
		t.Errorf("without the file the login is %q, %q; want none", user, password)
	}
	if err := os.WriteFile(file, []byte(" sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if user, password := o.ownLogin(); user != "u" || password != "sesame" {
		t.Errorf("with the file the login is %q, %q; want u, sesame", user, password)
	}
	for url, want := range map[string][2]string{
		"nats://v:w@a:1": {"v", "w"}, " nats://v:w@a:1,nats://x:y@b:1": {"v", "w"}, "nats://v@a:1": {"v", ""}, "nats://a:1": {}, "://": {}, "": {},
	} {
		if user, password := (Options{URL: url}).ownLogin(); user != want[0] || password != want[1] {
			t.Errorf("%q: it comes as %q, %q", url, user, password)
		}
	}
}

// A connection is tried again for ever and at once, notices within seconds that it is cut off, keeps
// nothing for later, and is not given up for a password that is being changed.
func TestHowAConnectionHealsItself(t *testing.T) {
	t.Parallel()
	made := func(o Options) (got nats.Options, err error) {
		got = nats.GetDefaultOptions()
		for _, option := range o.nats(conn.New(conn.Options{})) {
			err = errors.Join(err, option(&got))
		}
		return got, err
	}
	got, err := made(Options{Name: "watcher"})
	if err != nil || got.Name != "watcher" || got.Timeout != 5*time.Second || got.MaxReconnect != -1 || got.ReconnectWait != 100*time.Millisecond ||
		got.ReconnectJitter != 100*time.Millisecond || got.ReconnectJitterTLS != 100*time.Millisecond || got.PingInterval != 2*time.Second || got.MaxPingsOut != 2 ||
		got.ReconnectBufSize != -1 || !got.IgnoreAuthErrorAbort || got.AsyncErrorCB == nil || got.DisconnectedErrCB == nil || got.ReconnectedCB == nil {
		t.Errorf("a connection is made with %+v, %v", got, err)
	}
	if got.InProcessServer != nil || got.UserJWT != nil || got.UserInfo != nil || got.InboxPrefix != "" || got.Secure {
		t.Errorf("the connection has options that were not asked for: %+v", got)
	}
	for name, c := range map[string]struct {
		options Options
		has     func(o nats.Options) bool
	}{
		"a server in this process": {Options{Server: &embedded.Server{}}, func(o nats.Options) bool { return o.InProcessServer != nil }},
		"a user":                   {Options{User: "u"}, func(o nats.Options) bool { return o.UserInfo != nil }},
		"an inbox":                 {Options{InboxPrefix: "_INBOX_u"}, func(o nats.Options) bool { return o.InboxPrefix == "_INBOX_u" }},
	} {
		if got, err := made(c.options); err != nil || !c.has(got) {
			t.Errorf("with %s the connection has the options %+v, %v", name, got, err)
		}
	}
	for says, o := range map[string]Options{
		"the text holds no certificate": {CAData: []byte("x")}, "rootCA file": {CAFile: "/none"}, "client certificate": {CertFile: "/none", KeyFile: "/none"}, "open /none/creds": {Credentials: "/none/creds"},
	} {
		if _, err := made(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("with files that cannot be read: %v, want %q", err, says)
		}
	}
}
