package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/millrace/millrace/cmd/internal/approval"
	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/election"
)

const (
	// poll is the interval at which a Lease is read.
	poll = 300 * time.Millisecond
	// renewedWithin is how long a holder is watched for a renewal, to tell whether it lives. It is
	// longer than client-go's retry period.
	renewedWithin = 5 * time.Second
	// unheld is how long a Lease that was given back may be without a holder. It is longer than
	// client-go's retry period with its jitter.
	unheld = 10 * time.Second
)

// ErrRefused: the move is not safe now, or the shadow does not agree.
var ErrRefused = errors.New("the takeover is refused; see above")

// Client reads and assigns Leases of Leader Migration.
type Client struct {
	leases   typed.LeaseInterface
	managers func(context.Context) doctor.Managers
	who      func(context.Context) (string, error)
}

// New makes a client for a namespace, which is kube-system unless the flags of the services name
// another.
//
// Errors: the address or the credentials cannot be used.
func New(config *rest.Config, namespace string) (*Client, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	api, err := doctor.NewAPI(config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return &Client{
		leases: client.CoordinationV1().Leases(namespace), managers: api.Managers,
		who: func(ctx context.Context) (string, error) { return approval.Who(ctx, client) },
	}, nil
}

// Move is a Lease and the controllers that move with it.
type Move struct {
	Lease       string   `json:"lease"`
	Controllers []string `json:"controllers"`
	// Holder is the identity of the process that runs the controllers; "" if none does.
	Holder string `json:"holder,omitempty"`
	// Candidate is the Millrace process that stands by for them.
	Candidate election.Candidate `json:"candidate"`
	// Assigned is the last decision of a person.
	Assigned election.Assignment `json:"assigned,omitzero"`
}

// Millrace reports whether a Millrace process holds the Lease.
func (m Move) Millrace() bool { return election.HeldByMillrace(m.Holder) }

// done reports whether Millrace acts on the last assignment.
func (m Move) done() bool {
	return m.Millrace() && m.Candidate.State == election.Acting && m.Candidate.Took == m.Assigned.ID
}

// Find finds the Lease with which controllers move.
//
// Errors: the Leases cannot be read; no process stands by for a controller; others move with the
// same Lease and are not named.
func (c *Client) Find(ctx context.Context, names []string) (Move, error) {
	list, err := c.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return Move{}, fmt.Errorf("read the Leases of Leader Migration: %w", err)
	}
	var standing []string
	for i := range list.Items {
		m, err := moveOf(&list.Items[i])
		if err != nil {
			return Move{}, err
		}
		if standing = append(standing, m.Controllers...); !slices.Contains(m.Controllers, names[0]) {
			continue
		}
		return m, m.check(names)
	}
	if len(standing) == 0 {
		return Move{}, errors.New("no Millrace process stands by: start one with --enable-leader-migration and --leader-migration-config (docs/takeover.md)")
	}
	slices.Sort(standing)
	return Move{}, fmt.Errorf("no Millrace process stands by for %s, but for %s: name it in the file of --leader-migration-config", names[0], strings.Join(standing, ", "))
}

// check refuses other controllers than those that move with the Lease.
func (m Move) check(names []string) error {
	for _, name := range names {
		if !slices.Contains(m.Controllers, name) {
			return fmt.Errorf("%s does not move with the Lease %s, as %s does: move it by itself", name, m.Lease, names[0])
		}
	}
	for _, name := range m.Controllers {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s moves with the same Lease, %s: name all of them: %s", name, m.Lease, strings.Join(m.Controllers, " "))
		}
	}
	return nil
}

func moveOf(l *coordinationv1.Lease) (Move, error) {
	h, err := election.HandoverOf(l)
	if err != nil {
		return Move{}, err
	}
	holder, _ := election.HolderOf(l)
	return Move{Lease: l.Name, Controllers: h.Candidate.Controllers, Holder: holder, Candidate: h.Candidate, Assigned: h.Assigned}, nil
}

