package access

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// LegacyTokens is what happens day by day to tokens from before Kubernetes 1.24: they are used
// or not, pods name them, and a user may still need one. In the last days nothing happens to
// them any more.
var LegacyTokens = []cluster.Operation{
	track, inLastDays(legacyToken), inLastDays(legacyToken), inLastDays(legacyToken), inLastDays(useToken), inLastDays(needToken), inLastDays(cluster.DeletePod),
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
func inLastDays(do cluster.Operation) cluster.Operation {
	return func(w *cluster.Cluster) {
		if w.Changes < lastDays {
			passDay(w)
			return
		}
		do(w)
	}
}

// passDay lets a day pass in which no process acts. The last days suffice for all remaining
// work.
func passDay(w *cluster.Cluster) {
	w.Note("a day passes")
	if w.Advance(w.Now.Add(aDay)); w.Changes < lastDays {
		w.Lull = w.Now.Add(time.Second)
	}
}

// track has the API server record since when it tracks the use of tokens.
func track(w *cluster.Cluster) {
	if w.API.Get(tracked) == nil {
		w.Create(tracked, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: tracked.Namespace, Name: tracked.Name}, Data: map[string]string{"since": today(w)},
		})
	}
	passDay(w)
}

func today(w *cluster.Cluster) string { return w.Now.UTC().Format(time.DateOnly) }

// legacyToken creates a token, or another Secret, that a service account lists.
func legacyToken(w *cluster.Cluster) {
	of, _ := someAccount(w)
	account := w.API.Get(of)
	name, kind := fmt.Sprint("token", w.Roll(3)), corev1.SecretTypeServiceAccountToken
	if w.Roll(3) == 0 {
		name, kind = "password", impostor
	}
	ref := events.Ref{Kind: kinds.Secrets.Name, Namespace: cluster.Namespace, Name: name}
	if w.API.Get(ref) == nil {
		w.Note("user: create %v of %s", ref, of.Name)
		s := secret(of.Name, name, kind)
		s.Annotations[corev1.ServiceAccountUIDKey] = string(account.GetUID())
		w.Create(ref, s)
	}
	w.API.Change(of, func(obj metav1.Object) {
		if a, entry := obj.(*corev1.ServiceAccount), (corev1.ObjectReference{Name: name}); !slices.Contains(a.Secrets, entry) {
			a.Secrets = append(a.Secrets, entry)
		}
	})
}

// anySecret is an existing Secret.
func anySecret(w *cluster.Cluster) *corev1.Secret {
	all := w.API.List(kinds.Secrets.Name)
	if len(all) == 0 {
		return nil
	}
	return all[w.Roll(len(all))].(*corev1.Secret)
}

func relabel(w *cluster.Cluster, s *corev1.Secret, change func(labels map[string]string)) {
	w.API.Change(apiserver.RefOf(kinds.Secrets.Name, s), func(obj metav1.Object) {
		next := map[string]string{}
		for key, value := range obj.GetLabels() {
			next[key] = value
		}
		change(next)
		obj.SetLabels(next)
	})
}

// useToken has a user use a token, which the API server records; an invalid one cannot be used.
func useToken(w *cluster.Cluster) {
	if s := anySecret(w); s != nil && s.Type != impostor && s.Labels[invalidOn] == "" {
		w.Note("user: use %s", s.Name)
		relabel(w, s, func(labels map[string]string) { labels[usedOn] = today(w) })
	}
}

// reviveToken has a user make an invalid token valid again, and use it.
func reviveToken(w *cluster.Cluster) {
	if s := anySecret(w); s != nil && s.Labels[invalidOn] != "" {
		w.Note("user: %s is still needed", s.Name)
		relabel(w, s, func(labels map[string]string) { delete(labels, invalidOn); labels[usedOn] = today(w) })
	}
}

// needToken creates a pod that uses a Secret.
func needToken(w *cluster.Cluster) {
	s := anySecret(w)
	if s == nil {
		return
	}
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: fmt.Sprint("user", w.Roll(3))}
	w.Note("user: create %v with %s", ref, s.Name)
	w.Create(ref, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: s.Name}}}}},
	})
}

// unlistToken removes a Secret from the lists of service accounts.
func unlistToken(w *cluster.Cluster) {
	s := anySecret(w)
	if s == nil {
		return
	}
	w.Note("user: %s is on no list any more", s.Name)
	for _, obj := range w.API.List(kinds.ServiceAccounts.Name) {
		w.API.Change(apiserver.RefOf(kinds.ServiceAccounts.Name, obj), func(obj metav1.Object) {
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
func unused(w *cluster.Cluster, s *corev1.Secret) bool {
	noted, ok := w.API.Get(tracked).(*corev1.ConfigMap)
	used, ever := s.Labels[usedOn]
	return ok && over(noted.Data["since"], w.Now) && !w.Now.Before(s.CreationTimestamp.Add(Unused)) && (!ever || over(used, w.Now))
}

// Cleaned checks a change of a Secret by the cleaner: it leaves Secrets alone that are no
// tokens, and changes a token only when its time has come.
func Cleaned(g *cluster.Guard, old, now metav1.Object) {
	was, ok := old.(*corev1.Secret)
	if !ok || g.Record.Restoring || !g.World.Runs("legacy-serviceaccount-token-cleaner-controller") {
		return
	}
	next, there := now.(*corev1.Secret)
	declared := there && was.Labels[invalidOn] == "" && next.Labels[invalidOn] != ""
	switch {
	case was.Type == impostor && (!there || declared):
		g.Breaks("A5", "%s is no token, and is not left alone", was.Name)
	case declared && !unused(g.World, was):
		g.Breaks("A5", "%s is declared invalid, and was used: %v", was.Name, was.Labels)
	case !there && !over(was.Labels[invalidOn], g.World.Now):
		g.Breaks("A5", "%s goes, and was not invalid for long enough: %v", was.Name, was.Labels)
	}
}

// TokensGone reports whether every old token is as its age demands.
func TokensGone(w *cluster.Cluster) error {
	if !w.Runs("legacy-serviceaccount-token-cleaner-controller") {
		return nil
	}
	for _, obj := range w.API.List(kinds.Secrets.Name) {
		s := obj.(*corev1.Secret)
		account, _ := w.API.Get(events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: s.Namespace, Name: s.Annotations[corev1.ServiceAccountNameKey]}).(*corev1.ServiceAccount)
		listed := account != nil && slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == s.Name })
		needed := slices.ContainsFunc(w.API.List(kinds.Pods.Name), func(obj metav1.Object) bool {
			return obj.(*corev1.Pod).Spec.Volumes[0].Secret.SecretName == s.Name
		})
		if s.Type == impostor || !listed || needed || !unused(w, s) {
			continue
		}
		if since := s.Labels[invalidOn]; since == "" || over(since, w.Now) {
			return fmt.Errorf("the token %s was not used for long, and is still there: %v", s.Name, s.Labels)
		}
	}
	return nil
}
