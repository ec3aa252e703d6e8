package frozen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
)

// Upstream shows a frozen world to one of upstream's controllers and returns the effects of one sync, in
// their order. If strict, an update is refused, as by an API server, if its version is one that the same sync
// has changed. It must be called in a synctest bubble whose time is not after now.
//
// The controller starts when every informer has delivered everything, and no time passes from then on: each
// key has one sync, and none is retried.
func Upstream(build kcm.Build, world []runtime.Object, now time.Time, strict bool) ([]effect.Effect, error) {
	time.Sleep(time.Until(now))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset(world...)
	recorder := &recorder{client: client, strict: strict}
	client.PrependReactor("*", "*", recorder.react)

	factory := informers.NewSharedInformerFactory(client, 0)
	run, err := build(ctx, factory, client)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	synctest.Wait()
	var running sync.WaitGroup
	running.Go(run)
	synctest.Wait()
	done := recorder.taken()
	cancel()
	running.Wait()
	factory.Shutdown()
	if late := recorder.taken()[len(done):]; len(late) > 0 {
		return nil, fmt.Errorf("the sync was not over, but slept: afterwards came %v", late)
	}
	return done, recorder.trouble
}

// recorder acknowledges writes without carrying them out. It knows the version that each written object would
// have; if strict, it refuses updates of other versions.
type recorder struct {
	client   *fake.Clientset
	strict   bool
	mu       sync.Mutex
	effects  []effect.Effect
	creates  int
	versions map[string]string // of written objects, by resource, namespace and name
	trouble  error
}

// taken returns the effects so far.
func (r *recorder) taken() []effect.Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.effects)
}

func (r *recorder) react(action clienttesting.Action) (bool, runtime.Object, error) {
	resource := action.GetResource().Resource
	if action.GetSubresource() != "" {
		resource += "/" + action.GetSubresource()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch a := action.(type) {
	case clienttesting.PatchActionImpl: // before CreateAction: interfaces overlap
		if resource == "events" { // several equal Events, counted in one
			return true, &corev1.Event{}, nil
		}
		obj, err := r.client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.GetName())
		r.effects = append(r.effects, effect.Patched(resource, a.GetName(), a.GetPatchType(), a.GetPatch()))
		if err == nil {
			r.written(a, obj.(objects.Object))
		}
		return true, obj, err
	case clienttesting.CreateActionImpl:
		return true, r.created(resource, a), nil
	case clienttesting.UpdateActionImpl:
		if resource == "events" {
			return true, a.GetObject(), nil
		}
		return r.updated(resource, a)
	case clienttesting.DeleteActionImpl:
		r.effects = append(r.effects, effect.Removed(resource, a.GetName(), a.GetDeleteOptions()))
		return true, nil, nil
	}
	return false, nil, nil
}

// updated acknowledges an update, or refuses it.
func (r *recorder) updated(resource string, a clienttesting.UpdateActionImpl) (bool, runtime.Object, error) {
	next := a.GetObject().DeepCopyObject().(objects.Object)
	has, known := r.versions[keyOf(a, next)]
	if r.strict && known && next.GetResourceVersion() != "" && next.GetResourceVersion() != has {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), next.GetName(), errors.New("it has been modified"))
	}
	r.effects = append(r.effects, effect.Updated(resource, next.GetName(), r.json(next)))
	r.written(a, next)
	return true, next, nil
}

// written gives an object its version after a write.
func (r *recorder) written(a clienttesting.Action, obj objects.Object) {
	key := keyOf(a, obj)
	if has, known := r.versions[key]; known {
		obj.SetResourceVersion(has)
	}
	obj.SetResourceVersion(objects.Newer(obj.GetResourceVersion()))
	if r.versions == nil {
		r.versions = map[string]string{}
	}
	r.versions[key] = obj.GetResourceVersion()
}

func keyOf(a clienttesting.Action, obj objects.Object) string {
	return a.GetResource().Resource + "/" + a.GetNamespace() + "/" + obj.GetName()
}

// created acknowledges a create with the object as the API server would return it.
func (r *recorder) created(resource string, a clienttesting.CreateActionImpl) runtime.Object {
	if e, ok := a.GetObject().(*corev1.Event); ok {
		r.effects = append(r.effects, effect.Told(e.InvolvedObject.Name, e.Type, e.Reason, e.Message))
		return e
	}
	r.effects = append(r.effects, effect.Created(resource, a.GetNamespace(), objects.NameOf(a.GetObject()), r.json(a.GetObject())))
	obj := a.GetObject().DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		r.trouble = fmt.Errorf("create an object: %w", err)
		return obj
	}
	r.creates++
	if m.GetName() == "" { // a name for each create: equal Events would be counted
		m.SetName(fmt.Sprintf("%s%05d", m.GetGenerateName(), r.creates))
	}
	m.SetUID(types.UID("uid-" + m.GetName()))
	return obj
}

func (r *recorder) json(obj runtime.Object) []byte {
	body, err := json.Marshal(obj)
	if err != nil {
		r.trouble = fmt.Errorf("write a %T as JSON: %w", obj, err)
		return []byte("{}")
	}
	return body
}
