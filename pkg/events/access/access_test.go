package access_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events/access"
)

// The turns of each controller are carried out by one of the writers that share them out,
// whatever its name; and by nobody who is no writer.
func TestEachControllerHasOneWriter(t *testing.T) {
	controllers := []string{"garbage-collector-controller", "serviceaccount-token-controller", "deployment-controller", "one that comes later"}
	shared := map[string]string{}
	for _, user := range access.SplitWriters {
		for _, c := range access.Share(user, controllers) {
			if shared[c] != "" {
				t.Errorf("%s is of %s and of %s", c, shared[c], user)
			}
			shared[c] = user
		}
	}
	for i, want := range []string{access.WriterCollectors, access.WriterCredentials, access.WriterWorkloads, access.WriterWorkloads} {
		if c := controllers[i]; shared[c] != want {
			t.Errorf("%s is of %s, want %s", c, shared[c], want)
		}
	}
	if all := access.Share(access.Writer, controllers); !slices.Equal(all, controllers) {
		t.Errorf("the only writer carries out %v", all)
	}
	for _, user := range []string{access.Watcher, access.Reader, access.Shadow, ""} {
		if some := access.Share(user, controllers); len(some) > 0 {
			t.Errorf("%q carries out %v", user, some)
		}
	}
}

// Each user speaks to JetStream by the doors that are its own: guests by theirs, and who is
// not known by none.
func TestHowUsersLogIn(t *testing.T) {
	for user, want := range map[string]access.Login{
		access.Provisioner: {}, access.Watcher: {API: access.API, Asks: true}, access.Reconciler: {API: access.API, Asks: true},
		access.Writer: {API: access.API, Asks: true}, access.WriterWorkloads: {API: access.API, Asks: true},
		access.WriterCollectors: {API: access.API, Asks: true}, access.WriterCredentials: {API: access.API, Asks: true},
		access.NotaryUser: {API: access.API, Asks: true, Guest: true},
		access.Reader:     {API: access.GuestAPI, Guest: true}, access.Shadow: {API: access.GuestAPI, Guest: true},
	} {
		want.Inbox = access.Inbox(user)
		if got, ok := access.LoginOf(user); !ok || got != want {
			t.Errorf("%s logs in as %+v, %v; want %+v", user, got, ok, want)
		}
	}
	for _, user := range []string{access.All, "root", ""} {
		if got, ok := access.LoginOf(user); ok || got != (access.Login{}) {
			t.Errorf("%q logs in as %+v", user, got)
		}
	}
}
