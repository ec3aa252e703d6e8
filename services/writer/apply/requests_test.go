package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// A door makes a request once if the API server asks to retry it later: the plan waits, and asks
// before the retry whether the turn is still this writer's.
func TestARequestIsNotMadeAgainUnasked(t *testing.T) {
	for what, request := range doors {
		line := &applytest.Answering{
			At: request.at, Code: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}},
			Body: `{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests"}`,
		}
		_, door := prepared(t, what, line.By)
		door.Do(t.Context(), actor, request.Request, "")
		made := map[string]int{}
		for _, r := range line.Asked {
			if applytest.OfObjects(r) {
				made[r.Method+" "+r.URL.String()]++
			}
		}
		for text, times := range made {
			if times > 1 {
				t.Errorf("%s: %s is made %d times", what, text, times)
			}
		}
	}
}

// Each request about an object continues the trace of its turn, with a span of its own that has
// its answer.
func TestEachRequestHasItsSpan(t *testing.T) {
	names := map[string]string{
		"look": "GET /api/v1/namespaces/{namespace}/pods/{name}", "create": "POST /api/v1/namespaces/{namespace}/pods", "list": "GET /api/v1/namespaces/{namespace}/pods",
		"a review": "GET /apis/certificates.k8s.io/v1/certificatesigningrequests/{name}", "the review itself": "POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		"readings of pods": "GET /apis/metrics.k8s.io/v1beta1/namespaces/ns/pods",
	}
	for what, request := range doors {
		recorder, line := tracetest.New(), &applytest.Answering{}
		tracer := recorder.Tracer("writer", trace.Options{})
		_, door := prepared(t, what, line.By, func(c *apply.Config) { c.Trace = tracer })
		turn := tracer.Relist(kinds.Pods.Name)
		door.Do(trace.With(t.Context(), turn), actor, request.Request, "")
		spans := map[string]tracetest.Span{}
		for _, span := range recorder.Spans() {
			spans[fmt.Sprintf("00-%v-%v-01", span.Context.TraceID(), span.Context.SpanID())] = span
		}
		for _, r := range line.Asked {
			parent := r.Header.Get("Traceparent")
			span, some := spans[parent]
			delete(spans, parent)
			looks := strings.HasPrefix(what, "a create") && r.Method == http.MethodGet // was it made before?
			if !some && applytest.OfObjects(r) && !looks {
				t.Errorf("%s: %s %s has no span, but the parent %q", what, r.Method, r.URL, parent)
			}
			if some && (span.Attributes["http.response.status_code"] == "" || span.Parent.SpanID() != trace.Context(turn.Trace()).SpanID()) {
				t.Errorf("%s: the span of %s %s is %+v", what, r.Method, r.URL, span)
			}
		}
		if len(spans) > 0 {
			t.Errorf("%s: spans are of no request: %+v", what, spans)
		}
		if name := names[what]; name != "" && len(recorder.Named(name)) != 1 {
			t.Errorf("%s: no span is called %s: %s", what, name, recorder.Tree())
		}
	}
}

// A request outside a trace starts none, and a writer without traces propagates none.
func TestARequestOfNoTraceHasNoSpan(t *testing.T) {
	recorder := tracetest.New()
	tracer := recorder.Tracer("writer", trace.Options{})
	span := tracer.Relist(kinds.Pods.Name)
	for what, c := range map[string]struct {
		tracer *trace.Tracer
		ctx    context.Context
	}{"no trace of the turn": {tracer, t.Context()}, "no traces at all": {nil, trace.With(t.Context(), span)}} {
		line := &applytest.Answering{}
		_, door := prepared(t, "look", line.By, func(config *apply.Config) { config.Trace = c.tracer })
		door.Do(c.ctx, actor, doors["look"].Request, "")
		if len(line.Asked) != 1 || line.Asked[0].Header.Get("Traceparent") != "" || len(recorder.Spans()) > 0 {
			t.Errorf("%s: %v, and the spans are %s", what, line.Asked, recorder.Tree())
		}
	}
}

