package ask_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

const (
	scaleOfWeb  = "/apis/apps/v1/namespaces/ns/replicasets/web/scale"
	podsMetered = "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods"
	custom      = "/apis/custom.metrics.k8s.io"
	external    = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/"
)

func ofWeb(kind string, metrics ...autoscalingv2.MetricSpec) events.Command {
	body, _ := json.Marshal(query.ReadingsQuestion{Metrics: metrics, Least: 1, Most: 5})
	return events.Command{
		Verb: events.VerbAsk, Namespace: "ns", Name: "web", Subresource: query.SubReadings, Body: body, Note: json.RawMessage(`{"a":1}`),
		Of: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: "web"},
	}
}

func read(t *testing.T, d *apply.Client, c events.Command) (said query.Readings) {
	t.Helper()
	r := carry(t, d, plan.Options{}, c)[0]
	if r.Status != events.Answered || r.Answer == nil || string(r.Answer.Note) != `{"a":1}` {
		t.Fatalf("the question comes to %+v", r)
	}
	if err := json.Unmarshal(r.Answer.Body, &said); err != nil {
		t.Fatal(err)
	}
	return said
}

func cpuOf(container string) autoscalingv2.MetricSpec {
	if container != "" {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: corev1.ResourceCPU, Container: container}}
	}
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU}}
}

func putScale(s *apiservertest.Server, replicas int, selector string) {
	s.Put(scaleOfWeb, "rs", map[string]any{"spec": map[string]any{"replicas": replicas}, "status": map[string]any{"replicas": 2, "selector": selector}})
}

// All types of metrics are read, the pods' resources once for all of them, and each reduced to the
// few numbers needed.
func TestReadings(t *testing.T) {
	s := applytest.Serve(t)
	putScale(s, 3, "app=web")
	use := func(cpu string) map[string]any { return map[string]any{"cpu": cpu, "memory": "1Mi"} }
	web := map[string]any{"labels": map[string]any{"app": "web"}}
	s.Put(podsMetered+"/a", "a", map[string]any{"metadata": web, "timestamp": "2030-01-01T12:00:00Z", "window": "30s", "containers": []any{
		map[string]any{"name": "c", "usage": use("100m")}, map[string]any{"name": "d", "usage": use("20m")},
	}})
	s.Put(podsMetered+"/b", "b", map[string]any{"metadata": web, "containers": []any{
		map[string]any{"name": "c", "usage": use("5m")}, map[string]any{"name": "d", "usage": map[string]any{}},
	}})
	s.Put(podsMetered+"/stranger", "s", map[string]any{"containers": []any{map[string]any{"name": "c", "usage": use("7m")}}})
	s.Put(custom, "", map[string]any{"preferredVersion": map[string]any{"version": "v9"}, "versions": []any{map[string]any{"version": "v1beta1"}}})
	value := func(of string, v string) map[string]any {
		return map[string]any{"describedObject": map[string]any{"name": of}, "value": v}
	}
	s.Put(custom+"/v1beta1/namespaces/ns/pods/*/jobs", "", map[string]any{"items": []any{value("a", "2"), value("b", "1500m")}})
	s.Put(custom+"/v1beta1/namespaces/ns/replicasets.apps/db/hits", "", map[string]any{"items": []any{value("db", "7")}})
	s.Put(custom+"/v1beta1/namespaces/ns/metrics/hits", "", map[string]any{"items": []any{value("ns", "8")}})
	s.Put(external+"queue", "", map[string]any{"items": []any{value("", "1"), value("", "2")}})
	named := func(name string) autoscalingv2.MetricIdentifier {
		return autoscalingv2.MetricIdentifier{Name: name, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "web"}}}
	}
	object := func(version, kind, name string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			Metric: named("hits"), DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: version, Kind: kind, Name: name},
		}}
	}
	said := read(t, open(t, s), ofWeb("ReplicaSet", cpuOf(""), cpuOf("c"),
		autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: named("jobs")}},
		object("apps/v1", "ReplicaSet", "db"), object("v1", "Namespace", "any"),
		autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: named("queue")}},
	))
	if s := said.Scale; s == nil || s.Kind != "replicasets.apps" || s.Version != "v1" || s.UID != "rs" || s.ResourceVersion != "1" || s.Replicas != 3 || s.Current != 2 || s.Selector != "app=web" {
		t.Errorf("the scale is %+v, %s", s, said.Failure)
	}
	for i, want := range []string{"a 120 30;", "a 100 30; b 5 0;", "a 2000 0; b 1500 0;", " 7000 0;", " 8000 0;", " 1000 0; 2000 0;"} {
		got := ""
		for _, sample := range said.Metrics[i].Samples {
			got += fmt.Sprint(sample.Pod, " ", sample.Milli, " ", sample.Window, "; ")
		}
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") || said.Metrics[i].Failure != "" {
			t.Errorf("metric %d is %q, want %q (%s)", i, got, want, said.Metrics[i].Failure)
		}
	}
	lists := 0
	for _, r := range s.Requests() {
		switch {
		case r.Method != "GET" || r.Header.Get("Impersonate-User") == "" && !strings.HasPrefix(r.Path, "/api"):
			t.Errorf("a question was a %s of %s as %q", r.Method, r.Path, r.Header.Get("Impersonate-User"))
		case r.Path == podsMetered:
			lists++
			if got := r.Query.Get("labelSelector"); got != "app=web" {
				t.Errorf("the metrics are those of %q", got)
			}
		case strings.HasSuffix(r.Path, "/jobs") && (r.Query.Get("metricLabelSelector") != "of=web" || r.Query.Get("labelSelector") != "app=web"),
			strings.HasSuffix(r.Path, "/queue") && r.Query.Get("labelSelector") != "of=web":
			t.Errorf("the metrics are those of %v", r.Query)
		}
	}
	if lists != 1 {
		t.Errorf("the use of resources was listed %d times", lists)
	}
}

