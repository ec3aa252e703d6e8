package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	upstream "k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/horizontalpodautoscaler"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/settle"
)

// Autoscaling is the life of an autoscaler, as a series of rounds.
//
// Not compared: several autoscalers of the same pods, which upstream notices only after it has synced both,
// in any order; scales that others write at the same time, because upstream's clock advances between its
// attempts; the average of a metric over no pods, which upstream leaves to the processor; and upstream's loss
// of changes in one direction if the policies of the other direction look further back.
type Autoscaling struct {
	Autoscaler *autoscalingv2.HorizontalPodAutoscaler
	Replicas   int32 // at the beginning
	Rounds     []Look
	// Gates are the feature gates that are not at their defaults.
	Gates gate.Set
	// Changed, when set, modifies our controller.
	Changed func(reconcile.Any) reconcile.Any
}

// Look is the state that a round finds.
type Look struct {
	Pods []*corev1.Pod
	// Current and Selector are the number of pods in the scale and its selector. To, if not less than 0, is
	// the number of replicas that a user sets just before the round.
	Current  int32
	Selector string
	To       int32
	// Metrics are the readings of the metrics in the autoscaler's spec.
	Metrics []query.Reading
	// Absent and Refused are the reasons why the scale cannot be read, or written; Unreported is why the
	// status cannot be written.
	Absent, Refused, Unreported string
}

const period = 15 * time.Second

// Compare runs both through the rounds and shows the differences.
func (a Autoscaling) Compare(t *testing.T) (diff string, err error) {
	ours, err := a.ours()
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	var theirs []string
	if err := kcm.WithGates(a.Gates, func() { synctest.Test(t, func(*testing.T) { theirs = a.theirs() }) }); err != nil {
		return "", err
	}
	var page strings.Builder
	for _, line := range effect.Missing(theirs, ours) {
		fmt.Fprintln(&page, "-", line)
	}
	for _, line := range effect.Missing(ours, theirs) {
		fmt.Fprintln(&page, "+", line)
	}
	return page.String(), nil
}

// look is the state of the autoscaler and its target after a round.
func look(round int, h *autoscalingv2.HorizontalPodAutoscaler, replicas int32) []string {
	s := h.Status.DeepCopy()
	if s.LastScaleTime != nil {
		s.LastScaleTime = new(metav1.NewTime(s.LastScaleTime.UTC().Truncate(time.Second)))
	}
	lines := []string{fmt.Sprintf("round %d: %d replicas, current %d, desired %d, last %v", round, replicas, s.CurrentReplicas, s.DesiredReplicas, s.LastScaleTime)}
	for _, c := range s.Conditions {
		lines = append(lines, fmt.Sprintf("round %d: %s %s %s %v: %s", round, c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Truncate(time.Second), c.Message))
	}
	for i, m := range s.CurrentMetrics {
		text, _ := json.Marshal(m)
		lines = append(lines, fmt.Sprintf("round %d: metric %d %s", round, i, text))
	}
	return lines
}

func autoscalerTold(severity, reason, message string) string {
	return fmt.Sprintf("told %s %s %s", severity, reason, message)
}

// ours is the result of our controller.
func (a Autoscaling) ours() ([]string, error) {
	var c reconcile.Any = horizontalpodautoscaler.New(horizontalpodautoscaler.Config{Gates: a.Gates})
	if a.Changed != nil {
		c = a.Changed(c)
	}
	l := &scaling{autoscaler: a.Autoscaler.DeepCopy(), replicas: a.Replicas}
	l.autoscaler.CreationTimestamp = metav1.NewTime(objects.Now)
	key := events.Key{Namespace: a.Autoscaler.Namespace, Name: a.Autoscaler.Name}
	last := map[events.Lane]events.Outcome{}
	for i, round := range a.Rounds {
		if round.To >= 0 {
			l.replicas = round.To
		}
		now := objects.Now.Add(time.Duration(i+1) * period)
		for turns := 0; ; turns++ {
			world := reconciletest.NewWorld().Put(kinds.HorizontalPodAutoscalers.Kind, l.autoscaler)
			for _, p := range round.Pods {
				world.Put(kinds.Pods.Kind, p)
			}
			for _, o := range last {
				world.Remember(o)
			}
			d, ok := c.Ask(world, key, now)
			if !ok || len(d.Commands) == 0 {
				break
			}
			if turns > 5 {
				return nil, settle.ErrRestless
			}
			o := events.Outcome{Key: key, Lane: d.Commands[0].Lane(), At: now, UID: l.autoscaler.UID, ResourceVersion: l.autoscaler.ResourceVersion}
			unreported, err := l.carry(&o, d, round)
			if err != nil {
				return nil, err
			}
			if last[o.Lane] = o; unreported {
				break // it retries later, and is refused until the next round
			}
		}
		l.lines = append(l.lines, look(i, l.autoscaler, l.replicas)...)
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines), nil
}

