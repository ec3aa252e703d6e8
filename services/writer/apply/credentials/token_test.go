package credentials_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/apply/mint"
	"github.com/millrace/millrace/services/writer/plan"
)

func filling(version string) events.Command {
	return events.Command{
		Verb: events.VerbPatch, Kind: "secrets", Version: "v1", Namespace: "ns", Name: "key", Subresource: query.SubToken,
		PatchType: "application/merge-patch+json", If: &events.If{UID: "k", ResourceVersion: version},
		Body: json.RawMessage(`{"metadata":{"annotations":{"kubernetes.io/service-account.name":"builder","kubernetes.io/service-account.uid":"b"}}}`),
	}
}

// The door fills in the fields that a Secret lacks, and nothing else; if nothing is lacking it
// writes nothing.
func TestASecretIsFilled(t *testing.T) {
	for what, c := range map[string]struct {
		holds map[string]string
		want  []string // what the patch has
	}{
		"an empty one":           {nil, []string{"ca.crt", "namespace", "token"}},
		"an old certificate":     {map[string]string{"ca.crt": "old", "namespace": "ns", "token": canary}, []string{"ca.crt"}},
		"no namespace":           {map[string]string{"ca.crt": "ca", "token": canary}, []string{"namespace"}},
		"another namespace":      {map[string]string{"ca.crt": "ca", "token": canary, "namespace": "other"}, nil},
		"everything":             {map[string]string{"ca.crt": "ca", "token": canary, "namespace": "ns"}, nil},
		"a short token":          {map[string]string{"ca.crt": "ca", "token": "x", "namespace": "ns"}, nil},
		"no token, but the rest": {map[string]string{"ca.crt": "ca", "namespace": "ns"}, []string{"token"}},
	} {
		s := applytest.Serve(t)
		version := keep(s, tokenType, c.holds)
		r := carry(t, open(t, s, minting(t)), plan.Options{}, filling(version))[0]
		want := events.Applied
		if c.want == nil {
			want = events.Unchanged
		}
		if r.Status != want || r.UID != "k" || (r.Version == version) != (c.want == nil) {
			t.Errorf("%s: the result is %+v, want %s", what, r, want)
		}
		var patches []map[string]any
		for _, request := range s.Requests() {
			if request.Method == http.MethodPatch {
				var patch struct{ Data map[string]any }
				if err := json.Unmarshal(request.Body, &patch); err != nil {
					t.Fatal(err)
				}
				patches = append(patches, patch.Data)
			}
		}
		if c.want == nil && len(patches) > 0 || c.want != nil && (len(patches) != 1 || len(patches[0]) != len(c.want)) {
			t.Errorf("%s: the patches have %v, want %v", what, patches, c.want)
			continue
		}
		for _, name := range c.want {
			if patches[0][name] == nil {
				t.Errorf("%s: the patch has no %s", what, name)
			}
		}
		untold(t, what, r)
	}
}

// untold fails if a text has content of Secrets.
func untold(t *testing.T, what string, r events.Result) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil || strings.Contains(string(text), canary) || strings.Contains(string(text), encoded(canary)) || strings.Contains(string(text), "eyJ") {
		t.Errorf("%s: the result tells what is in the Secret: %s", what, text)
	}
}