// Failures are part of the answer, in upstream's words.
func TestWhatCannotBeRead(t *testing.T) {
	s := applytest.Serve(t)
	d := open(t, s, func(c *apply.Config) { c.Patience = time.Second })
	for kind, want := range map[string]string{"ReplicaSet": scaleOfWeb, "Foo": `no matches for kind "Foo" in group "apps"`, "Bar": `no matches for kind "Bar"`} {
		if said := read(t, d, ofWeb(kind, cpuOf(""))); said.Scale != nil || !strings.Contains(said.Failure, want) || said.Metrics != nil {
			t.Errorf("%s: the readings are %+v, want the failure %q, and no metrics", kind, said, want)
		}
	}
	putScale(s, 3, "app=web")
	unserved := autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "jobs"}}}
	said := read(t, d, ofWeb("ReplicaSet", cpuOf(""), unserved, autoscalingv2.MetricSpec{Type: "Else"}))
	for i, want := range []string{
		"no metrics returned from resource metrics API", "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered", `unknown metric source type "Else"`,
	} {
		if m := said.Metrics[i]; m.Failure != want || m.Samples != nil {
			t.Errorf("metric %d: %+v, want %s", i, m, want)
		}
	}
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Path == podsMetered {
			return apiservertest.Fault{Code: 503}
		}
		return apiservertest.Fault{}
	})
	if said := read(t, d, ofWeb("ReplicaSet", cpuOf(""))); !strings.HasPrefix(said.Metrics[0].Failure, "unable to fetch metrics from resource metrics API: ") {
		t.Errorf("a metrics server that is away: %+v", said)
	}
}

// A controller that may not read a scale gets that failure: the scaled object is no answer, and
// may be a Secret.
func TestAScaleIsNotReadByAList(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "rs", map[string]any{"spec": map[string]any{"replicas": 3}})
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Path == scaleOfWeb {
			return apiservertest.Fault{Code: 403}
		}
		return apiservertest.Fault{}
	})
	if said := read(t, open(t, s), ofWeb("ReplicaSet", cpuOf(""))); said.Scale != nil || said.Failure == "" {
		t.Errorf("the readings are %+v, want a failure without a scale", said)
	}
	for _, r := range s.Requests() {
		if strings.HasSuffix(r.Path, "/replicasets") {
			t.Errorf("there was a %s of %s", r.Method, r.Path)
		}
	}
}

