package access

import (
	"context"
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
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	cleaner "github.com/millrace/millrace/services/reconcilers/controllers/legacytokencleaner"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
)

// CompareTokens returns upstream's effects on the tokens of a world, and the difference of ours; "" if there
// is none.
func CompareTokens(t *testing.T, world []runtime.Object, period time.Duration) (theirs []effect.Effect, diff string, err error) {
	synctest.Test(t, func(*testing.T) { theirs, err = cleanTheirs(objects.Copied(world), period) })
	if err != nil {
		return nil, "", fmt.Errorf("ask upstream: %w", err)
	}
	return theirs, effect.Diff(theirs, effect.WithoutExtraConditions(theirs, tokensOfOurs(world, period))), nil
}

func cleanTheirs(world []runtime.Object, period time.Duration) (did []effect.Effect, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset(world...)
	factory := informers.NewSharedInformerFactory(client, 0)
	c, err := serviceaccount.NewLegacySATokenCleaner(factory.Core().V1().ServiceAccounts(), factory.Core().V1().Secrets(), factory.Core().V1().Pods(),
		client, clocktesting.NewFakeClock(objects.Now), serviceaccount.LegacySATokenCleanerOptions{CleanUpPeriod: period, SyncInterval: time.Hour})
	if err != nil {
		return nil, fmt.Errorf("make the cleaner: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	time.Sleep(time.Second)
	synctest.Wait()
	cancel()
	running.Wait()
	factory.Shutdown()
	for _, action := range client.Actions() {
		switch a := action.(type) {
		case clienttesting.PatchActionImpl:
			did = append(did, effect.Effect{Verb: effect.Patch, Resource: "secrets", Name: a.GetName(), Body: labelsIn(a.GetPatch())})
		case clienttesting.DeleteActionImpl:
			did = append(did, effect.Removed("secrets", a.GetName(), a.GetDeleteOptions()))
		}
	}
	return did, nil
}

// labelsIn are the labels that a patch sets.
func labelsIn(patch []byte) string {
	labels, _ := effect.Parse(patch)["metadata"].(map[string]any)["labels"].(map[string]any)
	return fmt.Sprint(labels)
}

// tokensOfOurs runs our controller for each token. A patch that only proves the type of a Secret changes
// nothing, and is left out.
func tokensOfOurs(world []runtime.Object, period time.Duration) (did []effect.Effect) {
	s, c := reconciletest.NewWorld(), cleaner.New(cleaner.Config{Period: period})
	var keys []events.Key
	for _, obj := range world {
		switch obj := obj.(type) {
		case *corev1.Secret:
			s.Put(kinds.Secrets.Kind, &metav1.PartialObjectMetadata{ObjectMeta: obj.ObjectMeta})
			keys = append(keys, events.Key{Namespace: obj.Namespace, Name: obj.Name})
		case *corev1.ServiceAccount:
			s.Put(kinds.ServiceAccounts.Kind, obj)
		case *corev1.ConfigMap:
			s.Put(kinds.ConfigMaps.Kind, obj)
		case *corev1.Pod:
			s.Put(kinds.Pods.Kind, obj)
		}
	}
	for _, key := range keys {
		d, _ := c.Ask(s, key, objects.Now)
		for _, command := range d.Commands {
			switch {
			case command.Verb == events.VerbDelete:
				did = append(did, effect.Removed("secrets", command.Name, frozen.OptionsOf(command)))
			case effect.Parse(command.Body)["metadata"] != nil:
				did = append(did, effect.Effect{Verb: effect.Patch, Resource: "secrets", Name: command.Name, Body: labelsIn(command.Body)})
			default:
				exemption.Uses("type-of-secret")
			}
		}
	}
	return did
}
