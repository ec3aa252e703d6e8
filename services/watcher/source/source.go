// Package source is the watcher's door to the API server: it finds out which
// kinds there are, lists and watches them. It only reads.
package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// pageSize bounds what one answer of a paged list holds.
const pageSize = 500

// Source reads one API server.
type Source struct {
	config    *rest.Config
	http      *http.Client
	discovery discovery.DiscoveryInterface
	metadata  metadata.Interface
	dynamic   dynamic.Interface
}

// New makes a source. It does not connect yet. The client's own rate limit is
// off: the API server's priority and fairness decides.
func New(config *rest.Config) (*Source, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	config.Timeout = 0 // a watch lasts
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of the API server: %w", err)
	}
	s := &Source{config: config, http: client}
	if s.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("make the discovery client: %w", err)
	}
	if s.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), client); err != nil {
		return nil, fmt.Errorf("make the metadata client: %w", err)
	}
	if s.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("make the dynamic client: %w", err)
	}
	return s, nil
}

// Catalog is what discovery found.
type Catalog struct {
	// Kinds can be deleted, listed and watched; sorted by name, metadata form.
	Kinds []kinds.Kind
	// Silent are the groups whose discovery failed: what is known of them must
	// be kept.
	Silent map[string]bool
}

// Discover asks which kinds there are, in each group's preferred version.
//
// Errors: the API server is unreachable or refuses. A group that alone does not
// answer is no error.
func (s *Source) Discover(ctx context.Context) (Catalog, error) {
	c := Catalog{Silent: map[string]bool{}}
	lists, err := discovery.ServerPreferredResources(s.discovery)
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		for gv := range partial.Groups {
			c.Silent[gv.Group] = true
		}
	case err != nil:
		return c, fmt.Errorf("discover kinds: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return c, fmt.Errorf("discover kinds: %w", err)
		}
		for _, r := range list.APIResources {
			if usable(gv.Group, r) {
				c.Kinds = append(c.Kinds, kinds.Kind{
					Name: kinds.NameOf(gv.Group, r.Name), Version: gv.Version, Kind: r.Kind,
					Namespaced: r.Namespaced, Form: kinds.Metadata,
				})
			}
		}
	}
	slices.SortFunc(c.Kinds, func(a, b kinds.Kind) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return c, ctx.Err()
}

// Reach asks the API server for something that every client with valid
// credentials may have.
func (s *Source) Reach(ctx context.Context) error {
	return s.discovery.RESTClient().Get().AbsPath("/api").Do(ctx).Error()
}

// usable leaves out subresources, what cannot be watched, and Events: those are
// written by us, in numbers, and own nothing.
func usable(group string, r metav1.APIResource) bool {
	if strings.Contains(r.Name, "/") || (r.Name == "events" && (group == "" || group == "events.k8s.io")) {
		return false
	}
	for _, verb := range []string{"delete", "list", "watch"} {
		if !slices.Contains(r.Verbs, verb) {
			return false
		}
	}
	return true
}

// Kind reads one kind.
type Kind struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Kind opens a kind: its metadata, its Go type in protobuf, or, for a kind that
// has none here, its JSON.
func (s *Source) Kind(kind kinds.Kind) (*Kind, error) {
	gvr := kind.GVR()
	if kind.Form != kinds.Full {
		c := s.metadata.Resource(gvr)
		return &Kind{
			list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
			watch: c.Watch,
		}, nil
	}
	if !kinds.Scheme().Recognizes(kind.GVK()) {
		c := s.dynamic.Resource(gvr)
		return &Kind{
			list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
			watch: c.Watch,
		}, nil
	}
	return s.typed(kind)
}

func (s *Source) typed(kind kinds.Kind) (*Kind, error) {
	config := rest.CopyConfig(s.config)
	gv := kind.GVK().GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(kinds.Scheme()).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = kinds.Protobuf, kinds.Protobuf+","+kinds.JSON
	client, err := rest.RESTClientForConfigAndClient(config, s.http)
	if err != nil {
		return nil, fmt.Errorf("make the client of %s: %w", kind.Name, err)
	}
	params, resource := runtime.NewParameterCodec(kinds.Scheme()), kind.Name.Resource()
	return &Kind{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.Get().Resource(resource).VersionedParams(&o, params).Do(ctx).Get()
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return client.Get().Resource(resource).VersionedParams(&o, params).Watch(ctx)
		},
	}, nil
}

// List reads everything, page by page, and gives the version that it is of.
// The first page is a consistent read, so that it is never older than what was
// watched before.
func (k *Kind) List(ctx context.Context, see func(version string, obj runtime.Object) error) (version string, err error) {
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := k.list(ctx, o)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		version = m.GetResourceVersion()
		if err := meta.EachListItem(page, func(obj runtime.Object) error { return see(version, obj) }); err != nil {
			return "", err
		}
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return version, nil
		}
	}
}

// Watch follows a kind from a version, with bookmarks.
func (k *Kind) Watch(ctx context.Context, version string) (watch.Interface, error) {
	return k.watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
}

// Refused tells whether the API server knows us and says no, or does not know us.
func Refused(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// Expired tells whether a watch cannot go on from its version: the server has
// forgotten what came after it, or has never got so far.
func Expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) && tooLarge(err)
}

func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
