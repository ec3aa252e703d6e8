// Package crowd simulates users of a cluster: they create, scale, roll, roll back
// and delete Deployments, delete pods, and create and remove whole namespaces, at a given
// pace. For each user, a worker uses all other kinds of workloads, with budgets and
// quotas. A failed action is not retried: users try something else next.
//
// A [Probe] measures how long it takes to replace a deleted pod.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/pkg/events/sleep"
)

// Options are the options of a crowd.
type Options struct {
	// Kubeconfig is the users' file.
	Kubeconfig string
	// Seed determines the users' choices; their timing depends on the machine.
	Seed uint64
	// Users is the number of users; each has a namespace.
	Users int
	// Pause is the average pause of each user between two actions.
	Pause time.Duration
}

// Crowd are the users, with counts of their actions.
type Crowd struct {
	options Options
	client  kubernetes.Interface

	mu     sync.Mutex
	done   map[string]int // by action
	failed map[string]int // by reason
}

// Connect makes the users' client; they do nothing yet.
//
// Errors: the kubeconfig cannot be read.
func Connect(options Options) (*Crowd, error) {
	client, err := connect(options.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Crowd{options: options, client: client, done: map[string]int{}, failed: map[string]int{}}, nil
}

// patience is the time-out of each request of a user.
const patience = 20 * time.Second

func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst, config.Timeout = -1, -1, patience
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// Run runs the users until leave is closed. It returns when every user has finished its
// action and nothing half done is left, or at once when the context ends.
func (c *Crowd) Run(ctx context.Context, leave <-chan struct{}) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-leave:
		case <-working.Done():
		}
		stop()
	}()
	var all sync.WaitGroup
	for i := range c.options.Users {
		u := &user{
			crowd: c, namespace: fmt.Sprintf("crowd-%d", i+1),
			rand: rand.New(rand.NewPCG(c.options.Seed, uint64(i+1))), deployments: map[string]*deployment{},
		}
		all.Go(func() { u.live(ctx, working) })
		w := &worker{crowd: c, namespace: fmt.Sprintf("work-%d", i+1), rand: rand.New(rand.NewPCG(c.options.Seed, uint64(1000+i)))}
		all.Go(func() { w.live(ctx, working) })
	}
	all.Go(func() { c.comeAndGo(ctx, working) })
	all.Wait()
}

// Done is how often each action succeeded.
func (c *Crowd) Done() map[string]int { return c.copied(c.done) }

// Failed is how often actions failed, by reason.
func (c *Crowd) Failed() map[string]int { return c.copied(c.failed) }

func (c *Crowd) copied(from map[string]int) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int{}
	for what, n := range from {
		all[what] = n
	}
	return all
}

func (c *Crowd) count(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.done[what]++
		return
	}
	c.failed[reason(err)]++
}

// reason is a short text for an error.
func reason(err error) string {
	if r := apierrors.ReasonForError(err); r != "" {
		return string(r)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "Interrupted"
	}
	return "Unreachable"
}

// rest waits for about that long, and reports whether the context is still alive.
func rest(ctx context.Context, r *rand.Rand, about time.Duration) bool {
	return sleep.For(ctx, about/2+time.Duration(r.Int64N(int64(about)+1)))
}

// insist retries do until it succeeds or the context ends, for actions that must not be
// left half done.
func insist(ctx context.Context, do func(context.Context) error) bool {
	for {
		trying, cancel := context.WithTimeout(ctx, patience)
		err := do(trying)
		cancel()
		if err == nil {
			return true
		}
		if !sleep.For(ctx, 250*time.Millisecond) {
			return false
		}
	}
}

// Plant creates a Secret with a value that must not appear anywhere else.
//
// Errors: the API server refuses, or does not answer.
func (c *Crowd) Plant(ctx context.Context, value string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "canary", Namespace: metav1.NamespaceDefault}, StringData: map[string]string{"value": value},
	}
	if _, err := c.client.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("plant the canary: %w", err)
	}
	return nil
}
