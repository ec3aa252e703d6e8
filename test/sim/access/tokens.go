package access

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Tokens is what users do with service accounts and their tokens in Secrets.
var Tokens = []cluster.Operation{
	newAccount, newAccount, newAccount, dropAccount, newToken, newToken, newToken, emptyToken, dropToken, dropToken, listToken, listToken, newImpostor,
}

// impostor is the type of Secrets that have the annotation of a token without being one. Users
// leave them alone; a finalizer holds them, so that a wrong delete would show.
const impostor = "example.com/password"

func someAccount(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.ServiceAccounts.Kind, "account", func(name string) any {
		return &corev1.ServiceAccount{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
		}
	})
}

func newAccount(w *cluster.Cluster) { someAccount(w) }

func dropAccount(w *cluster.Cluster) {
	if ref, there := someAccount(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// secret is a Secret that claims to be the token of a service account.
func secret(of, name string, kind corev1.SecretType, finalizers ...string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: kind,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: name, Finalizers: finalizers,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: of},
		},
	}
}

func someToken(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.Secrets.Kind, "token", func(name string) any {
		return secret(fmt.Sprint("account", w.Roll(2)), name, corev1.SecretTypeServiceAccountToken)
	})
}

func newToken(w *cluster.Cluster) { someToken(w) }

func newImpostor(w *cluster.Cluster) {
	w.SomeOf(kinds.Secrets.Kind, "password", func(name string) any {
		return secret(fmt.Sprint("account", w.Roll(2)), name, impostor, "example.com/kept")
	})
}

// filledToken is a token with its data. The account of a token that is deleted before it has
// them is unknown.
func filledToken(w *cluster.Cluster) (events.Ref, *corev1.Secret, bool) {
	ref, there := someToken(w)
	token, _ := w.API.Get(ref).(*corev1.Secret)
	return ref, token, there && len(token.Data[corev1.ServiceAccountTokenKey]) > 0
}

func emptyToken(w *cluster.Cluster) {
	if ref, _, there := filledToken(w); there {
		w.Note("user: empty %v", ref)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*corev1.Secret).Data = nil })
	}
}

func dropToken(w *cluster.Cluster) {
	if ref, _, there := filledToken(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// listToken puts a token on its account's list.
func listToken(w *cluster.Cluster) {
	ref, token, there := filledToken(w)
	if !there {
		return
	}
	account := events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: cluster.Namespace, Name: token.Annotations[corev1.ServiceAccountNameKey]}
	if now := w.API.Get(account); now == nil || string(now.GetUID()) != token.Annotations[corev1.ServiceAccountUIDKey] {
		return // it belongs to an earlier account, whose list is gone
	}
	w.Note("user: %v is on the list of %v", ref, account)
	w.API.Change(account, func(obj metav1.Object) {
		a, entry := obj.(*corev1.ServiceAccount), corev1.ObjectReference{Name: ref.Name}
		if !slices.Contains(a.Secrets, entry) {
			a.Secrets = append(a.Secrets, entry)
		}
	})
}

// Tokened reports whether each token belongs to its account, and none lacks one; whether Secrets
// that are no tokens were left alone; and, in a world without faults that make a process
// forget, whether no account lists a deleted token.
func Tokened(w *cluster.Cluster) error {
	if !w.Runs("serviceaccount-token-controller") {
		return nil
	}
	for _, obj := range w.API.List(kinds.Secrets.Name) {
		s := obj.(*corev1.Secret)
		name, uid := s.Annotations[corev1.ServiceAccountNameKey], s.Annotations[corev1.ServiceAccountUIDKey]
		account := w.API.Get(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: s.Namespace, Name: name})
		switch {
		case s.Type == impostor && (s.DeletionTimestamp != nil || len(s.Data) > 0 || uid != ""):
			return fmt.Errorf("the Secret %s is no token, and was not left alone", s.Name)
		case s.Type == impostor:
		case account == nil || uid != string(account.GetUID()):
			return fmt.Errorf("the token %s outlived its account %s (%s)", s.Name, name, uid)
		case string(s.Data[corev1.ServiceAccountTokenKey]) != string(apiserver.TokenOf(s.Namespace, name, uid, s.Name)):
			return fmt.Errorf("the token %s holds %q", s.Name, s.Data)
		}
	}
	for _, obj := range w.API.List(kinds.ServiceAccounts.Name) {
		for _, listed := range obj.(*corev1.ServiceAccount).Secrets {
			if w.API.Get(events.Ref{Kind: kinds.Secrets.Name, Namespace: obj.GetNamespace(), Name: listed.Name}) != nil {
				continue
			}
			if w.Settings.Faults > 0 {
				w.Guard.Spare(cluster.ListedTokens)
			} else {
				return fmt.Errorf("the account %s lists %s, which is gone", obj.GetName(), listed.Name)
			}
		}
	}
	return nil
}

// TokenJudged judges tokens: one is deleted only when its account does not exist.
func TokenJudged(l *cluster.Look, f cluster.Findings) {
	gone := l.Deletes(kinds.Secrets.Name)
	for _, obj := range l.List(kinds.Secrets.Name) {
		notes := obj.GetAnnotations()
		for _, account := range l.List(kinds.ServiceAccounts.Name) {
			named := account.GetNamespace() == obj.GetNamespace() && account.GetName() == notes[corev1.ServiceAccountNameKey]
			uid := notes[corev1.ServiceAccountUIDKey]
			if gone[obj.GetUID()] && named && (uid == "" || uid == string(account.GetUID())) {
				f.Breaks("I4", "deletes the token %s, whose account %s is there", obj.GetName(), account.GetName())
			}
		}
	}
}
