package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/apply/ask"
	"github.com/millrace/millrace/services/writer/apply/authority"
	"github.com/millrace/millrace/services/writer/apply/credentials"
	"github.com/millrace/millrace/services/writer/apply/mint"
	"github.com/millrace/millrace/services/writer/plan"
)

// FieldManager is the default of Config.FieldManager.
const FieldManager = events.FieldManager

// Config configures a door.
type Config struct {
	// REST is the address of the API server and the writer's credentials.
	REST *rest.Config
	// Impersonate makes each request as the controller's service account.
	Impersonate bool
	// DryRun asks the API server to do everything but persist.
	DryRun bool
	// FieldManager is the name in managedFields; empty means [FieldManager].
	FieldManager string
	// MaxInFlight bounds the requests in flight; 0 means 200, which one HTTP/2 connection to the
	// API server carries.
	MaxInFlight int
	// QPS bounds each actor's requests per second, and Burst its requests at once; a QPS of 0 or
	// less is no bound.
	QPS   float32
	Burst int
	// Patience is how long a command is retried; 0 means 30 s.
	Patience time.Duration
	// Timeout bounds one request; 0 means 15 s.
	Timeout time.Duration
	// Known reads what the record has on a name. The door calls it before a create that may have
	// happened before. seen is the sequence up to which the log of the kind had been read when the
	// create was decided. With nil the door consults no record.
	Known func(ctx context.Context, ref events.Ref, seen uint64) (plan.Known, error)
	// Metrics counts requests; nil counts nothing.
	Metrics *Metrics
	// Trace makes a span of each request; nil makes none.
	Trace *trace.Tracer
	// Announce announces each write twice: before it is sent, and the write waits for that call, and
	// again when it is answered or will not be. Concurrent requests call it concurrently; nil
	// announces nothing.
	Announce func(context.Context, trace.Write)
	// Mint signs the tokens of service accounts; with nil the door refuses their commands.
	Mint *mint.Mint
	// Authority signs certificates; with nil the door refuses their commands.
	Authority *authority.Authority
	// Types finds expressions of admission policies with type errors; with nil the door refuses
	// their asks.
	Types ask.TypeCheck
	// Panicked reports a panic of the door: the controller, the cause and the stack. The request
	// still has an answer; nil reports nothing.
	Panicked func(controller string, cause any, stack []byte)
	// Hides reports whether values of a kind are hidden. Of a refused request about such a kind the
	// door passes on only code, reason, cause and field. nil hides nothing. Secrets, and writes of
	// kinds of which no content is recorded, are always treated so.
	Hides func(context.Context, kinds.Name) bool
	// Clock tells the age of a proof; nil means the system's.
	Clock clock.PassiveClock
}

// Actor is the controller on whose behalf a request is made.
type Actor = apiclient.Actor

const (
	// absentOwners is how many absent owners are cached.
	// Upstream: pkg/controller/garbagecollector, the same number.
	absentOwners = 500
	// proofAge is how long the proven absence of an owner is cached. That serves the many
	// dependents of a deleted owner, and is shorter than a restore of the API server's storage
	// from a backup takes. After a restore, a uid that was absent may exist again.
	proofAge = time.Second
)

// Client makes requests. It is safe for concurrent use.
type Client struct {
	config           Config
	clients          map[Actor]*apiclient.Client
	paces            map[Actor]flowcontrol.RateLimiter // empty without QPS
	inFlight         chan struct{}
	readsVersions    chan struct{} // of one create in doubt
	discovery        *apiclient.Discovery
	answerer         ask.Answerer
	issuer           credentials.Issuer
	absentOwnerCache *cache.LRUExpireCache // coordinates of absent owners
	ownerReads       singleflight.Group    // for owners
}

// New opens a door for the actors.
//
// Errors: the configuration names files that cannot be read or an address that
// cannot be one. Nothing is sent.
func New(c Config, actors []Actor) (*Client, error) {
	if c.REST == nil {
		return nil, errors.New("open the door to the API server: no address given")
	}
	c = c.withDefaults()
	d := &Client{
		config: c, clients: make(map[Actor]*apiclient.Client, len(actors)), paces: map[Actor]flowcontrol.RateLimiter{},
		inFlight: make(chan struct{}, c.MaxInFlight), readsVersions: make(chan struct{}, 1), absentOwnerCache: cache.NewLRUExpireCacheWithClock(absentOwners, c.Clock),
		issuer: credentials.Issuer{Mint: c.Mint, Authority: c.Authority, Clock: c.Clock},
	}
	for _, a := range actors {
		client, err := apiclient.New(c.forClients(), a)
		if err != nil {
			return nil, fmt.Errorf("open the door to the API server for %s: %w", a.Controller, err)
		}
		d.clients[a] = client
		if c.QPS > 0 {
			d.paces[a] = flowcontrol.NewTokenBucketRateLimiter(c.QPS, max(c.Burst, 1))
		}
	}
	disco, err := apiclient.NewDiscovery(c.REST)
	if err != nil {
		return nil, fmt.Errorf("open the door to the API server for discovery: %w", err)
	}
	d.discovery = disco
	d.answerer = ask.Answerer{Discovery: disco, Types: c.Types, Panicked: c.Panicked}
	return d, nil
}