// A Secret that has changed since it was seen is left alone; one that is no token is never filled.
func TestASecretIsNotFilled(t *testing.T) {
	for what, c := range map[string]struct {
		kind    string
		change  func(*events.Command)
		broken  func(apiservertest.Request) apiservertest.Fault
		without bool // without a mint
		status  events.Status
		code    int
		reason  string
	}{
		"no token":                   {kind: "Opaque", status: events.Refused, code: 422, reason: query.NoToken},
		"changed since":              {kind: tokenType, change: func(c *events.Command) { c.If.ResourceVersion = "0" }, status: events.Conflict, code: 409, reason: "Conflict"},
		"another one":                {kind: tokenType, change: func(c *events.Command) { c.If.UID = "before" }, status: events.Conflict, code: 409, reason: "Conflict"},
		"gone":                       {kind: tokenType, change: func(c *events.Command) { c.Name = "gone" }, status: events.Absent, code: 404, reason: "NotFound"},
		"a writer without a key":     {kind: tokenType, without: true, status: events.Refused, code: 403, reason: "NoKey"},
		"the account is not told":    {kind: tokenType, broken: silent, status: events.Failed, code: 500},
		"what it lacks is not taken": {kind: tokenType, broken: refusing, status: events.Refused, code: 422},
	} {
		s := applytest.Serve(t)
		command := filling(keep(s, c.kind, nil))
		if c.change != nil {
			c.change(&command)
		}
		s.Break(c.broken)
		configure := minting(t)
		if c.without {
			configure = func(*apply.Config) {}
		}
		hurried := func(config *apply.Config) { config.Patience = 50 * time.Millisecond }
		r := carry(t, open(t, s, configure, hurried), plan.Options{}, command)[0]
		if r.Status != c.status || r.Code != c.code || r.Reason != c.reason && c.reason != "" {
			t.Errorf("%s: the result is %+v, want %s, code %d, reason %q", what, r, c.status, c.code, c.reason)
		}
		if c.broken == nil && s.Answered("PATCH "+secretPath) > 0 {
			t.Errorf("%s: the Secret was written, want no write", what)
		}
		untold(t, what, r)
		if strings.Contains(r.Message, "as the test asked") {
			t.Errorf("%s: the API server's words are repeated: %s", what, r.Message)
		}
	}
}

// refusing refuses patches with a message that may repeat their content.
func refusing(r apiservertest.Request) apiservertest.Fault {
	if r.Method == http.MethodPatch {
		return apiservertest.Fault{Code: http.StatusUnprocessableEntity}
	}
	return apiservertest.Fault{}
}

// silent returns no accounts.
func silent(r apiservertest.Request) (f apiservertest.Fault) {
	if r.Path == accountPath {
		f.Code, f.Message = http.StatusInternalServerError, "away"
	}
	return f
}

// A key that cannot sign fills in no token; a writer without a root certificate fills in none.
func TestMintsThatLackSomething(t *testing.T) {
	var weak []byte
	t.Run("the key", func(t *testing.T) {
		t.Setenv("GODEBUG", "rsa1024min=0")
		key, err := rsa.GenerateKey(rand.Reader, 512)
		if err != nil {
			t.Fatal(err)
		}
		weak = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	})
	m, err := mint.New(weak, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := applytest.Serve(t)
	d := open(t, s, func(c *apply.Config) { c.Mint = m })
	r := carry(t, d, plan.Options{}, filling(keep(s, tokenType, nil)))[0]
	if r.Status != events.Refused || r.Reason != query.NoKey || s.Answered("PATCH "+secretPath) > 0 {
		t.Errorf("with a key that cannot sign the result is %+v, want it refused with NoKey, and no write", r)
	}
	for ca, want := range map[string]string{"": `{"namespace":"bnM="}`, "c": `{"ca.crt":"Yw==","namespace":"bnM="}`} {
		if m, err = mint.New(weak, []byte(ca)); err != nil {
			t.Fatal(err)
		}
		s := applytest.Serve(t)
		version := keep(s, tokenType, map[string]string{"token": canary})
		carry(t, open(t, s, func(c *apply.Config) { c.Mint = m }), plan.Options{}, filling(version))
		var patch struct{ Data json.RawMessage }
		if requests := s.Requests(); json.Unmarshal(requests[len(requests)-1].Body, &patch) != nil || string(patch.Data) != want {
			t.Errorf("with the root certificate %q the Secret is given %s, want %s", ca, patch.Data, want)
		}
	}
}

// If the answer to a fill is lost, the writer does not read the whole Secret to look for the
// effect: the version has moved, and the next decision reads the Secret again.
func TestALostFillIsAConflict(t *testing.T) {
	s := applytest.Serve(t)
	version := keep(s, tokenType, nil)
	lost := false
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Method == http.MethodPatch && !lost {
			lost = true
			return apiservertest.Fault{Lost: true}
		}
		return apiservertest.Fault{}
	})
	d := open(t, s, minting(t), func(c *apply.Config) { c.Patience = 5 * time.Minute })
	r := carry(t, d, plan.Options{}, filling(version))[0]
	if r.Status != events.Conflict || r.Version == version || r.Version == "" || !r.Unsure {
		t.Errorf("the result is %+v, want a conflict that admits that it is unsure, at another version", r)
	}
	if r = carry(t, d, plan.Options{}, filling(r.Version))[0]; r.Status != events.Unchanged {
		t.Errorf("looked at again: %+v", r)
	}
	untold(t, "a lost answer", r)
}

