package source

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events/kinds"
)

func pod(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func end(version string) *corev1.Pod {
	p := pod("", version)
	p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return p
}

func TestAStreamedListEndsAtItsBookmark(t *testing.T) {
	w := watch.NewFakeWithChanSize(6, false)
	w.Add(pod("a", "1"))
	w.Action(watch.Bookmark, pod("", "2")) // some bookmark, not the one
	w.Modify(pod("a", "3"))
	w.Delete(pod("b", "4"))
	w.Action(watch.Bookmark, end("5"))
	w.Add(pod("later", "6"))
	var seen []string
	version, err := initially(w, func(obj runtime.Object, gone bool) error {
		seen = append(seen, fmt.Sprint(obj.(*corev1.Pod).Name, obj.(*corev1.Pod).ResourceVersion, gone))
		return nil
	})
	if got := fmt.Sprintf("%v %s %v", seen, version, err); got != "[a1false a3false b4true] 5 <nil>" {
		t.Errorf("the list is %s", got)
	}
	if next := <-w.ResultChan(); next.Object.(*corev1.Pod).Name != "later" {
		t.Errorf("the watch goes on with %v", next)
	}
}

func TestAStreamThatSaysNothingIsNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := initially(watch.NewFake(), func(runtime.Object, bool) error { return nil })
		if !errors.Is(err, errUnstreamed) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestASlowStreamIsAListAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := watch.NewFake(), 0
		go func() {
			for range 10 {
				time.Sleep(streamPatience - time.Second)
				w.Add(pod("a", "1"))
			}
			w.Action(watch.Bookmark, end("2"))
		}()
		version, err := initially(w, func(runtime.Object, bool) error { seen++; return nil })
		if version != "2" || err != nil || seen != 10 {
			t.Errorf("version %q, %v, %d objects", version, err, seen)
		}
	})
}

func TestAStreamThatBreaksOffIsAnError(t *testing.T) {
	w := watch.NewFakeWithChanSize(1, false)
	w.Add(pod("a", "1"))
	w.Stop()
	if _, err := initially(w, func(runtime.Object, bool) error { return nil }); err == nil || errors.Is(err, errUnstreamed) {
		t.Errorf("a list that broke off: %v", err)
	}
}

func TestWhatErrorsAre(t *testing.T) {
	status := func(code int, cause metav1.CauseType) error {
		err := apierrors.NewGenericServerResponse(code, "watch", schema.GroupResource{}, "", "", 0, false)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
		return fmt.Errorf("watch: %w", err)
	}
	for _, c := range []struct {
		err                               error
		answered, refused, expired, ahead bool
	}{
		{err: errors.New("connection refused")},
		{err: status(http.StatusForbidden, ""), answered: true, refused: true},
		{err: status(http.StatusUnauthorized, ""), answered: true, refused: true},
		{err: status(http.StatusGone, ""), answered: true, expired: true},
		{err: fmt.Errorf("watch: %w", apierrors.NewResourceExpired("too old")), answered: true, expired: true},
		{err: status(http.StatusGatewayTimeout, metav1.CauseTypeResourceVersionTooLarge), answered: true, ahead: true},
		{err: status(http.StatusInternalServerError, ""), answered: true},
	} {
		if Answered(c.err) != c.answered || Refused(c.err) != c.refused || Expired(c.err) != c.expired || Ahead(c.err) != c.ahead {
			t.Errorf("%v: answered %t, refused %t, expired %t, ahead %t", c.err, Answered(c.err), Refused(c.err), Expired(c.err), Ahead(c.err))
		}
	}
}

