package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// quoted is a value of an object that a refusal repeats.
const quoted = "canary-5Tz9"

// refusals are the ways in which an API server repeats values, and what the door passes on besides
// the code.
var refusals = map[string]struct {
	code int
	body any
	told []string
}{
	"a webhook": {403, metav1.Status{
		Reason: quoted, Code: 403, Message: `admission webhook "guard.example.com" denied the request: ` + quoted,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: quoted, Message: quoted, Field: quoted}}},
	}, []string{"webhook guard.example.com"}},
	"a webhook that invents a field": {422, metav1.Status{
		Reason: metav1.StatusReasonInvalid, Code: 422, Message: `admission webhook "guard.example.com" denied the request: ` + quoted,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: quoted}}},
	}, []string{"webhook guard.example.com", "Invalid"}},
	"a validation": {422, metav1.Status{
		Reason: metav1.StatusReasonInvalid, Code: 422, Message: `spec.password: Invalid value: "` + quoted + `"`,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Message: quoted, Field: "spec.password"}}},
	}, []string{"FieldValueInvalid spec.password", "Invalid"}},
	"a field that is none": {422, metav1.Status{
		Reason: metav1.StatusReasonInvalid, Code: 422, Message: quoted,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "is " + quoted}}},
	}, []string{"Invalid"}},
	"a cause that is none": {403, metav1.Status{
		Reason: metav1.StatusReasonForbidden, Code: 403, Message: quoted,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: quoted, Field: "spec.password"}}},
	}, []string{"Forbidden"}},
	"a bad request":       {400, metav1.Status{Reason: metav1.StatusReasonBadRequest, Code: 400, Message: "cannot parse " + quoted}, []string{"400 BadRequest"}},
	"a failed conversion": {500, metav1.Status{Reason: metav1.StatusReasonInternalError, Code: 500, Message: "conversion: parsing " + quoted}, []string{"InternalError"}},
	"a proxy":             {502, quoted, nil},
	"who is like impersonation": {403, metav1.Status{Reason: quoted, Code: 403, Message: "cannot impersonate " + quoted}, []string{
		"cannot impersonate",
	}},
}

