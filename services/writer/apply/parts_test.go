package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/millrace/millrace/pkg/events"
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
		got := refusal(c.err, c.code)
		if got.Message == "" {
			t.Errorf("%s: it says nothing", what)
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
		if got := objectOf(metav1.PartialObjectMetadata{ObjectMeta: c.meta}); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// A request waits as long as the API server asked, or with exponential back-off; its patience
// begins with the first one.
func TestHowLongARequestWaits(t *testing.T) {
	d := &Client{config: Config{Patience: time.Minute}}
	patient := map[int]*retryBudget{}
	if got := d.pauseBefore(patient, plan.Request{Command: 3, After: time.Second}); got != 0 {
		t.Errorf("the first waits %v", got)
	}
	until := patient[3].until
	if left := time.Until(until); left > time.Minute || left < 50*time.Second {
		t.Errorf("it is given up in %v", left)
	}
	if got := d.pauseBefore(patient, plan.Request{Command: 3, Wait: true, After: 3 * time.Second}); got != 3*time.Second {
		t.Errorf("one that was told waits %v", got)
	}
	if got := d.pauseBefore(patient, plan.Request{Command: 3, Wait: true}); got < 50*time.Millisecond || got > 150*time.Millisecond {
		t.Errorf("the next waits %v", got)
	}
	longest := time.Duration(0)
	for range 30 {
		longest = max(longest, d.pauseBefore(patient, plan.Request{Command: 3, Wait: true}))
	}
	if longest < 2500*time.Millisecond || longest > 7500*time.Millisecond || !patient[3].until.Equal(until) {
		t.Errorf("the longest wait is %v", longest)
	}
	p := patient[3]
	if b := p.pauses.(*backoff.ExponentialBackOff); b.InitialInterval != 100*time.Millisecond || b.MaxInterval != 5*time.Second || b.MaxElapsedTime != 0 {
		t.Errorf("the waits are from %v to %v, for %v", b.InitialInterval, b.MaxInterval, b.MaxElapsedTime)
	}
	if p.doubtDuration() != 0 || p.doubtedSince.IsZero() {
		t.Error("a doubt has lasted before it began")
	}
	if p.doubtedSince = p.doubtedSince.Add(-time.Hour); p.doubtDuration() < time.Hour {
		t.Error("a doubt does not last")
	}
}

// A pod's usage is that of its containers, if each reports it.
func TestWhatAPodUses(t *testing.T) {
	var p podMetrics
	add := func(name string, usage corev1.ResourceList) {
		p.Containers = append(p.Containers, struct {
			Name  string              `json:"name"`
			Usage corev1.ResourceList `json:"usage"`
		}{name, usage})
	}
	if _, ok := p.uses("cpu", ""); ok {
		t.Error("a pod without containers uses something")
	}
	add("a", corev1.ResourceList{"cpu": quantity.MustParse("100m"), "memory": quantity.MustParse("1")})
	add("b", corev1.ResourceList{"cpu": quantity.MustParse("30m")})
	for what, c := range map[string]struct {
		of        corev1.ResourceName
		container string
		milli     int64
		ok        bool
	}{
		"all": {"cpu", "", 130, true}, "one": {"cpu", "b", 30, true}, "none of that name": {"cpu", "c", 0, false},
		"not all say": {"memory", "", 0, false}, "one that says": {"memory", "a", 1000, true},
	} {
		if milli, ok := p.uses(c.of, c.container); ok != c.ok || milli != c.milli {
			t.Errorf("%s: %d, %t, want %d", what, milli, ok, c.milli)
		}
	}
}

// An error of a server other than Kubernetes' names the requested resource.
func TestErrorsOfOtherServersAreNamed(t *testing.T) {
	of := schema.GroupVersionResource{Group: "custom.metrics.k8s.io", Version: "v1beta1", Resource: "pods"}
	plain, known := errors.New("x"), apierrors.NewNotFound(schema.GroupResource{Resource: "y"}, "z")
	if addResource(plain, of) != plain || addResource(known, of) != error(known) {
		t.Error("what is known is named otherwise")
	}
	foreign := apierrors.NewGenericServerResponse(503, "get", schema.GroupResource{}, "", "it is down", 7, true)
	err := addResource(foreign, of)
	if seconds, _ := apierrors.SuggestsClientDelay(err); seconds != 7 || !apierrors.IsServiceUnavailable(err) {
		t.Errorf("it is told as %v", err)
	}
	if got := refusal(err, 0); got.Code != 503 || got.Cause != "UnexpectedServerResponse" {
		t.Errorf("it is told as %+v", got)
	}
}

// An Event's name derives from its object and its ID; it is in the object's namespace or the
// default one.
func TestTheEventOfARecord(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	recorder := NewEventRecorder(&Client{}, testingclock.NewFakePassiveClock(now))
	story := EventRecord{Source: "s", ID: "a"}
	story.Event.Notice = events.Notice{About: corev1.ObjectReference{Kind: "Node", Name: "n"}, Type: "Normal", Reason: "R", Message: "m"}
	e := recorder.event(story)
	if e.Namespace != "default" || e.Count != 1 || !e.FirstTimestamp.Time.Equal(now) || !e.LastTimestamp.Time.Equal(now) || e.Source.Component != "s" || e.ReportingController != "s" || e.Reason != "R" {
		t.Errorf("of a node it is %+v", e)
	}
	same, other := recorder.event(story), story
	other.ID = "b"
	other.About.Namespace = "ns"
	if o := recorder.event(other); same.Name != e.Name || o.Name == e.Name || o.Namespace != "ns" {
		t.Errorf("the names are %s, %s and %s", e.Name, same.Name, o.Name)
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
			t.Errorf("%s: it goes on with %q, want %q", what, got, c.want)
		}
	}
}

