package system

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// joinSecret is the secret half of every bootstrap token here.
const joinSecret = "q7x0never1told2k"

// join creates a bootstrap token, or another Secret that looks like one.
func (s *site) join(t *testing.T, id string, kind corev1.SecretType, more map[string]string) *corev1.Secret {
	t.Helper()
	data := map[string]string{"token-id": id, "token-secret": joinSecret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"}
	for key, value := range more {
		data[key] = value
	}
	secrets := s.kube.CoreV1().Secrets(metav1.NamespaceSystem)
	secret, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: kind, StringData: data}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := secrets.Delete(context.Background(), secret.Name, metav1.DeleteOptions{}); gone(err) != "" && err != nil {
			t.Error(err)
		}
	})
	return secret
}

// expiring is the data of a token that expires at a time.
func expiring(at time.Time) map[string]string {
	return map[string]string{"expiration": at.UTC().Format(time.RFC3339)}
}

// TestBootstrapTokensExpire: the controller deletes a token when it expires, not earlier; a token that was
// prolonged stays, and so does a Secret that is no token. No part of a token is on the bus, in its files, or
// in a log.
func TestBootstrapTokensExpire(t *testing.T) {
	s := here(t)
	only := "--controllers=tokencleaner"
	m := s.apartWith(t, map[string][]string{"watcher": {only}, "reconcilers": {only, "-v=10"}, "writer": {only, "-v=10"}})
	secrets := s.kube.CoreV1().Secrets(metav1.NamespaceSystem)
	soon := time.Now().Add(10 * time.Second).Truncate(time.Second)
	stays := []string{
		s.join(t, "aaaaaa", query.BootstrapToken, expiring(time.Now().Add(time.Hour))).Name,
		s.join(t, "bbbbbb", query.BootstrapToken, nil).Name,
		s.join(t, "cccccc", corev1.SecretTypeOpaque, expiring(time.Now().Add(-time.Hour))).Name,
		s.join(t, "dddddd", query.BootstrapToken, expiring(soon)).Name,
	}
	s.join(t, "eeeeee", query.BootstrapToken, expiring(time.Now().Add(-time.Hour)))
	s.join(t, "ffffff", query.BootstrapToken, map[string]string{"expiration": joinSecret})
	last := s.join(t, "gggggg", query.BootstrapToken, expiring(soon)).Name
	asker{site: s, nats: m.nats, namespace: metav1.NamespaceSystem}.awaitLook(t, "secrets/bootstrap-token-dddddd", "token-cleaner-controller")
	later := base64.StdEncoding.EncodeToString([]byte(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	_, err := secrets.Patch(t.Context(), stays[3], types.MergePatchType, fmt.Appendf(nil, `{"data":{"expiration":%q}}`, later), metav1.PatchOptions{})
	must(t, err)
	s.secretGoes(t, metav1.NamespaceSystem, "bootstrap-token-eeeeee")
	s.secretGoes(t, metav1.NamespaceSystem, "bootstrap-token-ffffff")
	within(t, patience, "the last one expires", func() string {
		_, err := secrets.Get(t.Context(), last, metav1.GetOptions{})
		left := gone(err)
		if left == "" && time.Now().Before(soon) {
			t.Errorf("the token %s was deleted before it expires at %v", last, soon)
		}
		return left
	})
	for _, name := range stays {
		if _, err := secrets.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("get %s, which is no expired token: %v, want it to be there", name, err)
		}
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(joinSecret))
	m.holdsNone(t, [][]byte{[]byte(joinSecret), []byte(encoded[:20])}, controllers.Config{}, "tokencleaner")
}

// TestClusterInfoIsSigned: the ConfigMap has a signature for each token with the signing usage, from its
// create until it is deleted or has expired, even if no user deletes it. No part of a token is on the bus, in
// its files, or in a log.
func TestClusterInfoIsSigned(t *testing.T) {
	s := here(t)
	only := "--controllers=bootstrapsigner"
	m := s.apartWith(t, map[string][]string{"watcher": {only}, "reconcilers": {only, "-v=10"}, "writer": {only, "-v=10"}})
	const content = "apiVersion: v1\nkind: Config\n"
	maps := s.kube.CoreV1().ConfigMaps(metav1.NamespacePublic)
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: query.ClusterInfo}, Data: map[string]string{"kubeconfig": content, "mine": "x"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, maps.Delete(context.Background(), query.ClusterInfo, metav1.DeleteOptions{})) })
	is := func(what, content string, ids ...string) {
		t.Helper()
		within(t, patience, what, func() string {
			now, err := maps.Get(t.Context(), query.ClusterInfo, metav1.GetOptions{})
			must(t, err)
			want := map[string]string{"kubeconfig": content, "mine": "x"}
			for _, id := range ids {
				want["jws-kubeconfig-"+id] = jws(content, id, joinSecret)
			}
			if !reflect.DeepEqual(now.Data, want) {
				return fmt.Sprintf("it holds %v, want %v", now.Data, want)
			}
			return ""
		})
	}
	first := s.join(t, "aaaaaa", query.BootstrapToken, nil)
	s.join(t, "bbbbbb", query.BootstrapToken, map[string]string{"usage-bootstrap-signing": "no"})
	s.join(t, "cccccc", corev1.SecretTypeOpaque, nil)
	is("a token signs", content, "aaaaaa")
	soon := time.Now().Add(15 * time.Second).Truncate(time.Second)
	s.join(t, "dddddd", query.BootstrapToken, expiring(soon))
	is("two tokens sign", content, "aaaaaa", "dddddd")
	_, err = maps.Patch(t.Context(), query.ClusterInfo, types.MergePatchType, []byte(`{"data":{"kubeconfig":"another","jws-kubeconfig-aaaaaa":null,"jws-kubeconfig-ffffff":"forged"}}`), metav1.PatchOptions{})
	must(t, err)
	is("what is signed has changed", "another", "aaaaaa", "dddddd")
	must(t, s.kube.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	is("a token is gone", "another", "dddddd")
	is("a token has expired", "another")
	if time.Now().Before(soon) {
		t.Errorf("the signature was removed before the token expires at %v", soon)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(joinSecret))
	m.holdsNone(t, [][]byte{[]byte(joinSecret), []byte(encoded[:20])}, controllers.Config{}, "bootstrapsigner")
}

