package page

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// site is a page of a shop, in virtual time.
type site struct {
	*testing.T
	*recordtest.Shop
	bus     *memory.Bus
	handler http.Handler
}

func visit(t *testing.T, look func(s *site)) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		slow := bustest.Wrap(b) // each delta takes a second, so that moments differ
		slow.OnAppend = func(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
			a, err := b.Append(ctx, kind)
			return &bustest.Appender{Appender: a, OnFlush: func(ctx context.Context) error {
				defer time.Sleep(time.Second) // of virtual time
				return a.Flush(ctx)
			}}, err
		}
		teller, err := recordtest.New(t.Context(), slow, recordtest.ShopKinds, []string{recordtest.Deployments, recordtest.ReplicaSets})
		if err != nil {
			t.Fatal(err)
		}
		shop, err := recordtest.OpenShop(t.Context(), teller)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // of virtual time
		look(&site{T: t, Shop: shop, bus: b, handler: New(b, Options{Program: "millrace", Hosts: []string{"millrace.example"}})})
		if err := teller.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// ask makes a request and decodes the answer. The status code must be the given one.
func (s *site) ask(status int, what string, values url.Values, answer any) {
	s.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8090/api/"+what+"?"+values.Encode(), nil))
	if w.Code != status {
		s.Fatalf("%s of %v is answered with %d: %s", what, values, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
		s.Fatalf("%s of %v is answered with %s: %v", what, values, w.Body, err)
	}
}

func of(kind, name string, more ...string) url.Values {
	v := url.Values{"kind": {kind}, "namespace": {"shop"}, "name": {name}}
	for i := 0; i < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return v
}

func TestTheOverviewSaysWhatThereIs(t *testing.T) {
	visit(t, func(s *site) {
		var c contents
		s.ask(http.StatusOK, "overview", nil, &c)
		pods := c.Kinds[slices.IndexFunc(c.Kinds, func(f family) bool { return f.Name == "pods" })]
		if len(c.Kinds) != len(recordtest.ShopKinds) || pods.Objects != 2 || !pods.Namespaced || pods.Resource != "pods" {
			s.Errorf("the kinds are %+v", c.Kinds)
		}
		if !slices.Equal(c.Namespaces, []string{"shop"}) || !slices.Equal(c.Controllers, []string{recordtest.Deployments, recordtest.ReplicaSets}) {
			s.Errorf("it has the namespaces %v and the controllers %v", c.Namespaces, c.Controllers)
		}
		if age := time.Since(c.Begins); age < 5*time.Second || age > time.Minute || !c.Now.Equal(time.Now()) {
			s.Errorf("it begins at %v, and it is %v", c.Begins, c.Now)
		}
	})
}

func TestSearchFindsWhatIsThereFirst(t *testing.T) {
	visit(t, func(s *site) {
		for typed, want := range map[string]string{
			"web": "deployments.apps/web pods/web-1-1 pods/web-1-2 replicasets.apps/web-1", "deploy/w": "deployments.apps/web", "po 2": "pods/web-1-2",
			"1-1": "pods/web-1-1", "pod": "pods/", "/po/2": "pods/web-1-2", "nonsense/x": "", "nothing": "", "WEB-1": "replicasets.apps/web-1 pods/web-1-1 pods/web-1-2",
		} {
			var found []hit
			s.ask(http.StatusOK, "search", url.Values{"q": {typed}, "namespace": {"shop"}}, &found)
			var got []string
			for _, h := range found {
				got = append(got, string(h.Kind)+"/"+h.Name)
			}
			if strings.Join(got, " ") != want {
				s.Errorf("%q finds %v, want %s", typed, got, want)
			}
		}
		flags := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "flags", UID: "uid-102"}}
		d, err := s.Write(kinds.ConfigMaps.Kind, flags, "x")
		if err != nil {
			s.Fatal(err)
		}
		d.Op = "gone"
		if _, err := s.Say(s.Context(), d); err != nil {
			s.Fatal(err)
		}
		var found []hit
		s.ask(http.StatusOK, "search", url.Values{"q": {"flags"}}, &found)
		if len(found) != 1 || !found[0].Gone {
			s.Errorf("what has just gone is found as %+v", found)
		}
	})
}

