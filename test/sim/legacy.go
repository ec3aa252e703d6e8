package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// LegacyTokens is what happens day by day to tokens from before Kubernetes 1.24: they are used
// or not, pods name them, and a user may still need one. In the last days nothing happens to
// them any more.
var LegacyTokens = []Operation{
	track, inLastDays(legacyToken), inLastDays(legacyToken), inLastDays(legacyToken), inLastDays(useToken), inLastDays(needToken), inLastDays(deletePod),
	inLastDays(reviveToken), inLastDays(unlistToken), inLastDays(newAccount), passDay, passDay, passDay,
}

// Unused is after how long without a use a world marks a token as invalid, and how long after
// that the token is deleted.
const Unused = 24 * time.Hour

const (
	usedOn    = "kubernetes.io/legacy-token-last-used"
	invalidOn = "kubernetes.io/legacy-token-invalid-since"
	aDay      = 24 * time.Hour
	// lastDays is the number of days that pass at the end.
	lastDays = 6
)

var tracked = events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-legacy-service-account-token-tracking"}

// inLastDays lets a day pass instead, once few operations are left.
func inLastDays(do Operation) Operation {
	return func(w *World) {
		if w.changes < lastDays {
			passDay(w)
			return
		}
		do(w)
	}
}

// passDay lets a day pass in which no process acts. The last days suffice for all remaining
// work.
func passDay(w *World) {
	w.note("a day passes")
	if w.advance(w.now.Add(aDay)); w.changes < lastDays {
		w.lull = w.now.Add(time.Second)
	}
}

// track has the API server record since when it tracks the use of tokens.
func track(w *World) {
	if w.api.Get(tracked) == nil {
		w.create(tracked, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: tracked.Namespace, Name: tracked.Name}, Data: map[string]string{"since": w.today()},
		})
	}
	passDay(w)
}

func (w *World) today() string { return w.now.UTC().Format(time.DateOnly) }

// legacyToken creates a token, or another Secret, that a service account lists.
func legacyToken(w *World) {
	of, _ := w.someAccount()
	account := w.api.Get(of)
	name, kind := fmt.Sprint("token", w.roll(3)), corev1.SecretTypeServiceAccountToken
	if w.roll(3) == 0 {
		name, kind = "password", impostor
	}
	ref := events.Ref{Kind: kinds.Secrets.Name, Namespace: namespace, Name: name}
	if w.api.Get(ref) == nil {
		w.note("user: create %v of %s", ref, of.Name)
		s := secret(of.Name, name, kind)
		s.Annotations[corev1.ServiceAccountUIDKey] = string(account.GetUID())
		w.create(ref, s)
	}
	w.api.Change(of, func(obj metav1.Object) {
		if a, entry := obj.(*corev1.ServiceAccount), (corev1.ObjectReference{Name: name}); !slices.Contains(a.Secrets, entry) {
			a.Secrets = append(a.Secrets, entry)
		}
	})
}

// anySecret is an existing Secret.
func (w *World) anySecret() *corev1.Secret {
	all := w.api.List(kinds.Secrets.Name)
	if len(all) == 0 {
		return nil
	}
	return all[w.roll(len(all))].(*corev1.Secret)
}

func (w *World) relabel(s *corev1.Secret, change func(labels map[string]string)) {
	w.api.Change(refOf(kinds.Secrets.Name, s), func(obj metav1.Object) {
		next := map[string]string{}
		for key, value := range obj.GetLabels() {
			next[key] = value
		}
		change(next)
		obj.SetLabels(next)
	})
}

// useToken has a user use a token, which the API server records; an invalid one cannot be used.
func useToken(w *World) {
	if s := w.anySecret(); s != nil && s.Type != impostor && s.Labels[invalidOn] == "" {
		w.note("user: use %s", s.Name)
		w.relabel(s, func(labels map[string]string) { labels[usedOn] = w.today() })
	}
}

