package access_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/test/oracle/access"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
)

func TestOldTokensEndAsUpstreamsDo(t *testing.T) {
	patched, deleted := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		world, period := tokenWorld(r)
		theirs, diff, err := access.CompareTokens(t, world, period)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("period %v: upstream (-) and we (+) do differently:\n%s\n%s", period, diff, oracletest.Page(r, world))
		}
		for _, did := range theirs {
			if did.Verb == "patch" {
				patched++
			} else {
				deleted++
			}
		}
	})
	if patched == 0 || deleted == 0 {
		t.Errorf("upstream declared %d tokens invalid and deleted %d: the worlds are too dull", patched, deleted)
	}
}

// tokenWorld has some tokens of one account, and objects that keep them in use. No age equals the period to
// the second.
func tokenWorld(t *rapid.T) (world []runtime.Object, period time.Duration) {
	exemption.Uses("to-the-second")
	period = rapid.SampledFrom([]time.Duration{365 * 24 * time.Hour, 30 * 24 * time.Hour, 90 * time.Minute}).Draw(t, "period")
	date := func(what string) string {
		days := rapid.IntRange(-2, 2).Draw(t, what)
		at := objects.Now.Add(-period*time.Duration(rapid.IntRange(0, 2).Draw(t, what+", periods"))).AddDate(0, 0, days)
		return rapid.SampledFrom([]string{at.Format(time.DateOnly), at.Format(time.DateOnly), at.Format(time.DateOnly), "nonsense"}).Draw(t, what+", as")
	}
	if rapid.IntRange(0, 7).Draw(t, "noted") > 0 {
		world = append(world, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver-legacy-service-account-token-tracking"},
			Data:       map[string]string{"since": rapid.SampledFrom([]string{"1990-01-01", "1990-01-01", date("since")}).Draw(t, "since")},
		})
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "builder", UID: "b"}}
	for i := range rapid.IntRange(1, 3).Draw(t, "tokens") {
		s := &corev1.Secret{ObjectMeta: oracletest.Meta(fmt.Sprint("token-", i)), Type: corev1.SecretTypeServiceAccountToken}
		s.CreationTimestamp = metav1.NewTime(objects.Now.Add(-period*time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) - time.Hour).Truncate(time.Second))
		s.Annotations = map[string]string{corev1.ServiceAccountNameKey: rapid.SampledFrom([]string{"builder", "builder", "builder", "absent"}).Draw(t, "of")}
		if rapid.Bool().Draw(t, "says of which") {
			s.Annotations[corev1.ServiceAccountUIDKey] = rapid.SampledFrom([]string{"b", "b", "another"}).Draw(t, "uid")
		}
		s.Labels = map[string]string{}
		if rapid.IntRange(0, 2).Draw(t, "used") == 0 {
			s.Labels["kubernetes.io/legacy-token-last-used"] = date("last used")
		}
		if rapid.Bool().Draw(t, "invalid") {
			s.Labels["kubernetes.io/legacy-token-invalid-since"] = date("invalid since")
		}
		if rapid.IntRange(0, 7).Draw(t, "deleted") == 7 {
			s.DeletionTimestamp, s.Finalizers = oracletest.Ptr(oracletest.Before(objects.Now, 1)), []string{"x"}
		}
		if rapid.IntRange(0, 4).Draw(t, "listed") > 0 {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: s.Name})
		}
		world = append(world, s)
	}
	if rapid.IntRange(0, 3).Draw(t, "a pod") == 3 {
		world = append(world, podWith(t, rapid.SampledFrom([]string{"token-0", "token-1", "other"}).Draw(t, "with")))
	}
	return append(world, account), period
}

// podWith is a pod that names a Secret somewhere.
func podWith(t *rapid.T, secret string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: oracletest.Meta("p")}
	ref := corev1.LocalObjectReference{Name: secret}
	volume := func(v corev1.VolumeSource) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: v}} }
	switch rapid.IntRange(0, 7).Draw(t, "where") {
	case 0:
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{ref}
	case 1:
		p.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: "e", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref}}}}}}
	case 2:
		p.Spec.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref}}}}}
	case 3:
		volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}})
	case 4:
		volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: ref}}}}})
	case 5:
		volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &ref}})
	case 6:
		volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: secret}})
	default:
		volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref}})
	}
	return p
}
