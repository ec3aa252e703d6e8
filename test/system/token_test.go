package system

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// signing is the flag that enables the token controller.
const signing = "--service-account-private-key-file="

// TestTokens creates, uses and deletes tokens, with services of which the writer alone has the key; then it
// searches for the tokens everywhere else.
func TestTokens(t *testing.T) {
	s := here(t)
	m := s.apartWith(t, map[string][]string{
		"watcher": {signing + "/not/read/here"}, "reconcilers": {signing + "/not/read/here", "-v=10"},
		"writer": {signing + s.ServiceAccountKeyFile(), "-v=10"},
	})
	a := s.arena(t, "tokens")
	accounts, secrets := s.kube.CoreV1().ServiceAccounts(a.Namespace), s.kube.CoreV1().Secrets(a.Namespace)
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}}, metav1.CreateOptions{})
	must(t, err)
	put := func(name, of string, kind corev1.SecretType) {
		_, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: of}}, Type: kind,
		}, metav1.CreateOptions{})
		must(t, err)
	}
	var tokens []string
	t.Run("a token is filled in, and is one", func(t *testing.T) {
		put("key", "builder", corev1.SecretTypeServiceAccountToken)
		tokens = append(tokens, s.filled(t, a.Namespace, "key", account.UID, ""))
		s.authenticates(t, tokens[0], "system:serviceaccount:"+a.Namespace+":builder", account.UID)
	})
	t.Run("what a user takes out comes back", func(t *testing.T) {
		_, err := secrets.Patch(t.Context(), "key", types.MergePatchType, []byte(`{"data":{"token":null,"ca.crt":"eA==","mine":"eQ=="}}`), metav1.PatchOptions{})
		must(t, err)
		tokens = append(tokens, s.filled(t, a.Namespace, "key", account.UID, "y"))
	})
	t.Run("what is no token is left alone", func(t *testing.T) {
		put("password", "absent", corev1.SecretTypeOpaque)
		b := connect(t, m.nats)
		within(t, patience, "the API server says that it is none", func() string {
			for _, message := range read(t, b, subject.OutcomeStream("serviceaccount-token-controller")) {
				var o events.Outcome
				must(t, events.DecodeJSON(message, &o))
				for _, r := range o.Results {
					if r.Ref.Name == "password" && r.Code == http.StatusUnprocessableEntity {
						return ""
					}
				}
			}
			return "it was not asked"
		})
	})
	t.Run("a token without an account goes", func(t *testing.T) {
		put("of-none", "absent", corev1.SecretTypeServiceAccountToken)
		s.secretGoes(t, a.Namespace, "of-none")
	})
	t.Run("an account forgets the token that is gone", func(t *testing.T) {
		put("second", "builder", corev1.SecretTypeServiceAccountToken)
		tokens = append(tokens, s.filled(t, a.Namespace, "second", account.UID, ""))
		_, err := accounts.Patch(t.Context(), "builder", types.MergePatchType, []byte(`{"secrets":[{"name":"key"},{"name":"second"},{"name":"password"}]}`), metav1.PatchOptions{})
		must(t, err)
		must(t, secrets.Delete(t.Context(), "second", metav1.DeleteOptions{}))
		within(t, patience, "the account forgets its token", func() string {
			now, err := accounts.Get(t.Context(), "builder", metav1.GetOptions{})
			must(t, err)
			if want := []corev1.ObjectReference{{Name: "key"}, {Name: "password"}}; !slices.Equal(now.Secrets, want) {
				return fmt.Sprint(now.Secrets)
			}
			return ""
		})
	})
	t.Run("the tokens go with their account", func(t *testing.T) {
		must(t, accounts.Delete(t.Context(), "builder", metav1.DeleteOptions{}))
		s.secretGoes(t, a.Namespace, "key")
	})
	t.Run("no service has told a token", func(t *testing.T) { m.toldNo(t, tokens) })
	if _, err := secrets.Get(t.Context(), "password", metav1.GetOptions{}); err != nil {
		t.Errorf("get the Secret that is no token: %v, want it to be there", err)
	}
}

// apartWith is separate with flags for each service.
func (s *site) apartWith(t *testing.T, flags map[string][]string) *apart {
	t.Helper()
	m := s.unstarted(t, s.credentials(), time.Now())
	m.startBus()
	for _, name := range serviceNames {
		m.addAt(name, m.nats, flags[name]...)
	}
	for _, name := range serviceNames {
		m.services[name][0].ready(t)
	}
	return m
}

