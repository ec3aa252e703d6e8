// Package source is the watcher's door to the API server: it discovers, lists and watches kinds. It
// only reads.
package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Source reads one API server. It is safe for concurrent use.
type Source struct {
	config   *rest.Config
	http     *http.Client
	base     *url.URL
	metadata metadata.Interface
	dynamic  dynamic.Interface

	mu        sync.Mutex // one Discover at a time
	documents [2]document
	catalog   Catalog
}

// New makes a source. It does not connect yet. It turns the client's own rate limit off: the API
// server's priority and fairness decides.
func New(config *rest.Config) (*Source, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter = -1, nil
	config.Timeout = 0 // a watch lasts
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the client of the API server: %w", err)
	}
	s := &Source{config: config, http: client, documents: [2]document{{path: "api"}, {path: "apis"}}}
	if s.base, _, err = rest.DefaultServerUrlFor(config); err != nil {
		return nil, fmt.Errorf("read the address of the API server: %w", err)
	}
	if s.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), client); err != nil {
		return nil, fmt.Errorf("make the metadata client: %w", err)
	}
	if s.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return nil, fmt.Errorf("make the dynamic client: %w", err)
	}
	return s, nil
}

// Kind opens a kind: its metadata, its Go type in protobuf (a watch gives [kinds.Raw]), or, for a
// kind without a Go type here, its JSON.
func (s *Source) Kind(kind kinds.Kind) (*Kind, error) {
	switch gvr := kind.GVR(); {
	case kind.Form != kinds.Full:
		c := s.metadata.Resource(gvr)
		return &Kind{
			list: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
				return c.Namespace(namespace).List(ctx, o)
			},
			watch: c.Watch,
		}, nil
	case !kinds.Scheme().Recognizes(kind.GVK()):
		c := s.dynamic.Resource(gvr)
		return &Kind{
			list: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
				return c.Namespace(namespace).List(ctx, o)
			},
			watch: c.Watch,
		}, nil
	default:
		return s.typed(kind)
	}
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
	config.NegotiatedSerializer = asSent{config.NegotiatedSerializer, kind}
	watcher, err := rest.RESTClientForConfigAndClient(config, s.http)
	if err != nil {
		return nil, fmt.Errorf("make the client of %s: %w", kind.Name, err)
	}
	params, resource := runtime.NewParameterCodec(kinds.Scheme()), kind.Name.Resource()
	return &Kind{
		list: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&o, params).Do(ctx).Get()
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return watcher.Get().Resource(resource).VersionedParams(&o, params).Watch(ctx)
		},
	}, nil
}

// asSent decodes objects of a kind as [kinds.Raw] where the API server has sent them in protobuf,
// and leaves the rest to the serializer.
type asSent struct {
	runtime.NegotiatedSerializer
	kind kinds.Kind
}

// DecoderToVersion implements [runtime.NegotiatedSerializer].
func (a asSent) DecoderToVersion(decoder runtime.Decoder, to runtime.GroupVersioner) runtime.Decoder {
	return rawDecoder{a.NegotiatedSerializer.DecoderToVersion(decoder, to), a.kind}
}

type rawDecoder struct {
	runtime.Decoder
	kind kinds.Kind
}

// Decode implements [runtime.Decoder].
func (d rawDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		if raw, err := kinds.ReadRaw(d.kind, data); err == nil {
			gvk := d.kind.GVK()
			return raw, &gvk, nil
		}
	}
	return d.Decoder.Decode(data, defaults, into) // its error says what is wrong
}

// Refused reports whether the API server denies us access, or does not accept our credentials.
func Refused(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// Answered reports whether an error is an answer of the API server, as opposed to a missing one.
func Answered(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer)
}

// Unreachable reports whether the API server could not be asked at all.
func Unreachable(err error) bool {
	var failed *url.Error
	return errors.As(err, &failed)
}

// Absent reports whether the API server does not serve the kind, or not in that
// version.
func Absent(err error) bool { return apierrors.IsNotFound(err) }

// Expired reports whether a watch cannot resume from its version because the API server has forgotten
// the changes after it.
func Expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// Ahead reports whether a watch cannot resume from its version because the API server has not reached
// that version: it lags behind another server, or its storage went back.
func Ahead(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
