package connect

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// TestABusOfThisMachineLetsItsUserIn: for each spelling of its address, a command finds the login
// that the bus has saved.
func TestABusOfThisMachineLetsItsUserIn(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	ok(t, SaveLogins("127.0.0.1:4222", map[string]string{embedded.GuestUser: "a password"}))
	for url, want := range map[string]string{
		"nats://127.0.0.1:4222":             embedded.GuestUser,
		"nats://localhost:4222":             embedded.GuestUser,
		"127.0.0.1:4222":                    embedded.GuestUser,
		"127.0.0.1:4223":                    "",
		"nats://other:word@127.0.0.1:4222":  "",
		"nats://127.0.0.1:4222,nats://b:22": "",
	} {
		options, err := (&Connection{URL: url}).Options(readerName)
		ok(t, err)
		if options.User != want {
			t.Errorf("at %s the user is %q, want %q", url, options.User, want)
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
