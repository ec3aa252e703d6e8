package access_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

var bootstrapKey = events.Key{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}

func TestTokensAreCleanedAsUpstreams(t *testing.T) {
	oracletest.Agree(t, access.TokenCleaner, bootstrapKey, bootstrapWorld)
}

// Both delete the same tokens within an hour, in the same second.
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
		theirs, err := access.CleanedByThem(t, world, time.Hour)
		if err != nil {
			r.Fatal(err)
		}
		gone += len(theirs)
		if ours := access.CleanedByUs(world, time.Hour); !slices.Equal(theirs, ours) {
			r.Fatalf("upstream deletes %v, and ours %v of\n%s", theirs, ours, oracletest.Page(r, world))
		}
	})
	if gone == 0 {
		t.Error("upstream deletes nothing: the worlds are too dull")
	}
}

// bootstrapWorld has one Secret, which mostly is a token.
func bootstrapWorld(t *rapid.T) []runtime.Object {
	return []runtime.Object{bootstrapToken(t, bootstrapKey.Name)}
}

// bootstrapToken is a Secret in kube-system that looks like a token.
func bootstrapToken(t *rapid.T, name string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "10"}}
	s.Type = rapid.SampledFrom([]corev1.SecretType{query.BootstrapToken, query.BootstrapToken, query.BootstrapToken, corev1.SecretTypeOpaque, ""}).Draw(t, "type")
	in := time.Duration(rapid.SampledFrom([]int{-3600, -1, 0, 1, 60, 1800, 3599, 3601, 864000}).Draw(t, "seconds left")) * time.Second
	at := objects.Now.Add(in).In(rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", 3600), time.FixedZone("", -5400)}).Draw(t, "zone"))
	said := rapid.SampledFrom([]string{at.Format(time.RFC3339), at.Format(time.RFC3339), at.Format(time.RFC3339), at.Format(time.RFC3339Nano), "", "tomorrow", at.Format(time.DateTime), "none"}).Draw(t, "expiration")
	s.Data = map[string][]byte{"token-secret": []byte("0123456789abcdef")}
	if said != "none" {
		s.Data["expiration"] = []byte(said)
	}
	if rapid.IntRange(0, 7).Draw(t, "held") == 7 {
		s.Finalizers, s.DeletionTimestamp = []string{"example.com/held"}, oracletest.Ptr(oracletest.Before(objects.Now, 1))
	}
	return s
}

// Both give cluster-info the same signatures, byte for byte.
func TestClusterInfoIsSignedAsUpstreams(t *testing.T) {
	made, gone := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		world := signingWorld(r)
		before := world[0].(*corev1.ConfigMap).DeepCopy().Data
		theirs, err := access.SignedByThem(t, world)
		if err != nil {
			r.Fatal(err)
		}
		ours, err := access.SignedByUs(t, world)
		if err != nil {
			r.Fatal(err)
		}
		if !maps.Equal(theirs, ours) {
			r.Fatalf("upstream has it hold %v, and ours %v of\n%s", theirs, ours, oracletest.Page(r, world))
		}
		for key := range theirs {
			if _, there := before[key]; !there {
				made++
			}
		}
		for key := range before {
			if _, there := theirs[key]; !there {
				gone++
			}
		}
	})
	if made == 0 || gone == 0 {
		t.Errorf("upstream makes %d signatures and takes %d away: the worlds are too dull", made, gone)
	}
}

// signingWorld has cluster-info and some Secrets that look like signing tokens.
func signingWorld(t *rapid.T) []runtime.Object {
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: query.ClusterInfo, UID: "info", ResourceVersion: "10"}}
	info.Data = map[string]string{"mine": "x"}
	if rapid.IntRange(0, 7).Draw(t, "with content") > 0 {
		info.Data["kubeconfig"] = rapid.SampledFrom([]string{"apiVersion: v1\nkind: Config\n", "", "\u00fc <&>"}).Draw(t, "content")
	}
	ids := []string{"abcdef", "012345", "fedcba", "abcdefg", "ABCDEF"}
	for _, id := range ids {
		if rapid.IntRange(0, 3).Draw(t, "signed by "+id) == 0 {
			info.Data["jws-kubeconfig-"+id] = "a signature"
		}
	}
	world := []runtime.Object{info}
	for i, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 0, 4, rapid.ID[string]).Draw(t, "tokens") {
		secret := bootstrapToken(t, rapid.SampledFrom([]string{"bootstrap-token-", "bootstrap-token-", "bootstrap-token-", "token-"}).Draw(t, "prefix")+strings.ToLower(id))
		secret.Name = fmt.Sprint(secret.Name, map[bool]string{true: fmt.Sprint("-", i)}[id == "ABCDEF"]) // a name that no other Secret has
		secret.Data["token-id"] = []byte(rapid.SampledFrom([]string{id, id, id, id, "", "others"}).Draw(t, "id"))
		secret.Data["token-secret"] = []byte(rapid.SampledFrom([]string{"0123456789abcdef", "fedcba9876543210", ""}).Draw(t, "secret"))
		secret.Data["usage-bootstrap-signing"] = []byte(rapid.SampledFrom([]string{"true", "true", "true", "True", ""}).Draw(t, "usage"))
		world = append(world, secret)
	}
	return world
}

// TestRefusedTokensAreCleanedAsUpstreams: upstream does not retry the delete of a token until the token
// changes, so ours is compared with an upstream without refusals.
func TestRefusedTokensAreCleanedAsUpstreams(t *testing.T) {
	oracletest.RestAlike(t, access.TokensAtRest, bootstrapWorld, oracletest.Deletes)
}
