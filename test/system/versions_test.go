package system

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/plan"
)

// TestTheAPIServerSettlesADoubt: the record ends before an object is created and deleted, and other
// kinds change all the time. The versions of a real API server tell at once that the object
// existed, and that another never did.
func TestTheAPIServerSettlesADoubt(t *testing.T) {
	s := here(t)
	const namespace = "doubts"
	must(t, s.arenas.CreateNamespace(t.Context(), namespace))
	t.Cleanup(func() {
		must(t, s.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}))
	})
	maps, accounts := s.kube.CoreV1().ConfigMaps(namespace), s.kube.CoreV1().ServiceAccounts(namespace)
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	changeOthers := func() {
		for range 20 {
			_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{})
			must(t, err)
		}
	}
	changeOthers()
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "existed"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, maps.Delete(t.Context(), "existed", metav1.DeleteOptions{}))
	changeOthers()
	actor := apply.Actor{Controller: "replicaset-controller", Identity: "replicaset-controller"}
	client, err := apply.New(apply.Config{REST: s.config, Known: func(context.Context, events.Ref, uint64) (plan.Known, error) {
		return plan.Known{Told: list.ResourceVersion, Since: list.ResourceVersion}, nil
	}}, []apply.Actor{actor})
	must(t, err)
	for name, want := range map[string]int{"existed": http.StatusConflict, "new": http.StatusCreated} {
		r := client.Do(t.Context(), actor, plan.Request{
			Verb: plan.Create, Kind: kinds.ConfigMaps.Name, Version: "v1", Namespace: namespace, Name: name, Doubtful: true,
			Body: []byte(`{"metadata":{"name":"` + name + `"}}`),
		}, "")
		if r.Code != want {
			t.Errorf("the create of %s is answered with %+v, want %d", name, r, want)
		}
	}
}
