package access

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Joins is what administrators do with bootstrap tokens, and with the signed cluster-info that
// joining nodes trust. In the last minutes they create no tokens any more, so that all others
// have expired.
var Joins = []cluster.Operation{
	NewClusterInfo, NewClusterInfo, changeClusterInfo, forgeSignature, joinToken, joinToken, joinToken, prolong, prolong, DropJoinToken, otherSecret, cluster.WaitLong, cluster.WaitLong,
}

var clusterInfo = events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: metav1.NamespacePublic, Name: query.ClusterInfo}

// NewClusterInfo creates the signed ConfigMap cluster-info.
func NewClusterInfo(w *cluster.Cluster) {
	if w.API.Get(clusterInfo) == nil {
		w.Note("administrator: create %v", clusterInfo)
		w.Create(clusterInfo, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: clusterInfo.Namespace, Name: clusterInfo.Name},
			Data: map[string]string{"kubeconfig": "v0"},
		})
	}
}

// changeInfo changes the data of the signed ConfigMap.
func changeInfo(w *cluster.Cluster, what string, change func(data map[string]string)) {
	if w.API.Get(clusterInfo) == nil {
		return
	}
	w.Note("%s", what)
	w.API.Change(clusterInfo, func(obj metav1.Object) {
		next := maps.Clone(obj.(*corev1.ConfigMap).Data)
		change(next)
		obj.(*corev1.ConfigMap).Data = next
	})
}

func changeClusterInfo(w *cluster.Cluster) {
	text := fmt.Sprint("v", w.Roll(3))
	changeInfo(w, "administrator: cluster-info says "+text, func(data map[string]string) { data["kubeconfig"] = text })
}

func forgeSignature(w *cluster.Cluster) {
	name := apiserver.Signature + tokenID(w.Roll(3))
	changeInfo(w, "foreign: another "+name, func(data map[string]string) { data[name] = "forged" })
}

func tokenID(n int) string { return fmt.Sprintf("token%d", n) }

// JoinTokenRef is the place of one of the bootstrap tokens.
func JoinTokenRef(w *cluster.Cluster) (ref events.Ref, id string) {
	id = tokenID(w.Roll(3))
	return events.Ref{Kind: kinds.Secrets.Name, Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id}, id
}

// joinToken creates a token, which expires in some minutes or never, and may be used for
// signing or not.
func joinToken(w *cluster.Cluster) {
	ref, id := JoinTokenRef(w)
	if w.API.Get(ref) != nil {
		return
	}
	signs, expires := w.Roll(3) > 0, []byte(nil)
	if w.Roll(3) > 0 {
		expires = expiresAt(w)
	}
	Token(w, ref, id, signs, expires)
}

// Token creates a bootstrap token.
func Token(w *cluster.Cluster, ref events.Ref, id string, signs bool, expires []byte) {
	s := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: query.BootstrapToken, ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": fmt.Appendf(nil, "secret%d", w.Counts.Steps)},
	}
	if signs {
		s.Data["usage-bootstrap-signing"] = []byte("true")
	}
	if expires != nil {
		s.Data["expiration"] = expires
	}
	w.Note("administrator: %s expires %q", ref.Name, expires)
	w.Create(ref, s)
}

// expiresAt is a time in the next minutes, within the horizon of a world.
func expiresAt(w *cluster.Cluster) []byte {
	return []byte(w.Now.Add(time.Duration(1+w.Roll(240)) * time.Second).UTC().Format(time.RFC3339))
}

// prolong changes the expiry of a token, or removes it.
func prolong(w *cluster.Cluster) {
	ref, _ := JoinTokenRef(w)
	if w.API.Get(ref) == nil {
		return
	}
	at := expiresAt(w)
	if w.Roll(3) == 0 {
		at = nil
	}
	w.Note("administrator: %s expires %q", ref.Name, at)
	w.API.Change(ref, func(obj metav1.Object) {
		s := obj.(*corev1.Secret)
		s.Data = maps.Clone(s.Data)
		if delete(s.Data, "expiration"); at != nil {
			s.Data["expiration"] = at
		}
	})
}

// DropJoinToken deletes a bootstrap token.
func DropJoinToken(w *cluster.Cluster) {
	if ref, _ := JoinTokenRef(w); w.API.Get(ref) != nil {
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// otherSecret creates a Secret with an expiry that is not a token.
func otherSecret(w *cluster.Cluster) {
	ref := events.Ref{Kind: kinds.Secrets.Name, Namespace: metav1.NamespaceSystem, Name: "other"}
	if w.API.Get(ref) == nil {
		w.Note("user: create %v", ref)
		w.Create(ref, &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: corev1.SecretTypeOpaque, ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
			Data: map[string][]byte{"expiration": []byte(w.Now.UTC().Format(time.RFC3339))},
		})
	}
}

// ExpiresNow checks a Secret that is about to be deleted as a token: it has expired (A7).
func ExpiresNow(g *cluster.Guard, c *cluster.Taken, s *corev1.Secret) {
	switch {
	case query.ExpiryOf(s).Passed(g.World.Now):
	case s.Type == query.BootstrapToken && g.Passed(c.Turn, time.Hour):
		g.Spare(cluster.ClockAhead)
	default:
		g.Breaks("A7", "%s is deleted, and expires %q", s.Name, s.Data["expiration"])
	}
}

// Joinable reports whether no expired token is left, and cluster-info has the signatures of the
// signing tokens and no others.
func Joinable(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.Secrets.Name) {
		if w.Runs("token-cleaner-controller") && query.ExpiryOf(obj.(*corev1.Secret)).Passed(w.Now) {
			return fmt.Errorf("%s has expired, and is still there", obj.GetName())
		}
	}
	if info, ok := w.API.Get(clusterInfo).(*corev1.ConfigMap); ok && w.Runs("bootstrap-signer-controller") {
		if want, _ := w.API.Resigned(info.Data, w.Now); !maps.Equal(want, info.Data) {
			return fmt.Errorf("cluster-info has %v, and should have %v", info.Data, want)
		}
	}
	return nil
}