// filled waits until a Secret has all fields of a token, and the value mine, and returns the token.
func (s *site) filled(t *testing.T, namespace, name string, account types.UID, mine string) (token string) {
	t.Helper()
	ca, err := os.ReadFile(s.RootCAFile())
	must(t, err)
	within(t, patience, name+" is filled", func() string {
		got, err := s.kube.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		token = string(got.Data[corev1.ServiceAccountTokenKey])
		switch {
		case token == "":
			return "there is no token"
		case !bytes.Equal(got.Data[corev1.ServiceAccountRootCAKey], ca), string(got.Data[corev1.ServiceAccountNamespaceKey]) != namespace, string(got.Data["mine"]) != mine:
			return "the rest is wrong"
		case got.Annotations[corev1.ServiceAccountUIDKey] != string(account):
			return "its annotations are " + fmt.Sprint(got.Annotations)
		}
		return ""
	})
	return token
}

func (s *site) authenticates(t *testing.T, token, user string, uid types.UID) {
	t.Helper()
	// The API server compares a token with its cached Secret.
	within(t, patience, "the API server takes the token", func() string {
		review, err := s.kube.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		must(t, err)
		if r := review.Status; !r.Authenticated || r.User.Username != user || r.User.UID != string(uid) {
			return fmt.Sprintf("it takes it for %+v", r)
		}
		return ""
	})
}

func (s *site) secretGoes(t *testing.T, namespace, name string) {
	t.Helper()
	within(t, patience, name+" goes", func() string {
		_, err := s.kube.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return gone(err)
	})
}

// toldNo searches for tokens in all streams, in the files of the bus, and in the services' logs, at a level
// at which client-go would log its requests.
func (m *apart) toldNo(t *testing.T, tokens []string) {
	var secret [][]byte
	for _, token := range tokens {
		signature := token[strings.LastIndex(token, ".")+1:]
		secret = append(secret, []byte(signature))
		encoded := base64.StdEncoding.EncodeToString([]byte(token))
		secret = append(secret, []byte(encoded[len(encoded)/2:])) // encoded as Secrets are in requests
	}
	m.holdsNone(t, secret, controllers.Config{Tokens: true}, "serviceaccount-token")
}

// holdsNone searches for secrets in the streams that controllers read and write, in the files of the bus, and
// in the services' logs. It stops the services for that.
func (m *apart) holdsNone(t *testing.T, secret [][]byte, config controllers.Config, names ...string) {
	t.Helper()
	if len(secret) == 0 {
		t.Fatal("the test has no secret value to search for")
	}
	looked := 0
	look := func(what string, content []byte) {
		looked++
		if slices.ContainsFunc(secret, func(s []byte) bool { return bytes.Contains(content, s) }) {
			t.Errorf("%s has a secret value, want it nowhere", what)
		}
	}
	for _, stream := range streamsOf(t, config, names) {
		for _, message := range read(t, connect(t, m.nats), stream) {
			look(stream, message.Data)
		}
	}
	if looked == 0 {
		t.Error("no stream has messages: the search looked at nothing")
	}
	// Logs and files are searched when no service writes any more: a running bus rewrites some of its files
	// under other names.
	for _, name := range serviceNames {
		m.services[name][0].stop(t)
	}
	m.bus.stop(t)
	for _, name := range serviceNames {
		content, err := os.ReadFile(m.services[name][0].Log)
		must(t, err)
		look("the log of "+name, content)
		if name == "writer" && !bytes.Contains(content, []byte("round_trippers.go")) {
			t.Error("the log of the writer has no requests: the search for their bodies would find none")
		}
		if at := bytes.Index(content, []byte(" Body\"")); at >= 0 {
			t.Errorf("the log of %s has bodies of requests, want none: %.200s", name, content[max(0, at-80):])
		}
	}
	must(t, filepath.WalkDir(m.dataDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		look(path, content)
		return err
	}))
}

// streamsOf are the streams that controllers read and write.
func streamsOf(t *testing.T, config controllers.Config, names []string) (all []string) {
	t.Helper()
	chosen, err := controllers.Select(names, config)
	must(t, err)
	for _, c := range chosen {
		d := c.Describe()
		all = append(all, subject.TurnStream(d.Name), subject.OutcomeStream(d.Name))
		for _, in := range d.Inputs {
			all = append(all, subject.LogStream(in.Kind.Name))
		}
	}
	return all
}
