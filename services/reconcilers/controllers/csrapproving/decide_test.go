package csrapproving

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

// usages are the usages of a kubelet's client certificate. A key of elliptic curves
// enciphers no other keys.
var usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(4, carriedOut(selfNodeClient)), reconciletest.Content(4, carriedOut(nodeClient)), reconciletest.Content(4, carriedOut("")),
		reconciletest.Law[View]{Name: "sure", Holds: sure})
}

// anyView returns a request that may be a kubelet's, and possible answers about it.
func anyView(t *rapid.T) View {
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "u", ResourceVersion: "7"}}
	r.CreationTimestamp = metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(-5, 3000).Draw(t, "seconds ago")) * time.Second))
	r.Spec.SignerName = rapid.SampledFrom([]string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName}).Draw(t, "signer")
	r.Spec.Request = rapid.SampledFrom([][]byte{ofNode, ofNode, ofNode, ofOther, []byte("none")}).Draw(t, "request")
	r.Spec.Usages = usages[:rapid.IntRange(1, 3).Draw(t, "usages")]
	r.Spec.Username = rapid.SampledFrom([]string{"system:node:n1", "system:bootstrap:abc"}).Draw(t, "by")
	r.Spec.Groups = []string{"system:authenticated"}
	if rapid.Bool().Draw(t, "extra") {
		r.Spec.Extra = map[string]certificatesv1.ExtraValue{"example.com/a": {"b", "c"}, "example.com/d": nil}
	}
	if kind := rapid.SampledFrom([]certificatesv1.RequestConditionType{"", "", "", certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed}).Draw(t, "condition"); kind != "" {
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue}}
	}
	if rapid.IntRange(0, 7).Draw(t, "issued") == 7 {
		r.Status.Certificate = []byte("a certificate")
	}
	v := View{Request: r}
	if rapid.Bool().Draw(t, "asked") {
		v.At = now.Add(-time.Duration(rapid.IntRange(0, 1200).Draw(t, "answered, seconds ago")) * time.Second)
		v.Review = told(rapid.SampledFrom([]string{selfNodeClient, nodeClient, "status"}).Draw(t, "about"), rapid.Bool().Draw(t, "allowed"))
	}
	if v.Review == nil && rapid.IntRange(0, 7).Draw(t, "unread") == 7 {
		v.Unread = &reconcile.Unread{Because: "the answer cannot be read", At: now.Add(-10 * time.Second)}
	}
	return v
}

func told(permission string, allowed bool) *query.Review {
	r := &query.Review{Of: &authorizationv1.ResourceAttributes{Subresource: permission}}
	r.Status.Allowed = allowed
	return r
}

// carriedOut returns the view after a decision if one permission is granted.
func carriedOut(given string) func(View, reconcile.Decision, time.Time) View {
	return func(v View, d reconcile.Decision, now time.Time) View {
		for _, c := range d.Commands {
			if c.Verb == events.VerbAsk {
				permission := questionIn(c).ResourceAttributes.Subresource
				v.Review, v.At, v.Unread = told(permission, permission == given), now, nil
				continue
			}
			v.Request = new(certificatesv1.CertificateSigningRequest)
			if err := json.Unmarshal(c.Body, v.Request); err != nil {
				panic(err)
			}
		}
		return v
	}
}

func questionIn(c events.Command) (question authorizationv1.SubjectAccessReviewSpec) {
	if err := json.Unmarshal(c.Body, &question); err != nil {
		panic(err)
	}
	return question
}

// sure checks that a request is approved only because of a recent answer that grants its
// requester the permission.
func sure(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb == events.VerbAsk {
			continue
		}
		r := v.Request
		switch {
		case v.Review == nil || !v.Review.Status.Allowed || now.Sub(v.At) >= 30*time.Second:
			return fmt.Errorf("the answer of %v is %+v", v.At, v.Review)
		case v.Review.Of.Subresource == selfNodeClient && r.Spec.Username != "system:node:n1", !slices.Contains([]string{selfNodeClient, nodeClient}, v.Review.Of.Subresource):
			return fmt.Errorf("%s may have %s", r.Spec.Username, v.Review.Of.Subresource)
		case !bytes.Equal(r.Spec.Request, ofNode) || r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || len(r.Spec.Usages) < 2:
			return fmt.Errorf("it is no request of a kubelet: %+v", r.Spec)
		}
	}
	return nil
}

// asks returns a request in PEM; change adds to what it asks for.
func asks(subject pkix.Name, change func(*x509.CertificateRequest)) []byte {
	template := &x509.CertificateRequest{Subject: subject}
	if change != nil {
		change(template)
	}
	text, err := x509.CreateCertificateRequest(rand.Reader, template, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: text})
}

var (
	n1      = pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	ofNode  = asks(n1, nil)
	ofOther = asks(pkix.Name{CommonName: "jane"}, nil)
)