// A token is for the live account that the live Secret names; the turn's word alone signs and
// overwrites nothing.
func TestATokenIsOfTheSecretsAccount(t *testing.T) {
	other := func(name, uid string) func(*apiservertest.Server) {
		return func(s *apiservertest.Server) {
			annotations := map[string]any{}
			for key, value := range map[string]string{nameKey: name, uidKey: uid} {
				if value != "" {
					annotations[key] = value
				}
			}
			s.Put(secretPath, "k", map[string]any{"type": tokenType, "data": map[string]any{"mine": encoded(canary)}, "metadata": map[string]any{
				"name": "key", "namespace": "ns", "annotations": annotations,
			}})
		}
	}
	for what, c := range map[string]struct {
		change func(*apiservertest.Server)
		signed bool
	}{
		"as it should be": {func(*apiservertest.Server) {}, true},
		"no uid yet":      {other("builder", ""), true},
		"another account": {other("low", "b"), false},
		"another that is there": {func(s *apiservertest.Server) {
			other("low", "b")(s)
			s.Put(strings.Replace(accountPath, "builder", "low", 1), "b", map[string]any{})
		}, false},
		"another uid":         {other("builder", "before"), false},
		"no account":          {other("", ""), false},
		"the account is gone": {func(s *apiservertest.Server) { s.Remove(accountPath) }, false},
		"the account is newer, and there is no uid yet": {func(s *apiservertest.Server) {
			other("builder", "")(s)
			s.Put(accountPath, "after", map[string]any{})
		}, false},
		"the account is newer": {func(s *apiservertest.Server) { s.Put(accountPath, "after", map[string]any{}) }, false},
	} {
		s := applytest.Serve(t)
		keep(s, tokenType, nil)
		c.change(s)
		version, _ := s.Get(secretPath)["metadata"].(map[string]any)["resourceVersion"].(string)
		r := carry(t, open(t, s, minting(t)), plan.Options{}, filling(version))[0]
		if signed := r.Status == events.Applied; signed != c.signed || signed != (s.Answered("PATCH "+secretPath) > 0) {
			t.Errorf("%s: the result is %+v, want it signed: %t", what, r, c.signed)
		}
		if !c.signed && (r.Status != events.Refused || r.Reason != query.OtherAccount) {
			t.Errorf("%s: the result is %+v, want it refused with OtherAccount", what, r)
		}
		untold(t, what, r)
	}
}

// A Secret that names no account gets no token, also if the turn names none.
func TestATokenIsOfSomeAccount(t *testing.T) {
	s := applytest.Serve(t)
	door := open(t, s, minting(t))
	version := s.Put(secretPath, "k", map[string]any{"type": tokenType, "metadata": map[string]any{"name": "key", "namespace": "ns"}})
	r := plan.Request{Verb: plan.Patch, Kind: kinds.Secrets.Name, Version: "v1", Namespace: "ns", Name: "key", Subresource: query.SubToken, PatchType: types.MergePatchType}
	r.Body = fmt.Appendf(nil, `{"metadata":{"uid":"k","resourceVersion":%q}}`, version)
	if got := door.Do(t.Context(), actor, r, ""); got.Code != http.StatusForbidden || got.Reason != query.OtherAccount || got.Message != "the Secret names no account" {
		t.Errorf("the answer is %+v, want code 403 because the Secret names no account", got)
	}
}
