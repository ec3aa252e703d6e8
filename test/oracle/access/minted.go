package access

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/serviceaccounttoken"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
)

// MintedCA is the root certificate in the tokens' Secrets.
const MintedCA = "a root certificate"

// MintedByThem and MintedByUs are the end of a world of Secrets and accounts after each has filled and
// deleted tokens, and removed references to them, as one text for each object, sorted. The Secrets in gone
// are deleted in the middle.
func MintedByThem(t *testing.T, world []runtime.Object, gone []string) (end []string, err error) {
	synctest.Test(t, func(*testing.T) { end, err = mintTheirs(objects.Copied(world), gone) })
	return end, err
}

// plain stands for upstream's signer: its tokens are the claims in plain text.
type plain struct{}

func (plain) GenerateToken(_ context.Context, public *jose.Claims, private any) (string, error) {
	claims, err := json.Marshal(private)
	return public.Subject + " " + base64.RawURLEncoding.EncodeToString(claims), err
}

func mintTheirs(world []runtime.Object, gone []string) ([]string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset(world...)
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	c, err := serviceaccount.NewTokensController(klog.Background(), core.ServiceAccounts(), core.Secrets(), client,
		serviceaccount.TokensControllerOptions{TokenGenerator: plain{}, RootCA: []byte(MintedCA)})
	if err != nil {
		return nil, fmt.Errorf("make the controller: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx, 1) })
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, name := range gone { // it may be deleted already, and is no delete of the controller's
		_ = client.Tracker().Delete(kinds.Secrets.GVR(), "default", name)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	cancel()
	running.Wait()
	factory.Shutdown()
	var end []string
	secrets, err := client.CoreV1().Secrets("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	accounts, err := client.CoreV1().ServiceAccounts("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range secrets.Items {
		end = append(end, ofSecret(&secrets.Items[i]))
	}
	for i := range accounts.Items {
		end = append(end, TextOfAccount(&accounts.Items[i]))
	}
	for _, action := range client.Actions() {
		if a, ok := action.(clienttesting.DeleteActionImpl); ok {
			end = append(end, effect.Removed("secrets", a.GetName(), a.GetDeleteOptions()).String())
		}
	}
	slices.Sort(end)
	return slices.Compact(end), nil
}

func ofSecret(s *corev1.Secret) string {
	var data []string
	for key, value := range s.Data {
		data = append(data, fmt.Sprintf("%s=%s", key, value))
	}
	slices.Sort(data)
	return fmt.Sprintf("secret %s %v %s", s.Name, s.Annotations, strings.Join(data, " "))
}

// TextOfAccount is the text of an account at the end of a world.
func TextOfAccount(a *corev1.ServiceAccount) string {
	return fmt.Sprintf("account %s %s lists %v", a.Name, a.UID, a.Secrets)
}

// minting is a world in which ours runs.
type minting struct {
	secrets  map[string]*corev1.Secret
	accounts map[string]*corev1.ServiceAccount
	seen     *reconciletest.World
	removed  []string
}

// MintedByUs runs our controller, and acts as the writer.
func MintedByUs(world []runtime.Object, gone []string) (end []string) {
	m := &minting{secrets: map[string]*corev1.Secret{}, accounts: map[string]*corev1.ServiceAccount{}, seen: reconciletest.NewWorld()}
	for _, obj := range objects.Copied(world) {
		switch obj := obj.(type) {
		case *corev1.Secret:
			m.secrets[obj.Name] = obj
			m.seen.Put(kinds.Secrets.Kind, &metav1.PartialObjectMetadata{ObjectMeta: obj.ObjectMeta})
		case *corev1.ServiceAccount:
			m.accounts[obj.Name] = obj
			m.seen.Put(kinds.ServiceAccounts.Kind, obj)
		}
	}
	names := []string{}
	for name := range m.secrets {
		names = append(names, name)
	}
	for _, name := range names {
		m.turn(name)
	}
	for _, name := range gone {
		if m.secrets[name] != nil {
			m.remove(name)
		}
	}
	for _, name := range names {
		annotated := false
		for _, obj := range world {
			s, ok := obj.(*corev1.Secret)
			annotated = annotated || ok && s.Name == name && s.Annotations[corev1.ServiceAccountNameKey] != ""
		}
		if m.secrets[name] == nil && annotated { // otherwise there is no question
			m.turn(name)
		}
	}
	for _, s := range m.secrets {
		end = append(end, ofSecret(s))
	}
	for _, a := range m.accounts {
		end = append(end, TextOfAccount(a))
	}
	end = append(end, m.removed...)
	slices.Sort(end)
	return slices.Compact(end)
}

func (m *minting) remove(name string) {
	delete(m.secrets, name)
	m.seen.Remove(kinds.Secrets.Name, "default", name)
}

// turn decides and carries out one turn of a Secret.
func (m *minting) turn(name string) {
	key := events.Key{Namespace: "default", Name: name}
	d, ok := serviceaccounttoken.New(serviceaccounttoken.Config{Tokens: true}).Ask(m.seen, key, objects.Now)
	if !ok {
		return
	}
	o := events.Outcome{Key: key, Lane: events.LaneWrite}
	if s := m.secrets[name]; s != nil {
		o.UID, o.ResourceVersion = s.UID, s.ResourceVersion
	}
	for _, c := range d.Commands {
		r := events.Result{Status: events.Applied, Answer: &events.Answer{Note: c.Note}}
		s := m.secrets[c.Name]
		switch {
		case c.Kind == kinds.ServiceAccounts.Name:
			a := m.accounts[c.Name]
			a.Secrets = slices.DeleteFunc(a.Secrets, func(r corev1.ObjectReference) bool { return r.Name == name })
		case s.Type != corev1.SecretTypeServiceAccountToken:
			r.Status, r.Code, r.Reason = events.Refused, 422, query.NoToken
		case c.FillsToken():
			fillAsTheWriter(s, c)
		case c.Verb == events.VerbDelete:
			how := frozen.OptionsOf(c)
			how.Preconditions.ResourceVersion = nil // upstream requires the uid only
			m.removed = append(m.removed, effect.Removed("secrets", c.Name, how).String())
			m.remove(c.Name)
		}
		if o.Results = append(o.Results, r); !r.OK() {
			break
		}
	}
	m.seen.Remember(o)
}

func fillAsTheWriter(s *corev1.Secret, c events.Command) {
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(c.Body, &patch); err != nil {
		panic(err)
	}
	said := patch.Metadata.Annotations
	account, uid := said[corev1.ServiceAccountNameKey], said[corev1.ServiceAccountUIDKey]
	was := ofSecret(s)
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	if !bytes.Equal(s.Data["ca.crt"], []byte(MintedCA)) {
		s.Data["ca.crt"] = []byte(MintedCA)
	}
	if len(s.Data["namespace"]) == 0 {
		s.Data["namespace"] = []byte(s.Namespace)
	}
	if len(s.Data["token"]) == 0 {
		claims := fmt.Sprintf(`{"kubernetes.io/serviceaccount/service-account.name":%q,"kubernetes.io/serviceaccount/service-account.uid":%q,"kubernetes.io/serviceaccount/secret.name":%q,"kubernetes.io/serviceaccount/namespace":%q}`,
			account, uid, s.Name, s.Namespace)
		s.Data["token"] = []byte("system:serviceaccount:" + s.Namespace + ":" + account + " " + base64.RawURLEncoding.EncodeToString([]byte(claims)))
	}
	if ofSecret(s) != was {
		s.Annotations[corev1.ServiceAccountNameKey], s.Annotations[corev1.ServiceAccountUIDKey] = account, uid
	}
}
