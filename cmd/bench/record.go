package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/bench/procusage"
	"github.com/millrace/millrace/cmd/internal/history"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// asked is how often each question is repeated; the median and the worst time count.
const asked = 20

// toldRecord and longRecord measure questions about a past as long as those of history and long-history.
func toldRecord(ctx context.Context, f *field, work sizes) ([]metric, error) {
	return askRecord(ctx, f, work.Pods, work.Past)
}

func longRecord(ctx context.Context, f *field, work sizes) ([]metric, error) {
	return askRecord(ctx, f, work.Pods, longer*work.Past)
}

// askRecord makes a store with a past and measures questions about it: what happened, and why. It needs no
// cluster, and no other contender has a record.
func askRecord(ctx context.Context, f *field, pods, messages int) (metrics []metric, err error) {
	if _, ok := f.who.(millrace); !ok {
		return nil, nil
	}
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	store, err := os.MkdirTemp("", "millrace-record-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(store)) }()
	server, err := embedded.Serve(embedded.Options{Dir: store})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	b, err := stream.Connect(ctx, stream.Options{Server: server, Name: "bench", Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if err := makeRecord(ctx, b, pods, messages); err != nil {
		return nil, fmt.Errorf("make a past: %w", err)
	}
	return (&inquiry{ctx, b, record.New(b)}).all(pods)
}

// makeRecord stores Pods, half of a past, a chain of causes, and the other half.
func makeRecord(ctx context.Context, b *stream.Bus, pods, messages int) error {
	for _, k := range []kinds.Kind{kinds.Pods.Kind, kinds.Deployments.Kind, kinds.ReplicaSets.Kind} {
		if err := b.EnsureKind(ctx, k); err != nil {
			return err
		}
	}
	for _, c := range []string{"deployment-controller", "replicaset-controller"} {
		if err := b.EnsureController(ctx, c); err != nil {
			return err
		}
	}
	var deltas []events.Delta
	for i := range pods {
		d, err := deltaOf(kinds.Pods.Kind, podOf(i), i+1, "kubelet")
		if err != nil {
			return err
		}
		deltas = append(deltas, d)
	}
	var tally events.Tally
	for i := range deltas {
		tally.Fold(deltas[i])
		deltas[i].Census = tally.Census()
	}
	deltas = append(deltas, events.Delta{
		Kind: "pods", Op: events.Mark, ResourceVersion: strconv.Itoa(pods), At: time.Now(), Before: events.Place{Known: true},
	})
	if _, err := say(ctx, b, "pods", deltas...); err != nil {
		return err
	}
	half := history.Past{Kind: "pods", Controller: "replicaset-controller", Messages: messages / 2}
	if err := half.Make(ctx, b); err != nil {
		return err
	}
	if err := plant(ctx, b, pods); err != nil {
		return err
	}
	return half.Make(ctx, b)
}

func podOf(i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-6d5f7c9b4-%05d", i), Namespace: fmt.Sprint("shop-", i/100), Labels: map[string]string{"app": "web"},
			Annotations:     map[string]string{"note": fmt.Sprint("what is said of this very Pod and of no other: ", i*104729)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-6d5f7c9b4", UID: "of-the-set"}},
		},
		Spec:   corev1.PodSpec{NodeName: fmt.Sprint("node-", i%100), Containers: []corev1.Container{{Name: "app", Image: "registry.example/web:v1.2.3"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}, {Type: "PodScheduled", Status: "True"}}},
	}
	for volume := range 4 {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("volume-", volume, "-", i*7919%9973)})
	}
	return p
}

// deltaOf is the delta of an object at a version.
func deltaOf(kind kinds.Kind, object runtime.Object, version int, by string) (events.Delta, error) {
	meta := object.(metav1.Object)
	meta.SetUID(types.UID(fmt.Sprint("uid-of-", kind.Kind, "-", meta.GetNamespace(), "-", meta.GetName())))
	meta.SetResourceVersion(strconv.Itoa(version))
	meta.SetCreationTimestamp(metav1.Now())
	body, err := kinds.Encode(kind, object)
	return events.Delta{
		Kind: kind.Name, Ref: events.Ref{Kind: kind.Name, Namespace: meta.GetNamespace(), Name: meta.GetName()}, Op: events.Is,
		UID: meta.GetUID(), ResourceVersion: meta.GetResourceVersion(), Generation: meta.GetGeneration(), At: time.Now(),
		Form: kinds.Full, ContentType: kinds.Protobuf, Body: body, Before: events.Place{Known: true},
		By: events.Manager{Name: by, Operation: "Update", Time: time.Now()},
	}, err
}

// say appends deltas and returns the sequence of the last one.
func say(ctx context.Context, b *stream.Bus, kind kinds.Name, deltas ...events.Delta) (uint64, error) {
	log, err := b.Append(ctx, kind)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	for _, d := range deltas {
		if err := log.Append(ctx, subject.Message(d)); err != nil {
			return 0, err
		}
	}
	return log.Last(), log.Flush(ctx)
}

// planted is the Pod at the end of the chain of causes.
var planted = events.Ref{Kind: "pods", Namespace: "planted", Name: "web-1-a"}