// Metrics are read only if they can matter.
func TestMetricsThatDoNotMatterAreNotRead(t *testing.T) {
	for what, put := range map[string]func(*apiservertest.Server){
		"none":        func(s *apiservertest.Server) { putScale(s, 0, "app=web") },
		"more":        func(s *apiservertest.Server) { putScale(s, 6, "app=web") },
		"no selector": func(s *apiservertest.Server) { putScale(s, 3, "") },
	} {
		s := applytest.Serve(t)
		put(s)
		if said := read(t, open(t, s), ofWeb("ReplicaSet", cpuOf(""))); said.Scale == nil || said.Metrics != nil || s.Answered("GET "+podsMetered) > 0 {
			t.Errorf("%s: the readings are %+v, want the scale alone, and no request for metrics", what, said)
		}
	}
}

// A metric that is missing or malformed has no value, and a reason in the words of upstream's
// clients.
func TestMetricsThatDoNotCome(t *testing.T) {
	const jobs, hits, queue = custom + "/v1beta1/namespaces/ns/pods/*/jobs", custom + "/v1beta1/namespaces/ns/replicasets.apps/db/hits", external + "queue"
	of := func(name string, selector *metav1.LabelSelector) autoscalingv2.MetricIdentifier {
		return autoscalingv2.MetricIdentifier{Name: name, Selector: selector}
	}
	pods := func(selector *metav1.LabelSelector) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: of("jobs", selector)}}
	}
	outside := func(selector *metav1.LabelSelector) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{Metric: of("queue", selector)}}
	}
	object := func(kind string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			Metric: of("hits", nil), DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: kind, Name: "db"},
		}}
	}
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Foo"}}}
	items := func(n int) map[string]any {
		all := []any{}
		for range n {
			all = append(all, map[string]any{"describedObject": map[string]any{"name": "a"}, "value": "1"})
		}
		return map[string]any{"items": all}
	}
	const inCustom, inExternal = "unable to fetch metrics from custom metrics API: ", "unable to fetch metrics from external metrics API: "
	for what, c := range map[string]struct {
		metric autoscalingv2.MetricSpec
		at     string // the path of a stored object
		put    map[string]any
		broken string
		want   string
	}{
		"no pods":                    {pods(nil), jobs, items(0), "", "no metrics returned from custom metrics API"},
		"one pod":                    {pods(nil), jobs, items(1), "", ""},
		"pods, by a bad selector":    {pods(bad), jobs, items(1), "", inCustom + `"Foo" is not a valid label selector operator`},
		"custom metrics, forbidden":  {pods(nil), jobs, items(1), custom, inCustom + "as the test asked"},
		"custom metrics, unknown":    {pods(nil), custom, map[string]any{"versions": []any{map[string]any{"version": "v9"}}}, "", inCustom + "no known available metric versions found"},
		"one object":                 {object("ReplicaSet"), hits, items(1), "", ""},
		"no object":                  {object("ReplicaSet"), hits, items(0), "", inCustom + "the custom metrics API server returned 0 results when we asked for exactly one"},
		"two objects":                {object("ReplicaSet"), hits, items(2), "", inCustom + "the custom metrics API server returned 2 results when we asked for exactly one"},
		"an object, forbidden":       {object("ReplicaSet"), hits, items(1), hits, inCustom + "as the test asked"},
		"an object of no kind":       {object("Foo"), hits, items(1), "", inCustom + `unable to map kind Foo.apps to resource: no matches for kind "Foo" in group "apps"`},
		"none outside":               {outside(nil), queue, items(0), "", "no metrics returned from external metrics API"},
		"one outside":                {outside(nil), queue, items(1), "", ""},
		"outside, by a bad selector": {outside(bad), queue, items(1), "", `"Foo" is not a valid label selector operator`},
		"outside, forbidden":         {outside(nil), queue, items(1), queue, inExternal + "as the test asked"},
		"what is none":               {cpuOf(""), podsMetered, map[string]any{"items": 7}, "", "unable to fetch metrics from resource metrics API: json: "},
		"another type":               {autoscalingv2.MetricSpec{Type: "Else", Resource: cpuOf("").Resource, ContainerResource: cpuOf("c").ContainerResource, Pods: pods(nil).Pods, Object: object("ReplicaSet").Object, External: outside(nil).External}, "", nil, "", `unknown metric source type "Else"`},
		"no resource":                {autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType}, "", nil, "", `unknown metric source type "Resource"`},
		"no resource of containers":  {autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType}, "", nil, "", `unknown metric source type "ContainerResource"`},
		"no metric of pods":          {autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType}, "", nil, "", `unknown metric source type "Pods"`},
		"no metric of an object":     {autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType}, "", nil, "", `unknown metric source type "Object"`},
		"no metric outside":          {autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType}, "", nil, "", `unknown metric source type "External"`},
	} {
		s := applytest.Serve(t)
		putScale(s, 3, "app=web")
		s.Put(custom, "", map[string]any{"versions": []any{map[string]any{"version": "v1beta1"}}})
		if c.at != "" {
			s.Put(c.at, "", c.put)
		}
		s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
			if r.Path == c.broken {
				f.Code = 403
			}
			return f
		})
		m := read(t, open(t, s), ofWeb("ReplicaSet", c.metric)).Metrics[0]
		if !strings.HasPrefix(m.Failure, c.want) || (m.Failure == "") != (c.want == "") || (len(m.Samples) == 1) != (c.want == "") {
			t.Errorf("%s: %+v, want %q", what, m, c.want)
		}
	}
}