// A kubelet's client certificate request must be complete, and ask for nothing more.
func TestWhatAKubeletAsksFor(t *testing.T) {
	more := func(change func(*x509.CertificateRequest)) []byte { return asks(n1, change) }
	with := func(change func(*pkix.Name)) []byte {
		name := n1
		change(&name)
		return asks(name, nil)
	}
	for what, c := range map[string]struct {
		request []byte
		usages  []certificatesv1.KeyUsage
		want    bool
	}{
		"RSA":                     {ofNode, usages, true},
		"elliptic curves":         {ofNode, usages[:2], true},
		"in any order":            {ofNode, []certificatesv1.KeyUsage{"digital signature", "client auth", "digital signature"}, true},
		"another place":           {with(func(n *pkix.Name) { n.Country = []string{"CH"} }), usages, true},
		"no signature":            {ofNode, []certificatesv1.KeyUsage{"client auth", "key encipherment"}, false},
		"no client":               {ofNode, []certificatesv1.KeyUsage{"digital signature", "key encipherment"}, false},
		"a server, too":           {ofNode, append(slices.Clone(usages), "server auth"), false},
		"none":                    {ofNode, nil, false},
		"a host":                  {more(func(r *x509.CertificateRequest) { r.DNSNames = []string{"n1"} }), usages, false},
		"an address":              {more(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }), usages, false},
		"a mailbox":               {more(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }), usages, false},
		"a URI":                   {more(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "n1"}} }), usages, false},
		"an administrator, too":   {with(func(n *pkix.Name) { n.Organization = append([]string{"system:masters"}, n.Organization...) }), usages, false},
		"an administrator":        {with(func(n *pkix.Name) { n.Organization = []string{"system:masters"} }), usages, false},
		"of no group":             {with(func(n *pkix.Name) { n.Organization = nil }), usages, false},
		"not a node":              {with(func(n *pkix.Name) { n.CommonName = "n1" }), usages, false},
		"no PEM":                  {[]byte("a request"), usages, false},
		"a certificate":           {bytes.ReplaceAll(ofNode, []byte(" REQUEST"), nil), usages, false},
		"a request of other kind": {bytes.ReplaceAll(ofNode, []byte("CERTIFICATE REQUEST"), []byte("NEW CERTIFICATE REQUEST")), usages, false},
		"none that can be read":   {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("x")}), usages, false},
	} {
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Request: c.request, Usages: c.usages}}
		if name, ok := nodeOf(r); ok != c.want || ok && name != "system:node:n1" {
			t.Errorf("%s: of the node %q, %v", what, name, ok)
		}
	}
}

// A missing permission is checked again at growing intervals.
func TestRefusalsAreAskedForAgain(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		-time.Minute: time.Second, 0: time.Second, 10 * time.Second: 10 * time.Second, 5 * time.Hour: 1000 * time.Second,
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-age))}}
		r.Spec = certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Request: ofNode, Usages: usages}
		if d := decide(View{Request: r, Review: told(nodeClient, false), At: now}, now); !d.WakeAt.Equal(now.Add(want)) || len(d.Commands) > 0 {
			t.Errorf("%v after it was made it is asked again after %v, want %v", age, d.WakeAt.Sub(now), want)
		}
	}
}

func TestObserve(t *testing.T) {
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "u", ResourceVersion: "7"}}
	key := events.Key{Name: "csr-1"}
	world := reconciletest.NewWorld().Put(kinds.CertificateSigningRequests.Kind, request)
	if v, ok := observe(world, key); !ok || v.Request != request || v.Review != nil {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
	if _, ok := observe(world, events.Key{Name: "csr-2"}); ok {
		t.Error("observe finds a request that is not there")
	}
	result := func(status events.Status, body any) events.Result {
		r := events.Result{Status: status}
		if body != nil {
			r.Answer = &events.Answer{Body: reconcile.Body(body)}
		}
		return r
	}
	last := events.Outcome{Key: key, Lane: events.LaneWrite, UID: "u", ResourceVersion: "7", At: now, Results: []events.Result{result(events.Answered, told(nodeClient, true))}}
	if v, _ := observe(world.Remember(last), key); v.Review == nil || !v.Review.Status.Allowed || !v.At.Equal(now) {
		t.Errorf("of the answer the view has %+v", v)
	}
	for what, change := range map[string]func(*events.Outcome){
		"another request of the name": func(o *events.Outcome) { o.UID = "before" },
		"the request as it was":       func(o *events.Outcome) { o.ResourceVersion = "6" },
		"no answer":                   func(o *events.Outcome) { o.Results[0] = result(events.Failed, nil) },
		"another question":            func(o *events.Outcome) { o.Results[0] = result(events.Answered, query.Users{Count: 1}) },
	} {
		other := last
		other.Results = slices.Clone(last.Results)
		change(&other)
		if v, _ := observe(world.Remember(other), key); v.Review != nil || (v.Unread != nil) != (what == "another question") {
			t.Errorf("of %s the view has %+v", what, v)
		}
	}
}