// plant stores a Deployment, the ReplicaSet that it made, and a Pod that the ReplicaSet made.
func plant(ctx context.Context, b *stream.Bus, version int) error {
	meta := func(name, kind, owner string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: planted.Namespace, Name: name, Generation: 1}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: "owner"}}
		}
		return m
	}
	top, err := deltaOf(kinds.Deployments.Kind, &appsv1.Deployment{ObjectMeta: meta("web", "", "")}, version+1, "kubectl")
	if err != nil {
		return err
	}
	set, err := deltaOf(kinds.ReplicaSets.Kind, &appsv1.ReplicaSet{ObjectMeta: meta("web-1", "Deployment", "web")}, version+2, events.FieldManager)
	if err != nil {
		return err
	}
	pod, err := deltaOf(kinds.Pods.Kind, &corev1.Pod{ObjectMeta: meta(planted.Name, "ReplicaSet", "web-1")}, version+3, events.FieldManager)
	if err != nil {
		return err
	}
	at, err := say(ctx, b, top.Kind, top)
	if err == nil {
		at, err = decided(ctx, b, "deployment-controller", top, at, set)
	}
	if err == nil {
		_, err = decided(ctx, b, "replicaset-controller", set, at, pod)
	}
	return err
}

// decided stores that a controller made an object because of another one, and returns the sequence of the new
// object's delta.
func decided(ctx context.Context, b *stream.Bus, controller string, own events.Delta, at uint64, made events.Delta) (uint64, error) {
	key := events.Key{Namespace: own.Ref.Namespace, Name: own.Ref.Name}
	turn := events.Turn{
		Controller: controller, Key: key, Lane: events.LaneWrite, Kind: own.Kind, UID: own.UID, ResourceVersion: own.ResourceVersion, Generation: own.Generation,
		Now: time.Now(), Because: "too few", Seen: events.Position{own.Kind: at},
		Triggers: []events.Trigger{{Stream: subject.LogStream(own.Kind), Sequence: at, Ref: own.Ref}},
		Commands: []events.Command{{Verb: events.VerbCreate, Kind: made.Kind, Namespace: made.Ref.Namespace, Name: made.Ref.Name}},
	}
	m, err := events.EncodeJSON(turn, events.Trace{})
	if err != nil {
		return 0, err
	}
	m.Subject = subject.Turn(controller, events.LaneWrite, key)
	sequence, err := b.Put(ctx, m, "planted-turn-"+controller)
	if err != nil {
		return 0, err
	}
	outcome := events.Outcome{
		Controller: controller, Key: key, Lane: events.LaneWrite, Turn: sequence, At: time.Now(),
		Results: []events.Result{{Status: events.Applied, Ref: made.Ref, UID: made.UID, Version: made.ResourceVersion}},
	}
	if m, err = events.EncodeJSON(outcome, events.Trace{}); err != nil {
		return 0, err
	}
	m.Subject = subject.Outcome(controller, events.LaneWrite, key)
	if _, err := b.Put(ctx, m, "planted-outcome-"+controller); err != nil {
		return 0, err
	}
	return say(ctx, b, made.Kind, made)
}

// inquiry runs questions on a record.
type inquiry struct {
	ctx    context.Context
	bus    *stream.Bus
	record *record.Record
}

func (q *inquiry) all(pods int) ([]metric, error) {
	log, err := q.bus.StreamState(q.ctx, subject.LogStream("pods"))
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 1))
	pod := func() events.Ref {
		p := podOf(random.IntN(pods))
		return events.Ref{Kind: "pods", Namespace: p.Namespace, Name: p.Name}
	}
	moment := func() (record.Moment, error) {
		m, _, err := q.bus.At(q.ctx, subject.LogStream("pods"), log.First+uint64(pods)+random.Uint64N(log.Messages-uint64(pods)))
		return record.Moment{Time: m.Time}, err
	}
	return q.questions([]question{
		{"history of an object, its newest 20 versions", func() error {
			_, err := q.record.History(q.ctx, kinds.Pods.Kind, pod(), 20)
			return err
		}},
		{"why, three objects deep, in the middle of the past", func() error {
			c, err := q.record.Why(q.ctx, kinds.Pods.Kind, planted, record.Question{Last: true})
			if err == nil && c.Began().Version.By.Manager != "kubectl" {
				err = fmt.Errorf("the chain ends with %v", c.Began().Version.Object)
			}
			return err
		}},
		{"one object at a random moment", func() error {
			at, err := moment()
			if err == nil {
				_, err = q.record.One(q.ctx, kinds.Pods.Kind, pod(), at)
			}
			return err
		}},
		{"all objects at a random moment", func() error {
			at, err := moment()
			if err != nil {
				return err
			}
			s, err := q.record.At(q.ctx, kinds.Pods.Kind, "", at)
			if err == nil && (!s.Whole || len(s.Entries) < pods) {
				err = fmt.Errorf("at %v there are %d pods: %v", at, len(s.Entries), s.Doubts)
			}
			return err
		}},
	})
}

// question is one question that is repeated.
type question struct {
	name string
	ask  func() error
}

func (q *inquiry) questions(all []question) (metrics []metric, err error) {
	for _, question := range all {
		var took, used []time.Duration
		for range asked {
			begun, before := time.Now(), procusage.OwnTime()
			if err := question.ask(); err != nil {
				return nil, fmt.Errorf("%s: %w", question.name, err)
			}
			took, used = append(took, time.Since(begun)), append(used, procusage.OwnTime()-before)
		}
		metrics = append(metrics, milliseconds(question.name+", p50", quantile(took, 0.5)), milliseconds(question.name+", worst", quantile(took, 1)),
			milliseconds(question.name+", processor time, p50", quantile(used, 0.5)))
	}
	return metrics, nil
}
