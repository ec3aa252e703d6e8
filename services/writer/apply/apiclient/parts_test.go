package apiclient

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/millrace/millrace/services/writer/plan"
)

// A refusal has the API server's code, first cause, and retry delay.
func TestWhatARefusalSays(t *testing.T) {
	status := func(change func(*metav1.Status)) error {
		s := metav1.Status{Code: 409, Reason: "Conflict", Message: "m"}
		change(&s)
		return fmt.Errorf("do: %w", &apierrors.StatusError{ErrStatus: s})
	}
	detailed := func(d metav1.StatusDetails) error {
		return status(func(s *metav1.Status) { s.Details = &d })
	}
	for what, c := range map[string]struct {
		err  error
		code int
		want plan.Response
	}{
		"no answer":            {errors.New("x"), 500, plan.Response{Reason: "NoAnswer"}},
		"a conflict":           {status(func(*metav1.Status) {}), 500, plan.Response{Code: 409, Reason: "Conflict"}},
		"without a code":       {status(func(s *metav1.Status) { s.Code = 0 }), 503, plan.Response{Code: 503, Reason: "Conflict"}},
		"without details":      {detailed(metav1.StatusDetails{}), 0, plan.Response{Code: 409, Reason: "Conflict"}},
		"with causes":          {detailed(metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "A", Field: "f"}, {Type: "B", Field: "g"}}}), 0, plan.Response{Code: 409, Reason: "Conflict", Cause: "A", Field: "f"}},
		"of an unknown server": {detailed(metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "A", Field: "f"}, {Type: metav1.CauseTypeUnexpectedServerResponse}}}), 0, plan.Response{Code: 409, Reason: "Conflict", Cause: "UnexpectedServerResponse", Field: "f"}},
		"too busy":             {detailed(metav1.StatusDetails{RetryAfterSeconds: 7}), 0, plan.Response{Code: 409, Reason: "Conflict", RetryAfter: 7 * time.Second}},
	} {
		got := Refusal(c.err, c.code)
		if got.Message == "" {
			t.Errorf("%s: the refusal has no message", what)
		}
		got.Message = ""
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// A request's path has its kind, namespace, name and subresource.
func TestWhereARequestGoes(t *testing.T) {
	for what, c := range map[string]struct {
		request plan.Request
		want    []string
	}{
		"a pod":           {plan.Request{Verb: plan.Look, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p"}, []string{"/api", "v1", "namespaces", "ns", "pods", "p"}},
		"a new pod":       {plan.Request{Verb: plan.Create, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p"}, []string{"/api", "v1", "namespaces", "ns", "pods"}},
		"a node":          {plan.Request{Verb: plan.Delete, Kind: "nodes", Version: "v1", Name: "n"}, []string{"/api", "v1", "nodes", "n"}},
		"a status":        {plan.Request{Verb: plan.Update, Kind: "jobs.batch", Version: "v1", Namespace: "ns", Name: "j", Subresource: "status"}, []string{"/apis", "batch", "v1", "namespaces", "ns", "jobs", "j", "status"}},
		"a token of some": {plan.Request{Verb: plan.Create, Kind: "serviceaccounts", Version: "v1", Namespace: "ns", Name: "a", Subresource: "token"}, []string{"/api", "v1", "namespaces", "ns", "serviceaccounts", "a", "token"}},
	} {
		if got := path(c.request); !slices.Equal(got, c.want) {
			t.Errorf("%s is at %v, want %v", what, got, c.want)
		}
	}
	for _, verb := range []plan.Verb{plan.Create, plan.Update, plan.Patch, plan.Delete, plan.Look, plan.Read, plan.Search} {
		if writes := methods[verb] != http.MethodGet; methods[verb] == "" || writes != verb.Writes() {
			t.Errorf("%s is made by %q", verb, methods[verb])
		}
	}
}

// The metadata of an object say whether it is being deleted, and what it waits for.
func TestWhatMetadataSay(t *testing.T) {
	now, grace := metav1.Now(), int64(30)
	for what, c := range map[string]struct {
		meta metav1.ObjectMeta
		want plan.Object
	}{
		"it lives":             {metav1.ObjectMeta{UID: "u", ResourceVersion: "5"}, plan.Object{UID: "u", ResourceVersion: "5"}},
		"something holds it":   {metav1.ObjectMeta{Finalizers: []string{"f"}}, plan.Object{Finalizers: true}},
		"it leaves":            {metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace}, plan.Object{Deleting: true, Grace: &grace}},
		"it waits for others":  {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"f", metav1.FinalizerDeleteDependents}}, plan.Object{Deleting: true, Finalizers: true, Waiting: true}},
		"it would wait":        {metav1.ObjectMeta{Finalizers: []string{metav1.FinalizerDeleteDependents}}, plan.Object{Finalizers: true}},
		"it waits for someone": {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"f"}}, plan.Object{Deleting: true, Finalizers: true}},
	} {
		if got := ObjectOf(metav1.PartialObjectMetadata{ObjectMeta: c.meta}); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// An error of a server other than Kubernetes' names the requested resource.
func TestErrorsOfOtherServersAreNamed(t *testing.T) {
	of := schema.GroupVersionResource{Group: "custom.metrics.k8s.io", Version: "v1beta1", Resource: "pods"}
	plain, known := errors.New("x"), apierrors.NewNotFound(schema.GroupResource{Resource: "y"}, "z")
	if addResource(plain, of) != plain || addResource(known, of) != error(known) {
		t.Error("addResource changes an error that names its resource, or that is not of the API")
	}
	foreign := apierrors.NewGenericServerResponse(503, "get", schema.GroupResource{}, "", "it is down", 7, true)
	err := addResource(foreign, of)
	if seconds, _ := apierrors.SuggestsClientDelay(err); seconds != 7 || !apierrors.IsServiceUnavailable(err) {
		t.Errorf("addResource makes the error %v, want one that is unavailable for 7 seconds", err)
	}
	if got := Refusal(err, 0); got.Code != 503 || got.Cause != "UnexpectedServerResponse" {
		t.Errorf("the refusal is %+v, want code 503 because of UnexpectedServerResponse", got)
	}
}

// A list may go on with the continue token of an answer that reports expiry.
func TestWhichListsGoOn(t *testing.T) {
	status := func(reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 410, Reason: reason, ListMeta: metav1.ListMeta{Continue: "next"}}}
	}
	for what, c := range map[string]struct {
		err  error
		want string
	}{"it has expired": {status(metav1.StatusReasonExpired), "next"}, "it is gone": {status(metav1.StatusReasonGone), ""}, "no answer": {errors.New("x"), ""}, "it has not": {nil, ""}} {
		if got := renewedToken(c.err); got != c.want {
			t.Errorf("%s: the list goes on with the token %q, want %q", what, got, c.want)
		}
	}
}

// A request with a segment that would change its path is never sent, wherever the segments come
// from.
func TestNoRequestGoesElsewhere(t *testing.T) {
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: "http://127.0.0.1:1", ContentConfig: rest.ContentConfig{NegotiatedSerializer: codecs.WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"/api v1 pods": true, "/apis apps v1 replicasets": true, "/apis": true,
		".. v1 pods": false, "/healthz": false, "api v1 /apis": false, "/api v1 ..": false, "/apis apps/v1": false, "/apis /api": false, "/apis apps v1  web": false,
	} {
		request := to(client, http.MethodGet, strings.Split(path, " "))
		if sent := request.Error() == nil; sent != want {
			t.Errorf("to %q it is sent: %t (%v)", path, sent, request.Error())
		}
	}
}

// Discovery is repeated at most every ten seconds.
func TestDiscoveryIsNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Discovery{Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(nil))}
		for _, step := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {0, false}, {10 * time.Second, false}, {1, true}, {1, false}} {
			time.Sleep(step.after) // virtual
			if got := m.Renew(); got != step.want {
				t.Errorf("after %v more Renew reports %t, want the opposite", step.after, got)
			}
		}
	})
}