// doors are all requests to a door, and the kind that each is about.
var doors = map[string]struct {
	plan.Request
	about kinds.Name
	// at is in the URL of the refused request; empty: in that of every object.
	at string
	// from is the lowest code after which something is passed on; 0 means all.
	from int
	// forbidden is the path of a request that the role does not allow.
	forbidden string
}{
	"create":    {Request: of(plan.Create, kinds.Pods.Name), about: kinds.Pods.Name},
	"update":    {Request: of(plan.Update, kinds.Pods.Name), about: kinds.Pods.Name},
	"patch":     {Request: of(plan.Patch, kinds.Pods.Name), about: kinds.Pods.Name},
	"delete":    {Request: of(plan.Delete, kinds.Pods.Name), about: kinds.Pods.Name},
	"status":    {Request: sub(of(plan.Update, kinds.Pods.Name), "status"), about: kinds.Pods.Name},
	"look":      {Request: of(plan.Look, kinds.Pods.Name), about: kinds.Pods.Name},
	"read":      {Request: of(plan.Read, kinds.Pods.Name), about: kinds.Pods.Name},
	"a claim":   {Request: of(plan.Patch, kinds.PersistentVolumeClaims.Name), about: kinds.PersistentVolumeClaims.Name},
	"an Event":  {Request: of(plan.Create, kinds.Events.Name), about: kinds.Events.Name},
	"owner":     {Request: owned(plan.Look, ""), about: kinds.ReplicaSets.Name},
	"ask":       {Request: owned(plan.Read, ""), about: kinds.ReplicaSets.Name},
	"ask scale": {Request: owned(plan.Read, "scale"), about: kinds.ReplicaSets.Name},
	"users":     {Request: sub(of(plan.Search, kinds.PersistentVolumeClaims.Name), query.SubUsers), about: kinds.Pods.Name, at: "/pods"},
	"their claim": {
		Request: sub(of(plan.Search, kinds.PersistentVolumeClaims.Name), query.SubUsers), about: kinds.PersistentVolumeClaims.Name, at: "/persistentvolumeclaims",
	},
	"contents": {
		Request: sub(plan.Request{Verb: plan.Search, Kind: kinds.Namespaces.Name, Version: "v1", Name: "ns"}, query.SubContents), about: kinds.Pods.Name, at: "/pods",
	},
	"types": {
		Request: sub(plan.Request{Verb: plan.Search, Kind: kinds.ValidatingAdmissionPolicies.Name, Version: "v1", Name: "p", Body: json.RawMessage(`{}`)}, query.SubTypes),
		about:   kinds.ValidatingAdmissionPolicies.Name, at: "/validatingadmissionpolicies",
	},
	"a review": {
		Request: sub(plan.Request{Verb: plan.Search, Kind: kinds.CertificateSigningRequests.Name, Version: "v1", Name: "r", Body: json.RawMessage(`{}`)}, query.SubReview),
		about:   kinds.CertificateSigningRequests.Name, at: "/certificatesigningrequests",
	},
	"a certificate": {
		Request: sub(plan.Request{Verb: plan.Patch, Kind: kinds.CertificateSigningRequests.Name, Version: "v1", Name: "r", Body: json.RawMessage(`{}`)}, query.SubCertificate),
		about:   kinds.CertificateSigningRequests.Name, at: "/certificatesigningrequests",
	},
	"the review itself": {
		Request: sub(plan.Request{Verb: plan.Search, Kind: kinds.CertificateSigningRequests.Name, Version: "v1", Name: "r", Body: json.RawMessage(`{}`)}, query.SubReview),
		about:   kinds.NameOf("authorization.k8s.io", "subjectaccessreviews"), at: "/subjectaccessreviews",
	},
	"signatures": {
		Request: sub(plan.Request{
			Verb: plan.Patch, Kind: kinds.ConfigMaps.Name, Version: "v1", Namespace: "kube-public", Name: "cluster-info", PatchType: types.MergePatchType, Body: json.RawMessage(`{}`),
		}, query.SubSignatures), about: kinds.ConfigMaps.Name, at: "/configmaps",
	},
	"objects": {
		Request: sub(plan.Request{
			Verb: plan.Search, Kind: kinds.StorageVersionMigrations.Name, Version: "v1beta1", Name: "m", Body: json.RawMessage(`{"resource":"replicasets.apps"}`),
		}, query.SubObjects), about: kinds.ReplicaSets.Name, at: "/replicasets",
	},
	"their scale": {Request: owned(plan.Search, query.SubReadings), about: kinds.ReplicaSets.Name, at: "/scale"},
	"readings of pods": {
		Request: owned(plan.Search, query.SubReadings, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU},
		}), about: kinds.Pods.Name, at: "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods",
	},
	"readings of an object": {
		Request: owned(plan.Search, query.SubReadings, autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "db"}, Metric: autoscalingv2.MetricIdentifier{Name: "hits"},
		}}), about: kinds.ReplicaSets.Name, at: "/hits",
	},
	"list":                     {Request: of(plan.Read, kinds.Pods.Name), about: kinds.Pods.Name, at: "fieldSelector", from: 404, forbidden: podPath + "a"},
	"a create in doubt":        {Request: doubted(plan.Quiet - 1), about: kinds.Pods.Name},
	"a create that is unheard": {Request: doubted(plan.Believed), about: kinds.Pods.Name, at: "watch=true", from: 500},
	"token":                    {Request: sub(of(plan.Patch, kinds.Secrets.Name), query.SubToken), about: kinds.Secrets.Name},
	"an expiry": {
		Request: sub(plan.Request{Verb: plan.Search, Kind: kinds.Secrets.Name, Version: "v1", Namespace: "kube-system", Name: "a"}, query.SubExpiry), about: kinds.Secrets.Name, at: "/secrets",
	},
	"a Secret":          {Request: of(plan.Delete, kinds.Secrets.Name), about: kinds.Secrets.Name},
	"a custom resource": {Request: of(plan.Patch, "widgets.example.com"), about: "widgets.example.com"},
	"its end":           {Request: of(plan.Delete, "widgets.example.com"), about: "widgets.example.com"},
}

func of(verb plan.Verb, kind kinds.Name) plan.Request {
	r := plan.Request{Verb: verb, Kind: kind, Version: "v1", Namespace: "ns", Name: "a", Body: json.RawMessage(`{"metadata":{"name":"a"}}`)}
	switch verb {
	case plan.Patch:
		r.PatchType = types.MergePatchType
	case plan.Delete:
		r.Delete, r.Body = &metav1.DeleteOptions{}, nil
	}
	return r
}

func sub(r plan.Request, resource string) plan.Request {
	r.Subresource = resource
	return r
}

func owned(verb plan.Verb, resource string, metrics ...autoscalingv2.MetricSpec) plan.Request {
	body, _ := json.Marshal(query.ReadingsQuestion{Metrics: metrics, Least: 1, Most: 5})
	return plan.Request{
		Verb: verb, Namespace: "ns", Subresource: resource, Body: body, Owner: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u"},
	}
}