// with creates a missing status, and appends to the lists of an existing one.
func TestAStatusIsPutIntoAnObject(t *testing.T) {
	for object, want := range map[string]string{
		`{"a":1}`:                            `{"a":1,"status":{"certificate":"eA==","conditions":[2]}}`,
		`{"status":{"conditions":[1]}}`:      `{"status":{"certificate":"eA==","conditions":[1,2]}}`,
		`{"status":{"certificate":"old"}}`:   `{"status":{"certificate":"eA==","conditions":[2]}}`,
		`{"status":{"n":12345678901234567}}`: `{"status":{"certificate":"eA==","conditions":[2],"n":12345678901234567}}`,
	} {
		if got, err := with([]byte(object), map[string]any{"certificate": []byte("x"), "conditions": []any{2}}); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v, want %s", object, got, err, want)
		}
	}
	if got, err := with([]byte(`7`), nil); err == nil {
		t.Errorf("what is no object becomes %s", got)
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

// A door has the default limits that its documentation says.
func TestDefaultsOfADoor(t *testing.T) {
	c := Config{}.withDefaults()
	if c.FieldManager != FieldManager || c.MaxInFlight != 200 || c.Patience != 30*time.Second || c.Timeout != 15*time.Second || c.Clock == nil || c.Metrics == nil {
		t.Errorf("by default it is %+v", c)
	}
	c.Panicked("", nil, nil)
	told, clock, metrics := 0, testingclock.NewFakePassiveClock(time.Now()), NewMetrics()
	c = Config{FieldManager: "m", MaxInFlight: 1, Patience: 1, Timeout: 1, Clock: clock, Metrics: metrics, Panicked: func(string, any, []byte) { told++ }}.withDefaults()
	if c.Panicked("", nil, nil); c.FieldManager != "m" || c.MaxInFlight != 1 || c.Patience != 1 || c.Timeout != 1 || c.Clock != clock || c.Metrics != metrics || told != 1 {
		t.Errorf("what was said is %+v", c)
	}
}

// The error of a door that cannot be opened names the controller, or discovery.
func TestDoorsThatCannotBeOpened(t *testing.T) {
	unreadable := &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nonexistent"}}
	for want, c := range map[string]struct {
		config Config
		actors []Actor
	}{
		"no address given": {Config{}, nil}, "for job-controller: ": {Config{REST: unreadable}, []Actor{{Controller: "job-controller"}}}, "for discovery: ": {Config{REST: unreadable}, nil},
	} {
		if d, err := New(c.config, c.actors); err == nil || d != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// A request waits for a slot no longer than its turn lasts.
func TestAPlaceIsNotWaitedForWithoutEnd(t *testing.T) {
	d, err := New(Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, MaxInFlight: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	over, err := d.admit(t.Context(), Actor{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the writer stops"))
	if r := d.Do(ctx, Actor{}, plan.Request{Verb: plan.Look}, ""); r.Code != 0 || r.Reason != "Interrupted" || r.Message != "the writer stops" {
		t.Errorf("while another is under way the answer is %+v", r)
	}
	over()
	if r := d.Do(t.Context(), Actor{Controller: "job-controller"}, plan.Request{Verb: plan.Look, Kind: "pods", Version: "v1", Namespace: "ns", Name: "a"}, ""); r.Code != http.StatusForbidden || r.Reason != "NoIdentity" || !strings.Contains(r.Message, "job-controller") {
		t.Errorf("for one whom it does not know the answer is %+v", r)
	}
}

// Discovery is repeated at most every ten seconds.
func TestDiscoveryIsNotAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mapping{mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(nil))}
		for _, step := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {0, false}, {10 * time.Second, false}, {1, true}, {1, false}} {
			time.Sleep(step.after) // virtual
			if got := m.renew(); got != step.want {
				t.Errorf("after %v more it is forgotten: %t", step.after, got)
			}
		}
	})
}
