package approval

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// server is an API server with one object.
type server struct {
	t           *testing.T
	uid         string
	generation  int64
	annotations map[string]any
	counts      bool // a change of annotations begins a generation
	spec        int  // it changes with every write, if it is not 0
	refuses     bool
	patches     int
}

func (s *server) object() map[string]any {
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": s.spec},
		"metadata": map[string]any{"name": "web", "namespace": "shop", "uid": s.uid, "generation": s.generation, "resourceVersion": "9", "annotations": s.annotations},
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := s.object()
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		answer = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": "alice"}}}
	case r.URL.Path != "/apis/apps/v1/namespaces/shop/deployments/web" || s.refuses:
		w.WriteHeader(http.StatusForbidden)
		answer = map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "you may not", "code": 403}
	case r.Method == http.MethodPatch:
		s.patch(r)
		answer = s.object()
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

func (s *server) patch(r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var patch struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]any
		}
	}
	if err != nil || json.Unmarshal(text, &patch) != nil || patch.Metadata.UID != s.uid || patch.Metadata.ResourceVersion != "9" || r.URL.Query().Get("fieldManager") != Manager {
		s.t.Errorf("the patch is %s with %v, %v", text, r.URL.Query(), err)
	}
	maps.Copy(s.annotations, patch.Metadata.Annotations)
	maps.DeleteFunc(s.annotations, func(_ string, v any) bool { return v == nil })
	if s.patches++; s.counts {
		s.generation++
	}
	if s.spec != 0 {
		s.spec++
	}
}

// A decision is written for the object as it was when its writes were held, also where the annotation itself
// begins a generation; and it replaces one of the other kind.
func TestADecisionIsWritten(t *testing.T) {
	yes, no := events.ApprovalAnnotations("u1")
	for what, c := range map[string]struct {
		s          server
		deny       bool
		generation int64
		patches    int
		fails      string
	}{
		"approved":                           {s: server{uid: "u1", generation: 3}, generation: 3, patches: 1},
		"denied":                             {s: server{uid: "u1", generation: 3}, deny: true, generation: 3, patches: 1},
		"annotations count as a generation":  {s: server{uid: "u1", generation: 3, counts: true}, generation: 5, patches: 2},
		"the spec changes with every write":  {s: server{uid: "u1", generation: 3, counts: true, spec: 1}, patches: 1, fails: "look at millrace held once more"},
		"another object has the name":        {s: server{uid: "u2", generation: 3}, fails: "it has been created again"},
		"it has changed":                     {s: server{uid: "u1", generation: 4}, fails: "its generation is 4, and the writes are of 3"},
		"the API server does not allow this": {s: server{uid: "u1", generation: 3, refuses: true}, fails: "you may not"},
	} {
		t.Run(what, func(t *testing.T) {
			s := c.s
			s.t, s.annotations = t, map[string]any{"note": "x", yes: "{}", no: "{}"}
			api := httptest.NewServer(&s)
			defer api.Close()
			d := Decision{Kind: kinds.Deployments.Kind, Ref: events.Ref{Kind: kinds.Deployments.Name, Namespace: "shop", Name: "web"}, UID: "u1", Approve: !c.deny}
			d.Limits, d.Generation, d.Because = []string{"pods"}, 3, "ticket 4711"
			a, err := Write(t.Context(), &rest.Config{Host: api.URL}, d)
			if s.patches != c.patches {
				t.Errorf("it is written %d times, want %d", s.patches, c.patches)
			}
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || !s.refuses && !errors.Is(err, ErrChanged) {
					t.Errorf("the error is %v, want %q", err, c.fails)
				}
				return
			}
			here, gone := yes, no
			if c.deny {
				here, gone = no, yes
			}
			var written events.Approval
			if err != nil || json.Unmarshal([]byte(s.annotations[here].(string)), &written) != nil || s.annotations[gone] != nil || s.annotations["note"] != "x" {
				t.Fatalf("the annotations are %v, %v", s.annotations, err)
			}
			if written.By != "alice" || written.Generation != c.generation || written.Because != "ticket 4711" || a.Generation != c.generation || a.By != "alice" {
				t.Errorf("written is %+v, and returned %+v", written, a)
			}
		})
	}
}

// A decision about one limit leaves those about others as they are: an approval lifts no denial that it does not name.
func TestOtherDecisionsStay(t *testing.T) {
	yes, no := events.ApprovalAnnotations("u1")
	for what, c := range map[string]struct {
		counts     bool
		no         string
		here, left string
	}{
		"same generation":                   {false, `{"limits":["claims","pods"],"generation":3,"by":"bob"}`, "pods nodes", "claims"},
		"annotations count as a generation": {true, `{"limits":["claims"],"generation":3,"by":"bob"}`, "pods nodes", "claims"},
		"an earlier generation":             {false, `{"limits":["claims"],"generation":2}`, "pods nodes", ""},
	} {
		s := server{t: t, uid: "u1", generation: 3, counts: c.counts, annotations: map[string]any{no: c.no, yes: `{"limits":["nodes"],"generation":3}`}}
		api := httptest.NewServer(&s)
		d := Decision{Kind: kinds.Deployments.Kind, Ref: events.Ref{Kind: kinds.Deployments.Name, Namespace: "shop", Name: "web"}, UID: "u1", Approve: true}
		d.Limits, d.Generation = []string{"pods"}, 3
		_, err := Write(t.Context(), &rest.Config{Host: api.URL}, d)
		api.Close()
		limits := func(annotation string) string {
			var a events.Approval
			text, there := s.annotations[annotation].(string)
			if !there {
				return ""
			}
			if json.Unmarshal([]byte(text), &a) != nil || a.Generation != s.generation {
				t.Errorf("%s: %s is %s, and the generation %d", what, annotation, text, s.generation)
			}
			return strings.Join(a.Limits, " ")
		}
		if here, left := limits(yes), limits(no); err != nil || here != c.here || left != c.left {
			t.Errorf("%s: approved are %q, and denied %q, %v", what, here, left, err)
		}
	}
}