// jws is the signature that a joining node expects.
func jws(content, id, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	head := encode([]byte(`{"alg":"HS256","kid":"` + id + `"}`))
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(head + "." + encode([]byte(content))))
	return head + ".." + encode(sum.Sum(nil))
}

// TestATokensLife: a token signs cluster-info until it expires. Then the token and its signature are deleted.
func TestATokensLife(t *testing.T) {
	s := here(t)
	s.run(t, "--controllers=bootstrapsigner,tokencleaner")
	maps := s.kube.CoreV1().ConfigMaps(metav1.NamespacePublic)
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: query.ClusterInfo}, Data: map[string]string{"kubeconfig": "{}"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, maps.Delete(context.Background(), query.ClusterInfo, metav1.DeleteOptions{})) })
	is := func(what, want string) {
		t.Helper()
		within(t, patience, what, func() string {
			now, err := maps.Get(t.Context(), query.ClusterInfo, metav1.GetOptions{})
			must(t, err)
			if got := now.Data["jws-kubeconfig-aaaaaa"]; got != want {
				return fmt.Sprintf("the signature is %q, want %q", got, want)
			}
			return ""
		})
	}
	token := s.join(t, "aaaaaa", query.BootstrapToken, expiring(time.Now().Add(10*time.Second)))
	is("the token signs", jws("{}", "aaaaaa", joinSecret))
	s.secretGoes(t, metav1.NamespaceSystem, token.Name)
	is("the signature goes", "")
}
