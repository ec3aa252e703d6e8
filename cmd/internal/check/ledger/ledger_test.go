package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// gateway answers like etcd's HTTP gateway: a range, and a history.
func gateway(t *testing.T, newest int64, history ...map[string]any) *Storage {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v3/kv/range" {
			_, _ = fmt.Fprintf(w, `{"header":{"revision":"%d"}}`, newest)
			return
		}
		answers := json.NewEncoder(w)
		_ = answers.Encode(map[string]any{"result": map[string]any{"created": true}})
		for _, e := range history {
			_ = answers.Encode(map[string]any{"result": map[string]any{"events": []any{e}}})
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done() // the watch goes on
	}))
	t.Cleanup(server.Close)
	return NewStorage(server.URL)
}

func put(t *testing.T, key string, kind kinds.Kind, object runtime.Object, created, revision int64) map[string]any {
	t.Helper()
	value, err := kinds.Encode(kind, object)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"kv": map[string]any{"key": []byte(key), "value": value, "create_revision": fmt.Sprint(created), "mod_revision": fmt.Sprint(revision)}}
}

func TestChanges(t *testing.T) {
	surge := intstr.FromString("25%")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a", UID: "d", Generation: 2}}
	d.Spec.Replicas, d.Spec.Strategy.RollingUpdate = ptr.To(int32(5)), &appsv1.RollingUpdateDeployment{MaxSurge: &surge}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "a", UID: "p"}}
	dying := pod.DeepCopy()
	dying.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "db-1", Namespace: "a", UID: "r"}}
	storage := gateway(t, 15,
		put(t, "/registry/deployments/a/web", kinds.Deployments.Kind, d, 10, 10),
		map[string]any{"kv": map[string]any{"key": []byte("/registry/leases/a/b"), "value": []byte("k8s"), "create_revision": "11", "mod_revision": "11"}},
		put(t, "/registry/pods/a/web-1", kinds.Pods.Kind, pod, 12, 12),
		put(t, "/registry/pods/a/web-1", kinds.Pods.Kind, dying, 12, 13),
		map[string]any{"type": "DELETE", "kv": map[string]any{"key": []byte("/registry/pods/a/web-1"), "mod_revision": "14"}},
		put(t, "/registry/controllerrevisions/a/db-1", kinds.ControllerRevisions.Kind, revision, 15, 15),
	)
	changes, err := storage.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 5 {
		t.Fatalf("%d changes, want 5: %+v", len(changes), changes)
	}
	if o := changes[0].Object; o.Replicas != 5 || o.Surge != 2 || !o.Created || o.UID != "d" || o.Generation != 2 || changes[0].Revision != 10 {
		t.Errorf("the deployment is %+v", changes[0])
	}
	if !changes[1].Object.Active || changes[2].Object.Active || !changes[2].Object.Deleting || changes[2].Object.Created {
		t.Errorf("the pod's life is %+v", changes[1:3])
	}
	want := events.Ref{Kind: "pods", Namespace: "a", Name: "web-1"}
	if c := changes[3]; !c.Gone || c.Revision != 14 || c.Object.UID != "p" || c.Object.Ref != want {
		t.Errorf("the pod's end is %+v", c)
	}
	// Controllers create revisions, and a killed API server may not have logged that.
	if c := changes[4]; c.Object.UID != "r" || c.Object.Ref.Kind != "controllerrevisions.apps" || !c.Object.Created {
		t.Errorf("the revision is %+v", c)
	}
}

// TestChangesCompacted: a compacted history is an error.
func TestChangesCompacted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v3/kv/range" {
			_, _ = fmt.Fprint(w, `{"header":{"revision":"9"}}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"result":{"canceled":true,"cancel_reason":"required revision has been compacted","compact_revision":"7"}}`)
	}))
	defer server.Close()
	if _, err := NewStorage(server.URL).Changes(t.Context()); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("the error is %v", err)
	}
}