// reviveToken has a user make an invalid token valid again, and use it.
func reviveToken(w *World) {
	if s := w.anySecret(); s != nil && s.Labels[invalidOn] != "" {
		w.note("user: %s is still needed", s.Name)
		w.relabel(s, func(labels map[string]string) { delete(labels, invalidOn); labels[usedOn] = w.today() })
	}
}

// needToken creates a pod that uses a Secret.
func needToken(w *World) {
	s := w.anySecret()
	if s == nil {
		return
	}
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: fmt.Sprint("user", w.roll(3))}
	w.note("user: create %v with %s", ref, s.Name)
	w.create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s.Name}}}}},
	})
}

// unlistToken removes a Secret from the lists of service accounts.
func unlistToken(w *World) {
	s := w.anySecret()
	if s == nil {
		return
	}
	w.note("user: %s is on no list any more", s.Name)
	for _, obj := range w.api.List(kinds.ServiceAccounts.Name) {
		w.api.Change(refOf(kinds.ServiceAccounts.Name, obj), func(obj metav1.Object) {
			a := obj.(*corev1.ServiceAccount)
			a.Secrets = slices.DeleteFunc(slices.Clone(a.Secrets), func(r corev1.ObjectReference) bool { return r.Name == s.Name })
		})
	}
}

// over reports whether a period without use that began on a day is over.
func over(day string, now time.Time) bool {
	from, err := time.Parse(time.DateOnly, day)
	return err == nil && !now.Before(from.Add(aDay+Unused))
}

// unused reports whether a token has not been used for long enough.
func (w *World) unused(s *corev1.Secret) bool {
	noted, ok := w.api.Get(tracked).(*corev1.ConfigMap)
	used, ever := s.Labels[usedOn]
	return ok && over(noted.Data["since"], w.now) && !w.now.Before(s.CreationTimestamp.Add(Unused)) && (!ever || over(used, w.now))
}

// cleaned checks a change of a Secret by the cleaner: it leaves Secrets alone that are no
// tokens, and changes a token only when its time has come.
func (g *guard) cleaned(old, now metav1.Object) {
	was, ok := old.(*corev1.Secret)
	if !ok || g.restoring || !g.world.runs("legacy-serviceaccount-token-cleaner-controller") {
		return
	}
	next, there := now.(*corev1.Secret)
	declared := there && was.Labels[invalidOn] == "" && next.Labels[invalidOn] != ""
	switch {
	case was.Type == impostor && (!there || declared):
		g.breaks("A5", "%s is no token, and is not left alone", was.Name)
	case declared && !g.world.unused(was):
		g.breaks("A5", "%s is declared invalid, and was used: %v", was.Name, was.Labels)
	case !there && !over(was.Labels[invalidOn], g.world.now):
		g.breaks("A5", "%s goes, and was not invalid for long enough: %v", was.Name, was.Labels)
	}
}

// tokensGone reports whether every old token is as its age demands.
func (w *World) tokensGone() error {
	if !w.runs("legacy-serviceaccount-token-cleaner-controller") {
		return nil
	}
	for _, obj := range w.api.List(kinds.Secrets.Name) {
		s := obj.(*corev1.Secret)
		account, _ := w.api.Get(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: s.Namespace, Name: s.Annotations[corev1.ServiceAccountNameKey]}).(*corev1.ServiceAccount)
		listed := account != nil && slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == s.Name })
		needed := slices.ContainsFunc(w.api.List(kinds.Pods.Name), func(obj metav1.Object) bool {
			return obj.(*corev1.Pod).Spec.Volumes[0].Secret.SecretName == s.Name
		})
		if s.Type == impostor || !listed || needed || !w.unused(s) {
			continue
		}
		if since := s.Labels[invalidOn]; since == "" || over(since, w.now) {
			return fmt.Errorf("the token %s was not used for long, and is still there: %v", s.Name, s.Labels)
		}
	}
	return nil
}
