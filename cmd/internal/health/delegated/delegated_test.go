package delegated

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/cmd/internal/health"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/stream/certs"
)

// judge is an API server that only answers reviews: the token of a user is "token-of-" and the
// user's name, and only prometheus may get /metrics.
type judge struct{ *apiservertest.Server }

func newJudge(t *testing.T) *judge {
	t.Helper()
	j := &judge{apiservertest.New(t)}
	j.Handle("/apis/authentication.k8s.io/v1/tokenreviews", reviewToken)
	j.Handle("/apis/authorization.k8s.io/v1/subjectaccessreviews", reviewAccess)
	return j
}

// refuse refuses every request.
func (j *judge) refuse() {
	j.Break(func(apiservertest.Request) apiservertest.Fault {
		return apiservertest.Fault{Code: http.StatusForbidden}
	})
}

func reviewToken(r apiservertest.Request) (code int, answer any) {
	var review authenticationv1.TokenReview
	_ = json.Unmarshal(r.Body, &review)
	review.TypeMeta = metav1.TypeMeta{Kind: "TokenReview", APIVersion: "authentication.k8s.io/v1"}
	name, ok := strings.CutPrefix(review.Spec.Token, "token-of-")
	if review.Status.Authenticated = ok; ok {
		review.Status.User.Username = name
	} else {
		review.Status.Error = "invalid bearer token"
	}
	if name == "master" {
		review.Status.User.Groups = []string{"system:masters"}
	}
	return http.StatusCreated, review
}

func reviewAccess(r apiservertest.Request) (code int, answer any) {
	var review authorizationv1.SubjectAccessReview
	_ = json.Unmarshal(r.Body, &review)
	review.TypeMeta = metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
	asked := review.Spec.NonResourceAttributes
	review.Status.Allowed = asked != nil && review.Spec.User == "prometheus" && asked.Verb == "get" && asked.Path == "/metrics"
	return http.StatusCreated, review
}