// forClients returns the part of the configuration that concerns single requests.
func (c Config) forClients() apiclient.Config {
	return apiclient.Config{
		REST: c.REST, Impersonate: c.Impersonate, DryRun: c.DryRun, FieldManager: c.FieldManager, Timeout: c.Timeout,
		Metrics: c.Metrics.requests, Trace: c.Trace, Announce: c.Announce, Hides: c.Hides,
	}
}

func (c Config) withDefaults() Config {
	if c.FieldManager == "" {
		c.FieldManager = FieldManager
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 200
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Panicked == nil {
		c.Panicked = func(string, any, []byte) {}
	}
	if c.Patience <= 0 {
		c.Patience = 30 * time.Second
	}
	if c.Timeout <= 0 {
		c.Timeout = 15 * time.Second
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	return c
}

// Ready returns nil when the API server answers.
func (d *Client) Ready(ctx context.Context) error {
	var code int
	err := d.discovery.Client.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Error()
	if err != nil && code != http.StatusForbidden && code != http.StatusUnauthorized {
		return fmt.Errorf("ask the API server whether it is ready: %w", err)
	}
	return nil
}

// Do makes one request and returns its answer. It returns no error: the answer says what went
// wrong, for the plan to judge.
func (d *Client) Do(ctx context.Context, a Actor, r plan.Request, auditID string) plan.Response {
	return apiclient.ExplainRefusal(a, d.do(ctx, a, r, auditID))
}

// admit waits until an actor may make a request: until its rate limit allows one, if it has a
// limit, and until fewer than MaxInFlight are in flight.
//
// Errors: the context ends first.
func (d *Client) admit(ctx context.Context, a Actor) (over func(), err error) {
	if pace, bound := d.paces[a]; bound {
		if err := pace.Wait(ctx); err != nil {
			return nil, err
		}
	}
	select {
	case d.inFlight <- struct{}{}:
		return func() { <-d.inFlight }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d *Client) do(ctx context.Context, a Actor, r plan.Request, auditID string) plan.Response {
	over, err := d.admit(ctx, a)
	if err != nil {
		return plan.Response{Reason: "Interrupted", Message: err.Error()}
	}
	defer over()
	if fault := r.Fault(); fault != "" {
		return plan.Response{Code: http.StatusBadRequest, Reason: plan.ReasonUnaddressable, Message: fault}
	}
	client, ok := d.clients[a]
	if !ok {
		return plan.Response{Code: http.StatusForbidden, Reason: "NoIdentity", Message: "the writer has no identity for " + a.Controller}
	}
	switch {
	case r.Verb == plan.Search && r.Subresource == query.SubExpiry:
		return credentials.TokenExpiry(ctx, client, r)
	case r.Verb == plan.Search, r.Verb == plan.Read && r.Owner != nil:
		return d.answerer.Answer(ctx, client, r)
	case r.Owner != nil:
		return d.lookAtOwner(ctx, a, client, r)
	case !r.Verb.Writes():
		return client.Read(ctx, r)
	case r.FillsToken():
		return d.issuer.CompleteToken(ctx, client, r, auditID)
	case r.Signs():
		return d.issuer.Sign(ctx, client, r, auditID)
	case r.Certifies():
		return d.issuer.Certify(ctx, client, r, auditID)
	}
	if r.Verb == plan.Patch && r.PatchType == types.ApplyPatchType {
		// Upstream: each controller applies under its own name. What one applies replaces all
		// that this manager applied before, so that several must not share one.
		r.Manager = a.Controller
	}
	if r.Doubtful && d.config.Known != nil {
		if answer, settled := d.createdBefore(ctx, a, client, r); settled {
			return answer
		}
	}
	return client.Send(ctx, r, auditID)
}
