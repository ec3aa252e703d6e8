package serviceaccounttoken

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var controller = New(Config{RootCA: []byte("a certificate"), Tokens: true})

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), reconciletest.Now, reconciletest.Content(2, carriedOut))
}

func anyView(t *rapid.T) View {
	if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
		return View{Gone: "key", Lists: rapid.SliceOfN(rapid.Custom(anyAccount), 1, 3).Draw(t, "lists")}
	}
	v := View{
		Secret: token("key", rapid.SampledFrom([]types.UID{"", "b"}).Draw(t, "of")), Root: "5a",
		Account: rapid.SampledFrom([]types.UID{"", "b"}).Draw(t, "account"),
		Filled:  rapid.Bool().Draw(t, "filled"), Unfit: rapid.Bool().Draw(t, "unfit"), Other: rapid.IntRange(0, 4).Draw(t, "other") == 4,
	}
	if rapid.IntRange(0, 4).Draw(t, "before") == 4 {
		v.Gone, v.Lists = "key", []*corev1.ServiceAccount{anyAccount(t)}
	}
	if rapid.IntRange(0, 4).Draw(t, "deleted") == 4 {
		reconciletest.Deleted[*metav1.PartialObjectMetadata](reconciletest.Now)(v.Secret)
	}
	return v
}

func anyAccount(t *rapid.T) *corev1.ServiceAccount {
	a := account("builder", "b", rapid.SliceOfN(rapid.SampledFrom([]string{"key", "pull", "other"}), 0, 3).Draw(t, "before")...)
	a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: "key"})
	return a
}

func account(name string, uid types.UID, secrets ...string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: uid, ResourceVersion: "3"}}
	for _, s := range secrets {
		a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: s})
	}
	return a
}

// token returns a token of the account "builder", with the account's uid unless that is "".
func token(name string, uid types.UID) *metav1.PartialObjectMetadata {
	s := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: reconciletest.Namespace, Name: name, UID: "4f1c", ResourceVersion: "7",
		Annotations: map[string]string{corev1.ServiceAccountNameKey: "builder"},
	}}
	if uid != "" {
		s.Annotations[corev1.ServiceAccountUIDKey] = string(uid)
	}
	return s
}

// carriedOut fills the token, deletes it, or removes it from the lists.
func carriedOut(v View, d reconcile.Decision, at time.Time) View {
	for _, c := range d.Commands {
		switch {
		case c.FillsToken():
			v.Filled = true
		case c.Verb == events.VerbDelete:
			v.Secret = v.Secret.DeepCopy()
			reconciletest.Deleted[*metav1.PartialObjectMetadata](at)(v.Secret)
		case v.Secret == nil: // a deleted token has no further turn
			v = View{Secret: token("key", "b"), Account: "b", Filled: true}
		case len(v.Lists) > 0: // and filled in a moment later
			v = View{Secret: v.Secret, Account: "b", Filled: true}
		}
	}
	return v
}