// options are the options of a service that asks the judge.
func (j *judge) options(t *testing.T) Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a, users: [{name: a, user: {}}]}`, j.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Defaults()
	o.Authentication, o.Authorization, o.SkipLookup = file, file, true
	return o
}

func begin(t *testing.T, o Options) *Reviewer {
	t.Helper()
	v, err := Begin(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func request(t *testing.T, method, path, token string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// TestTheAPIServerJudges: the API server decides about users and paths, and its answers are cached.
func TestTheAPIServerJudges(t *testing.T) {
	j := newJudge(t)
	v := begin(t, j.options(t))
	for _, c := range []struct {
		method, path, token string
		want                error
	}{
		{"GET", "/metrics", "token-of-prometheus", nil},
		{"GET", "/debug/pprof/heap", "token-of-prometheus", health.ErrForbidden},
		{"POST", "/metrics", "token-of-prometheus", health.ErrForbidden},
		{"GET", "/metrics", "token-of-alice", health.ErrForbidden},
		{"GET", "/debug/pprof/heap", "token-of-master", nil},
		{"GET", "/metrics", "made-up", health.ErrUnknown},
		{"GET", "/metrics", "", health.ErrUnknown},
	} {
		if err := v.May(request(t, c.method, c.path, c.token)); !errors.Is(err, c.want) {
			t.Errorf("%s %s with %q: %v, want %v", c.method, c.path, c.token, err, c.want)
		}
	}
	before := len(j.Requests())
	for range 100 {
		if err := v.May(request(t, "GET", "/metrics", "token-of-prometheus")); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(j.Requests()) - before; n > 0 {
		t.Errorf("100 requests of a known user caused %d reviews", n)
	}
}

// TestWithoutTheAPIServerNoOneIsLetIn: users are admitted again once the API server answers. A
// missing review is not cached as a verdict.
func TestWithoutTheAPIServerNoOneIsLetIn(t *testing.T) {
	j := newJudge(t)
	o := j.options(t)
	o.TokenTTL, o.AllowTTL, o.DenyTTL = 0, 0, 0
	v := begin(t, o)
	ask := func() error { return v.May(request(t, "GET", "/metrics", "token-of-prometheus")) }
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	j.refuse()
	if err := ask(); !errors.Is(err, health.ErrUnanswered) || !v.away.Load() {
		t.Errorf("without the right to create reviews: %v", err)
	}
	j.Break(nil)
	if err := ask(); err != nil || v.away.Load() {
		t.Errorf("with the right again: %v", err)
	}
	j.Close()
	if err := ask(); !errors.Is(err, health.ErrUnanswered) || !v.away.Load() {
		t.Errorf("without an API server: %v", err)
	}
}

// TestAFloodOfMadeUpTokens: it causes a bounded number of reviews.
func TestAFloodOfMadeUpTokens(t *testing.T) {
	j := newJudge(t)
	v := begin(t, j.options(t))
	began := time.Now()
	const flood = burst + asks/2
	for i := range flood {
		if err := v.May(request(t, "GET", "/metrics", fmt.Sprint("made-up-", i))); !errors.Is(err, health.ErrUnknown) {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("%d reviews in %v", flood, took)
	}
}

// TestWhatIsMissing: errors are reported at the start, with what to do. A failed lookup does not
// prevent the start if it was not asked for, or is tolerated.
func TestWhatIsMissing(t *testing.T) {
	j := newJudge(t)
	j.refuse() // the ConfigMap, too
	looks, tolerates := j.options(t), j.options(t)
	looks.SkipLookup, tolerates.SkipLookup, tolerates.TolerateLookupFailure = false, false, true
	ca, kubeconfig := j.options(t), Defaults()
	ca.ClientCAFile, kubeconfig.Authentication = "/there/is/none", "/there/is/none"
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"a lookup that fails":                {looks, "extension-apiserver-authentication-reader"},
		"a lookup that fails, tolerated":     {tolerates, ""},
		"a file of authorities that is none": {ca, "--client-ca-file"},
		"a kubeconfig that is none":          {kubeconfig, "--authentication-kubeconfig"},
	} {
		if _, err := Begin(t.Context(), c.o); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if v, err := Begin(t.Context(), Defaults()); v != nil || err != nil {
		t.Errorf("outside of a cluster, without a kubeconfig: %v, %v", v, err)
	}
}

// issue is the TLS state of a request with a client certificate of an authority.
func issue(t *testing.T, authority certs.Pair, name string) *tls.ConnectionState {
	t.Helper()
	pair, err := authority.Issue(name, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
}

// TestCertificates: the common name of a certificate of the clients' authority is the user. Only a
// front proxy, with a certificate of another authority, may name users in headers.
func TestCertificates(t *testing.T) {
	j := newJudge(t)
	var authorities [3]certs.Pair
	var files [3]string
	for i := range authorities {
		var err error
		if authorities[i], err = certs.NewAuthority("an authority", time.Hour); err != nil {
			t.Fatal(err)
		}
		files[i] = filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(files[i], authorities[i].Certificate, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := j.options(t)
	o.ClientCAFile, o.Front.CAFile, o.Front.Names = files[0], files[1], []string{"proxy"}
	v := begin(t, o)
	for name, c := range map[string]struct {
		authority    certs.Pair
		common, user string // the user that a header names
		want         error
	}{
		"a client":                                 {authorities[0], "prometheus", "", nil},
		"a client who may not":                     {authorities[0], "alice", "", health.ErrForbidden},
		"a client who says that it is another":     {authorities[0], "alice", "prometheus", health.ErrForbidden},
		"a client of another authority":            {authorities[2], "prometheus", "", health.ErrUnknown},
		"the proxy":                                {authorities[1], "proxy", "prometheus", nil},
		"the proxy, for a user who may not":        {authorities[1], "proxy", "alice", health.ErrForbidden},
		"another program of the proxy's authority": {authorities[1], "other", "prometheus", health.ErrUnknown},
		"a proxy of another authority":             {authorities[2], "proxy", "prometheus", health.ErrUnknown},
	} {
		r := request(t, "GET", "/metrics", "")
		r.TLS = issue(t, c.authority, c.common)
		if c.user != "" {
			r.Header.Set("X-Remote-User", c.user)
		}
		if err := v.May(r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
