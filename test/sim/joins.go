package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// Joins is what administrators do with bootstrap tokens, and with the signed cluster-info that
// joining nodes trust. In the last minutes they create no tokens any more, so that all others
// have expired.
var Joins = []Operation{
	newClusterInfo, newClusterInfo, changeClusterInfo, forgeSignature, joinToken, joinToken, joinToken, prolong, prolong, dropJoinToken, otherSecret, waitLong, waitLong,
}

const signature = "jws-kubeconfig-"

var clusterInfo = events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: metav1.NamespacePublic, Name: query.ClusterInfo}

func newClusterInfo(w *World) {
	if w.api.Get(clusterInfo) == nil {
		w.note("administrator: create %v", clusterInfo)
		w.create(clusterInfo, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: clusterInfo.Namespace, Name: clusterInfo.Name},
			Data: map[string]string{"kubeconfig": "v0"},
		})
	}
}

// changeInfo changes the data of the signed ConfigMap.
func (w *World) changeInfo(what string, change func(data map[string]string)) {
	if w.api.Get(clusterInfo) == nil {
		return
	}
	w.note("%s", what)
	w.api.Change(clusterInfo, func(obj metav1.Object) {
		next := maps.Clone(obj.(*corev1.ConfigMap).Data)
		change(next)
		obj.(*corev1.ConfigMap).Data = next
	})
}

func changeClusterInfo(w *World) {
	text := fmt.Sprint("v", w.roll(3))
	w.changeInfo("administrator: cluster-info says "+text, func(data map[string]string) { data["kubeconfig"] = text })
}

func forgeSignature(w *World) {
	name := signature + tokenID(w.roll(3))
	w.changeInfo("foreign: another "+name, func(data map[string]string) { data[name] = "forged" })
}

func tokenID(n int) string { return fmt.Sprintf("token%d", n) }

func joinTokenRef(w *World) (ref events.Ref, id string) {
	id = tokenID(w.roll(3))
	return events.Ref{Kind: kinds.Secrets.Name, Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, id
}

// joinToken creates a token, which expires in some minutes or never, and may be used for
// signing or not.
func joinToken(w *World) {
	ref, id := joinTokenRef(w)
	if w.api.Get(ref) != nil {
		return
	}
	signs, expires := w.roll(3) > 0, []byte(nil)
	if w.roll(3) > 0 {
		expires = w.expiresAt()
	}
	w.token(ref, id, signs, expires)
}

func (w *World) token(ref events.Ref, id string, signs bool, expires []byte) {
	s := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: query.BootstrapToken, ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": fmt.Appendf(nil, "secret%d", w.tally.Steps)},
	}
	if signs {
		s.Data["usage-bootstrap-signing"] = []byte("true")
	}
	if expires != nil {
		s.Data["expiration"] = expires
	}
	w.note("administrator: %s expires %q", ref.Name, expires)
	w.create(ref, s)
}

// expiresAt is a time in the next minutes, within the horizon of a world.
func (w *World) expiresAt() []byte {
	return []byte(w.now.Add(time.Duration(1+w.roll(240)) * time.Second).UTC().Format(time.RFC3339))
}

// prolong changes the expiry of a token, or removes it.
func prolong(w *World) {
	ref, _ := joinTokenRef(w)
	if w.api.Get(ref) == nil {
		return
	}
	at := w.expiresAt()
	if w.roll(3) == 0 {
		at = nil
	}
	w.note("administrator: %s expires %q", ref.Name, at)
	w.api.Change(ref, func(obj metav1.Object) {
		s := obj.(*corev1.Secret)
		s.Data = maps.Clone(s.Data)
		if delete(s.Data, "expiration"); at != nil {
			s.Data["expiration"] = at
		}
	})
}

func dropJoinToken(w *World) {
	if ref, _ := joinTokenRef(w); w.api.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// otherSecret creates a Secret with an expiry that is not a token.
func otherSecret(w *World) {
	ref := events.Ref{Kind: kinds.Secrets.Name, Namespace: metav1.NamespaceSystem, Name: "other"}
	if w.api.Get(ref) == nil {
		w.note("user: create %v", ref)
		w.create(ref, &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: corev1.SecretTypeOpaque, ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
			Data: map[string][]byte{"expiration": []byte(w.now.UTC().Format(time.RFC3339))},
		})
	}
}

func waitLong(w *World) { w.lull = w.now.Add(time.Duration(30+w.roll(240)) * time.Second) }

// resigned is the right content of cluster-info at a time, and the report about it.
func (a *API) resigned(data map[string]string, now time.Time) (next map[string]string, told query.Signatures) {
	next = maps.Clone(data)
	maps.DeleteFunc(next, func(key, _ string) bool { return strings.HasPrefix(key, signature) })
	for _, obj := range a.List(kinds.Secrets.Name) {
		id, key, may := query.SignerOf(obj.(*corev1.Secret), now)
		if !may {
			continue
		}
		next[signature+id] = data["kubeconfig"] + " by " + key
		told.By = append(told.By, obj.GetName())
		if at := query.ExpiryOf(obj.(*corev1.Secret)).At; at != nil && (told.Until == nil || at.Before(*told.Until)) {
			told.Until = at
		}
	}
	return next, told
}

// sign is the writer's operation on cluster-info.
func (a *API) sign(c *collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	if _, refused := wantedOf(r.Body, old); refused != nil {
		return *refused
	}
	next := clone(old).(*corev1.ConfigMap)
	data, told := a.resigned(next.Data, a.now())
	next.Data = data
	response := answer(a.store(c, ref, old, next))
	response.Body, _ = json.Marshal(told) // it has a form that JSON knows
	return response
}

// expiresNow checks a Secret that is about to be deleted as a token: it has expired (A7).
func (g *guard) expiresNow(c *carrying, s *corev1.Secret) {
	switch {
	case query.ExpiryOf(s).Passed(g.world.now):
	case s.Type == query.BootstrapToken && g.passed(c.turn, time.Hour):
		g.spare(clockAhead)
	default:
		g.breaks("A7", "%s is deleted, and expires %q", s.Name, s.Data["expiration"])
	}
}

// joinable reports whether no expired token is left, and cluster-info has the signatures of the
// signing tokens and no others.
func (w *World) joinable() error {
	for _, obj := range w.api.List(kinds.Secrets.Name) {
		if w.runs("token-cleaner-controller") && query.ExpiryOf(obj.(*corev1.Secret)).Passed(w.now) {
			return fmt.Errorf("%s has expired, and is still there", obj.GetName())
		}
	}
	if info, ok := w.api.Get(clusterInfo).(*corev1.ConfigMap); ok && w.runs("bootstrap-signer-controller") {
		if want, _ := w.api.resigned(info.Data, w.now); !maps.Equal(want, info.Data) {
			return fmt.Errorf("cluster-info has %v, and should have %v", info.Data, want)
		}
	}
	return nil
}