// The error of a metrics API that is not served names the requested resource.
func TestMetricsThatAreNotServed(t *testing.T) {
	s := applytest.Serve(t)
	putScale(s, 3, "app=web")
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		return apiservertest.Fault{Unserved: r.Path == podsMetered}
	})
	want := "unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
	if m := read(t, open(t, s), ofWeb("ReplicaSet", cpuOf(""))).Metrics[0]; m.Failure != want {
		t.Errorf("the reading is %+v, want the failure %q", m, want)
	}
}

// A temporary failure to read a scale is retried, and is not reported as an unreadable scale.
func TestAScaleIsAskedForAgain(t *testing.T) {
	for what, fault := range map[string]apiservertest.Fault{"no answer": {Lost: true}, "too many requests": {Code: 429}} {
		s := applytest.Serve(t)
		putScale(s, 0, "app=web")
		asked := 0
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if r.Path == scaleOfWeb {
				if asked++; asked <= 2 { // the client library may repeat the first on another connection
					return fault
				}
			}
			return apiservertest.Fault{}
		})
		if said := read(t, open(t, s), ofWeb("ReplicaSet")); said.Scale == nil || said.Failure != "" || asked != 3 {
			t.Errorf("%s: %+v, after %d requests", what, said, asked)
		}
	}
}

// A metric whose name is no path segment is not requested.
func TestAMetricIsNoPath(t *testing.T) {
	s := applytest.Serve(t)
	putScale(s, 1, "app=web")
	c := ofWeb("ReplicaSet")
	c.Body = []byte(`{"least":1,"most":5,"metrics":[{"type":"External","external":{"metric":{"name":"../../../../../api/v1/secrets"},"target":{"type":"Value"}}}]}`)
	if said := read(t, open(t, s), c); said.Scale == nil || len(said.Metrics) != 1 || said.Metrics[0].Failure == "" {
		t.Errorf("the readings of a malicious metric name are %+v, want a failure of that metric", said)
	}
	for _, r := range s.Requests() {
		if strings.Contains(r.Path, "secrets") {
			t.Errorf("asked for %s", r.Path)
		}
	}
}

// A malformed ask is refused without a request.
func TestAQuestionThatCannotBeRead(t *testing.T) {
	s := applytest.Serve(t)
	putScale(s, 3, "app=web")
	d := open(t, s)
	before := len(s.Requests())
	c := ofWeb("ReplicaSet")
	c.Body = json.RawMessage(`{"least":"x"}`)
	r := carry(t, d, plan.Options{}, c)[0]
	if r.Status != events.Refused || r.Code != http.StatusBadRequest || r.Reason != "Malformed" {
		t.Errorf("the result is %+v, want it refused as Malformed with code 400", r)
	}
	if asked := s.Requests()[before:]; slices.ContainsFunc(asked, func(r apiservertest.Request) bool { return r.Path != "/apis" && r.Path != "/api" && r.Method != "GET" }) {
		t.Errorf("asked was %+v", asked)
	}
}
