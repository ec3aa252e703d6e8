package apiclient

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
)

// Actor is the controller on whose behalf a request is made.
type Actor struct {
	// Controller is the name in the user agent, Identity the service account.
	Controller, Identity string
}

// Config configures a client. It has no defaults: package apply fills it in.
type Config struct {
	// REST is the address of the API server and the writer's credentials.
	REST *rest.Config
	// Impersonate makes each request as the controller's service account.
	Impersonate bool
	// DryRun asks the API server to do everything but persist.
	DryRun bool
	// FieldManager is the name in managedFields of a write that names no manager.
	FieldManager string
	// Timeout bounds one request.
	Timeout time.Duration
	// Metrics counts requests.
	Metrics *Metrics
	// Trace makes a span of each request; nil makes none.
	Trace *trace.Tracer
	// Announce announces each write before it is sent, and again when it is answered or will not be;
	// nil announces nothing.
	Announce func(context.Context, trace.Write)
	// Hides reports whether values of a kind are hidden; nil hides nothing.
	Hides func(context.Context, kinds.Name) bool
}

// Client makes the requests of one controller. It is safe for concurrent use.
type Client struct {
	config   Config
	rest     rest.Interface
	listOnly sync.Map // keys of type kinds.Name: what the controller may list and not get
}

// New returns the client of a controller. All clients share one transport, which client-go caches
// by its TLS settings. The client has no rate limit of its own, since waiting for it would count
// against the request's time-out: package apply limits the rate.
//
// Errors: the configuration names files that cannot be read or an address that cannot be one.
// Nothing is sent.
func New(config Config, a Actor) (*Client, error) {
	c := rest.CopyConfig(config.REST)
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	c.UserAgent = "millrace-writer/" + a.Controller
	c.NegotiatedSerializer = codecs.WithoutConversion()
	c.Timeout = config.Timeout
	if config.Impersonate {
		c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + metav1.NamespaceSystem + ":" + a.Identity}
	}
	httpClient, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(c, httpClient)
	if err != nil {
		return nil, err
	}
	return &Client{config: config, rest: client}, nil
}
