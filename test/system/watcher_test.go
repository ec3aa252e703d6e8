package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream/embedded"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher"
)

// watched is a control plane of its own, which these tests restart and compact, and a bus for watchers in
// this process.
type watched struct {
	*clustertest.Cluster
	config *rest.Config // as an administrator
	reader *rest.Config // as a watcher
	kube   kubernetes.Interface
	bus    bus.Bus
	store  string
}

func beginWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{Cluster: clustertest.Start(t, clustertest.Options{Nodes: -1}), store: t.TempDir()}
	var err error
	w.config, err = w.Config()
	noError(t, err)
	w.config.QPS = -1
	w.reader, err = clientcmd.BuildConfigFromFlags("", w.Kubeconfig(clustertest.Watcher))
	noError(t, err)
	w.kube, err = kubernetes.NewForConfig(w.config)
	noError(t, err)
	server, err := embedded.Serve(embedded.Options{Dir: w.store})
	noError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	w.bus, err = stream.Connect(t.Context(), stream.Options{Server: server, Name: "test"})
	noError(t, err)
	t.Cleanup(func() { _ = w.bus.Close() })
	return w
}

// watcher runs a watcher of all kinds until stop is called or the test ends.
func (w *watched) watcher(t *testing.T, b bus.Bus, id string) (service *watcher.Service, stop func()) {
	t.Helper()
	service, err := watcher.New(watcher.Config{
		REST: w.reader, Bus: b, ID: id, Every: true,
		Kinds: []kinds.Kind{kinds.Pods.Kind, kinds.ConfigMaps.Kind, kinds.Namespaces.Kind},
	})
	noError(t, err)
	return service, servicetest.Run(t, "watcher "+id, service.Run)
}

func (w *watched) log(t *testing.T, kind kinds.Name) (log []events.Delta) {
	t.Helper()
	name := subject.LogStream(kind)
	at, err := w.bus.StreamState(t.Context(), name)
	if err != nil {
		return nil // the object does not exist yet
	}
	for sequence := at.First; sequence <= at.Last; sequence++ {
		m, there, err := w.bus.At(t.Context(), name, sequence)
		noError(t, err)
		if !there {
			t.Fatalf("%s lacks message %d", name, sequence)
		}
		ref, err := subject.ParseDelta(m.Subject)
		noError(t, err)
		d, err := events.DecodeDelta(ref, m)
		noError(t, err)
		log = append(log, d)
	}
	return log
}

// faithful demands that a kind's log is in order, repeats nothing, and folds to the state of the API server.
func (w *watched) faithful(t *testing.T, kind kinds.Kind) {
	t.Helper()
	client, err := metadata.NewForConfig(w.config)
	noError(t, err)
	var told, real map[string]string
	soon(t, func() bool {
		told, real = map[string]string{}, map[string]string{}
		for _, d := range w.log(t, kind.Name) {
			switch d.Op {
			case events.Is:
				told[d.Ref.String()] = string(d.UID) + "/" + d.ResourceVersion
			case events.Gone:
				delete(told, d.Ref.String())
			case events.Mark, events.Gap:
			}
		}
		list, err := client.Resource(kind.GVR()).List(t.Context(), metav1.ListOptions{})
		noError(t, err)
		for _, o := range list.Items {
			real[events.Ref{Kind: kind.Name, Namespace: o.Namespace, Name: o.Name}.String()] = string(o.UID) + "/" + o.ResourceVersion
		}
		return fmt.Sprint(told) == fmt.Sprint(real)
	}, func() string { return fmt.Sprintf("%s: told %v, there are %v", kind.Name, told, real) })
	said, newest := map[string]bool{}, ""
	for i, d := range w.log(t, kind.Name) {
		if d.Sync || d.Op == events.Mark || d.Op == events.Gap {
			continue
		}
		if kinds.CompareVersions(d.ResourceVersion, newest) < 0 && newest != "" {
			t.Errorf("the log of %s: delta %d has version %s, after the newer %s", kind.Name, i, d.ResourceVersion, newest)
		}
		if newest = d.ResourceVersion; said[d.ID()] {
			t.Errorf("the log of %s has the delta %s twice", kind.Name, d.ID())
		}
		said[d.ID()] = true
	}
}

