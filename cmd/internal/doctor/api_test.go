package doctor

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events/apiservertest"
)

// server is an API server with one user, who has rights that rules show and rights that they do
// not show.
type server struct {
	*apiservertest.Server
	t *testing.T

	mu      sync.Mutex
	version ServerVersion
	date    time.Time // of its responses; zero: the real one
	rules   map[string][]rbacv1.PolicyRule
	hidden  []Right
	forbids []string // prefixes of paths
}

const (
	token     = "secret"
	leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
)

func serve(t *testing.T, like apiservertest.Option) *server {
	t.Helper()
	s := &server{Server: apiservertest.New(t, like), t: t, version: ServerVersion{Major: "1", Minor: "36", GitVersion: "v1.36.3"}, rules: map[string][]rbacv1.PolicyRule{}}
	s.Break(s.refuse)
	for path, answer := range map[string]func(apiservertest.Request) any{
		"/version": func(apiservertest.Request) any { return s.version },
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": func(apiservertest.Request) any {
			return authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "doctor"}}}
		},
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews":  func(r apiservertest.Request) any { return s.show(r) },
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": func(r apiservertest.Request) any { return s.review(r) },
	} {
		s.Handle(path, func(r apiservertest.Request) (int, any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return http.StatusOK, answer(r)
		})
	}
	return s
}

// refuse refuses another user, and what is forbidden.
func (s *server) refuse(r apiservertest.Request) (f apiservertest.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.date.IsZero() {
		f.Header = http.Header{"Date": {s.date.UTC().Format(http.TimeFormat)}}
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+token:
		f.Code, f.Message = http.StatusUnauthorized, "Unauthorized"
	case slices.ContainsFunc(s.forbids, func(path string) bool { return strings.HasPrefix(r.Path, path) }):
		f.Code, f.Message = http.StatusForbidden, r.Path+" is forbidden"
	}
	return f
}

// config is the configuration of a user with a token.
func (s *server) config(token string) *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *server) api(token string) *API {
	s.t.Helper()
	a, err := NewAPI(s.config(token))
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// hold stores the Lease of a kube-controller-manager, renewed at a time.
func (s *server) hold(at time.Time) {
	holder, seconds, renewed := "kcm_1", int32(15), metav1.NewMicroTime(at)
	s.Put(leasePath, "", coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}})
}

// show shows the rules of a namespace, and those of all.
func (s *server) show(r apiservertest.Request) (review authorizationv1.SelfSubjectRulesReview) {
	if err := json.Unmarshal(r.Body, &review); err != nil {
		s.t.Error(err)
	}
	for _, rule := range slices.Concat(s.rules[""], s.rules[review.Spec.Namespace]) {
		review.Status.ResourceRules = append(review.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
		})
	}
	return review
}

// review is whether the user has a right that no rule shows.
func (s *server) review(r apiservertest.Request) (review authorizationv1.SelfSubjectAccessReview) {
	if err := json.Unmarshal(r.Body, &review); err != nil {
		s.t.Error(err)
	}
	var asked Right
	if a := review.Spec.ResourceAttributes; a != nil {
		asked = Right{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name}
		if a.Subresource != "" {
			asked.Resource += "/" + a.Subresource
		}
	} else {
		asked = Right{Verb: review.Spec.NonResourceAttributes.Verb, Path: review.Spec.NonResourceAttributes.Path}
	}
	review.Status.Allowed = slices.Contains(s.hidden, asked)
	return review
}

// asked counts the requests for paths with that end.
func (s *server) asked(end string) (n int) {
	for _, r := range s.Requests() {
		if strings.HasSuffix(r.Path, end) {
			n++
		}
	}
	return n
}

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

