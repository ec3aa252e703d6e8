package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// last returns the path and the query of the newest request.
func last(s *apiservertest.Server) (path string, query url.Values) {
	asked := s.Requests()
	newest := asked[len(asked)-1]
	return newest.Path, newest.Query
}

// sourceOf is one whose configuration would have it end watches, and ask seldom.
func sourceOf(t *testing.T, s *apiservertest.Server) *Source {
	t.Helper()
	source, err := New(&rest.Config{Host: s.URL, Timeout: time.Millisecond, QPS: 0.001, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// answering is a server in whose place a test answers.
func answering(instead http.HandlerFunc) func(apiservertest.Request) apiservertest.Fault {
	return func(apiservertest.Request) apiservertest.Fault { return apiservertest.Fault{Instead: instead} }
}

func text(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}
}

// Every kind is listed and watched under its own path: core kinds, those of a group, those
// without a Go type here, and of any kind the metadata alone.
func TestWhereKindsAreRead(t *testing.T) {
	widgets := kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Namespaced: true, Form: kinds.Full}
	secrets := kinds.Secrets.Kind
	secrets.Form = kinds.Metadata
	for name, c := range map[string]struct {
		kind             kinds.Kind
		all, inNamespace string
		accepts          string
	}{
		"core":                  {kinds.Pods.Kind, "/api/v1/pods", "/api/v1/namespaces/ns/pods", kinds.Protobuf + ","},
		"of a group":            {kinds.Deployments.Kind, "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/ns/deployments", kinds.Protobuf + ","},
		"without a Go type":     {widgets, "/apis/example.com/v1/widgets", "/apis/example.com/v1/namespaces/ns/widgets", "application/json"},
		"in its metadata alone": {secrets, "/api/v1/secrets", "/api/v1/namespaces/ns/secrets", "as=PartialObjectMetadataList"},
	} {
		t.Run(name, func(t *testing.T) {
			served := apiservertest.Resource{Group: c.kind.GVK().Group, Version: "v1", Name: path.Base(c.all), Kind: c.kind.Kind, Namespaced: true}
			s := apiservertest.New(t, apiservertest.Serving(served))
			s.Load(6, nil)
			s.Put(c.inNamespace+"/a", "", map[string]any{})
			k, err := sourceOf(t, s).Kind(c.kind)
			if err != nil {
				t.Fatal(err)
			}
			version, found, err := k.Position(t.Context(), "ns", "a")
			at, query := last(s)
			if err != nil || version != "7" || found == nil || found.GetName() != "a" || at != c.inNamespace || query.Get("fieldSelector") != "metadata.name=a" || query.Get("limit") != "1" {
				t.Errorf("the named one is %v at %q (%v), from %s?%v", found, version, err, at, query)
			}
			if accepted := s.Requests()[0].Header.Get("Accept"); !strings.Contains(accepted, c.accepts) {
				t.Errorf("it is asked for in %q, want %q", accepted, c.accepts)
			}
			version, found, err = k.Position(t.Context(), "", "")
			if at, query = last(s); err != nil || version != "7" || found != nil || at != c.all || query.Has("fieldSelector") {
				t.Errorf("the position is %q with %v (%v), from %s?%v", version, found, err, at, query)
			}
			w, err := k.Watch(t.Context(), "5")
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			event := <-w.ResultChan()
			if m, err := meta.Accessor(event.Object); err != nil || m.GetName() != "a" {
				t.Errorf("the watch tells of %+v", event)
			}
			if at, query = last(s); at != c.all || query.Get("resourceVersion") != "5" || query.Get("allowWatchBookmarks") != "true" {
				t.Errorf("it watches %s?%v", at, query)
			}
			s.Break(func(apiservertest.Request) apiservertest.Fault {
				return apiservertest.Fault{Code: http.StatusForbidden}
			})
			if version, _, err := k.Position(t.Context(), "", ""); !Refused(err) || version != "" {
				t.Errorf("a refusal is the position %q, %v", version, err)
			}
			if w, err := k.Watch(t.Context(), "5"); !Refused(err) || w != nil {
				t.Errorf("a refusal is the watch %v, %v", w, err)
			}
		})
	}
}

// What a watch sends in protobuf goes on as it is.
func TestAWatchInProtobuf(t *testing.T) {
	sent, err := kinds.Encode(kinds.Pods.Kind, pod("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	frame, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: sent}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	s := apiservertest.New(t)
	s.Break(answering(text(kinds.Protobuf+";stream=watch", string(binary.BigEndian.AppendUint32(nil, uint32(len(frame))))+string(frame))))
	k, err := sourceOf(t, s).Kind(kinds.Pods.Kind)
	if err != nil {
		t.Fatal(err)
	}
	w, err := k.Watch(t.Context(), "5")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := <-w.ResultChan()
	if raw, is := event.Object.(*kinds.Raw); !is || raw.GetName() != "a" {
		t.Errorf("the watch tells of %T %v", event.Object, event)
	}
}

// Objects that are sent in protobuf go on as they are, and what is none of the kind is read as
// what it is.
func TestObjectsGoOnAsTheyAreSent(t *testing.T) {
	sent, err := kinds.Encode(kinds.Pods.Kind, pod("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	status, err := kinds.Encode(kinds.Kind{Version: "v1", Kind: "Status"}, &metav1.Status{Message: "too old"})
	if err != nil {
		t.Fatal(err)
	}
	other := &other{}
	d := rawDecoder{other, kinds.Pods.Kind}
	got, gvk, err := d.Decode(sent, nil, nil)
	if raw, is := got.(*kinds.Raw); !is || err != nil || raw.GetName() != "a" || *gvk != kinds.Pods.Kind.GVK() || other.asked != 0 {
		t.Errorf("a pod is %v, %v, %v", got, gvk, err)
	}
	if _, _, _ = d.Decode(status, nil, nil); other.asked != 1 {
		t.Error("an error of the API server is not read as one")
	}
	if _, _, _ = d.Decode(sent, nil, pod("", "")); other.asked != 2 {
		t.Error("what is to be read into an object is not")
	}
}

// other is a decoder that counts how often it is asked.
type other struct{ asked int }

func (o *other) Decode([]byte, *schema.GroupVersionKind, runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o.asked++
	return nil, nil, errors.New("other")
}

const discovered = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// resource is one that is watched.
func resource(group, name string) apiservertest.Resource {
	return apiservertest.Resource{Group: group, Version: "v1", Name: name, Kind: "X", Namespaced: true, Verbs: []string{"delete", "list", "watch"}}
}

// Discovery reads both documents, and again only one that has changed.
func TestDiscoveryReadsWhatHasChanged(t *testing.T) {
	pods, widgets := resource("", "pods"), resource("example.com", "widgets")
	s := apiservertest.New(t, apiservertest.Serving(pods, widgets))
	source := sourceOf(t, s)
	finds := func(when string, wantFresh bool, want ...kinds.Name) {
		t.Helper()
		catalog, fresh, err := source.Discover(t.Context())
		var names []kinds.Name
		for _, k := range catalog.Kinds {
			names = append(names, k.Name)
		}
		if err != nil || fresh != wantFresh || !slices.Equal(names, want) {
			t.Errorf("%s: %v, fresh: %t, %v; want %v", when, names, fresh, err, want)
		}
	}
	finds("at first", true, "pods", "widgets.example.com")
	finds("when nothing has changed", false, "pods", "widgets.example.com")
	s.Unserve(widgets)
	s.Serve(resource("example.com", "gadgets"))
	finds("when a group has changed", true, "gadgets.example.com", "pods")
	s.Unserve(pods)
	s.Serve(resource("", "nodes"))
	finds("when a core kind has changed", true, "gadgets.example.com", "nodes")
	for _, r := range s.Requests() {
		if r.Header.Get("Accept") != discovered {
			t.Errorf("%s is asked for in %q", r.Path, r.Header.Get("Accept"))
		}
	}
	if source.http.Timeout != 0 {
		t.Errorf("a watch ends after %v", source.http.Timeout)
	}
	if err := source.Reach(t.Context()); err != nil {
		t.Errorf("the API server is not reached: %v", err)
	}
}

// What is no discovery is an error that says why, and what was found before is kept.
func TestDiscoveryThatFails(t *testing.T) {
	s := apiservertest.New(t, apiservertest.Serving(resource("", "pods")))
	source := sourceOf(t, s)
	if _, _, err := source.Discover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for want, answer := range map[string]http.HandlerFunc{
		"is no aggregated discovery": text(kinds.JSON, `{"kind":"APIVersions"}`),
		"read /api: invalid":         text(discovered, `{"items":x}`),
		"read /api: unexpected EOF": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			text(discovered, `{"items":[`)(w, r)
		},
		"currently unable": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("busy"))
		},
	} {
		s.Break(answering(answer))
		catalog, fresh, err := source.Discover(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "discover kinds") || fresh || len(catalog.Kinds) != 1 {
			t.Errorf("want an error with %q, got %v; fresh: %t, %d kinds", want, err, fresh, len(catalog.Kinds))
		}
		if Answered(err) != (want == "currently unable") || Unreachable(err) {
			t.Errorf("%v: answered: %t, unreachable: %t", err, Answered(err), Unreachable(err))
		}
		if wait, _ := apierrors.SuggestsClientDelay(err); want == "currently unable" && (wait != 7 || source.Reach(t.Context()) == nil) {
			t.Errorf("it is to be waited %d s, want 7", wait)
		}
	}
	s.Close()
	if _, _, err := source.Discover(t.Context()); !Unreachable(err) || Answered(err) {
		t.Errorf("an API server that is away: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := source.Reach(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a question whose caller has gone: %v", err)
	}
}

// A configuration that leads to no API server is an error.
func TestConfigurationsThatAreNone(t *testing.T) {
	for want, config := range map[string]*rest.Config{
		"make the client of the API server": {Host: "https://127.0.0.1", TLSClientConfig: rest.TLSClientConfig{CAFile: t.TempDir() + "/none"}},
		"read the address":                  {Host: "http://[::1"},
	} {
		if source, err := New(config); err == nil || source != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if absent := apierrors.NewNotFound(schema.GroupResource{}, "x"); !Absent(fmt.Errorf("list: %w", absent)) || Absent(errors.New("x")) {
		t.Error("a kind that is not served is not told from others")
	}
}
