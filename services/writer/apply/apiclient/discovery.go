package apiclient

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Discovery finds out what the API server serves, as the writer itself: no controller's role has to
// allow it. For an unknown kind it repeats discovery, at most every resetEvery. It is safe for
// concurrent use.
type Discovery struct {
	// Client makes a request for each call, and Mapper caches discovery.
	Client discovery.DiscoveryInterface
	Mapper *restmapper.DeferredDiscoveryRESTMapper

	mu   sync.Mutex
	last time.Time // when the cache was last dropped
}

const resetEvery = 10 * time.Second

// NewDiscovery returns the discovery of an API server.
//
// Errors: the configuration names files that cannot be read or an address that cannot be one.
// Nothing is sent.
func NewDiscovery(c *rest.Config) (*Discovery, error) {
	own := rest.AddUserAgent(rest.CopyConfig(c), "millrace-writer")
	client, err := discovery.NewDiscoveryClientForConfig(own)
	if err != nil {
		return nil, err
	}
	return &Discovery{Client: client, Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))}, nil
}

// Find returns the resource of an owner's kind, in the version that the owner reference names.
//
// Errors: [meta.NoKindMatchError] for a kind that is not served; discovery failed.
func (d *Discovery) Find(owner metav1.OwnerReference) (*meta.RESTMapping, error) {
	gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	mapped, err := d.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err == nil || !meta.IsNoMatchError(err) {
		return mapped, err
	}
	if !d.Renew() {
		return nil, err
	}
	return d.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// All returns the resources that are served for a kind, in any version. It repeats discovery as
// Find does.
//
// Errors: as Find's.
func (d *Discovery) All(kind schema.GroupKind) ([]*meta.RESTMapping, error) {
	mapped, err := d.Mapper.RESTMappings(kind)
	if err == nil || !meta.IsNoMatchError(err) || !d.Renew() {
		return mapped, err
	}
	return d.Mapper.RESTMappings(kind)
}

// Renew drops the cached discovery, unless it did so within resetEvery, and reports whether it did.
func (d *Discovery) Renew() bool {
	d.mu.Lock()
	stale := time.Since(d.last) > resetEvery
	if stale {
		d.last = time.Now()
	}
	d.mu.Unlock()
	if stale {
		d.Mapper.Reset()
	}
	return stale
}