func doubted(since time.Duration) plan.Request {
	r := of(plan.Create, kinds.Pods.Name)
	r.Doubtful, r.InDoubt = true, since
	return r
}

// quoting refuses requests with a message that repeats a value, and passes on the others.
type quoting struct {
	at      string
	how     string
	through http.RoundTripper
}

// RoundTrip is [http.RoundTripper].
func (q quoting) RoundTrip(r *http.Request) (*http.Response, error) {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(segments) < 4 || !strings.Contains(r.URL.String(), q.at) {
		return q.through.RoundTrip(r)
	}
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	refusal := refusals[q.how]
	body, kind := []byte(quoted), "text/plain"
	if status, is := refusal.body.(metav1.Status); is {
		status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
		body, _ = json.Marshal(status)
		kind = "application/json"
	}
	return &http.Response{
		StatusCode: refusal.code, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(string(body))), Request: r,
	}, nil
}

// TestWordsOfTheAPIServerAreNotToldOfWhatIsHidden: a validation or a webhook may repeat values in
// a refusal. For kinds with hidden values neither the answers nor the spans of any request have
// them; for other kinds they do.
func TestWordsOfTheAPIServerAreNotToldOfWhatIsHidden(t *testing.T) {
	for what, request := range doors {
		for how, refusal := range refusals {
			if refusal.code < request.from {
				continue
			}
			hidden, spans := refused(t, what, how, request.about)
			if strings.Contains(hidden+spans, quoted) {
				t.Errorf("%s, refused by %s, tells what is hidden: %s, with spans %s", what, how, hidden, spans)
			}
			for _, told := range refusal.told {
				if !strings.Contains(hidden, told) {
					t.Errorf("%s, refused by %s, does not tell %q: %s", what, how, told, hidden)
				}
			}
			always := request.about == kinds.Secrets.Name || request.about == "widgets.example.com"
			if shown, _ := refused(t, what, how, "others"); strings.Contains(shown, quoted) == always {
				t.Errorf("%s, refused by %s, where nothing is hidden by a rule: %s", what, how, shown)
			}
		}
	}
}

// refused returns the text in a door's answer and spans about a refused request.
func refused(t *testing.T, what, how string, hidden kinds.Name) (answer, spans string) {
	t.Helper()
	recorder := tracetest.New()
	tracer := recorder.Tracer("writer", trace.Options{})
	s, door := prepared(t, what, func(c *apply.Config) {
		c.Trace = tracer
		c.Hides = func(_ context.Context, kind kinds.Name) bool { return kind == hidden }
		c.REST.WrapTransport = func(through http.RoundTripper) http.RoundTripper { return quoting{doors[what].at, how, through} }
	})
	defer s.Close()
	span := tracer.Relist(kinds.Pods.Name)
	response := door.Do(trace.With(t.Context(), span), actor, doors[what].Request, "")
	span.End()
	text, err := json.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + string(response.Body), fmt.Sprint(recorder.Spans())
}

// prepared returns an API server with the objects of the requests, and a door.
func prepared(t *testing.T, what string, change ...func(*apply.Config)) (*apiservertest.Server, *apply.Client) {
	t.Helper()
	s := applytest.Serve(t)
	s.Put(podPath+"b", "uid-b", applytest.Object("b", nil)) // the record has it, and the storage goes on
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web/scale", "rs", map[string]any{
		"spec": map[string]any{"replicas": 3}, "status": map[string]any{"replicas": 2, "selector": "app=web"},
	})
	s.Put("/apis/custom.metrics.k8s.io", "", map[string]any{"versions": []any{map[string]any{"version": "v1beta1"}}})
	s.Put("/api/v1/namespaces/ns", "uid-ns", applytest.Object("ns", nil))
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Path == doors[what].forbidden {
			return apiservertest.Fault{Code: http.StatusForbidden}
		}
		return versionsGone(r)
	})
	return s, open(t, s, append([]func(*apply.Config){applytest.Minting(t), applytest.Certifying(t), func(c *apply.Config) {
		c.Types = func(*admissionregistrationv1.ValidatingAdmissionPolicy, discovery.DiscoveryInterface, meta.RESTMapper) ([]admissionregistrationv1.ExpressionWarning, error) {
			return nil, nil
		}
		c.Known = func(context.Context, events.Ref, uint64) (plan.Known, error) {
			return plan.Known{Told: "1", Since: "1"}, nil
		}
	}}, change...)...)
}
