package doctor

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/stream/audit"
)

const (
	// largest bounds a response, in bytes.
	largest = 4 << 20
	// atOnce is the maximum of concurrent requests.
	atOnce = 8
	// lookAgain is when to read a Lease again whose holder seems to have stopped renewing it,
	// because its clock may only be behind. It is longer than kube-controller-manager's retry
	// period, two seconds.
	lookAgain = 3 * time.Second
	// nowhere is a namespace without role bindings, so that only cluster-wide rights count in it.
	nowhere = "millrace-doctor-looks-at-no-namespace"
)

// API makes the requests of the checks to an API server.
type API struct {
	config *rest.Config
	client *http.Client
	base   *url.URL
}

// NewAPI makes a client for the API server of a configuration.
//
// Errors: the configuration is invalid, or a file of it cannot be read.
func NewAPI(config *rest.Config) (*API, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &API{config: config, client: client, base: base}, nil
}

// answer is one response.
type answer struct {
	code int
	body []byte
	told audit.ClockReading
	took time.Duration
	tls  []*x509.Certificate
}

// ask sends a request; body may be nil.
func (a *API) ask(ctx context.Context, method, path string, query url.Values, body any) (answer, error) {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		sent = bytes.NewReader(text)
	}
	at := a.base.JoinPath(path)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), sent)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	asked := time.Now()
	response, err := a.client.Do(request)
	if err != nil {
		return answer{}, unwrapped(err)
	}
	answered := time.Now()
	defer response.Body.Close()
	got := answer{code: response.StatusCode, took: answered.Sub(asked)}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		got.told = audit.ClockReading{At: date, Precision: time.Second, Asked: asked, Answered: answered}
	}
	if response.TLS != nil {
		got.tls = response.TLS.PeerCertificates
	}
	got.body, err = io.ReadAll(io.LimitReader(response.Body, largest))
	return got, err
}

// unwrapped is an error without the address, which each finding has.
func unwrapped(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// read sends a request, and decodes the response.
//
// Errors: there is no response, or it is a refusal.
func (a *API) read(ctx context.Context, method, path string, query url.Values, body, into any) (audit.ClockReading, error) {
	got, err := a.ask(ctx, method, path, query, body)
	if err != nil {
		return got.told, err
	}
	if got.code < 200 || got.code > 299 {
		var status metav1.Status
		if json.Unmarshal(got.body, &status) == nil && status.Message != "" {
			return got.told, errors.New(status.Message)
		}
		return got.told, fmt.Errorf("the API server answers with code %d", got.code)
	}
	return got.told, json.Unmarshal(got.body, into)
}

// Reach makes the first request, and also returns the API server's time.
func (a *API) Reach(ctx context.Context) (Reach, audit.ClockReading) {
	got, err := a.ask(ctx, http.MethodGet, "/api", nil, nil)
	return Reach{
		Host: strings.TrimSuffix(a.base.String(), "/"), Err: err, Code: got.code, Took: got.took,
		Plain: a.base.Scheme == "http", Unverified: a.config.Insecure, Chain: got.tls,
	}, got.told
}

// Identity asks the API server for this client's user.
func (a *API) Identity(ctx context.Context, code int) Identity {
	i := Identity{Code: code, Ends: clientCertificateEnds(a.config)}
	if code == http.StatusUnauthorized {
		return i
	}
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	_, i.Err = a.read(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", nil, review, review)
	i.Name = review.Status.UserInfo.Username
	return i
}

// clientCertificateEnds is when the client certificate of a configuration expires; zero if
// it has none.
func clientCertificateEnds(config *rest.Config) time.Time {
	text := config.CertData
	if len(text) == 0 && config.CertFile != "" {
		text, _ = os.ReadFile(config.CertFile) // NewAPI has read it without an error
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotAfter
}

// Version asks for the API server's version.
func (a *API) Version(ctx context.Context) (v ServerVersion, err error) {
	_, err = a.read(ctx, http.MethodGet, "/version", nil, nil, &v)
	return v, err
}

// May asks which of some rights this client has. It asks for the rights that no rule shows one by
// one, because not every authorizer can list its rules.
func (a *API) May(ctx context.Context, needed []Right) (map[Right]bool, error) {
	rules := map[string][]rbacv1.PolicyRule{}
	may, open := map[Right]bool{}, []Right{}
	for _, r := range needed {
		in := r.Namespace
		if in == "" {
			in = nowhere
		}
		if _, known := rules[in]; !known {
			of, err := a.rules(ctx, in)
			if err != nil {
				return nil, err
			}
			rules[in] = of
		}
		if may[r] = given(rules[in], r); !may[r] {
			open = append(open, r)
		}
	}
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, r := range open {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			is, err := a.mayOne(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			may[r], failed = is, errors.Join(failed, err)
		})
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			break
		}
	}
	all.Wait()
	return may, failed
}

// rules are this client's rules in a namespace, as far as the API server lists them.
func (a *API) rules(ctx context.Context, namespace string) (rules []rbacv1.PolicyRule, err error) {
	review := &authorizationv1.SelfSubjectRulesReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"},
		Spec:     authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}
	if _, err := a.read(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", nil, review, review); err != nil {
		return nil, err
	}
	for _, r := range review.Status.ResourceRules {
		rules = append(rules, rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
	}
	for _, r := range review.Status.NonResourceRules {
		rules = append(rules, rbacv1.PolicyRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
	}
	return rules, nil
}

// mayOne asks for one right.
func (a *API) mayOne(ctx context.Context, r Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}}
	if r.Path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.Verb, Path: r.Path}
	} else {
		plural, sub := split(r.Resource)
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: plural, Subresource: sub, Namespace: r.Namespace, Name: r.Name,
		}
	}
	_, err := a.read(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, review, review)
	return review.Status.Allowed, err
}

// Managers reads kube-controller-manager's Lease, and its pods.
func (a *API) Managers(ctx context.Context) (m Managers) {
	var pods corev1.PodList
	_, m.PodsErr = a.read(ctx, http.MethodGet, "/api/v1/namespaces/"+managerNamespace+"/pods", url.Values{"labelSelector": {managerLabel}}, nil, &pods)
	m.Pods = commandsOf(pods.Items)
	if m.Lease, m.Now = a.lease(ctx); m.Lease.Holder == "" || m.Lease.held(m.Now) {
		return m
	}
	again := time.NewTimer(lookAgain)
	defer again.Stop()
	select {
	case <-ctx.Done():
		return m
	case <-again.C:
	}
	if second, _ := a.lease(ctx); second.Err == nil && second.Holder != "" {
		second.Again = !second.Renewed.Equal(m.Lease.Renewed)
		m.Lease = second
	}
	return m
}

// lease reads the Lease by a list, because a watcher has the right to list, and not the right to
// get.
func (a *API) lease(ctx context.Context) (Lease, time.Time) {
	var leases coordinationv1.LeaseList
	told, err := a.read(ctx, http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/"+managerNamespace+"/leases",
		url.Values{"fieldSelector": {"metadata.name=" + managerLease}}, nil, &leases)
	if err != nil {
		return Lease{Err: err}, told.At
	}
	now := told.At
	if now.IsZero() {
		now = time.Now()
	}
	return leaseOf(leases.Items), now
}