// TestMay: a right counts if a rule shows it or the API server allows it; a right in one
// namespace does not count for all.
func TestMay(t *testing.T) {
	t.Parallel()
	s := serve(t, apiservertest.TLS)
	s.rules[""] = []rbacv1.PolicyRule{rule("list", "", "pods")}
	s.rules["kube-system"] = []rbacv1.PolicyRule{rule("list", "", "secrets"), rule("impersonate", "", "serviceaccounts", "a")}
	s.hidden = []Right{{Verb: "patch", Group: "apps", Resource: "deployments/status"}, {Verb: "get", Path: "/apis"}}
	want := map[Right]bool{
		{Verb: "list", Resource: "pods"}:    true,
		{Verb: "watch", Resource: "pods"}:   false,
		{Verb: "list", Resource: "secrets"}: false,
		{Verb: "impersonate", Resource: "serviceaccounts", Namespace: "kube-system", Name: "a"}: true,
		{Verb: "impersonate", Resource: "serviceaccounts", Namespace: "kube-system", Name: "b"}: false,
		{Verb: "patch", Group: "apps", Resource: "deployments/status"}:                          true,
		{Verb: "patch", Group: "apps", Resource: "deployments"}:                                 false,
		{Verb: "get", Path: "/apis"}:    true,
		{Verb: "get", Path: "/metrics"}: false,
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system"}: false,
	}
	var needed []Right
	for r := range want {
		needed = append(needed, r)
	}
	got, err := s.api("secret").May(t.Context(), needed)
	if err != nil {
		t.Fatal(err)
	}
	for r, is := range want {
		if got[r] != is {
			t.Errorf("we may %v: %t", r, got[r])
		}
	}
	if n := s.asked("selfsubjectrulesreviews"); n != 2 {
		t.Errorf("rules were asked for %d times, want once for a namespace", n)
	}
	if n := s.asked("selfsubjectaccessreviews"); n != 8 {
		t.Errorf("%d rights were asked for, want those that no rule shows", n)
	}
	s.forbids = []string{"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}
	if _, err := s.api("secret").May(t.Context(), needed); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("reviews that are forbidden: %v", err)
	}
}

// look runs the checks of the API server, and returns the findings by name.
func (s *server) look(token string, needed ...Needed) map[string]Finding {
	s.t.Helper()
	all := map[string]Finding{}
	c := Cluster{API: s.api(token), Needed: func(bool) []Needed { return needed }, Acting: []string{"deployment-controller"}}
	for _, f := range c.Look(s.t.Context()) {
		if _, twice := all[f.Check]; twice {
			s.t.Errorf("%s is checked twice", f.Check)
		}
		all[f.Check] = f
	}
	return all
}

func states(all map[string]Finding) string {
	var texts []string
	for check, f := range all {
		texts = append(texts, fmt.Sprintf("%s: %s", check, f.State))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

// TestLook: the findings for a healthy server and for others.
func TestLook(t *testing.T) {
	t.Parallel()
	s := serve(t, apiservertest.TLS)
	s.rules[""] = []rbacv1.PolicyRule{rule("list", "", "pods")}
	watcher := Needed{Part: PartWatcher, Roles: "millrace rbac", All: []Right{{Verb: "list", Resource: "pods"}}}
	idle := Needed{Part: PartWriter, Idle: "nothing is written"}
	const well = "api-server-tls: ok\napi-server: ok\nclock-api-server: ok\nidentity: ok\nkube-controller-manager: ok\nrights-watcher: ok\nrights-writer: not checked\nversion: ok"
	if got := states(s.look("secret", watcher, idle)); got != well {
		t.Errorf("it is well, and found is\n%s", got)
	}

	got := s.look("another", watcher)
	const unknown = "api-server-tls: ok\napi-server: ok\nclock-api-server: not checked\nidentity: failed\nkube-controller-manager: not checked\nrights-watcher: not checked\nversion: not checked"
	if states(got) != unknown {
		t.Errorf("the token is unknown, and found is\n%s", states(got))
	}

	watcher.All = append(watcher.All, Right{Verb: "watch", Resource: "pods"})
	at := time.Now().Add(time.Hour)
	s.hold(at)
	s.mu.Lock()
	s.version.Minor, s.date = "33", at
	s.mu.Unlock()
	got = s.look("secret", watcher)
	expect(t, []expectation{
		{"an old server", got[CheckVersion], Failed, "1.34"},
		{"a clock that is ahead", got[CheckClockServer], Warning, "ahead"},
		{"a right that is missing", got[rightsOf+PartWatcher], Failed, "watch pods"},
		{"a kube-controller-manager", got[CheckManager], Warning, "kcm_1…deployment-controller"},
	})

	s.Put("/api/v1/namespaces/kube-system/pods/kcm-a", "", corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"component": "kube-controller-manager"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"kube-controller-manager"}}}},
	})
	s.mu.Lock()
	s.forbids = []string{"/apis/authorization.k8s.io", "/apis/authentication.k8s.io", "/version"}
	s.mu.Unlock()
	got = s.look("secret", watcher)
	expect(t, []expectation{
		{"its flags are read", got[CheckManager], Failed, "run twice: deployment-controller"},
		{"no version", got[CheckVersion], NotChecked, "/version is forbidden"},
		{"no identity", got[CheckIdentity], NotChecked, "forbidden"},
		{"no rights", got[rightsOf+PartWatcher], NotChecked, "forbidden"},
	})

	s.Close()
	got = s.look("secret", watcher)
	if f := got[CheckAPIServer]; f.State != Failed || strings.Contains(f.Found, "Get ") {
		t.Errorf("the server is gone: %v", f)
	}
	if f := got[rightsOf+PartWatcher]; f.State != NotChecked {
		t.Errorf("the server is gone: %v", f)
	}
}

