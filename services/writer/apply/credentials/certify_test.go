package credentials_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/csr"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

const csrPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1"

// wanted is a stored request for the client certificate of a kubelet.
func wanted(t *testing.T, change func(spec, status map[string]any)) map[string]any {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{
		"signerName": csr.KubeletClient, "usages": []any{"client auth", "digital signature"}, "newer": 7,
		"request": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
	}
	status := map[string]any{"conditions": []any{map[string]any{"type": "Approved", "status": "True", "newer": "field"}}, "newer": "field"}
	if change != nil {
		change(spec, status)
	}
	return map[string]any{"metadata": map[string]any{"name": "csr-1", "annotations": map[string]any{"a": "b"}}, "spec": spec, "status": status}
}

func certification(version, signer string) events.Command {
	return events.Command{
		Verb: events.VerbPatch, Kind: "certificatesigningrequests.certificates.k8s.io", Version: "v1", Name: "csr-1", Subresource: query.SubCertificate,
		PatchType: "application/merge-patch+json", If: &events.If{UID: "r", ResourceVersion: version},
		Body: json.RawMessage(`{"spec":{"signerName":"` + signer + `"}}`),
	}
}

// An approved request gets its certificate in its status; all else of the request stays, and no
// message has the certificate.
func TestARequestIsCertified(t *testing.T) {
	s := applytest.Serve(t)
	object := wanted(t, func(spec, _ map[string]any) { spec["large"] = int64(1<<60 + 1) })
	version := s.Put(csrPath, "r", object)
	r := carry(t, open(t, s, certifying(t)), plan.Options{}, certification(version, csr.KubeletClient))[0]
	now := s.Get(csrPath)
	if r.Status != events.Applied || r.UID != "r" || r.Version == version || s.Answered("PUT "+csrPath+"/status") != 1 {
		t.Fatalf("the result is %+v, want Applied with a new version after one PUT of the status", r)
	}
	status := now["status"].(map[string]any)
	text, err := base64.StdEncoding.DecodeString(status["certificate"].(string))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || certificate.Subject.CommonName != "system:node:n1" || certificate.Issuer.CommonName != "ca" || time.Until(certificate.NotAfter) > 100*time.Hour {
		t.Errorf("the certificate is %+v, %v", certificate, err)
	}
	delete(status, "certificate")
	sent := s.Requests()[len(s.Requests())-1]
	if !strings.Contains(string(sent.Body), `"large":1152921504606846977`) {
		t.Errorf("a number that is not known here was sent otherwise: %s", sent.Body)
	}
	delete(now["spec"].(map[string]any), "large")
	before := wanted(t, nil)
	before["spec"].(map[string]any)["request"] = now["spec"].(map[string]any)["request"]
	for _, part := range []string{"spec", "status"} {
		if a, b := asJSON(t, now[part]), asJSON(t, before[part]); a != b {
			t.Errorf("the %s is now %s, and was %s", part, a, b)
		}
	}
	if said := asJSON(t, r); strings.Contains(said, base64.StdEncoding.EncodeToString(text)[:40]) || strings.Contains(said, "BEGIN") {
		t.Errorf("the result tells the certificate: %s", said)
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A request that breaks a rule of its signer gets a failed condition that names the rule.
func TestARequestFails(t *testing.T) {
	s := applytest.Serve(t)
	version := s.Put(csrPath, "r", wanted(t, func(spec, _ map[string]any) { spec["usages"] = []any{"client auth", "server auth"} }))
	r := carry(t, open(t, s, certifying(t)), plan.Options{}, certification(version, csr.KubeletClient))[0]
	status := s.Get(csrPath)["status"].(map[string]any)
	conditions := status["conditions"].([]any)
	if r.Status != events.Applied || status["certificate"] != nil || len(conditions) != 2 {
		t.Fatalf("%+v, and the status is %v", r, status)
	}
	failed := conditions[1].(map[string]any)
	at, err := time.Parse(time.RFC3339, failed["lastUpdateTime"].(string))
	delete(failed, "lastUpdateTime")
	delete(failed, "lastTransitionTime")
	want := map[string]any{"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": "usages did not match [client auth digital signature key encipherment]"}
	if !reflect.DeepEqual(failed, want) || err != nil || time.Since(at) > time.Hour {
		t.Errorf("the condition is %v at %v, want %v", failed, at, want)
	}
}

// Whatever the turn says, the writer does not sign or change a request that has changed since, is
// for another signer, is not approved, or was answered.
func TestARequestIsNotCertified(t *testing.T) {
	was := func(name string, value any) func(spec, status map[string]any) {
		return func(_, status map[string]any) { status[name] = value }
	}
	condition := func(kinds ...any) func(spec, status map[string]any) {
		var all []any
		for _, kind := range kinds {
			all = append(all, map[string]any{"type": kind, "status": "True"})
		}
		return was("conditions", all)
	}
	for what, c := range map[string]struct {
		object  func(spec, status map[string]any)
		change  func(*events.Command)
		without bool // without an authority
		status  events.Status
		code    int
		reason  string
	}{
		"not approved":             {object: condition(), status: events.Refused, code: 403, reason: query.NotToBeSigned},
		"denied":                   {object: condition("Approved", "Denied"), status: events.Refused, code: 403, reason: query.NotToBeSigned},
		"failed":                   {object: condition("Approved", "Failed"), status: events.Refused, code: 403, reason: query.NotToBeSigned},
		"answered":                 {object: was("certificate", "eA=="), status: events.Refused, code: 403, reason: query.NotToBeSigned},
		"of another signer":        {object: func(spec, _ map[string]any) { spec["signerName"] = csr.KubeletServing }, status: events.Refused, code: 403, reason: query.NotToBeSigned},
		"as another signer":        {change: func(c *events.Command) { c.Body = certification("", csr.KubeletServing).Body }, status: events.Refused, code: 403, reason: query.NotToBeSigned},
		"as none":                  {change: func(c *events.Command) { c.Body = json.RawMessage(`{}`) }, status: events.Refused, code: 403, reason: query.NotToBeSigned},
		"changed since":            {change: func(c *events.Command) { c.If.ResourceVersion = "0" }, status: events.Conflict, code: 409, reason: "Conflict"},
		"another one of that name": {change: func(c *events.Command) { c.If.UID = "before" }, status: events.Conflict, code: 409, reason: "Conflict"},
		"any version":              {change: func(c *events.Command) { c.If.ResourceVersion = "" }, status: events.Conflict, code: 409, reason: "Conflict"},
		"gone":                     {change: func(c *events.Command) { c.Name = "csr-2" }, status: events.Absent, code: 404, reason: "NotFound"},
		"a signer without a key": {
			object: func(spec, _ map[string]any) { spec["signerName"] = csr.KubeAPIServerClient },
			change: func(c *events.Command) { c.Body = certification("", csr.KubeAPIServerClient).Body }, status: events.Refused, code: 403, reason: query.NoKey,
		},
		"a writer without a key": {without: true, status: events.Refused, code: 403, reason: query.NoKey},
	} {
		s := applytest.Serve(t)
		command := certification(s.Put(csrPath, "r", wanted(t, c.object)), csr.KubeletClient)
		if c.change != nil {
			c.change(&command)
		}
		configure := certifying(t)
		if c.without {
			configure = func(*apply.Config) {}
		}
		r := carry(t, open(t, s, configure), plan.Options{}, command)[0]
		if r.Status != c.status || r.Code != c.code || r.Reason != c.reason || r.Message == "" {
			t.Errorf("%s: the result is %+v, want %s, code %d, reason %q", what, r, c.status, c.code, c.reason)
		}
		if s.Answered("PUT "+csrPath+"/status")+s.Answered("PATCH "+csrPath+"/"+query.SubCertificate) > 0 {
			t.Errorf("%s: the certificate request was written, want no write", what)
		}
	}
}

// If the answer to a certificate is lost the writer does not sign again: the request has changed,
// and the next decision sees the certificate.
func TestALostCertificateIsAConflict(t *testing.T) {
	s := applytest.Serve(t)
	version := s.Put(csrPath, "r", wanted(t, nil))
	lost := false
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Method == http.MethodPut && !lost {
			lost = true
			return apiservertest.Fault{Lost: true}
		}
		return apiservertest.Fault{}
	})
	d := open(t, s, certifying(t), func(c *apply.Config) { c.Patience = 5 * time.Minute })
	r := carry(t, d, plan.Options{}, certification(version, csr.KubeletClient))[0]
	if r.Status != events.Conflict || r.Version == version || r.Version == "" || !r.Unsure || s.Answered("PUT "+csrPath+"/status") != 1 {
		t.Errorf("%+v after %d writes", r, s.Answered("PUT "+csrPath+"/status"))
	}
	r = carry(t, d, plan.Options{Again: true}, certification(r.Version, csr.KubeletClient))[0]
	if r.Status != events.Refused || r.Reason != query.NotToBeSigned || s.Answered("PUT "+csrPath+"/status") != 1 {
		t.Errorf("ordered again: %+v", r)
	}
}
