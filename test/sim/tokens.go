package sim

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// Tokens is what users do with service accounts and their tokens in Secrets.
var Tokens = []Operation{
	newAccount, newAccount, newAccount, dropAccount, newToken, newToken, newToken, emptyToken, dropToken, dropToken, listToken, listToken, newImpostor,
}

// impostor is the type of Secrets that have the annotation of a token without being one. Users
// leave them alone; a finalizer holds them, so that a wrong delete would show.
const impostor = "example.com/password"

func (w *World) someAccount() (events.Ref, bool) {
	return w.someOf(kinds.ServiceAccounts.Kind, "account", func(name string) any {
		return &corev1.ServiceAccount{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		}
	})
}

func newAccount(w *World) { w.someAccount() }

func dropAccount(w *World) {
	if ref, there := w.someAccount(); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// secret is a Secret that claims to be the token of a service account.
func secret(of, name string, kind corev1.SecretType, finalizers ...string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: kind,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: finalizers,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: of},
		},
	}
}

func (w *World) someToken() (events.Ref, bool) {
	return w.someOf(kinds.Secrets.Kind, "token", func(name string) any {
		return secret(fmt.Sprint("account", w.roll(2)), name, corev1.SecretTypeServiceAccountToken)
	})
}

func newToken(w *World) { w.someToken() }

func newImpostor(w *World) {
	w.someOf(kinds.Secrets.Kind, "password", func(name string) any {
		return secret(fmt.Sprint("account", w.roll(2)), name, impostor, "example.com/kept")
	})
}

// filledToken is a token with its data. The account of a token that is deleted before it has
// them is unknown.
func (w *World) filledToken() (events.Ref, *corev1.Secret, bool) {
	ref, there := w.someToken()
	token, _ := w.api.Get(ref).(*corev1.Secret)
	return ref, token, there && len(token.Data[corev1.ServiceAccountTokenKey]) > 0
}

func emptyToken(w *World) {
	if ref, _, there := w.filledToken(); there {
		w.note("user: empty %v", ref)
		w.api.Change(ref, func(obj metav1.Object) { obj.(*corev1.Secret).Data = nil })
	}
}

func dropToken(w *World) {
	if ref, _, there := w.filledToken(); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// listToken puts a token on its account's list.
func listToken(w *World) {
	ref, token, there := w.filledToken()
	if !there {
		return
	}
	account := events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: namespace, Name: token.Annotations[corev1.ServiceAccountNameKey]}
	if now := w.api.Get(account); now == nil || string(now.GetUID()) != token.Annotations[corev1.ServiceAccountUIDKey] {
		return // it belongs to an earlier account, whose list is gone
	}
	w.note("user: %v is on the list of %v", ref, account)
	w.api.Change(account, func(obj metav1.Object) {
		a, entry := obj.(*corev1.ServiceAccount), corev1.ObjectReference{Name: ref.Name}
		if !slices.Contains(a.Secrets, entry) {
			a.Secrets = append(a.Secrets, entry)
		}
	})
}

// tokenOf is the token of a service account in a Secret, as the toy API server fills it in.
func tokenOf(namespace, name, uid, secret string) []byte {
	return fmt.Appendf(nil, "%s/%s (%s) in %s", namespace, name, uid, secret)
}

// fillToken is the writer's operation on a token Secret.
func (a *API) fillToken(c *collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	next := clone(old).(*corev1.Secret)
	switch {
	case next.Type != corev1.SecretTypeServiceAccountToken:
		return refusal(422, query.NoToken, "not a token")
	case patch.Metadata.UID != next.UID, patch.Metadata.ResourceVersion != next.ResourceVersion:
		return refusal(409, "Conflict", "the Secret has changed")
	case len(next.Data) > 0:
		return answer(old)
	}
	for key, value := range patch.Metadata.Annotations {
		next.Annotations[key] = value
	}
	said := patch.Metadata.Annotations
	next.Data = map[string][]byte{
		corev1.ServiceAccountTokenKey: tokenOf(ref.Namespace, said[corev1.ServiceAccountNameKey], said[corev1.ServiceAccountUIDKey], ref.Name),
	}
	return answer(a.store(c, ref, old, next))
}

// retyped reports whether a change would change the type of a Secret, which is immutable.
func retyped(old, next metav1.Object) bool {
	was, ok := old.(*corev1.Secret)
	return ok && was.Type != next.(*corev1.Secret).Type
}

// tokened reports whether each token belongs to its account, and none lacks one; whether Secrets
// that are no tokens were left alone; and, in a world without faults that make a process
// forget, whether no account lists a deleted token.
func (w *World) tokened() error {
	if !w.runs("serviceaccount-token-controller") {
		return nil
	}
	for _, obj := range w.api.List(kinds.Secrets.Name) {
		s := obj.(*corev1.Secret)
		name, uid := s.Annotations[corev1.ServiceAccountNameKey], s.Annotations[corev1.ServiceAccountUIDKey]
		account := w.api.Get(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: s.Namespace, Name: name})
		switch {
		case s.Type == impostor && (s.DeletionTimestamp != nil || len(s.Data) > 0 || uid != ""):
			return fmt.Errorf("the Secret %s is no token, and was not left alone", s.Name)
		case s.Type == impostor:
		case account == nil || uid != string(account.GetUID()):
			return fmt.Errorf("the token %s outlived its account %s (%s)", s.Name, name, uid)
		case string(s.Data[corev1.ServiceAccountTokenKey]) != string(tokenOf(s.Namespace, name, uid, s.Name)):
			return fmt.Errorf("the token %s holds %q", s.Name, s.Data)
		}
	}
	for _, obj := range w.api.List(kinds.ServiceAccounts.Name) {
		for _, listed := range obj.(*corev1.ServiceAccount).Secrets {
			if w.api.Get(events.Ref{Kind: kinds.Secrets.Name, Namespace: obj.GetNamespace(), Name: listed.Name}) != nil {
				continue
			}
			if w.options.Faults > 0 {
				w.guard.spare(listedTokens)
			} else {
				return fmt.Errorf("the account %s lists %s, which is gone", obj.GetName(), listed.Name)
			}
		}
	}
	return nil
}
