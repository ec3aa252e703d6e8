package access

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/bootstrap"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/tokencleaner"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
)

// TokenCleaner is the controller that deletes expired bootstrap tokens, for the first Secret of a world.
var TokenCleaner = frozen.Pair{Theirs: buildTokenCleaner, Ours: tokencleaner.Controller, Asked: expiries, Alone: frozen.NeverAlone, Fair: tokensDeletedOnce}

func buildTokenCleaner(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	tc, err := bootstrap.NewTokenCleaner(c, f.Core().V1().Secrets(), bootstrap.DefaultTokenCleanerOptions())
	if err != nil {
		return nil, fmt.Errorf("make the cleaner of tokens: %w", err)
	}
	return func() { tc.Run(ctx) }, nil
}

// expiries is the writer's answer about the expiry of a Secret.
func expiries(world []runtime.Object, c events.Command) events.Result {
	for _, obj := range world {
		if s, ok := obj.(*corev1.Secret); ok && s.Name == c.Name && s.Namespace == c.Namespace {
			return frozen.Answered(query.ExpiryOf(s))
		}
	}
	return events.Result{Status: events.Absent}
}

// tokensDeletedOnce leaves out that upstream deletes an object that is already being deleted.
func tokensDeletedOnce(world []runtime.Object, theirs, ours []effect.Effect) ([]effect.Effect, []effect.Effect) {
	if world[0].(objects.Object).GetDeletionTimestamp() != nil {
		theirs = exemption.Lets("token-deleted-again", theirs, effect.Only(theirs, func(e effect.Effect) bool { return e.Verb != effect.Remove }))
	}
	return theirs, ours
}

// CleanedByThem and CleanedByUs are the Secrets of a world that each deletes within some time, with the delay
// to the second, sorted.
func CleanedByThem(t *testing.T, world []runtime.Object, long time.Duration) (gone []string, err error) {
	synctest.Test(t, func(*testing.T) { gone, err = cleanedByThem(objects.Copied(world), long) })
	return gone, err
}

func cleanedByThem(world []runtime.Object, long time.Duration) (gone []string, err error) {
	time.Sleep(time.Until(objects.Now))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset(world...)
	client.PrependReactor("delete", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		gone = append(gone, cleaned(action.(clienttesting.DeleteAction).GetName(), time.Now()))
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	run, err := buildTokenCleaner(ctx, factory, client)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var running sync.WaitGroup
	running.Go(run)
	time.Sleep(long)
	synctest.Wait()
	cancel()
	running.Wait()
	factory.Shutdown()
	slices.Sort(gone)
	return gone, nil
}

func cleaned(name string, at time.Time) string {
	return fmt.Sprintf("%s after %v", name, at.Sub(objects.Now).Truncate(time.Second))
}

// CleanedByUs runs our controller, and again at each of its wakes.
func CleanedByUs(world []runtime.Object, long time.Duration) (gone []string) {
	for _, obj := range world {
		secret := obj.(*corev1.Secret)
		key := events.Key{Namespace: secret.Namespace, Name: secret.Name}
		seen := reconciletest.NewWorld().Put(kinds.Secrets.Kind, &metav1.PartialObjectMetadata{ObjectMeta: secret.ObjectMeta})
		for at, over := objects.Now, false; !over && at.Before(objects.Now.Add(long)); {
			d, ok := tokencleaner.Controller.Ask(seen, key, at)
			switch {
			case ok && len(d.Commands) == 1 && d.Commands[0].AsksExpiry():
				o := events.Outcome{Key: key, Lane: events.LaneWrite, UID: secret.UID, ResourceVersion: secret.ResourceVersion, At: at}
				o.Results = []events.Result{expiries(world, d.Commands[0])}
				seen.Remember(o)
			case ok && len(d.Commands) == 1:
				gone, over = append(gone, cleaned(secret.Name, at)), true
			case ok && !d.WakeAt.IsZero():
				at = d.WakeAt
			default:
				over = true
			}
		}
	}
	slices.Sort(gone)
	return gone
}

// TokensAtRest runs undisturbed on an API server that refuses some of its writes.
var TokensAtRest = stage.Rest{Theirs: TokenCleaner.Theirs, Ours: TokenCleaner.Ours, Kinds: stage.Served(kinds.Secrets.Kind), Long: 70 * time.Minute, Shown: partly, Door: stage.Look, Spared: tokensSpared}

// partly shows the metadata of an object.
func partly(k kinds.Kind, obj metav1.Object) metav1.Object {
	return stage.MetadataOnly(k, obj).(metav1.Object)
}

// tokensSpared lets upstream delete tokens without refusals, because it does not retry before a token
// changes.
func tokensSpared(r stage.Refusal) stage.Refusal {
	if r.Times > 0 && r.Times < 1<<30 {
		exemption.Uses("token-tried-again")
		r.Times = 0
	}
	return r
}
