package stage

import (
	"context"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// Stage is an API server on which one controller acts, upstream's or ours. Upstream's reaches it through a
// fake client, ours through the plans of the writer, so that both meet the same preconditions, finalizers and
// refusals.
type Stage struct {
	API *apiserver.API
	// Writes are the writing requests, one line each, and Told the Events.
	Writes, Told []string
	// Refuse, when set, refuses a write.
	Refuse func(plan.Request) *plan.Response
	// Informers, when set, are upstream's: each write of its controller waits until they have seen it.
	// Otherwise it is chance whether the rest of a sync sees the write.
	Informers informers.SharedInformerFactory
	// Attend, when set, is the immediate reaction of another program to a change of an object.
	Attend func(*apiserver.API, events.Ref)
	// Omit, when set, reports whether an Event of upstream's is left out, by what is there when it is sent.
	Omit func(*apiserver.API, *corev1.Event) bool

	kinds   []kinds.Kind
	mu      sync.Mutex
	creates int
	change  func(kinds.Kind, events.Ref, metav1.Object, metav1.Object)
}

// NewStage is an empty API server that serves kinds.
func NewStage(now func() time.Time, served ...kinds.Kind) *Stage {
	s := &Stage{API: apiserver.New(now, served...), kinds: served}
	s.API.Refuse = func(r plan.Request) *plan.Response {
		refusal := s.refused(r)
		line := wrote(r)
		if refusal != nil {
			line += fmt.Sprintf(" refused: %d %s", refusal.Code, refusal.Reason)
		}
		s.Writes = append(s.Writes, line)
		return refusal
	}
	s.API.Changed = func(ref events.Ref, was, now metav1.Object) {
		if s.change != nil {
			s.change(s.kind(ref.Kind), ref, was, now)
		}
		if over(now) {
			s.API.Finish(ref)
		}
		if s.Attend != nil {
			s.Attend(s.API, ref)
		}
	}
	return s
}

// over reports whether nothing holds a pod that is being deleted.
func over(obj metav1.Object) bool {
	p, ok := obj.(*corev1.Pod)
	return ok && p.DeletionTimestamp != nil && len(p.Finalizers) == 0 && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

func (s *Stage) refused(r plan.Request) *plan.Response {
	if s.Refuse == nil {
		return nil
	}
	return s.Refuse(r)
}

// wrote is a request on one line, without its body.
func wrote(r plan.Request) string {
	line := fmt.Sprintf("%s %s %s/%s", r.Verb, r.Kind, r.Namespace, r.Name)
	if r.Subresource != "" {
		line += " " + r.Subresource
	}
	if o := r.Delete; o != nil {
		if o.PropagationPolicy != nil {
			line += " " + string(*o.PropagationPolicy)
		}
		if o.GracePeriodSeconds != nil {
			line += fmt.Sprintf(" grace %d", *o.GracePeriodSeconds)
		}
		if p := o.Preconditions; p != nil && p.UID != nil {
			line += " uid " + string(*p.UID)
		}
	}
	return line
}

func (s *Stage) kind(name kinds.Name) kinds.Kind {
	at := slices.IndexFunc(s.kinds, func(k kinds.Kind) bool { return k.Name == name })
	return s.kinds[at]
}

// Do lets a program other than the controller act, with all of its acts at one moment.
func (s *Stage) Do(act func(*apiserver.API)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse, wrote := s.Refuse, s.Writes
	s.Refuse = nil
	act(s.API)
	s.Refuse, s.Writes = refuse, wrote
}

// Locked calls do while no controller's request is carried out.
func (s *Stage) Locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// SetRefusal sets the refusal, also while a controller may act.
func (s *Stage) SetRefusal(r Refusal) {
	s.Locked(func() { s.Refuse = r.Refuses() })
}

// Objects returns all objects of the kinds, in order.
func (s *Stage) Objects() (all []metav1.Object) {
	for _, k := range s.kinds {
		all = append(all, s.API.List(k.Name)...)
	}
	return all
}

// reactor is the answering part of a fake client.
type reactor interface {
	AddReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
	AddWatchReactor(resource string, reaction clienttesting.WatchReactionFunc)
}

// Client is a fake client in front of the stage. It manages no fields, which would take most of a fake
// client's time.
func (s *Stage) Client() (*fake.Clientset, error) {
	client, tracker := &fake.Clientset{}, clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	client.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	client.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		var options metav1.ListOptions
		if w, ok := action.(clienttesting.WatchActionImpl); ok {
			options = w.ListOptions
		}
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace(), options)
		return true, w, err
	})
	return client, s.Connect(client, tracker, asItIs)
}

// Connect connects a fake client to the stage. seen makes the form of an object that the client's informers
// see; nil leaves the object out.
func (s *Stage) Connect(client reactor, tracker clienttesting.ObjectTracker, seen func(kinds.Kind, metav1.Object) runtime.Object) error {
	for _, k := range s.kinds {
		for _, obj := range s.API.List(k.Name) {
			if shown := seen(k, obj); shown != nil {
				if err := tracker.Create(k.GVR(), shown, obj.GetNamespace()); err != nil {
					return fmt.Errorf("show %s %s: %w", k.Name, obj.GetName(), err)
				}
			}
		}
	}
	s.change = func(k kinds.Kind, ref events.Ref, was, now metav1.Object) {
		var err error
		switch {
		case now == nil:
			err = tracker.Delete(k.GVR(), ref.Namespace, ref.Name)
		case was == nil:
			err = tracker.Create(k.GVR(), seen(k, now), ref.Namespace)
		default:
			err = tracker.Update(k.GVR(), seen(k, now), ref.Namespace)
		}
		if err != nil {
			panic(err) // the tracker mirrors the stage
		}
	}
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return s.react(action, seen)
	})
	return nil
}

