package shadow

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats-server/v2/server"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/beside"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// TestReplicasWithTheShadowsRights: two replicas of a shadow, with the rights of
// deployments/nats/accounts.conf and no others, report each difference once, and go on when the replica that
// reports stops.
func TestReplicasWithTheShadowsRights(t *testing.T) {
	address := guarded(t)
	all := connected(t, stream.Options{URL: "nats://millrace:word-of-millrace@" + address})
	teller, err := recordtest.New(t.Context(), all, []kinds.Kind{kinds.ReplicaSets.Kind, kinds.Pods.Kind}, nil)
	must(t, err)
	t.Cleanup(func() { _ = teller.Close() })
	for _, kind := range []kinds.Name{kinds.ReplicaSets.Name, kinds.Pods.Name} {
		_, err := teller.Say(t.Context(), events.Delta{Kind: kind, Op: events.Mark})
		must(t, err)
	}
	name := replicaset.Controller.Describe().Name
	must(t, all.EnsureShadow(t.Context(), name)) // as the watcher does

	leaves := map[string]func(){}
	for _, id := range []string{"one", "two"} {
		leaves[id] = lookOnAs(t, id, connected(t, stream.Options{
			URL: "nats://shadow:word-of-shadow@" + address, Guest: true, APIPrefix: embedded.GuestPrefix,
		}))
	}
	// KCM does not run: no controller ever creates the pod that each of these sets lacks.
	lacking := func(set string) {
		t.Helper()
		labels := map[string]string{"app": set}
		d, err := teller.Write(kinds.ReplicaSets.Kind, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: set, Generation: 1},
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
			}},
		}, "kubectl")
		must(t, err)
		_, err = teller.Say(t.Context(), d)
		must(t, err)
		eventually.Complete(t, patience, "the missing pod of "+set+" is found", func() string { return findings(t, all, name)[set].lacks() })
	}
	lacking("first")
	leaves["one"]()
	lacking("second")
	for set, found := range findings(t, all, name) {
		for what, times := range found {
			if times > 1 {
				t.Errorf("%s: %s is found %d times", set, what, times)
			}
		}
	}
	// A replica that starts later finds the differences by itself, and reports them when it must.
	lookOnAs(t, "three", connected(t, stream.Options{
		URL: "nats://shadow:word-of-shadow@" + address, Guest: true, APIPrefix: embedded.GuestPrefix,
	}))
	leaves["two"]()
	lacking("third")
}

// guarded is a NATS server with the accounts of deployments/nats.
func guarded(t *testing.T) (address string) {
	t.Helper()
	for _, user := range embedded.Users {
		t.Setenv(embedded.PasswordOf(user), "word-of-"+user)
	}
	options, err := server.ProcessConfigFile(filepath.Join("..", "..", "deployments", "nats", "accounts.conf"))
	must(t, err)
	options.Host, options.Port, options.JetStream, options.StoreDir, options.NoLog, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true, true
	s, err := server.NewServer(options)
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not listen")
	}
	return s.Addr().String()
}

func connected(t *testing.T, o stream.Options) *stream.Bus {
	t.Helper()
	b, err := stream.Connect(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// lookOnAs runs a replica, and waits until it compares.
func lookOnAs(t *testing.T, id string, b *stream.Bus) (leave func()) {
	t.Helper()
	service, err := beside.New(beside.Config{
		Bus: b, ID: id, Controllers: []reconcile.Any{replicaset.Controller}, Code: "test", Settings: shadow.Settings{Patience: time.Second},
	})
	must(t, err)
	leave = servicetest.Run(t, "shadow "+id, service.Run)
	eventually.Complete(t, patience, id+" compares", func() string {
		for what, check := range service.Checks() {
			if err := check(); err != nil {
				return fmt.Sprintf("%s: %v", what, err)
			}
		}
		return ""
	})
	return leave
}

// found has the differences of a ReplicaSet, and how often each was reported.
type found map[string]int

func (f found) lacks() string {
	for what := range f {
		if strings.HasPrefix(what, "create pods:") {
			return ""
		}
	}
	return fmt.Sprintf("only this was found: %v", f)
}

// findings are the differences that a controller's shadow has reported, by ReplicaSet.
func findings(t *testing.T, b *stream.Bus, controller string) map[string]found {
	t.Helper()
	all := map[string]found{}
	must(t, b.Read(t.Context(), bus.Passage{Stream: subject.ShadowStream(controller)}, func(batch []events.Message) error {
		for _, m := range batch {
			var f report.Finding
			if events.DecodeJSON(m, &f) != nil || f.Agreement != report.WeOnly {
				continue // a turn
			}
			if all[f.Key.Name] == nil {
				all[f.Key.Name] = found{}
			}
			all[f.Key.Name][fmt.Sprintf("%s (%v)", f.What, f.Ref)]++
		}
		return nil
	}))
	return all
}