func TestAudit(t *testing.T) {
	const begin = `{"kind":"Event","apiVersion":"audit.k8s.io/v1",`
	const ours = begin + `"auditID":"TURN_x.7.0","stage":"ResponseComplete","verb":"delete","requestURI":"/api/v1/namespaces/a/pods/p",` +
		`"user":{"username":"millrace-writer"},"impersonatedUser":{"username":"system:serviceaccount:kube-system:x"},` +
		`"objectRef":{"resource":"pods","namespace":"a","name":"p"},"responseStatus":{"code":200},"stageTimestamp":"2026-11-21T12:00:00.5Z",` +
		`"requestObject":{"preconditions":{"uid":"u"}},"responseObject":{"kind":"PartialObjectMetadata","metadata":{"uid":"u","resourceVersion":"42"}}}`
	file := filepath.Join(t.TempDir(), "audit.log")
	text := strings.Join([]string{
		begin + `"auditID":"TURN_x.7.0","stage":"RequestReceived","verb":"delete","user":{"username":"millrace-writer"},"objectRef":{"resource":"pods"}}`,
		begin + `"auditID":"torn","stage":"Resp` + ours, // a killed server's line, and the next one's behind it
		begin + `"auditID":"y","stage":"ResponseComplete","verb":"delete","user":{"username":"kwok"},"objectRef":{"resource":"pods"},"responseObject":{"kind":"Status"}}`,
		begin + `"auditID":"unfinished"`,
	}, "\n")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	writes, err := Audit(file)
	if err != nil || len(writes) != 3 {
		t.Fatalf("%d writes, %v: %+v", len(writes), err, writes)
	}
	want := check.Write{
		ID: "TURN_x.7.0", User: "millrace-writer", As: "system:serviceaccount:kube-system:x", Verb: "delete", Ref: events.Ref{Kind: "pods", Namespace: "a", Name: "p"},
		At: time.Date(2026, 11, 21, 12, 0, 0, 5e8, time.UTC), Ended: true, Code: 200, UID: "u", Revision: 42, OnlyUID: "u",
	}
	if writes[1] != want {
		t.Errorf("our write is %+v, want %+v", writes[1], want)
	}
	if writes[0].Ended || writes[0].Foreign || !writes[2].Foreign || !writes[2].Ended {
		t.Errorf("the others are %+v and %+v", writes[0], writes[2])
	}
}

// TestRecord reads a bus, and finds the canary in every place.
func TestRecord(t *testing.T) {
	const canary = "the canary"
	ctx, b := t.Context(), memory.New(memory.Options{})
	store := func(m events.Message, err error) {
		t.Helper()
		if err == nil {
			_, err = b.Put(ctx, m, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.EnsureKind(ctx, kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureController(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	appendDelta(ctx, t, b, events.Delta{Kind: "pods", Op: events.Is, Ref: events.Ref{Kind: "pods", Namespace: "a", Name: "p"}, UID: "u", ResourceVersion: "5", ContentType: kinds.JSON, Body: []byte("{}")})
	appendDelta(ctx, t, b, events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: "6", Since: 1})
	key := events.Key{Namespace: "a", Name: "p"}
	turn, err := events.EncodeJSON(events.Turn{Controller: "x", Lane: events.LaneWrite, Key: key, Because: canary, Commands: []events.Command{{Verb: events.VerbCreate}}}, events.Trace{})
	turn.Subject = subject.Turn("x", events.LaneWrite, key)
	store(turn, err)
	outcome, err := events.EncodeJSON(events.Outcome{Controller: "x", Lane: events.LaneWrite, Key: key, Turn: 1}, events.Trace{})
	outcome.Subject = subject.Outcome("x", events.LaneWrite, key)
	store(outcome, err)

	var h check.History
	r := NewRecord(b, []string{"x", "none"}, canary)
	if err := r.Read(ctx, &h); err != nil {
		t.Fatal(err)
	}
	if log := h.Logs["pods"]; len(log) != 2 || log[0].Revision != 5 || log[1].Op != events.Mark || log[1].Since != 1 {
		t.Errorf("the logs are %+v", h.Logs)
	}
	if len(h.Turns) != 1 || h.Turns[0].Sequence != 1 || len(h.Outcomes) != 1 || h.Outcomes[0].Turn != 1 {
		t.Errorf("the turns are %+v, the outcomes %+v", h.Turns, h.Outcomes)
	}
	if len(h.Leaks) != 1 {
		t.Errorf("the canary was found in %v", h.Leaks)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log"), []byte("dGhlIGNhbmFyeQ=="), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Search(dir, &h); err != nil || len(h.Leaks) != 2 {
		t.Errorf("the canary was found in %v, %v", h.Leaks, err)
	}
}

// lastless is a bus whose streams end with a removed message.
type lastless struct{ *memory.Bus }

func (b lastless) StreamState(ctx context.Context, stream string) (bus.State, error) {
	state, err := b.Bus.StreamState(ctx, stream)
	state.Last++
	return state, err
}

// TestTheLastMessageMayBeGone: streams are read to the last existing message, and not to the last
// sequence.
func TestTheLastMessageMayBeGone(t *testing.T) {
	ctx, b := t.Context(), memory.New(memory.Options{})
	if err := b.EnsureKind(ctx, kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	appendDelta(ctx, t, b, events.Delta{Kind: "pods", Op: events.Is, Ref: events.Ref{Kind: "pods", Namespace: "a", Name: "p"}, UID: "u", ResourceVersion: "5", ContentType: kinds.JSON, Body: []byte("{}")})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var h check.History
	if err := NewRecord(lastless{b}, nil, "the canary").Read(ctx, &h); err != nil || len(h.Logs["pods"]) != 1 {
		t.Errorf("the logs are %+v, the error %v", h.Logs, err)
	}
}

func appendDelta(ctx context.Context, t *testing.T, b *memory.Bus, d events.Delta) {
	t.Helper()
	a, err := b.Append(ctx, d.Kind)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Append(ctx, subject.Message(d)); err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}
