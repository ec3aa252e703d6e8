package access_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestTokensAreMintedAsUpstreamsAre(t *testing.T) {
	filled, deleted, forgotten := 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		world, gone := mintedWorld(r)
		theirs, err := access.MintedByThem(t, world, gone)
		if err != nil {
			r.Fatal(err)
		}
		if ours := access.MintedByUs(world, gone); !slices.Equal(theirs, ours) {
			r.Fatalf("gone are %v: upstream's ends as\n%s\nours as\n%s\n%s", gone, strings.Join(theirs, "\n"), strings.Join(ours, "\n"), oracletest.Page(r, world))
		}
		for _, text := range theirs {
			if strings.Contains(text, "token=system:serviceaccount") {
				filled++
			}
		}
		if slices.ContainsFunc(theirs, func(text string) bool { return strings.HasPrefix(text, "delete ") }) {
			deleted++
		}
		for _, obj := range world {
			if a, ok := obj.(*corev1.ServiceAccount); ok && !slices.Contains(theirs, access.TextOfAccount(a)) {
				forgotten++
			}
		}
	})
	if filled == 0 || deleted == 0 || forgotten == 0 {
		t.Errorf("upstream filled %d, deleted in %d worlds, and forgot %d: the worlds are too dull", filled, deleted, forgotten)
	}
}

// mintedWorld has some Secrets, up to two accounts, and the Secrets that a user deletes.
func mintedWorld(t *rapid.T) (world []runtime.Object, gone []string) {
	accounts := []*corev1.ServiceAccount{}
	for _, name := range []string{"builder", "deployer"} {
		if rapid.IntRange(0, 3).Draw(t, name) > 0 {
			a := &corev1.ServiceAccount{ObjectMeta: oracletest.Meta(name)}
			a.UID = types.UID(name + "-uid")
			accounts = append(accounts, a)
			world = append(world, a)
		}
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "secrets") {
		s := &corev1.Secret{ObjectMeta: oracletest.Meta(fmt.Sprint("s", i)), Type: rapid.SampledFrom([]corev1.SecretType{
			corev1.SecretTypeServiceAccountToken, corev1.SecretTypeServiceAccountToken, corev1.SecretTypeServiceAccountToken, corev1.SecretTypeOpaque,
		}).Draw(t, "type")}
		s.UID = types.UID(s.Name + "-uid")
		name := rapid.SampledFrom([]string{"builder", "builder", "deployer", "absent"}).Draw(t, "of")
		s.Annotations = map[string]string{corev1.ServiceAccountNameKey: name}
		if uid := rapid.SampledFrom([]string{"", name + "-uid", "before"}).Draw(t, "which"); uid != "" {
			s.Annotations[corev1.ServiceAccountUIDKey] = uid
		}
		s.Data = map[string][]byte{}
		for _, values := range [][]string{{"ca.crt", "", access.MintedCA, "old"}, {"namespace", "", "default", "other"}, {"token", "", "kept"}} {
			if value := rapid.SampledFrom(values[1:]).Draw(t, values[0]); value != "" {
				s.Data[values[0]] = []byte(value)
			}
		}
		for _, a := range accounts {
			if rapid.Bool().Draw(t, "listed") {
				a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: s.Name})
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "gone") == 0 {
			gone = append(gone, s.Name)
		}
		world = append(world, s)
	}
	return world, gone
}