func (s *Stage) react(action clienttesting.Action, seen func(kinds.Kind, metav1.Object) runtime.Object) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if action.GetResource().Resource == "events" {
		return true, s.Record(action), nil
	}
	at := slices.IndexFunc(s.kinds, func(k kinds.Kind) bool { return k.GVR() == action.GetResource() })
	request, body := s.request(action)
	if at < 0 || request.Verb == "" {
		return false, nil, nil // the tracker answers lists and watches
	}
	k := s.kinds[at]
	request.Kind, request.Version = k.Name, k.Version
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return true, nil, err
		}
		request.Body = text
	}
	ref := events.Ref{Kind: k.Name, Namespace: request.Namespace, Name: request.Name}
	was := s.API.Get(ref)
	answer := s.API.Do(request)
	if answer.Code < 200 || answer.Code > 299 {
		return true, nil, StatusError(answer)
	}
	now := s.API.Get(ref)
	if s.Informers != nil && request.Verb != plan.Look {
		if err := s.await(k, ref, now); err != nil {
			return true, nil, err
		}
	}
	if now != nil {
		was = now
	}
	return true, seen(k, was), nil
}

// await waits until upstream's informer of a kind has an object in its present state; nil: until it does not
// have the object.
func (s *Stage) await(k kinds.Kind, ref events.Ref, now metav1.Object) error {
	i, err := s.Informers.ForResource(k.GVR())
	if err != nil {
		return fmt.Errorf("find the informer of %s: %w", k.Name, err)
	}
	key := cache.ObjectName{Namespace: ref.Namespace, Name: ref.Name}.String()
	for i.Informer().HasSynced() { // otherwise the controller does not watch this kind
		shown, there, err := i.Informer().GetStore().GetByKey(key)
		if err != nil {
			return fmt.Errorf("look up %s: %w", key, err)
		}
		if there == (now != nil) && (!there || shown.(metav1.Object).GetResourceVersion() == now.GetResourceVersion()) {
			break
		}
		goruntime.Gosched()
	}
	return nil
}

// request converts an action of a fake client to a request, without its kind; to the zero request for a list
// or watch.
func (s *Stage) request(action clienttesting.Action) (r plan.Request, body runtime.Object) {
	r.Namespace, r.Subresource = action.GetNamespace(), action.GetSubresource()
	switch a := action.(type) {
	case clienttesting.PatchActionImpl: // before CreateAction: interfaces overlap
		r.Verb, r.Name, r.PatchType, r.Body = plan.Patch, a.GetName(), a.GetPatchType(), a.GetPatch()
	case clienttesting.DeleteActionImpl:
		options := a.GetDeleteOptions()
		r.Verb, r.Name, r.Delete = plan.Delete, a.GetName(), &options
	case clienttesting.UpdateActionImpl:
		r.Verb, r.Name, body = plan.Update, objects.NameOf(a.GetObject()), a.GetObject()
	case clienttesting.CreateActionImpl:
		obj := a.GetObject().DeepCopyObject().(objects.Object)
		if obj.GetName() == "" {
			s.creates++
			obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), s.creates))
		}
		obj.SetNamespace(r.Namespace)
		r.Verb, r.Name, body = plan.Create, obj.GetName(), obj
	case clienttesting.GetActionImpl:
		r.Verb, r.Name = plan.Look, a.GetName()
	}
	return r, body
}

// Record keeps an Event of upstream's, unless it is left out, and returns the answer to its request. The caller
// must hold the stage ([Stage.Locked]).
func (s *Stage) Record(action clienttesting.Action) runtime.Object {
	a, ok := action.(clienttesting.CreateActionImpl)
	if !ok {
		return &corev1.Event{} // several equal Events, counted in one
	}
	e := a.GetObject().(*corev1.Event)
	if s.Omit == nil || !s.Omit(s.API, e) {
		s.Told = append(s.Told, effect.Told(e.InvolvedObject.Name, e.Type, e.Reason, e.Message).String())
	}
	return e
}

// StatusError is a refusal as clients receive it.
func StatusError(r plan.Response) error {
	status := metav1.Status{Status: metav1.StatusFailure, Code: int32(r.Code), Reason: metav1.StatusReason(r.Reason), Message: r.Message}
	status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(r.RetryAfter / time.Second)}
	if r.Cause != "" || r.Field != "" {
		status.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseType(r.Cause), Field: r.Field, Message: r.Message}}
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// Beside runs upstream's controller in a bubble while play runs.
func Beside(run func(context.Context), play func()) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	play()
	cancel()
	running.Wait()
}

// asItIs shows an object in full.
func asItIs(_ kinds.Kind, obj metav1.Object) runtime.Object {
	return obj.(runtime.Object).DeepCopyObject()
}

// MetadataOnly is an object as metadata-only clients see it.
func MetadataOnly(k kinds.Kind, obj metav1.Object) runtime.Object {
	part := meta.AsPartialObjectMetadata(obj).DeepCopy()
	part.SetGroupVersionKind(schema.GroupVersionKind(k.GVK()))
	return part
}

// Served is a list of kinds.
func Served(all ...kinds.Kind) []kinds.Kind { return all }