// read reads a Lease again.
func (c *Client) read(ctx context.Context, name string) (Move, *coordinationv1.Lease, error) {
	l, err := c.leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Move{}, nil, fmt.Errorf("read the Lease %s: %w", name, err)
	}
	m, err := moveOf(l)
	return m, l, err
}

// live reports whether the holder of a Lease lives: it renews the Lease while one looks. The time of the
// last renewal would not do, since it is by another machine's clock.
func (c *Client) live(ctx context.Context, name string) (bool, error) {
	m, first, err := c.read(ctx, name)
	if err != nil || m.Holder == "" {
		return false, err
	}
	for until := time.Now().Add(renewedWithin); time.Now().Before(until); {
		if err := pause(ctx); err != nil {
			return false, err
		}
		_, again, err := c.read(ctx, name)
		if err != nil {
			return false, err
		}
		if !again.Spec.RenewTime.Equal(first.Spec.RenewTime) {
			return true, nil
		}
	}
	return false, nil
}

// Assign writes a person's decision about who runs the controllers of a Lease.
//
// Errors: the API server refuses, or does not answer.
func (c *Client) Assign(ctx context.Context, lease, to, because string) (election.Assignment, error) {
	by, err := c.who(ctx)
	if err != nil {
		return election.Assignment{}, err
	}
	a := election.Assignment{ID: string(uuid.NewUUID()), To: to, By: by, At: time.Now().UTC().Truncate(time.Second), Because: because}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		l, err := c.leases.Get(ctx, lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := election.Annotate(l, election.AssignedAnnotation, a); err != nil {
			return err
		}
		_, err = c.leases.Update(ctx, l, metav1.UpdateOptions{FieldManager: approval.Manager})
		return err
	})
	if err != nil {
		return a, fmt.Errorf("assign the Lease %s: %w", lease, err)
	}
	return a, nil
}

// FollowTakeover tells what becomes of an assignment to Millrace, and returns when Millrace acts.
//
// Errors: the context ends before; the error says what the Lease is like then.
func (c *Client) FollowTakeover(ctx context.Context, lease string, tell func(string)) error {
	return c.follow(ctx, lease, func(m Move) bool {
		if m.Millrace() && m.Candidate.State == election.Taking {
			tell("Millrace holds the Lease; it waits until the former holder cannot act any more")
		}
		return m.done()
	})
}

// FollowGiveback tells what becomes of an assignment to kube-controller-manager, and returns when
// another process holds the Lease.
//
// Errors: the context ends before; nothing takes the Lease.
func (c *Client) FollowGiveback(ctx context.Context, lease string, tell func(string)) error {
	var free time.Time
	err := c.follow(ctx, lease, func(m Move) bool {
		switch {
		case m.Millrace():
			return false
		case m.Holder != "":
			return true
		case free.IsZero():
			free = time.Now()
			tell("Millrace has stopped the controllers and has given the Lease back")
		}
		return time.Since(free) > unheld
	})
	if err != nil {
		return err
	}
	if m, _, err := c.read(ctx, lease); err != nil || m.Holder == "" {
		return errors.Join(err, fmt.Errorf("nothing runs the controllers: no process has taken the Lease %s for %v; start the kube-controller-manager that stands for it (docs/takeover.md)", lease, unheld))
	}
	return nil
}

// follow reads a Lease until it is as wanted.
func (c *Client) follow(ctx context.Context, lease string, wanted func(Move) bool) error {
	for {
		m, _, err := c.read(ctx, lease)
		if err == nil && wanted(m) {
			return nil
		}
		if pause(ctx) != nil {
			return fmt.Errorf("not in time: the Lease %s is held by %q and assigned to %s, and the Millrace process is %s; what was assigned stays assigned (%w)", lease, m.Holder, m.Assigned.To, m.Candidate.State, context.Cause(ctx))
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(poll):
		return nil
	}
}
