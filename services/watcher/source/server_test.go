package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// server is an API server that answers as it is told, and keeps what it was asked.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []*http.Request
	answer http.HandlerFunc
}

func serve(t *testing.T, answer http.HandlerFunc) *server {
	s := &server{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r)
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) turnTo(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// last is the newest question, as path and query.
func (s *server) last() (path string, query url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.asked[len(s.asked)-1].URL
	return u.Path, u.Query()
}

// source is one whose configuration would have it end watches, and ask seldom.
func (s *server) source(t *testing.T) *Source {
	t.Helper()
	source, err := New(&rest.Config{Host: s.URL, Timeout: time.Millisecond, QPS: 0.001, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	return source
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
		kind               kinds.Kind
		all, inNamespace   string
		apiVersion, object string
		accepts            string
	}{
		"core":                  {kinds.Pods.Kind, "/api/v1/pods", "/api/v1/namespaces/ns/pods", "v1", "Pod", kinds.Protobuf + ","},
		"of a group":            {kinds.Deployments.Kind, "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/ns/deployments", "apps/v1", "Deployment", kinds.Protobuf + ","},
		"without a Go type":     {widgets, "/apis/example.com/v1/widgets", "/apis/example.com/v1/namespaces/ns/widgets", "example.com/v1", "Widget", "application/json"},
		"in its metadata alone": {secrets, "/api/v1/secrets", "/api/v1/namespaces/ns/secrets", "meta.k8s.io/v1", "PartialObjectMetadata", "as=PartialObjectMetadataList"},
	} {
		t.Run(name, func(t *testing.T) {
			one := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","namespace":"ns"}}`, c.apiVersion, c.object)
			list := fmt.Sprintf(`{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"7"},"items":[%s]}`, c.apiVersion, c.object, one)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("watch") != "" {
					text(kinds.JSON, `{"type":"ADDED","object":`+one+`}`)(w, r)
					return
				}
				text(kinds.JSON, list)(w, r)
			})
			k, err := s.source(t).Kind(c.kind)
			if err != nil {
				t.Fatal(err)
			}
			version, found, err := k.Position(t.Context(), "ns", "a")
			path, query := s.last()
			if err != nil || version != "7" || found == nil || found.GetName() != "a" || path != c.inNamespace || query.Get("fieldSelector") != "metadata.name=a" || query.Get("limit") != "1" {
				t.Errorf("the named one is %v at %q (%v), from %s?%v", found, version, err, path, query)
			}
			if accepted := s.asked[0].Header.Get("Accept"); !strings.Contains(accepted, c.accepts) {
				t.Errorf("it is asked for in %q, want %q", accepted, c.accepts)
			}
			version, found, err = k.Position(t.Context(), "", "")
			if path, query = s.last(); err != nil || version != "7" || found != nil || path != c.all || query.Has("fieldSelector") {
				t.Errorf("the position is %q with %v (%v), from %s?%v", version, found, err, path, query)
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
			if path, query = s.last(); path != c.all || query.Get("resourceVersion") != "5" || query.Get("allowWatchBookmarks") != "true" {
				t.Errorf("it watches %s?%v", path, query)
			}
			s.turnTo(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
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
	s := serve(t, text(kinds.Protobuf+";stream=watch", string(binary.BigEndian.AppendUint32(nil, uint32(len(frame))))+string(frame)))
	k, err := s.source(t).Kind(kinds.Pods.Kind)
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

// discover answers with one resource of a group, under a tag.
func discover(tag, group, resource string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", tag)
		text(discovered, fmt.Sprintf(`{"items":[{"metadata":{"name":%q},"versions":[{"version":"v1","resources":[
			{"resource":%q,"responseKind":{"kind":"X"},"scope":"Namespaced","verbs":["delete","list","watch"]}]}]}]}`, group, resource))(w, r)
	}
}

// Discovery reads both documents, and again only one that has changed.
func TestDiscoveryReadsWhatHasChanged(t *testing.T) {
	core, groups := discover("1", "", "pods"), discover("2", "example.com", "widgets")
	var mu sync.Mutex
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/api":
			core(w, r)
		case "/apis":
			groups(w, r)
		}
	})
	source := s.source(t)
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
	mu.Lock()
	groups = discover("3", "example.com", "gadgets")
	mu.Unlock()
	finds("when a group has changed", true, "gadgets.example.com", "pods")
	mu.Lock()
	core = discover("4", "", "nodes")
	mu.Unlock()
	finds("when a core kind has changed", true, "gadgets.example.com", "nodes")
	for _, r := range s.asked {
		if r.Header.Get("Accept") != discovered {
			t.Errorf("%s is asked for in %q", r.URL, r.Header.Get("Accept"))
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
	s := serve(t, discover("1", "", "pods"))
	source := s.source(t)
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
		s.turnTo(answer)
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