func TestTheCatalogTakesThePreferredVersionThatHasAKind(t *testing.T) {
	all := []string{"create", "delete", "get", "list", "watch"}
	resource := func(name, kind string, verbs []string) apidiscovery.APIResourceDiscovery {
		return apidiscovery.APIResourceDiscovery{
			Resource: name, ResponseKind: &metav1.GroupVersionKind{Kind: kind}, Scope: apidiscovery.ScopeNamespace, Verbs: verbs,
		}
	}
	version := func(name string, resources ...apidiscovery.APIResourceDiscovery) apidiscovery.APIVersionDiscovery {
		return apidiscovery.APIVersionDiscovery{Version: name, Resources: resources}
	}
	cluster := resource("gadgets", "Gadget", all)
	cluster.Scope = apidiscovery.ScopeCluster
	stale := version("v1")
	stale.Freshness = apidiscovery.DiscoveryFreshnessStale
	catalog := catalogOf([]apidiscovery.APIGroupDiscovery{
		{Versions: []apidiscovery.APIVersionDiscovery{version("v1", resource("pods", "Pod", all), resource("events", "Event", all))}},
		{ObjectMeta: metav1.ObjectMeta{Name: "example.com"}, Versions: []apidiscovery.APIVersionDiscovery{
			version("v2", resource("widgets", "Widget", all), resource("reviews", "Review", []string{"create"})),
			version("v1", resource("widgets", "Widget", all), cluster),
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: "events.k8s.io"}, Versions: []apidiscovery.APIVersionDiscovery{version("v1", resource("events", "Event", all))}},
		{ObjectMeta: metav1.ObjectMeta{Name: "away.example.com"}, Versions: []apidiscovery.APIVersionDiscovery{stale}},
	})
	want := []kinds.Kind{
		{Name: "gadgets.example.com", Version: "v1", Kind: "Gadget", Form: kinds.Metadata},
		{Name: "pods", Version: "v1", Kind: "Pod", Namespaced: true, Form: kinds.Metadata},
		{Name: "widgets.example.com", Version: "v2", Kind: "Widget", Namespaced: true, Form: kinds.Metadata},
	}
	if !slices.Equal(catalog.Kinds, want) {
		t.Errorf("the catalog is %#v", catalog.Kinds)
	}
	if !catalog.Serves("widgets.example.com", "v1") || catalog.Serves("gadgets.example.com", "v2") {
		t.Error("the versions are not as served")
	}
	if !catalog.Silent["away.example.com"] || catalog.Silent["example.com"] {
		t.Errorf("silent are %v", catalog.Silent)
	}
}

// Events of Kubernetes are left out, and what has no kind of its own or cannot be watched, listed
// or deleted; a kind of another group that is called events is not.
func TestWhatCanBeWatched(t *testing.T) {
	all := []string{"delete", "list", "watch"}
	kind := &metav1.GroupVersionKind{Kind: "X"}
	for what, c := range map[string]struct {
		group string
		of    apidiscovery.APIResourceDiscovery
		want  bool
	}{
		"a kind":                 {"", apidiscovery.APIResourceDiscovery{Resource: "pods", ResponseKind: kind, Verbs: all}, true},
		"one without a kind":     {"", apidiscovery.APIResourceDiscovery{Resource: "pods", Verbs: all}, false},
		"core events":            {"", apidiscovery.APIResourceDiscovery{Resource: "events", ResponseKind: kind, Verbs: all}, false},
		"events":                 {"events.k8s.io", apidiscovery.APIResourceDiscovery{Resource: "events", ResponseKind: kind, Verbs: all}, false},
		"events of others":       {"example.com", apidiscovery.APIResourceDiscovery{Resource: "events", ResponseKind: kind, Verbs: all}, true},
		"others of their group":  {"events.k8s.io", apidiscovery.APIResourceDiscovery{Resource: "reports", ResponseKind: kind, Verbs: all}, true},
		"what cannot be deleted": {"", apidiscovery.APIResourceDiscovery{Resource: "pods", ResponseKind: kind, Verbs: []string{"list", "watch"}}, false},
		"what cannot be listed":  {"", apidiscovery.APIResourceDiscovery{Resource: "pods", ResponseKind: kind, Verbs: []string{"delete", "watch"}}, false},
		"what cannot be watched": {"", apidiscovery.APIResourceDiscovery{Resource: "pods", ResponseKind: kind, Verbs: []string{"delete", "list"}}, false},
	} {
		if got := usable(c.group, c.of); got != c.want {
			t.Errorf("%s can be watched: %t", what, got)
		}
	}
}