// A malformed ask, or a malformed write that the door completes, is refused without a request.
func TestWhatCannotBeReadIsRefused(t *testing.T) {
	for _, what := range []string{"token", "a certificate", "signatures", "contents", "types", "the review itself", "objects", "their scale"} {
		line := &applytest.Answering{}
		_, door := prepared(t, what, line.By)
		r := doors[what].Request
		r.Body = []byte(`7`)
		if got := door.Do(t.Context(), actor, r, ""); got.Code != http.StatusBadRequest || got.Reason != "Malformed" || got.Message == "" || len(line.Asked) > 0 {
			t.Errorf("%s: %+v, after %d requests", what, got, len(line.Asked))
		}
	}
	_, door := prepared(t, "contents")
	everything := doors["contents"].Request
	everything.Body = nil
	if got := door.Do(t.Context(), actor, everything, ""); got.Code != http.StatusOK || len(got.Body) == 0 {
		t.Errorf("the contents of a namespace, whatever comes first: %+v", got)
	}
}

// An answer of an unexpected kind is no answer. If it is the answer to a successful write, only
// the object's metadata are unknown.
func TestAnswersThatAreNone(t *testing.T) {
	none := plan.Response{Reason: "NoAnswer"}
	for _, c := range []struct {
		what, at string
		body     string
		want     plan.Response
	}{
		{"create", "", `[`, plan.Response{Code: http.StatusOK}},
		{"look", "", `[`, none},
		{"read", "", `[`, none},
		{"list", "fieldSelector", `[`, none},
		{"list", "fieldSelector", `{"items":[7]}`, none},
		{"list", "fieldSelector", `{"items":[]}`, plan.Response{Code: http.StatusNotFound, Reason: "NotFound"}},
		{"the review itself", "/subjectaccessreviews", `[`, none},
		{"the review itself", "/subjectaccessreviews", `{}`, none},
		{"the review itself", "/subjectaccessreviews", `{"kind":"Pod"}`, none},
		{"token", "", `{"data":7}`, none},
		{"a certificate", "/certificatesigningrequests", `{"spec":7}`, none},
		{"signatures", "/configmaps", `{"data":7}`, none},
		{"signatures", "/configmaps", `7`, none},
		{"users", "/pods", `{"items":7}`, none},
	} {
		_, door := prepared(t, c.what, (&applytest.Answering{At: c.at, Code: http.StatusOK, Body: c.body}).By)
		got := door.Do(t.Context(), actor, doors[c.what].Request, "")
		if got.Code != c.want.Code || got.Reason != c.want.Reason || got.Message == "" || len(got.Body) > 0 {
			t.Errorf("%s, answered with %s: %+v", c.what, c.body, got)
		}
	}
	_, door := prepared(t, "their scale", (&applytest.Answering{At: "/scale", Code: http.StatusOK, Body: `{"spec":7}`}).By)
	if got := door.Do(t.Context(), actor, doors["their scale"].Request, ""); !strings.Contains(string(got.Body), "the answer is no scale") {
		t.Errorf("a scale that is none: %+v", got)
	}
	_, door = prepared(t, "contents", (&applytest.Answering{At: "/pods", Code: http.StatusOK, Body: `[`}).By)
	if got := door.Do(t.Context(), actor, doors["contents"].Request, ""); !strings.Contains(string(got.Body), `"failure":"`) {
		t.Errorf("pods that cannot be read are not in a namespace: %s", got.Body)
	}
}

// An API server that can answers in protobuf, with metadata alone.
func TestAnswersInProtobuf(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	encode := func(o runtime.Object) string {
		text, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), o)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pod := metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7", Finalizers: []string{"f"}},
	}
	const form = "application/vnd.kubernetes.protobuf"
	_, door := prepared(t, "look", (&applytest.Answering{Code: http.StatusOK, Kind: form, Body: encode(&pod)}).By)
	if got := door.Do(t.Context(), actor, doors["look"].Request, ""); got.Code != http.StatusOK || got.Object.UID != "u" || got.Object.ResourceVersion != "7" || !got.Object.Finalizers {
		t.Errorf("a pod is %+v", got)
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Items: []metav1.PartialObjectMetadata{pod}}
	_, door = prepared(t, "contents", (&applytest.Answering{At: "/pods", Code: http.StatusOK, Kind: form, Body: encode(&list)}).By)
	if got := door.Do(t.Context(), actor, doors["contents"].Request, ""); !strings.Contains(string(got.Body), `"uid":"u"`) || strings.Contains(string(got.Body), "failure") {
		t.Errorf("a namespace with a pod holds %s", got.Body)
	}
}