func TestAMomentIsShownAsItWas(t *testing.T) {
	visit(t, func(s *site) {
		var now, then scene
		s.ask(http.StatusOK, "state", url.Values{"namespace": {"shop"}}, &now)
		if got := now.names(); got != "configmaps: flags; deployments.apps: web; pods: web-1-1 web-1-2; replicasets.apps: web-1; secrets: " {
			s.Errorf("now there is %s", got)
		}
		pod := now.Kinds[slices.IndexFunc(now.Kinds, func(g group) bool { return g.Kind == "pods" })].Items[0]
		if pod.Status != "Running" || pod.Level != good || pod.Node != "node-1" || pod.By != "kubelet" {
			s.Errorf("a pod is %+v", pod)
		}
		var h record.History
		s.ask(http.StatusOK, "history", of("pod", "web-1-1"), &h)
		s.ask(http.StatusOK, "state", url.Values{"namespace": {"shop"}, "at": {h.Versions[0].Time.Format(time.RFC3339Nano)}}, &then)
		if got := then.names(); !strings.Contains(got, "pods: web-1-1;") {
			s.Errorf("when the first pod was made there was %s", got)
		}
		var one scene
		s.ask(http.StatusOK, "state", url.Values{"kind": {"no"}}, &one)
		if got := one.names(); got != "nodes: node-1" {
			s.Errorf("the nodes are %s", got)
		}
		var early scene
		s.ask(http.StatusOK, "state", url.Values{"namespace": {"shop"}, "at": {"10h"}}, &early)
		if g := early.Kinds[0]; g.Begins.IsZero() || len(g.Items) > 0 {
			s.Errorf("before the record begins there was %+v", g)
		}
	})
}

