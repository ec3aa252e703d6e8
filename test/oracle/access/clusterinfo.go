package access

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/bootstrap"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/bootstrapsigner"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/objects"
)

// SignedByThem is the content of cluster-info after upstream has signed it.
func SignedByThem(t *testing.T, world []runtime.Object) (data map[string]string, err error) {
	synctest.Test(t, func(*testing.T) { data, err = signedByThem(objects.Copied(world)) })
	return data, err
}

func signedByThem(world []runtime.Object) (map[string]string, error) {
	time.Sleep(time.Until(objects.Now))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset(world...)
	factory := informers.NewSharedInformerFactory(client, 0)
	bsc, err := bootstrap.NewSigner(client, factory.Core().V1().Secrets(), factory.Core().V1().ConfigMaps(), bootstrap.DefaultSignerOptions())
	if err != nil {
		return nil, fmt.Errorf("make the signer: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { bsc.Run(ctx) })
	synctest.Wait()
	cancel()
	running.Wait()
	factory.Shutdown()
	return clusterInfoOf(client)
}

func clusterInfoOf(client *fake.Clientset) (map[string]string, error) {
	obj, err := client.Tracker().Get(kinds.ConfigMaps.GVR(), metav1.NamespacePublic, query.ClusterInfo)
	if err != nil {
		return nil, fmt.Errorf("read cluster-info: %w", err)
	}
	return obj.(*corev1.ConfigMap).Data, nil
}

// SignedByUs is its content after our writer has carried out our decision, on an API server with the same
// world.
func SignedByUs(t *testing.T, world []runtime.Object) (map[string]string, error) {
	server := serveSecrets(t, world)
	door, err := apply.New(apply.Config{REST: &rest.Config{Host: server.URL, Transport: server}, Clock: clocktesting.NewFakePassiveClock(objects.Now)}, []apply.Actor{signerActor})
	if err != nil {
		return nil, err
	}
	seen, key := reconciletest.NewWorld(kinds.Secrets.Kind), events.Key{Namespace: metav1.NamespacePublic, Name: query.ClusterInfo}
	for _, obj := range world {
		switch obj := obj.(type) {
		case *corev1.Secret:
			seen.Put(kinds.Secrets.Kind, &metav1.PartialObjectMetadata{ObjectMeta: obj.ObjectMeta})
		case *corev1.ConfigMap:
			seen.Put(kinds.ConfigMaps.Kind, obj)
		}
	}
	d, ok := bootstrapsigner.Controller.Ask(seen, key, objects.Now)
	if !ok {
		return served(server)
	}
	p := plan.New(events.Turn{Controller: signerActor.Controller, Lane: events.LaneWrite, Commands: d.Commands}, plan.Options{})
	results, _ := door.Execute(context.Background(), signerActor, p, func() bool { return true }, func(int, int) string { return "" })
	for _, r := range results {
		if !r.OK() {
			return nil, fmt.Errorf("sign it: %s %s", r.Reason, r.Message)
		}
	}
	return served(server)
}

var signerActor = apply.Actor{Controller: "bootstrap-signer-controller", Identity: "bootstrap-signer"}

// serveSecrets serves the Secrets and ConfigMaps of a world.
func serveSecrets(t *testing.T, world []runtime.Object) *apiservertest.Server {
	t.Helper()
	stored := map[string]any{}
	for _, obj := range objects.Copied(world) {
		switch obj := obj.(type) {
		case *corev1.Secret:
			stored["/api/v1/namespaces/"+obj.Namespace+"/secrets/"+obj.Name] = obj
		case *corev1.ConfigMap:
			stored["/api/v1/namespaces/"+obj.Namespace+"/configmaps/"+obj.Name] = obj
		}
	}
	s := apiservertest.New(t, apiservertest.Offline)
	s.Load(1000, stored)
	return s
}

// served is the content of cluster-info on a server.
func served(s *apiservertest.Server) (map[string]string, error) {
	text, err := json.Marshal(s.Get(infoPath))
	if err != nil {
		return nil, fmt.Errorf("read cluster-info: %w", err)
	}
	var info corev1.ConfigMap
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("read cluster-info: %w", err)
	}
	return info.Data, nil
}

const infoPath = "/api/v1/namespaces/" + metav1.NamespacePublic + "/configmaps/" + query.ClusterInfo
