package integrity_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// api is an API server of pods.
type api struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	pods    map[string]corev1.Pod
	history []change
	oldest  int // watches from before it get a 410
	changed chan struct{}
}

type change struct {
	version int
	what    string
	pod     corev1.Pod
}

func newAPI(t *testing.T) *api {
	a := &api{version: 1, pods: map[string]corev1.Pod{}, changed: make(chan struct{})}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Server.Close()
	})
	return a
}

// put creates or changes a pod; the name of its node pads it.
func (a *api) put(name, padding string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod, there := a.pods[name]
	what := "MODIFIED"
	if !there {
		what = "ADDED"
		pod = corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + strconv.Itoa(a.version+1))},
		}
	}
	pod.Spec.NodeName = padding
	a.tell(what, pod)
	a.pods[name] = a.history[len(a.history)-1].pod
}

func (a *api) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell("DELETED", a.pods[name])
	delete(a.pods, name)
}

func (a *api) tell(what string, pod corev1.Pod) {
	a.version++
	pod.ResourceVersion = strconv.Itoa(a.version)
	a.history = append(a.history, change{a.version, what, pod})
	close(a.changed)
	a.changed = make(chan struct{})
}

// forget compacts the history.
func (a *api) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.oldest = a.version
}

// restored restores the storage from a backup: the same pods, in versions that are older than
// those that it had sent.
func (a *api) restored() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.history, a.version = nil, 1
	for name, pod := range a.pods {
		a.version++
		pod.ResourceVersion = strconv.Itoa(a.version)
		pod.Spec.NodeName = "of-the-backup"
		a.pods[name] = pod
	}
	a.version -= 5 // and behind the version that it had reached
}

// versions are the versions of all pods, by name.
func (a *api) versions() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]string{}
	for name, pod := range a.pods {
		all[name] = pod.ResourceVersion
	}
	return all
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", kinds.JSON)
	switch from, _ := strconv.Atoi(q.Get("resourceVersion")); {
	case strings.Contains(r.URL.Path, "/pods/"):
		a.get(w, path.Base(r.URL.Path))
	case !strings.HasSuffix(r.URL.Path, "/pods"):
		_, _ = w.Write([]byte(`{}`))
	case r.Method == http.MethodPost:
		a.create(w, r)
	case q.Get("watch") == "":
		a.list(w, q.Get("fieldSelector"))
	case q.Get("sendInitialEvents") == "true":
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	default:
		a.watch(w, r, from)
	}
}

func (a *api) get(w http.ResponseWriter, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pod, there := a.pods[name]; there {
		_ = json.NewEncoder(w).Encode(pod)
		return
	}
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
}

// create creates the pod that a writer asks for.
func (a *api) create(w http.ResponseWriter, r *http.Request) {
	var pod corev1.Pod
	if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	if a.has(pod.Name) {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	a.put(pod.Name, "")
	w.WriteHeader(http.StatusCreated)
	a.get(w, pod.Name)
}

func (a *api) has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, there := a.pods[name]
	return there
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code),
	})
}

func (a *api) list(w http.ResponseWriter, selector string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, one := strings.CutPrefix(selector, "metadata.name=")
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	for _, p := range a.pods {
		if !one || p.Name == name {
			list.Items = append(list.Items, p)
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, from int) {
	a.mu.Lock()
	old := from < a.oldest
	a.mu.Unlock()
	if old {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	w.WriteHeader(http.StatusOK)
	for {
		a.mu.Lock()
		changed := a.changed
		for _, c := range a.history {
			if c.version > from {
				from = c.version
				_ = json.NewEncoder(w).Encode(map[string]any{"type": c.what, "object": c.pod})
			}
		}
		a.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

func podName(i int) string { return fmt.Sprint("pod-", i) }