func (s scene) names() string {
	var out []string
	for _, g := range s.Kinds {
		var names []string
		for _, it := range g.Items {
			names = append(names, it.Name)
		}
		out = append(out, string(g.Kind)+": "+strings.Join(names, " "))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func TestAMomentWithinAGapIsDoubted(t *testing.T) {
	visit(t, func(s *site) {
		var c record.Chronicle
		s.ask(http.StatusOK, "chronicle", url.Values{"namespace": {"shop"}}, &c)
		at := slices.IndexFunc(c.Items, func(h record.Happening) bool { return h.Gap != nil })
		if at < 0 || c.Items[at].Gap.Reason != "the watcher was away" {
			s.Fatalf("the chronicle has no gap: %+v", c.Items)
		}
		var then scene
		s.ask(http.StatusOK, "state", url.Values{"kind": {"pods"}, "at": {c.Items[at].Gap.Since.Format(time.RFC3339Nano)}}, &then)
		if g := then.Kinds[0]; g.Whole || len(g.Doubts) == 0 {
			s.Errorf("within the gap there was, without a doubt, %+v", g)
		}
	})
}

func TestAnObjectsPast(t *testing.T) {
	visit(t, func(s *site) {
		var l life
		s.ask(http.StatusOK, "history", of("deploy", "web"), &l)
		if len(l.Versions) != 2 || l.Versions[1].By.Manager != "kubectl-scale" || len(l.Decided) != 4 {
			s.Fatalf("its life is %+v, %+v", l.History, l.Decided)
		}
		from, to := l.Versions[0].ResourceVersion, l.Versions[1].ResourceVersion
		var d struct {
			Changes []struct {
				Path    string
				Was, Is float64
			}
		}
		s.ask(http.StatusOK, "diff", of("deploy", "web", "from", from, "to", to), &d)
		if len(d.Changes) != 1 || d.Changes[0].Path != "spec.replicas" || d.Changes[0].Is != 2 {
			s.Errorf("what differs is %+v", d)
		}
		var b body
		s.ask(http.StatusOK, "object", of("deploy", "web", "at", from), &b)
		if b.Version != from || !strings.Contains(b.YAML, "replicas: 1\n") || !strings.Contains(b.YAML, "kind: Deployment\n") {
			s.Errorf("it was %+v", b)
		}
		var r reasons
		s.ask(http.StatusOK, "why", of("pod", "web-1-2", "field", "spec.containers"), &r)
		if r.Cause.Decision.Because != "too few pods" || r.Began.Object.Name != "web" || r.Began.Version != to {
			s.Errorf("the pod is there because of %+v, which began with %+v", r.Cause, r.Began)
		}
		var stands standing.Standing
		s.ask(http.StatusOK, "standing", of("deploy", "web", "controller", recordtest.Deployments), &stands)
		if len(stands.Turns) != 1 || stands.Turns[0].Because != "as many as are wanted" {
			s.Errorf("the controller stands with it at %+v", stands)
		}
		var health struct{ Lags []standing.Lag }
		s.ask(http.StatusOK, "lag", nil, &health)
		if len(health.Lags) == 0 {
			s.Error("no stream is behind or not")
		}
	})
}

func TestQuestionsWithoutAnAnswer(t *testing.T) {
	visit(t, func(s *site) {
		for _, c := range []struct {
			what   string
			values url.Values
			status int
			code   string
		}{
			{"history", of("deploy", "absent"), http.StatusNotFound, "absent"},
			{"history", of("nonsense", "web"), http.StatusNotFound, "absent"},
			{"history", of("deploy", ""), http.StatusBadRequest, "asked"},
			{"history", url.Values{"kind": {"pods"}, "name": {"web"}}, http.StatusBadRequest, "asked"},
			{"history", of("deploy", "web", "limit", "0"), http.StatusBadRequest, "asked"},
			{"object", of("deploy", "web", "at", "soon"), http.StatusBadRequest, "asked"},
			{"object", of("deploy", "web", "at", "99h"), http.StatusNotFound, "before"},
			{"why", of("deploy", "web", "at", "99h"), http.StatusNotFound, "before"},
			{"diff", of("deploy", "web", "from", "x"), http.StatusBadRequest, "asked"},
			{"chronicle", url.Values{"from": {"123"}}, http.StatusBadRequest, "asked"},
			{"standing", of("deploy", "web", "controller", "unknown"), http.StatusNotFound, "absent"},
			{"state", url.Values{"kind": {"nonsense"}}, http.StatusNotFound, "absent"},
		} {
			var got trouble
			s.ask(c.status, c.what, c.values, &got)
			if got.Code != c.code || got.Error == "" || c.code == "before" && got.Begins.IsZero() {
				s.Errorf("%s of %v is answered with %+v, want %s", c.what, c.values, got, c.code)
			}
		}
		if err := s.bus.Close(); err != nil {
			s.Error(err)
		}
		var got trouble
		if s.ask(http.StatusServiceUnavailable, "overview", nil, &got); got.Code != "away" {
			s.Errorf("of a bus that is away: %+v", got)
		}
	})
}

func TestFilesAreServedAsWhatTheyAre(t *testing.T) {
	handler := New(memory.New(memory.Options{}), Options{})
	err := fs.WalkDir(built, "site", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+strings.TrimPrefix(at, "site"), nil))
		if kind := w.Header().Get("Content-Type"); w.Code != http.StatusOK || kind == "" || strings.HasPrefix(kind, "text/plain") || w.Header().Get("ETag") == "" {
			t.Errorf("%s is served as %q, with %d", at, kind, w.Code)
		}
		q := httptest.NewRequest(http.MethodGet, "http://localhost"+strings.TrimPrefix(at, "site"), nil)
		q.Header.Set("If-None-Match", w.Header().Get("ETag"))
		again := httptest.NewRecorder()
		if handler.ServeHTTP(again, q); again.Code != http.StatusNotModified {
			t.Errorf("%s is sent again, with %d", at, again.Code)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]int{"/": http.StatusOK, "/index.html": http.StatusOK, "/nothing": http.StatusNotFound, "/../page.go": http.StatusNotFound, "/api/nothing": http.StatusNotFound} {
		w := httptest.NewRecorder()
		q := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		q.URL.Path = at
		if handler.ServeHTTP(w, q); w.Code != want && w.Code != http.StatusMovedPermanently && w.Code != http.StatusTemporaryRedirect {
			t.Errorf("%s is answered with %d, want %d", at, w.Code, want)
		}
	}
}