// A look requests only the metadata of an object and a read all of it, also if the role allows
// only list.
func TestHowMuchOfAnObjectIsAskedFor(t *testing.T) {
	list := doors["list"].Request
	glance := list
	glance.Verb = plan.Look
	for what, c := range map[string]struct {
		of      string
		request plan.Request
		want    string
		whole   bool
	}{
		"a look": {"look", doors["look"].Request, "PartialObjectMetadata;", false}, "a read": {"read", doors["read"].Request, "application/json", true},
		"a look by a list": {"list", glance, "PartialObjectMetadataList;", false}, "a read by a list": {"list", list, "application/json", true},
	} {
		line := &applytest.Answering{}
		s, door := prepared(t, c.of, line.By)
		s.Put(podPath+"a", "uid-a", map[string]any{"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"nodeName": "n1"}})
		got := door.Do(t.Context(), actor, c.request, "")
		last := line.Asked[len(line.Asked)-1].Header.Get("Accept")
		if got.Code != http.StatusOK || got.Object.UID != "uid-a" || !strings.Contains(last, c.want) || c.whole != (last == "application/json") || c.whole != strings.Contains(string(got.Body), "n1") {
			t.Errorf("%s asks for %q, and is answered %+v", what, last, got)
		}
	}
}

// The answer to a failed request has nothing of the object, nor of what was read before.
func TestARefusalHoldsNothing(t *testing.T) {
	for _, what := range []string{"an expiry", "users", "contents", "types", "a review", "objects", "token", "signatures"} {
		s, door := prepared(t, what)
		version := applytest.KeepInfo(s, map[string]string{"kubeconfig": applytest.GoldenInfo})
		applytest.KeepSigner(s, "abcdef", applytest.GoldenKey, nil)
		request := doors[what].Request
		switch what {
		case "contents":
			s.Remove("/api/v1/namespaces/ns")
		case "signatures":
			request.Body = fmt.Appendf(nil, `{"metadata":{"uid":"c","resourceVersion":%q}}`, version)
		}
		line := &applytest.Answering{At: "/cluster-info", Code: http.StatusForbidden, Body: `{}`}
		if what == "signatures" {
			door = open(t, s, applytest.AtNoon, func(c *apply.Config) {
				c.REST.WrapTransport = func(through http.RoundTripper) http.RoundTripper {
					return only{http.MethodPut, line, through}
				}
			})
		}
		if got := door.Do(t.Context(), actor, request, ""); got.Code < 400 || len(got.Body) > 0 {
			t.Errorf("%s: %+v holds %s", what, got, got.Body)
		}
	}
	s, door := prepared(t, "token")
	version := applytest.Keep(s, applytest.TokenType, map[string]string{"ca.crt": "ca", "token": applytest.Canary, "namespace": "ns"})
	full := sub(of(plan.Patch, kinds.Secrets.Name), query.SubToken)
	full.Name, full.Body = "key", fmt.Appendf(nil, `{"metadata":{"uid":"k","resourceVersion":%q,"annotations":{%q:"builder",%q:"b"}}}`, version, applytest.NameKey, applytest.UIDKey)
	if got := door.Do(t.Context(), actor, full, ""); got.Code != http.StatusOK || len(got.Body) > 0 || got.Object.ResourceVersion != version {
		t.Errorf("a Secret that lacks nothing: %+v", got)
	}
}

// only sends requests of one method through another transport.
type only struct {
	method         string
	first, through http.RoundTripper
}

// RoundTrip is [http.RoundTripper].
func (o only) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == o.method {
		return o.first.RoundTrip(r)
	}
	return o.through.RoundTrip(r)
}
