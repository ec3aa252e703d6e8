package legacytokencleaner

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var key = events.Key{Namespace: reconciletest.Namespace, Name: "builder-token"}

func account(secrets ...string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "builder", UID: "b"}}
	for _, name := range secrets {
		a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: name})
	}
	return a
}

func TestObserve(t *testing.T) {
	secret := token("builder-token", now)
	world := reconciletest.NewWorld().Put(kinds.Secrets.Kind, secret)
	if _, ok := controller.Observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "gone"}); ok {
		t.Error("there is a view of a Secret that is gone")
	}
	look := func(what string, want View) {
		t.Helper()
		v, ok := controller.Observe(world, key)
		if !ok || v.Listed != want.Listed || v.Needed != want.Needed || v.Since != want.Since || v.Other != want.Other || v.Period != 8760*time.Hour {
			t.Errorf("%s: the view has %+v, found: %v", what, v, ok)
		}
	}
	look("alone", View{})
	world.Put(kinds.ServiceAccounts.Kind, account("another"))
	look("its account does not list it", View{})
	world.Put(kinds.ServiceAccounts.Kind, account("another", "builder-token"))
	look("its account lists it", View{Listed: true})
	heir := account("builder-token")
	heir.UID = "heir"
	world.Put(kinds.ServiceAccounts.Kind, heir)
	look("another account of that name lists it", View{})
	delete(secret.Annotations, corev1.ServiceAccountUIDKey)
	look("it does not say which account of that name it is of", View{Listed: true})
	world.Put(kinds.ConfigMaps.Kind, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: tracking}, Data: map[string]string{since: "2020-01-01"},
	})
	elsewhere := reconciletest.Pod("p", puller("builder-token"), reconciletest.In[*corev1.Pod]("elsewhere"))
	world.Put(kinds.Pods.Kind, elsewhere, reconciletest.Pod("p", puller("another")))
	look("no pod has it", View{Listed: true, Since: "2020-01-01"})
	world.Put(kinds.Pods.Kind, reconciletest.Pod("q", puller("builder-token")))
	look("a pod has it", View{Listed: true, Since: "2020-01-01", Needed: true})
	world.Put(kinds.Pods.Kind, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "q"}})
	look("a pod may have it", View{Listed: true, Since: "2020-01-01", Needed: true})
	world.Remove(kinds.Pods.Name, reconciletest.Namespace, "q")
	for _, said := range []struct {
		uid  string
		code int
		want bool
	}{{"4f1c", 422, true}, {"4f1c", 409, false}, {"another", 422, false}} {
		world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: "4f1c", Results: []events.Result{{Status: events.Refused, Code: said.code}}})
		secret.UID = "4f1c"
		if said.uid != "4f1c" {
			secret.UID = "another"
		}
		look("refused before", View{Listed: true, Since: "2020-01-01", Other: said.want})
	}
}

func puller(secret string) reconciletest.Edit[*corev1.Pod] {
	return func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: secret}} }
}

func TestWhoseTurn(t *testing.T) {
	world := reconciletest.NewWorld()
	secret, plain := token("builder-token", now), token("builder-token", now)
	plain.Annotations = nil
	for what, c := range map[string]struct {
		was, now metav1.Object
		want     []events.Key
	}{
		"a new token":              {nil, secret, []events.Key{key}},
		"another Secret":           {nil, plain, nil},
		"a token that has gone":    {secret, nil, nil},
		"a token that has changed": {secret, secret, []events.Key{key}},
	} {
		if got := world.Keys(controller, kinds.Secrets.Kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v", what, got)
		}
	}
}

// names finds a Secret wherever a pod names it.
func TestNames(t *testing.T) {
	ref := &corev1.LocalObjectReference{Name: "s"}
	volume := func(v corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{}, {VolumeSource: v}}}
	}
	variable := []corev1.EnvVar{{Value: "s"}, {ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: *ref}}}}
	all := []corev1.EnvFromSource{{Prefix: "s"}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *ref}}}
	for what, spec := range map[string]corev1.PodSpec{
		"to pull images":       {ImagePullSecrets: []corev1.LocalObjectReference{*ref}},
		"a variable":           {Containers: []corev1.Container{{Env: variable}}},
		"all variables":        {Containers: []corev1.Container{{EnvFrom: all}}},
		"of an init container": {InitContainers: []corev1.Container{{Env: variable}}},
		"of a debugger":        {EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{EnvFrom: all}}}},
		"a volume":             volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		"a part of a volume": volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *ref}}, {Secret: &corev1.SecretProjection{LocalObjectReference: *ref}},
		}}}),
		"CSI":       volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: ref}}),
		"AzureFile": volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s"}}),
		"CephFS":    volume(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: ref}}),
		"Cinder":    volume(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: ref}}),
		"flexible":  volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: ref}}),
		"RBD":       volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: ref}}),
		"ScaleIO":   volume(corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: ref}}),
		"iSCSI":     volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: ref}}),
		"StorageOS": volume(corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: ref}}),
	} {
		p := &corev1.Pod{Spec: spec}
		if !names(p, "s") {
			t.Errorf("%s: the Secret is not found in the pod", what)
		}
		if names(p, "other") {
			t.Errorf("%s: another one is found", what)
		}
	}
	others := corev1.PodSpec{Volumes: []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: *ref}}}}}
	if names(&corev1.Pod{Spec: others}, "s") {
		t.Error("a ConfigMap is taken for a Secret")
	}
}
