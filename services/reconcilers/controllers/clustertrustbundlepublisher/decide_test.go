package clustertrustbundlepublisher

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

const prefix = "kubernetes.io:kube-apiserver-serving:"

var (
	controller = New(Config{RootCA: []byte("CERTIFICATE")})
	wanted     = nameOf([]byte("CERTIFICATE"))
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), reconciletest.Now,
		reconciletest.Content(2, carriedOut), reconciletest.Law[View]{Name: "never without", Holds: neverWithout})
}

func anyView(t *rapid.T) View {
	v := View{Name: rapid.SampledFrom([]string{wanted, prefix + "old"}).Draw(t, "name")}
	if v.Name == wanted {
		v.Wanted = "CERTIFICATE"
	} else {
		v.Succeeded = rapid.Bool().Draw(t, "succeeded")
	}
	if v.Name != wanted || rapid.Bool().Draw(t, "there") {
		v.Bundle = bundle(v.Name, rapid.SampledFrom([]string{"CERTIFICATE", "OTHER"}).Draw(t, "in it"))
		if rapid.IntRange(0, 3).Draw(t, "deleted") == 3 {
			reconciletest.Deleted[*certificatesv1beta1.ClusterTrustBundle](reconciletest.Now)(v.Bundle)
		}
	}
	return v
}

func bundle(name, text string) *certificatesv1beta1.ClusterTrustBundle {
	return &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: "7"},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
	}
}

func carriedOut(v View, d reconcile.Decision, at time.Time) View {
	for _, c := range d.Commands {
		switch c.Verb {
		case events.VerbCreate, events.VerbUpdate:
			v.Bundle = bundle(v.Name, v.Wanted)
		case events.VerbDelete:
			v.Bundle = v.Bundle.DeepCopy()
			reconciletest.Deleted[*certificatesv1beta1.ClusterTrustBundle](at)(v.Bundle)
		}
	}
	return v
}

// neverWithout checks that a bundle is deleted only if the wanted one exists, and the
// wanted one never.
func neverWithout(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbDelete {
			continue
		}
		switch {
		case command.Name == wanted:
			return errors.New("the bundle that is wanted is deleted")
		case !v.Succeeded:
			return errors.New("a bundle is deleted before another one has succeeded it")
		case command.If == nil || command.If.UID != "u":
			return fmt.Errorf("any bundle of that name is deleted: %+v", command.If)
		}
	}
	return nil
}

// The name begins with the signer's and ends in the hash of the content, as upstream's does.
func TestNames(t *testing.T) {
	for text, want := range map[string]string{"CERTIFICATE": "af230ad402ff8ad7743a8848", "a": "ca978112ca1bbdcafac231b3"} {
		if got := nameOf([]byte(text)); got != prefix+want {
			t.Errorf("the name for %s is %s, want %s", text, got, want)
		}
	}
}

func TestObserve(t *testing.T) {
	world := reconciletest.NewWorld(kinds.ClusterTrustBundles.Kind, kinds.Namespaces.Kind)
	if v, ok := controller.Observe(world, events.Key{Name: wanted}); !ok || v.Wanted != "CERTIFICATE" || v.Bundle != nil {
		t.Errorf("where there is none it sees %+v, %v", v, ok)
	}
	old := events.Key{Name: prefix + "old"}
	if _, ok := controller.Observe(world, old); ok {
		t.Error("observe finds a bundle that is gone")
	}
	foreign := bundle("example.com:signer:x", "OTHER")
	foreign.Spec.SignerName = "example.com/signer"
	world.Put(kinds.ClusterTrustBundles.Kind, foreign, bundle(old.Name, "OTHER"))
	if _, ok := controller.Observe(world, events.Key{Name: foreign.Name}); ok {
		t.Error("observe finds a bundle of another signer")
	}
	if v, ok := controller.Observe(world, old); !ok || v.Succeeded || v.Wanted != "" || v.Bundle == nil {
		t.Errorf("of the old one the view has %+v, found: %v", v, ok)
	}
	for text, want := range map[string]bool{"FORGED": false, "CERTIFICATE": true} {
		world.Put(kinds.ClusterTrustBundles.Kind, bundle(wanted, text))
		if v, ok := controller.Observe(world, old); !ok || v.Succeeded != want {
			t.Errorf("with %s in the other one the view has %+v, found: %v", text, v, ok)
		}
	}
}

func TestWhoseTurn(t *testing.T) {
	world := reconciletest.NewWorld()
	foreign := bundle("example.com:signer:x", "OTHER")
	foreign.Spec.SignerName = "example.com/signer"
	old, older, right := bundle(prefix+"old", "OTHER"), bundle(prefix+"older", "OTHER"), bundle(wanted, "CERTIFICATE")
	world.Put(kinds.ClusterTrustBundles.Kind, foreign, old, older)
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	for _, c := range []struct {
		name     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []string
	}{
		{"the cluster is seen", kinds.Namespaces.Kind, nil, system, []string{wanted}},
		{"its namespace changed", kinds.Namespaces.Kind, system, system, nil},
		{"another namespace", kinds.Namespaces.Kind, nil, other, nil},
		{"an old one", kinds.ClusterTrustBundles.Kind, nil, old, []string{old.Name}},
		{"an old one is gone", kinds.ClusterTrustBundles.Kind, old, nil, []string{old.Name}},
		{"the wanted one", kinds.ClusterTrustBundles.Kind, nil, right, []string{old.Name, older.Name, wanted}},
		{"the wanted one is gone", kinds.ClusterTrustBundles.Kind, right, nil, []string{old.Name, older.Name, wanted}},
		{"one of another signer", kinds.ClusterTrustBundles.Kind, nil, foreign, nil},
	} {
		var got []string
		for _, key := range world.Keys(controller, c.kind, c.was, c.now) {
			got = append(got, key.Name)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.name, got, c.want)
		}
	}
}
