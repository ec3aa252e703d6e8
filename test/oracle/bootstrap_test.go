package oracle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle"
)

var bootstrapKey = events.Key{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}

func TestTokensAreCleanedAsUpstreams(t *testing.T) {
	agree(t, oracle.TokenCleaner, bootstrapKey, bootstrapWorld)
}

// Both delete the same tokens in an hour, at the same second.
func TestTokensGoWhenUpstreamsDo(t *testing.T) {
	t.Parallel()
	gone := 0
	rapid.Check(t, func(r *rapid.T) {
		var world []runtime.Object
		for i := range rapid.IntRange(1, 4).Draw(r, "tokens") {
			secret := bootstrapToken(r, fmt.Sprint("bootstrap-token-", i))
			secret.DeletionTimestamp, secret.Finalizers = nil, nil
			world = append(world, secret)
		}
		theirs, err := oracle.CleanedByThem(t, world, time.Hour)
		if err != nil {
			r.Fatal(err)
		}
		gone += len(theirs)
		if ours := oracle.CleanedByUs(world, time.Hour); !slices.Equal(theirs, ours) {
			r.Fatalf("upstream deletes %v, and ours %v of\n%s", theirs, ours, page(r, world))
		}
	})
	if gone == 0 {
		t.Error("upstream deletes nothing: the worlds are too dull")
	}
}

// bootstrapWorld is one Secret, which mostly is a token.
func bootstrapWorld(t *rapid.T) []runtime.Object {
	return []runtime.Object{bootstrapToken(t, bootstrapKey.Name)}
}

// bootstrapToken is a Secret in kube-system that looks like a token.
func bootstrapToken(t *rapid.T, name string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "10"}}
	s.Type = rapid.SampledFrom([]corev1.SecretType{events.BootstrapToken, events.BootstrapToken, events.BootstrapToken, corev1.SecretTypeOpaque, ""}).Draw(t, "type")
	in := time.Duration(rapid.SampledFrom([]int{-3600, -1, 0, 1, 60, 1800, 3599, 3601, 864000}).Draw(t, "seconds left")) * time.Second
	at := oracle.Now.Add(in).In(rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", 3600), time.FixedZone("", -5400)}).Draw(t, "zone"))
	said := rapid.SampledFrom([]string{at.Format(time.RFC3339), at.Format(time.RFC3339), at.Format(time.RFC3339), at.Format(time.RFC3339Nano), "", "tomorrow", at.Format(time.DateTime), "none"}).Draw(t, "expiration")
	s.Data = map[string][]byte{"token-secret": []byte("0123456789abcdef")}
	if said != "none" {
		s.Data["expiration"] = []byte(said)
	}
	if rapid.IntRange(0, 7).Draw(t, "held") == 7 {
		s.Finalizers, s.DeletionTimestamp = []string{"example.com/held"}, ptr(before(oracle.Now, 1))
	}
	return s
}
