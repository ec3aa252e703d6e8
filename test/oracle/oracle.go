// Package oracle compares our decisions with those of upstream's own
// controllers, which run here on a fake client in virtual time.
//
// Each comparison is one question: a random but possible state of the cluster
// is shown to both. Upstream's controller sees a frozen world: what it writes is
// recorded and acknowledged but never comes back, so that what is recorded is
// exactly one sync. Ours gives one decision. Both are brought into one form
// ([Effect]) and must be equal.
package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Effect is one thing done to the cluster, in the form in which both sides are
// compared.
type Effect struct {
	Verb     string
	Resource string // with subresource: "deployments/status"
	Name     string // empty for created pods, whose names may differ
	Body     string // canonical JSON; "Type Reason Message" for an Event
}

// String writes an effect on one line.
func (e Effect) String() string { return strings.Join([]string{e.Verb, e.Resource, e.Name, e.Body}, " ") }

// Start builds one of upstream's controllers on informers and runs it until the
// context ends.
type Start func(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface)

// settle is how much virtual time upstream's start needs (cache polling) and
// far less than any of its delays.
const settle = 300 * time.Millisecond

// Upstream shows a frozen world to one of upstream's controllers and gives what
// it did in one sync. It must be called in a synctest bubble.
func Upstream(start Start, world []runtime.Object) []Effect {
	ctx, cancel := context.WithCancel(context.Background())
	client := fake.NewClientset(world...)
	recorder := &recorder{client: client}
	client.PrependReactor("*", "*", recorder.react)

	factory := informers.NewSharedInformerFactory(client, 0)
	var running sync.WaitGroup
	running.Go(func() { start(ctx, factory, client) })
	time.Sleep(time.Millisecond) // the controller registers its informers
	factory.Start(ctx.Done())
	time.Sleep(settle)
	synctest.Wait()
	effects := recorder.taken()
	cancel()
	running.Wait()
	factory.Shutdown()
	return effects
}

// recorder acknowledges writes without carrying them out.
type recorder struct {
	client  *fake.Clientset
	mu      sync.Mutex
	effects []Effect
}

func (r *recorder) taken() []Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Normal(r.effects)
}

func (r *recorder) react(action clienttesting.Action) (bool, runtime.Object, error) {
	resource := action.GetResource().Resource
	if action.GetSubresource() != "" {
		resource += "/" + action.GetSubresource()
	}
	switch a := action.(type) {
	case clienttesting.PatchActionImpl: // before CreateAction: interfaces overlap
		obj, err := r.client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.GetName())
		r.add(Effect{Verb: "patch", Resource: resource, Name: a.GetName(), Body: canonical(a.GetPatch())})
		return true, obj, err
	case clienttesting.CreateActionImpl:
		r.add(created(resource, a.GetObject()))
		return true, withUID(a.GetObject()), nil
	case clienttesting.UpdateActionImpl:
		r.add(Effect{Verb: "update", Resource: resource, Name: nameOf(a.GetObject()), Body: Body(a.GetObject())})
		return true, a.GetObject(), nil
	case clienttesting.DeleteActionImpl:
		r.add(Effect{Verb: "delete", Resource: resource, Name: a.GetName()})
		return true, nil, nil
	}
	return false, nil, nil
}

func (r *recorder) add(e Effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects = append(r.effects, e)
}

func created(resource string, obj runtime.Object) Effect {
	if event, ok := obj.(*corev1.Event); ok {
		return Effect{Verb: "event", Resource: "events", Name: event.InvolvedObject.Name,
			Body: Told(event.Type, event.Reason, event.Message)}
	}
	e := Effect{Verb: "create", Resource: resource, Name: nameOf(obj), Body: Body(obj)}
	if resource == "pods" {
		e.Name = ""
	}
	return e
}

// Told is the body of an event effect. Names of pods in it are cut to the
// owner's, since their suffixes are random upstream and derived here.
func Told(kind, reason, message string) string {
	if before, pod, ok := strings.Cut(message, "Created pod: "); ok {
		at := strings.LastIndex(pod, "-")
		message = before + "Created pod: " + pod[:at+1]
	}
	return kind + " " + reason + " " + message
}

// Normal brings effects into an order and keeps of several updates of one
// object the last, which holds what the earlier ones said.
func Normal(effects []Effect) []Effect {
	last := map[string]int{}
	for i, e := range effects {
		if e.Verb == "update" {
			last[e.Resource+"/"+e.Name] = i
		}
	}
	kept := make([]Effect, 0, len(effects))
	for i, e := range effects {
		if e.Verb == "update" && last[e.Resource+"/"+e.Name] != i {
			continue
		}
		kept = append(kept, e)
	}
	sort.SliceStable(kept, func(i, j int) bool { return kept[i].String() < kept[j].String() })
	return kept
}

// Body is an object as canonical JSON, without what the API server manages and
// with every timestamp of the sync itself as "now".
func Body(obj any) string {
	text, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("%T has no JSON form: %v", obj, err))
	}
	return canonical(text)
}

func canonical(text []byte) string {
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return string(text)
	}
	for _, managed := range []string{"kind", "apiVersion"} {
		delete(tree, managed)
	}
	if m, ok := tree["metadata"].(map[string]any); ok {
		for _, managed := range []string{"managedFields", "creationTimestamp", "generateName"} {
			delete(m, managed)
		}
		if owned := m["ownerReferences"]; owned == nil {
			delete(m, "ownerReferences")
		}
	}
	out, err := json.Marshal(timeless(tree))
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(out)
}

// timeless replaces timestamps of the bubble's present by "now" and drops
// nulls and empty maps, which say nothing.
func timeless(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, item := range v {
			if item = timeless(item); item != nil {
				out[key] = item
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		for i := range v {
			v[i] = timeless(v[i])
		}
		return v
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil && time.Since(at) < 2*time.Second {
			return "now"
		}
	}
	return value
}

func nameOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return m.GetName()
}

func withUID(obj runtime.Object) runtime.Object {
	out := obj.DeepCopyObject()
	if m, err := meta.Accessor(out); err == nil {
		m.SetUID(types.UID("new-" + m.GetName()))
		m.SetCreationTimestamp(metav1.Now())
	}
	return out
}
