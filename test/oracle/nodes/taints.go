package nodes

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
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller"
	upstream "k8s.io/kubernetes/pkg/controller/tainteviction"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/tainteviction"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/frozen"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/settle"
)

// Taints is a node with its pods. Half a second after After seconds its taints change to Then.
type Taints struct {
	Node  *corev1.Node
	Pods  []*corev1.Pod
	After int
	Then  []corev1.Taint
	// Gates are the feature gates that are not at their defaults.
	Gates gate.Set
}

// taintedFor is how many seconds both run.
const taintedFor = 40

// Compare shows the pods that upstream ("-") and ours ("+") delete, with the time in seconds.
//
// Events are not compared: upstream cancels a deletion, with an Event, each time that it schedules the same
// one again.
func (w Taints) Compare(t *testing.T) (diff string) {
	exemption.Uses("evictions-called-off")
	var theirs []string
	if err := kcm.WithGates(w.Gates, func() { synctest.Test(t, func(*testing.T) { theirs = w.theirs(t) }) }); err != nil {
		t.Fatal(err)
	}
	ours := w.ours(t)
	for _, line := range effect.Missing(theirs, ours) {
		diff += "- " + line + "\n"
	}
	for _, line := range effect.Missing(ours, theirs) {
		diff += "+ " + line + "\n"
	}
	return diff
}

func (w Taints) theirs(t *testing.T) (deletions []string) {
	time.Sleep(time.Until(objects.Now))
	ctx, cancel := context.WithCancel(context.Background())
	world := []runtime.Object{w.Node.DeepCopy()}
	for _, p := range w.Pods {
		world = append(world, p.DeepCopy())
	}
	client := fake.NewSimpleClientset(world...)
	var mu sync.Mutex
	dead := map[string]bool{} // upstream may delete a pod because of its node, and again because of the pod itself
	client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if a := action.(clienttesting.DeleteAction); !dead[a.GetName()] {
			dead[a.GetName()] = true
			deletions = append(deletions, deletion(time.Since(objects.Now), effect.Removed("pods", a.GetName(), a.GetDeleteOptions())))
		}
		return false, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	if err := controller.AddPodNodeNameIndexer(factory.Core().V1().Pods().Informer()); err != nil {
		t.Errorf("index the pods by their nodes: %v", err)
	}
	c, err := upstream.New(ctx, client, factory.Core().V1().Pods(), factory.Core().V1().Nodes(), "taint-eviction-controller")
	if err != nil {
		t.Errorf("make the taint eviction controller: %v", err)
	}
	factory.Start(ctx.Done())
	synctest.Wait()
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	time.Sleep(time.Duration(w.After)*time.Second + time.Second/2)
	next := w.Node.DeepCopy()
	next.Spec.Taints = w.Then
	if _, err := client.CoreV1().Nodes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		t.Errorf("taint the node: %v", err)
	}
	time.Sleep(time.Duration(taintedFor-w.After)*time.Second + time.Second/4) // so that everything due by then happens before the end
	cancel()
	running.Wait()
	factory.Shutdown()
	return deletions
}

func deletion(after time.Duration, of effect.Effect) string {
	return fmt.Sprintf("%v %s", after.Truncate(time.Second/2), of)
}

// ours runs our controller for every pod every half second.
func (w Taints) ours(t *testing.T) (deletions []string) {
	world := reconciletest.NewWorld().Put(kinds.Nodes.Kind, w.Node)
	for _, p := range w.Pods {
		world.Put(kinds.Pods.Kind, p)
	}
	for half := range 2*taintedFor + 2 {
		after := time.Duration(half) * time.Second / 2
		if half == 2*w.After+1 {
			next := w.Node.DeepCopy()
			next.Spec.Taints = w.Then
			world.Put(kinds.Nodes.Kind, next)
		}
		for _, p := range w.Pods {
			deletions = append(deletions, w.turns(t, world, p, after)...)
		}
	}
	return deletions
}

// turns are the turns of one pod at one moment.
func (w Taints) turns(t *testing.T, world *reconciletest.World, p *corev1.Pod, after time.Duration) (deletions []string) {
	key := events.Key{Namespace: p.Namespace, Name: p.Name}
	for range 4 {
		v, ok := tainteviction.New(w.Gates).Observe(world, key)
		if !ok {
			return deletions
		}
		d := tainteviction.New(w.Gates).Decide(v, objects.Now.Add(after))
		if len(d.Commands) == 0 {
			return deletions
		}
		said := events.Outcome{Key: key, Lane: events.LaneStatus, UID: v.Pod.UID}
		for _, c := range d.Commands {
			switch c.Verb {
			case events.VerbDelete:
				world.Remove(kinds.Pods.Name, p.Namespace, p.Name)
				return append(deletions, deletion(after, effect.WithoutExtraConditions(nil, []effect.Effect{effect.Removed("pods", p.Name, frozen.OptionsOf(c))})[0]))
			case events.VerbPatch:
				next, err := settle.Patched(v.Pod, c.Body, objects.Now.Add(after))
				if err != nil {
					t.Fatal(err)
				}
				world.Put(kinds.Pods.Kind, next)
			default:
			}
			r := events.Result{Status: events.Applied}
			if c.Note != nil {
				r.Answer = &events.Answer{Note: slices.Clone(c.Note)}
			}
			said.Results = append(said.Results, r)
		}
		world.Remember(said)
	}
	t.Errorf("%s does not come to rest", p.Name)
	return deletions
}