// TestWritersOfBothWays: only if rights for constrained impersonation are missing does the check
// ask for those of the classic way.
func TestWritersOfBothWays(t *testing.T) {
	t.Parallel()
	s := serve(t, apiservertest.TLS)
	bounds := []rbacv1.PolicyRule{rule("impersonate-on:serviceaccount:create", "", "pods")}
	s.rules[""] = bounds
	s.rules["kube-system"] = []rbacv1.PolicyRule{rule("impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts", "a")}
	writer := WriterNeeds([]string{"a"}, bounds, true)
	if f := s.look("secret", writer)[rightsOf+PartWriter]; f.State != OK || s.asked("selfsubjectaccessreviews") != 0 {
		t.Errorf("a writer with constrained impersonation, after %d questions: %v", s.asked("selfsubjectaccessreviews"), f)
	}
	s.mu.Lock()
	s.rules = map[string][]rbacv1.PolicyRule{"kube-system": {rule("impersonate", "", "serviceaccounts", "a")}}
	s.mu.Unlock()
	if f := s.look("secret", writer)[rightsOf+PartWriter]; f.State != OK || !strings.Contains(f.Found, "classic") {
		t.Errorf("a writer in the classic way: %v", f)
	}
}

// TestCertificateOfAnother: the doctor sends no request to a server whose certificate is of another
// authority.
func TestCertificateOfAnother(t *testing.T) {
	t.Parallel()
	s := serve(t, apiservertest.TLS)
	config := s.config("secret")
	config.CAData = nil
	a, err := NewAPI(config)
	if err != nil {
		t.Fatal(err)
	}
	all := Cluster{API: a, Needed: func(bool) []Needed { return nil }}.Look(t.Context())
	i := slices.IndexFunc(all, func(f Finding) bool { return f.Check == CheckTLS })
	expect(t, []expectation{{"another authority", all[i], Failed, "certificate-authority"}})
	if n := s.asked(""); n != 0 {
		t.Errorf("%d requests with a credential reached it", n)
	}
}

// TestASilentHolderIsLookedAtTwice: a holder whose clock is behind counts as alive, and one that
// does not renew the Lease does not.
func TestASilentHolderIsLookedAtTwice(t *testing.T) {
	for name, again := range map[string]bool{"it renews": true, "it has ended": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, apiservertest.Offline)
				renewed := time.Now().Add(-time.Hour)
				s.hold(renewed)
				a, err := NewAPI(&rest.Config{Host: s.URL, BearerToken: token, Transport: s.Server})
				if err != nil {
					t.Fatal(err)
				}
				if again {
					time.AfterFunc(lookAgain/2, func() { s.hold(renewed.Add(2 * time.Second)) })
				}
				began := time.Now()
				m := a.Managers(t.Context())
				if m.Lease.held(m.Now) != again || time.Since(began) != lookAgain {
					t.Errorf("after %v it is held: %+v", time.Since(began), m.Lease)
				}
			})
		})
	}
}
