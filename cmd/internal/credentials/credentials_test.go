package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestSplitWritersSignForTheirShare: the key of the undivided writer counts for every controller,
// and that of each split writer only for the controllers whose turns it carries out. The share is
// this version's, also if another version has made the key.
func TestSplitWritersSignForTheirShare(t *testing.T) {
	dir := t.TempDir()
	made, err := makeCredentials(dir, nil)
	ok(t, err)
	narrow, err := countFor([]byte(made.signing["outcome-workloads.key"+publicKeys]), []string{"job-controller"})
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(dir, "signing", "outcome-workloads.key"+publicKeys), narrow, 0o600))
	made, err = makeCredentials(dir, nil)
	ok(t, err)
	trust, err := sign.NewTrust([]byte(made.signing[outcomeKey+publicKeys]))
	ok(t, err)
	for _, user := range append([]string{access.Writer}, access.SplitWriters...) {
		own, err := sign.NewSigner([]byte(made.signing[signers[user].kept]))
		ok(t, err)
		counted := 0
		for _, controller := range Controllers() {
			now := time.Now()
			m := events.Message{Subject: subject.Outcome(controller, events.LaneWrite, events.Key{Name: "web"}), Header: map[string][]string{"Nats-Msg-Id": {"one"}}, Data: []byte("{}"), Time: now}
			own.Outcome(m, "one", now)
			counts := trust.Outcome(m) == nil
			if counts != access.Carries(user, controller) {
				t.Errorf("an outcome of %s that the %s has signed counts: %t", controller, user, counts)
			}
			if counts {
				counted++
			}
		}
		if counted == 0 {
			t.Errorf("nothing counts that the %s signs", user)
		}
	}
}

// TestSecrets: each service gets only its own password, the bus all of them. A second run changes
// nothing, and a bus starts with the Secrets and admits each user.
func TestSecrets(t *testing.T) {
	dir, etc := t.TempDir(), t.TempDir()
	made, err := makeCredentials(dir, busHosts("millrace-system"))
	ok(t, err)
	again, err := makeCredentials(dir, nil)
	ok(t, err)
	first, err := yaml.Marshal(made.secrets("a"))
	ok(t, err)
	second, err := yaml.Marshal(again.secrets("a"))
	ok(t, err)
	if string(first) != string(second) {
		t.Error("a second run makes other credentials")
	}
	if strings.Contains(string(first), "BEGIN EC") || strings.Contains(string(first), string(made.authority.Key)) {
		t.Error("the key of the authority is handed out")
	}
	for _, secret := range made.secrets("a") {
		text, user := fmt.Sprint(secret.StringData), strings.TrimSuffix(strings.TrimPrefix(secret.Name, "millrace-"), "-bus")
		own, signs := signers[user]
		for holder, s := range signers {
			if has := strings.Contains(text, made.signing[s.kept]); has != (holder == user) {
				t.Errorf("%s has the key of %s: %t", secret.Name, holder, has)
			}
		}
		if signs && secret.StringData[own.given] != made.signing[own.kept] {
			t.Errorf("%s does not have its key as %s", secret.Name, own.given)
		}
		for _, name := range []string{turnKey, outcomeKey} {
			if has := secret.StringData[name+publicKeys] == made.signing[name+publicKeys]; has != (signs || user == "reader") {
				t.Errorf("%s has the public part of %s: %t", secret.Name, name, has)
			}
		}
	}
	for _, secret := range made.secrets("a") {
		for user, password := range made.passwords {
			text := fmt.Sprint(secret.StringData)
			if has := strings.Contains(text, password); has != (secret.Name == "millrace-bus" || secret.Name == "millrace-"+user+"-bus") {
				t.Errorf("%s has the password of %s: %t", secret.Name, user, has)
			}
		}
	}
	for name, text := range made.secrets("a")[0].StringData {
		ok(t, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600))
	}
	for _, user := range embedded.Users {
		t.Setenv(embedded.PasswordOf(user), "") // restores the variable after the test
	}
	ok(t, SetVariables(filepath.Join(etc, "passwords")))
	running, err := embedded.Serve(embedded.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Accounts: filepath.Join(deployments, "nats", "accounts.conf"),
		TLS: embedded.TLSOptions{CertFile: filepath.Join(etc, "tls.crt"), KeyFile: filepath.Join(etc, "tls.key")},
	})
	ok(t, err)
	t.Cleanup(func() { ok(t, running.Close()) })
	for _, user := range embedded.Users {
		password := filepath.Join(etc, user)
		ok(t, os.WriteFile(password, []byte(made.passwords[user]), 0o600))
		b, err := stream.Connect(t.Context(), stream.Options{URL: running.URL(), User: user, PasswordFile: password, CAFile: filepath.Join(etc, "ca.crt")})
		if err != nil {
			t.Errorf("%s is not let in: %v", user, err)
			continue
		}
		ok(t, b.Close())
	}
}
