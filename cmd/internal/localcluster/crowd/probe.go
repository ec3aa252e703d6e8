package crowd

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// Sample is how long it took to replace one deleted pod.
type Sample struct {
	Deleted time.Time `json:"deleted"`
	Created time.Time `json:"created"` // when the probe saw the replacement
	// Open is true if no replacement was seen; then Created is the end of the measurement.
	Open bool `json:"open,omitempty"`
}

// Took is the time until the replacement.
func (s Sample) Took() time.Duration { return s.Created.Sub(s.Deleted) }

// Probe has a Deployment of its own, and deletes one of its pods from time to time.
type Probe struct {
	client    kubernetes.Interface
	namespace string
	soon      chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	pods    map[types.UID]*corev1.Pod
	created map[types.UID]time.Time
	samples []Sample
}

// probed is the number of replicas of the probe.
const probed = 3

// NewProbe makes a probe; it creates nothing yet.
//
// Errors: the kubeconfig cannot be read.
func NewProbe(kubeconfig string) (*Probe, error) {
	client, err := connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Probe{
		client: client, namespace: "probe", soon: make(chan struct{}, 1), changed: make(chan struct{}),
		pods: map[types.UID]*corev1.Pod{}, created: map[types.UID]time.Time{},
	}, nil
}

// Soon asks for a sample at once instead of after the next interval.
func (p *Probe) Soon() {
	select {
	case p.soon <- struct{}{}:
	default:
	}
}

// Samples are the samples so far.
func (p *Probe) Samples() []Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Sample(nil), p.samples...)
}

// Run takes a sample at each interval until the context ends.
func (p *Probe) Run(ctx context.Context, every time.Duration) {
	if !insist(ctx, p.deploy) {
		return
	}
	go p.follow(ctx)
	for p.sample(ctx) {
		select {
		case <-p.soon:
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
	}
}

func (p *Probe) deploy(ctx context.Context) error {
	if err := makeNamespace(ctx, p.client, p.namespace); err != nil {
		return err
	}
	_, err := p.client.AppsV1().Deployments(p.namespace).Create(ctx, newDeployment(p.namespace, "probe", 0, probed), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// sample waits until all pods run, deletes one, and waits for its replacement.
func (p *Probe) sample(ctx context.Context) bool {
	if !p.until(ctx, func() bool { return len(p.staying()) == probed }) {
		return false
	}
	p.mu.Lock()
	victim, known := p.staying()[0], len(p.created)
	p.mu.Unlock()
	deleted := time.Now()
	trying, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := p.client.CoreV1().Pods(p.namespace).Delete(trying, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	if err != nil {
		return sleep.For(ctx, 100*time.Millisecond) // perhaps the pod was deleted; the next sample waits until all run
	}
	created := time.Time{}
	if !p.until(ctx, func() bool {
		for _, at := range p.created {
			if at.After(deleted) && (created.IsZero() || at.Before(created)) {
				created = at
			}
		}
		return len(p.created) > known
	}) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.samples = append(p.samples, Sample{Deleted: deleted, Created: time.Now(), Open: true})
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, Sample{Deleted: deleted, Created: created})
	return true
}

// staying are the running pods that are not being deleted.
func (p *Probe) staying() []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range p.pods {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			all = append(all, pod)
		}
	}
	return all
}

// until waits until holds is true; false if the context ends before.
func (p *Probe) until(ctx context.Context, holds func() bool) bool {
	for {
		p.mu.Lock()
		so, changed := holds(), p.changed
		p.mu.Unlock()
		if so {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// follow keeps the cache of pods current, also across restarts of the API server.
func (p *Probe) follow(ctx context.Context) {
	for ctx.Err() == nil {
		_ = p.watch(ctx) // retried, from a new list
		sleep.For(ctx, 50*time.Millisecond)
	}
}

func (p *Probe) watch(ctx context.Context) error {
	// A list and a watch in one: pods that were created in between are seen when they
	// are listed.
	list, err := p.client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	p.take(func() {
		clear(p.pods)
		for i := range list.Items {
			p.see(&list.Items[i])
		}
	})
	w, err := p.client.CoreV1().Pods(p.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("watch the probe: %v", event.Object)
		}
		p.take(func() {
			if event.Type == "DELETED" {
				delete(p.pods, pod.UID)
				return
			}
			p.see(pod)
		})
	}
	return nil
}

func (p *Probe) see(pod *corev1.Pod) {
	p.pods[pod.UID] = pod
	if _, known := p.created[pod.UID]; !known {
		p.created[pod.UID] = time.Now()
	}
}

func (p *Probe) take(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}