// scaling is our autoscaler and its target, and the Events so far.
type scaling struct {
	autoscaler *autoscalingv2.HorizontalPodAutoscaler
	replicas   int32
	lines      []string
}

// carry carries out a decision as far as the round allows, and reports whether the status was refused.
func (l *scaling) carry(o *events.Outcome, d reconcile.Decision, round Look) (unreported bool, err error) {
	for _, command := range d.Commands {
		r := events.Result{Status: events.Applied, Answer: &events.Answer{Note: command.Note}}
		switch {
		case command.Verb == events.VerbAsk:
			r.Status, r.Answer.Body = events.Answered, reconcile.Body(round.readings(l.autoscaler, l.replicas))
		case command.Subresource == "scale" && round.Refused != "":
			r.Status, r.Code, r.Message = events.Refused, 403, round.Refused
		case command.Subresource == "scale":
			var to autoscalingv1.Scale
			if err := json.Unmarshal(command.Body, &to); err != nil {
				return false, err
			}
			l.replicas = to.Spec.Replicas
		case command.Subresource == "status" && round.Unreported != "":
			unreported, r.Status, r.Code, r.Message = true, events.Refused, 403, round.Unreported
			if n := command.OnFailed; n != nil {
				l.lines = append(l.lines, autoscalerTold(n.Type, n.Reason, strings.ReplaceAll(n.Message, "{error}", r.Message)))
			}
		case command.Subresource == "status":
			l.autoscaler = &autoscalingv2.HorizontalPodAutoscaler{}
			if err := json.Unmarshal(command.Body, l.autoscaler); err != nil {
				return false, err
			}
		case command.OnApplied != nil:
			l.lines = append(l.lines, autoscalerTold(command.OnApplied.Type, command.OnApplied.Reason, command.OnApplied.Message))
		}
		o.Results = append(o.Results, r)
	}
	return unreported, nil
}

// readings is the answer to the question of a round.
func (l Look) readings(h *autoscalingv2.HorizontalPodAutoscaler, replicas int32) query.Readings {
	if l.Absent != "" {
		return query.Readings{Failure: l.Absent}
	}
	return query.Readings{Metrics: l.Metrics, Scale: &query.Scale{
		Kind: kinds.Deployments.Name, Version: "v1", UID: "uid-web", ResourceVersion: "1", Replicas: replicas, Current: l.Current, Selector: l.Selector,
	}}
}

// answers serves upstream's questions.
type answers struct {
	mu       sync.Mutex
	look     Look
	replicas int32
	specs    []autoscalingv2.MetricSpec
	told     []string
}

func (s *answers) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// theirs is the result of upstream's controller. It must be called in a synctest bubble.
func (a Autoscaling) theirs() (lines []string) {
	time.Sleep(time.Until(objects.Now))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := &answers{replicas: a.Replicas, specs: a.Autoscaler.Spec.Metrics}
	client := fake.NewSimpleClientset(a.Autoscaler.DeepCopy())
	client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		e := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
		s.change(func() { s.told = append(s.told, autoscalerTold(e.Type, e.Reason, e.Message)) })
		return true, e, nil
	})
	client.PrependReactor("update", "horizontalpodautoscalers", func(clienttesting.Action) (refused bool, _ runtime.Object, err error) {
		s.change(func() {
			if refused = s.look.Unreported != ""; refused {
				err = errors.New(s.look.Unreported)
			}
		})
		return refused, nil, err
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kinds.Deployments.GVK().GroupVersion()})
	mapper.Add(kinds.Deployments.GVK(), meta.RESTScopeNamespace)
	pods := factory.Core().V1().Pods()
	hc := upstream.NewHorizontalController(ctx, client.CoreV1(), s.scaler(), client.AutoscalingV2(), mapper, s,
		factory.Autoscaling().V2().HorizontalPodAutoscalers(), pods, period, 5*time.Minute, 0.1, 5*time.Minute, 30*time.Second)
	factory.Start(ctx.Done())
	synctest.Wait()
	var running sync.WaitGroup
	running.Go(func() { hc.Run(ctx, 1) })
	for i, round := range a.Rounds {
		s.change(func() {
			if s.look = round; round.To >= 0 {
				s.replicas = round.To
			}
		})
		var there []any
		for _, p := range round.Pods {
			there = append(there, p.DeepCopy())
		}
		_ = pods.Informer().GetIndexer().Replace(there, "") // upstream keeps the pods in memory
		time.Sleep(time.Until(objects.Now.Add(time.Duration(i+1)*period + period/2)))
		synctest.Wait()
		h, err := client.AutoscalingV2().HorizontalPodAutoscalers(a.Autoscaler.Namespace).Get(ctx, a.Autoscaler.Name, metav1.GetOptions{})
		if err != nil {
			panic(err) // it was stored before
		}
		lines = append(lines, look(i, h, s.replicas)...)
	}
	cancel()
	running.Wait()
	factory.Shutdown()
	s.change(func() { lines = append(lines, s.told...) })
	slices.Sort(lines)
	return slices.Compact(lines)
}