func soon(t *testing.T, holds func() bool, what func() string) {
	t.Helper()
	if !eventually.Within(time.Minute, holds) {
		t.Fatalf("timed out: %s", what())
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// has waits until a kind's log has a delta of an object.
func (w *watched) has(t *testing.T, kind kinds.Name, op events.Op, name string) (found events.Delta) {
	t.Helper()
	soon(t, func() bool {
		for _, d := range w.log(t, kind) {
			if d.Op == op && d.Ref.Name == name {
				found = d
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("no %s of %s %s", op, kind, name) })
	return found
}

func (w *watched) configMap(t *testing.T, name, value string) {
	t.Helper()
	_, err := w.kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value},
	}, metav1.CreateOptions{})
	noError(t, err)
}

func (w *watched) remove(t *testing.T, name string) {
	t.Helper()
	noError(t, w.kube.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func countOf(log []events.Delta, op events.Op) (n int) {
	for _, d := range log {
		if d.Op == op {
			n++
		}
	}
	return n
}

// TestWatcherAgainstARealAPIServer runs its scenarios one after the other on one control plane; each must
// leave faithful logs.
func TestWatcherAgainstARealAPIServer(t *testing.T) {
	w := beginWatched(t)
	for _, story := range []struct {
		name string
		tell func(*watched, *testing.T)
	}{
		{"every kind is listed", everyKindIsListed},
		{"secrets stay secret", secretsStaySecret},
		{"a large object comes whole", aLargeObjectComesWhole},
		{"custom kinds come and go", customKindsComeAndGo},
		{"the API server restarts", theAPIServerRestarts},
		{"the history was compacted", theHistoryWasCompacted},
		{"the active watcher falls silent", theActiveWatcherFallsSilent},
		{"the active watcher dies", theActiveWatcherDies},
	} {
		t.Run(story.name, func(t *testing.T) {
			story.tell(w, t)
			all, err := w.bus.Kinds(t.Context())
			noError(t, err)
			for _, kind := range all {
				if kind.Name == "configmaps" || kind.Name == "secrets" || kind.Name == "namespaces" {
					w.faithful(t, kind)
				}
			}
		})
	}
}

func synced(t *testing.T, service *watcher.Service) {
	t.Helper()
	soon(t, service.Synced, func() string { return fmt.Sprint(service.Checks()["synced"]()) })
}

func everyKindIsListed(w *watched, t *testing.T) {
	service, stop := w.watcher(t, w.bus, "first")
	soon(t, func() bool { return len(w.log(t, "clusterroles.rbac.authorization.k8s.io")) > 0 }, func() string { return "no cluster roles" })
	synced(t, service)
	w.configMap(t, "first", "x")
	if d := w.has(t, "configmaps", events.Is, "first"); d.Form != kinds.Full || d.By.Name == "" {
		t.Errorf("the ConfigMap was recorded in form %q, by %q; want it in full, with its manager", d.Form, d.By.Name)
	}
	if d := w.has(t, "clusterroles.rbac.authorization.k8s.io", events.Is, "cluster-admin"); d.Form != kinds.Metadata {
		t.Errorf("the ClusterRole was recorded in form %q, want its metadata", d.Form)
	}
	stop()
	w.remove(t, "first")
	_, stop = w.watcher(t, w.bus, "first-again")
	if d := w.has(t, "configmaps", events.Gone, "first"); d.Sync {
		t.Error("the deletion was found by a relist, want it from the watch, which goes on where the log ends")
	}
	if n := countOf(w.log(t, "configmaps"), events.Gap); n != 0 {
		t.Errorf("the log of ConfigMaps has %d gaps after a restart, want none", n)
	}
	stop()
}

func secretsStaySecret(w *watched, t *testing.T) {
	const canary = "canary-7Hq2-never-on-the-bus"
	_, stop := w.watcher(t, w.bus, "discreet")
	defer stop()
	_, err := w.kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "canary", Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"` + canary + `"}}`,
		}},
		StringData: map[string]string{"password": canary},
	}, metav1.CreateOptions{})
	noError(t, err)
	w.has(t, "secrets", events.Is, "canary")
	noError(t, w.kube.CoreV1().Secrets("default").Delete(t.Context(), "canary", metav1.DeleteOptions{}))
	w.has(t, "secrets", events.Gone, "canary")
	for _, d := range w.log(t, "secrets") {
		if bytes.Contains(d.Body, []byte(canary)) {
			t.Errorf("the delta %s of %v has the Secret's value", d.Op, d.Ref)
		}
	}
	files := 0
	noError(t, filepath.WalkDir(w.store, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if files++; bytes.Contains(content, []byte(canary)) {
			t.Errorf("the file %s has the Secret's value", path)
		}
		return err
	}))
	if files == 0 {
		t.Error("the store has no files: the search looked at nothing")
	}
}

func aLargeObjectComesWhole(w *watched, t *testing.T) {
	_, stop := w.watcher(t, w.bus, "strong")
	defer stop()
	_, err := w.kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: map[string]string{"note": strings.Repeat("n", 250<<10)}},
		Data:       map[string]string{"value": strings.Repeat("v", 1023<<10)},
	}, metav1.CreateOptions{})
	noError(t, err)
	d := w.has(t, "configmaps", events.Is, "large")
	object, err := kinds.Decode(kinds.ConfigMaps.Kind, d.ContentType, d.Body)
	noError(t, err)
	if got := len(object.(*corev1.ConfigMap).Data["value"]); got != 1023<<10 {
		t.Errorf("the recorded ConfigMap has a value of %d bytes, want 1023 KiB", got)
	}
	w.remove(t, "large")
	w.has(t, "configmaps", events.Gone, "large")
}

func customKindsComeAndGo(w *watched, t *testing.T) {
	_, stop := w.watcher(t, w.bus, "curious")
	defer stop()
	client, err := dynamic.NewForConfig(w.config)
	noError(t, err)
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err = definitions.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}, metav1.CreateOptions{})
	noError(t, err)
	widgets := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	soon(t, func() bool {
		_, err = widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"},
		}}, metav1.CreateOptions{})
		return err == nil
	}, func() string { return fmt.Sprint(err) })
	if d := w.has(t, "widgets.example.com", events.Is, "w"); d.Form != kinds.Metadata {
		t.Errorf("the widget was recorded in form %q, want its metadata", d.Form)
	}
	noError(t, definitions.Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}))
	w.has(t, "widgets.example.com", events.Gone, "w")
}

// theAPIServerRestarts: its watch cache begins at the version of the storage when it started. If a lease was
// renewed between our last object and that moment, the server has the gap, and the watcher must record it;
// the test kills the server again until it still knows the changes after that object.
func theAPIServerRestarts(w *watched, t *testing.T) {
	service, stop := w.watcher(t, w.bus, "patient")
	defer stop()
	for attempt := 1; ; attempt++ {
		forgotten := w.outlive(t, attempt)
		synced(t, service)
		w.faithful(t, kinds.ConfigMaps.Kind)
		switch {
		case !forgotten:
			return
		case attempt == 10:
			t.Fatal("the API server had compacted the history after each of 10 restarts: the test never saw a watcher resume")
		}
	}
}

// outlive kills the API server and reports whether it has forgotten the changes after the last object from
// before.
func (w *watched) outlive(t *testing.T, attempt int) (forgotten bool) {
	t.Helper()
	before, after := fmt.Sprintf("before-%d", attempt), fmt.Sprintf("after-%d", attempt)
	w.configMap(t, before, "x")
	position := w.has(t, "configmaps", events.Is, before).ResourceVersion
	gaps := countOf(w.log(t, "configmaps"), events.Gap)
	noError(t, w.RestartAPIServer(t.Context()))
	began := time.Now()
	w.configMap(t, after, "x")
	w.remove(t, before)
	w.has(t, "configmaps", events.Is, after)
	t.Logf("the watch went on %v after the API server was ready", time.Since(began).Round(time.Millisecond))
	w.has(t, "configmaps", events.Gone, before)
	forgotten = w.forgotten(t, position)
	left := slices.DeleteFunc(w.log(t, "configmaps"), func(d events.Delta) bool { return d.Op != events.Gap })[gaps:]
	switch {
	case len(left) == 0: // a bookmark may have had a later version
	case !forgotten || len(left) > 1:
		t.Errorf("the restart left %d gaps, such as %s, while the API server had compacted the history: %v; want one gap at most, and only if it had", len(left), left[0].Body, forgotten)
	case !strings.Contains(string(left[0].Body), "forgotten"):
		t.Errorf("the gap after a restart has the reason %s, want one that says \"forgotten\"", left[0].Body)
	}
	return forgotten
}

// forgotten asks the API server whether it can resume a watch at a version.
func (w *watched) forgotten(t *testing.T, version string) bool {
	t.Helper()
	reader, err := w.kube.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return true
	}
	noError(t, err)
	defer reader.Stop()
	first, open := <-reader.ResultChan() // an object has been created since
	if !open {
		t.Fatal("the API server ended a watch at once")
	}
	return first.Type == watch.Error
}

// theHistoryWasCompacted: the restart empties the API server's watch cache, too.
func theHistoryWasCompacted(w *watched, t *testing.T) {
	_, stop := w.watcher(t, w.bus, "absent")
	w.configMap(t, "forgotten", "x")
	w.configMap(t, "replaced", "x")
	w.has(t, "configmaps", events.Is, "replaced")
	stop()
	before := len(w.log(t, "configmaps"))
	w.remove(t, "forgotten")
	w.remove(t, "replaced")
	w.configMap(t, "replaced", "y")
	w.compact(t)
	noError(t, w.RestartAPIServer(t.Context()))
	_, stop = w.watcher(t, w.bus, "back")
	defer stop()
	if d := w.has(t, "configmaps", events.Gone, "forgotten"); !d.Sync {
		t.Error("the deletion was recorded from the watch, want it from a relist: its history was compacted")
	}
	soon(t, func() bool { return countOf(w.log(t, "configmaps")[before:], events.Gap) == 1 }, func() string { return "no gap was recorded" })
	w.faithful(t, kinds.ConfigMaps.Kind)
}

// compact compacts etcd's history.
func (w *watched) compact(t *testing.T) {
	t.Helper()
	list, err := w.kube.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
	noError(t, err)
	revision, err := strconv.Atoi(list.ResourceVersion)
	noError(t, err)
	body := strings.NewReader(fmt.Sprintf(`{"revision":"%d","physical":true}`, revision))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.EtcdEndpoint()+"/v3/kv/compaction", body)
	noError(t, err)
	response, err := http.DefaultClient.Do(request)
	noError(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("compact etcd: status %s, want 200", response.Status)
	}
}

// muted is the bus of a watcher that continues to run while its heartbeats are suppressed.
type muted struct {
	bus.Bus
	muted  atomic.Bool
	dead   atomic.Bool  // stores nothing either
	opened atomic.Int64 // logs
	said   atomic.Int64 // heartbeats
}

var errDead = errors.New("dead")

type mutedAppender struct {
	bus.Appender
	bus *muted
}

func (a mutedAppender) Append(ctx context.Context, m events.Message) error {
	if a.bus.dead.Load() {
		return errDead
	}
	return a.Appender.Append(ctx, m)
}

func (m *muted) Broadcast(topic string, data []byte) error {
	m.said.Add(1)
	if m.muted.Load() {
		return nil
	}
	return m.Bus.Broadcast(topic, data)
}

func (m *muted) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	m.opened.Add(1)
	a, err := m.Bus.Append(ctx, kind)
	return mutedAppender{a, m}, err
}

// theActiveWatcherFallsSilent: it still watches and stores, so for a while two watchers record the same
// changes.
func theActiveWatcherFallsSilent(w *watched, t *testing.T) {
	elder, younger := &muted{Bus: w.bus}, &muted{Bus: w.bus}
	service, stop := w.watcher(t, elder, "elder")
	defer stop()
	w.configMap(t, "start", "x")
	w.has(t, "configmaps", events.Is, "start")
	synced(t, service)
	_, end := w.watcher(t, younger, "younger")
	defer end()
	elder.muted.Store(true)
	last := ""
	change := func(n int) {
		last = fmt.Sprint("burst-", n)
		w.configMap(t, last, "x")
		w.remove(t, last)
	}
	n := 0
	for end := time.Now().Add(time.Minute); younger.opened.Load() == 0 && time.Now().Before(end); n++ {
		change(n)
	}
	if younger.opened.Load() == 0 {
		t.Fatal("the younger watcher opened no log within a minute, want it to take over")
	}
	for range 100 {
		change(n)
		n++
	}
	w.has(t, "configmaps", events.Gone, last)
	if n := elder.opened.Load(); n < 2 {
		t.Errorf("the elder watcher opened its logs %d times, want it to take its kinds back", n)
	}
}

// theActiveWatcherDies without notice: another one takes over every kind.
func theActiveWatcherDies(w *watched, t *testing.T) {
	const promised = time.Second
	elder, younger := &muted{Bus: w.bus}, &muted{Bus: w.bus}
	service, stop := w.watcher(t, elder, "mortal")
	defer stop()
	synced(t, service)
	heir, end := w.watcher(t, younger, "heir")
	defer end()
	soon(t, heir.Synced, func() string { return "the heir does not know the kinds" })
	soon(t, func() bool { return younger.said.Load() > 10 }, func() string { return "the heir has not said that it is there" })
	gaps := countOf(w.log(t, "configmaps"), events.Gap)
	w.configMap(t, "inherited", "x")
	w.has(t, "configmaps", events.Is, "inherited")
	elder.dead.Store(true)
	elder.muted.Store(true)
	died := time.Now()
	w.remove(t, "inherited")
	w.has(t, "configmaps", events.Gone, "inherited")
	took := time.Since(died)
	if t.Logf("the heir told the next change %v after the end", took.Round(time.Millisecond)); took > 3*promised {
		t.Errorf("the watcher that took over recorded the next change after %v, far more than the %v that are promised on an idle machine", took, promised)
	}
	if younger.opened.Load() == 0 {
		t.Error("the change was recorded, but not by the watcher that should take over: it opened no log")
	}
	synced(t, heir)
	t.Logf("every kind was watched %v after the end", time.Since(died).Round(time.Millisecond))
	if got := countOf(w.log(t, "configmaps"), events.Gap); got != gaps {
		t.Errorf("taking over left %d gaps, want none", got-gaps)
	}
}
