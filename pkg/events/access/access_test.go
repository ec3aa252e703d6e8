package access_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/access"
)

// Exactly one of the split writers carries out the turns of each controller, whatever its name;
// other users carry out none.
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

// Each user reaches JetStream under its own prefixes; an unknown user has none.
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

// Every import has exactly one export, and every export is imported; and each account's user may
// use all imports.
func TestWhatIsLentIsUsed(t *testing.T) {
	file := access.New([]string{"deployment-controller", "garbage-collector-controller", "serviceaccount-token-controller"})
	accounts := map[string]access.Account{}
	for _, a := range file.Accounts {
		accounts[a.Name] = a
	}
	for _, a := range file.Accounts {
		for i, e := range a.Exports {
			if j := slices.IndexFunc(a.Exports, func(o access.Export) bool { return o.Service == e.Service && o.Subject == e.Subject }); j < i {
				t.Errorf("%s lends %s twice", a.Name, e.Subject)
			}
			for _, to := range e.To {
				if !slices.ContainsFunc(accounts[to].Imports, func(i access.Import) bool {
					return i.From == a.Name && i.Service == e.Service && i.Subject == e.Subject
				}) {
					t.Errorf("%s lends %s to %s, which is not lent it", a.Name, e.Subject, to)
				}
			}
		}
		for _, i := range a.Imports {
			if !slices.ContainsFunc(accounts[i.From].Exports, func(e access.Export) bool {
				return e.Service == i.Service && e.Subject == i.Subject && slices.Contains(e.To, a.Name)
			}) {
				t.Errorf("%s is lent %s, which %s does not lend", a.Name, i.Subject, i.From)
			}
			if !usable(a.Users[0], i) {
				t.Errorf("%s is lent %s, which its user may not use", a.Name, i.Subject)
			}
		}
	}
	text := file.String()
	if empty := regexp.MustCompile(`[a-z]+: \[\s*\]`).FindString(text); empty != "" {
		t.Errorf("the file has an empty list: %s", empty)
	}
	for question, want := range map[string]string{
		"$JS.API.CONSUMER.MSG.NEXT.*.*": `"1m"`, "$JS.API.DIRECT.GET.>": `"5s"`, "$JS.API.STREAM.NAMES": "",
	} {
		line := regexp.MustCompile(`(?m)^ *\{service: "` + regexp.QuoteMeta(question) + `".*$`).FindString(text)
		if line == "" || strings.Contains(line, "response_threshold") != (want != "") || !strings.Contains(line, want) {
			t.Errorf("the account lets the answers to %s wait as in %q, want %s", question, line, want)
		}
	}
}

// usable reports whether a user may publish on an imported service, or subscribe to an imported
// stream.
func usable(u access.User, i access.Import) bool {
	local := i.Subject
	if i.To != "" {
		local = i.To
	}
	if i.Prefix != "" {
		local = i.Prefix + "."
	}
	allowed := u.Subscribe
	if i.Service {
		allowed = u.Publish
	}
	return slices.ContainsFunc(allowed, func(subject string) bool { return strings.HasPrefix(subject, strings.TrimRight(local, ">*")) })
}