func (s *answers) scaler() *scalefake.FakeScaleClient {
	client := &scalefake.FakeScaleClient{}
	client.AddReactor("get", "*", func(clienttesting.Action) (_ bool, scale runtime.Object, err error) {
		s.change(func() {
			if s.look.Absent != "" {
				err = errors.New(s.look.Absent)
			}
			scale = &autoscalingv1.Scale{
				ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid-web"}, Spec: autoscalingv1.ScaleSpec{Replicas: s.replicas},
				Status: autoscalingv1.ScaleStatus{Replicas: s.look.Current, Selector: s.look.Selector},
			}
		})
		return true, scale, err
	})
	client.AddReactor("update", "*", func(action clienttesting.Action) (_ bool, scale runtime.Object, err error) {
		next := action.(clienttesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
		s.change(func() {
			if s.look.Refused != "" {
				err = errors.New(s.look.Refused)
				return
			}
			s.replicas = next.Spec.Replicas
		})
		return true, next, err
	})
	return client
}

// samples are those of the first metric for which is returns true.
func (s *answers) samples(is func(autoscalingv2.MetricSpec) bool) (samples []query.Sample, err error) {
	s.change(func() {
		r := s.look.Metrics[slices.IndexFunc(s.specs, is)]
		if samples = r.Samples; r.Failure != "" {
			err = errors.New(r.Failure)
		}
	})
	return samples, err
}

func infoOf(samples []query.Sample, err error) (metrics.PodMetricsInfo, time.Time, error) {
	info := metrics.PodMetricsInfo{}
	for _, sample := range samples {
		m := metrics.PodMetric{Value: sample.Milli, Window: time.Duration(sample.Window * float64(time.Second))}
		if sample.At != nil {
			m.Timestamp = sample.At.Time
		}
		info[sample.Pod] = m
	}
	return info, time.Time{}, err
}

// GetResourceMetric implements upstream's metrics client, as the other methods do.
func (s *answers) GetResourceMetric(_ context.Context, of corev1.ResourceName, _ string, _ labels.Selector, container string) (metrics.PodMetricsInfo, time.Time, error) {
	return infoOf(s.samples(func(m autoscalingv2.MetricSpec) bool {
		if container != "" {
			return m.ContainerResource != nil && m.ContainerResource.Name == of && m.ContainerResource.Container == container
		}
		return m.Resource != nil && m.Resource.Name == of
	}))
}

// GetRawMetric returns a metric of pods.
func (s *answers) GetRawMetric(name, _ string, _, _ labels.Selector) (metrics.PodMetricsInfo, time.Time, error) {
	return infoOf(s.samples(func(m autoscalingv2.MetricSpec) bool { return m.Pods != nil && m.Pods.Metric.Name == name }))
}

// GetObjectMetric returns a metric of an object.
func (s *answers) GetObjectMetric(name, _ string, _ *autoscalingv2.CrossVersionObjectReference, _ labels.Selector) (int64, time.Time, error) {
	samples, err := s.samples(func(m autoscalingv2.MetricSpec) bool { return m.Object != nil && m.Object.Metric.Name == name })
	if err != nil {
		return 0, time.Time{}, err
	}
	return samples[0].Milli, time.Time{}, nil
}

// GetExternalMetric returns an external metric.
func (s *answers) GetExternalMetric(name, _ string, _ labels.Selector) ([]int64, time.Time, error) {
	samples, err := s.samples(func(m autoscalingv2.MetricSpec) bool { return m.External != nil && m.External.Metric.Name == name })
	var values []int64
	for _, sample := range samples {
		values = append(values, sample.Milli)
	}
	return values, time.Time{}, err
}
