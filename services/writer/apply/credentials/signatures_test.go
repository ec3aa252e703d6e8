package credentials_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// data returns the data of cluster-info.
func data(s *apiservertest.Server) map[string]string {
	text, _ := json.Marshal(s.Get(infoPath)["data"])
	held := map[string]string{}
	_ = json.Unmarshal(text, &held)
	return held
}

func signs(version string) events.Command {
	return events.Command{
		Verb: events.VerbPatch, Kind: "configmaps", Version: "v1", Namespace: "kube-public", Name: "cluster-info", Subresource: query.SubSignatures,
		PatchType: "application/merge-patch+json", If: &events.If{UID: "c", ResourceVersion: version}, Body: json.RawMessage(`{}`), Note: json.RawMessage(`{"tokens":"5a"}`),
	}
}

const (
	// golden is the signature that upstream's library makes for this content, id and secret.
	golden      = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..1V__z2Ib0EBrOIMCf-gSi8jXePfvK_13NHNZqtFDKK8"
	goldenKey   = applytest.GoldenKey
	goldenInfo  = applytest.GoldenInfo
	goldenField = "jws-kubeconfig-abcdef"
)

// tellsOf checks the tokens whose signatures exist, and the time until which they are valid.
func tellsOf(told query.Signatures, data map[string]string, until string) bool {
	var by []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if id, ok := strings.CutPrefix(key, "jws-kubeconfig-"); ok {
			by = append(by, "bootstrap-token-"+id)
		}
	}
	if told.Until == nil {
		return until == "" && slices.Equal(told.By, by)
	}
	return told.Until.Format(time.RFC3339) == until && slices.Equal(told.By, by)
}

// Cluster-info gets exactly the signatures of the signing tokens. Nothing else of it changes, and
// if it has them already nothing is written.
func TestSignatures(t *testing.T) {
	for what, c := range map[string]struct {
		has    map[string]string // the data besides the content
		tokens func(*apiservertest.Server)
		want   map[string]string // the signatures; nil: nothing is written
		until  string
	}{
		"a new token":       {nil, func(s *apiservertest.Server) { signer(s, "abcdef", goldenKey, nil) }, map[string]string{goldenField: golden}, ""},
		"no tokens":         {nil, func(*apiservertest.Server) {}, nil, ""},
		"signed before":     {map[string]string{goldenField: golden}, func(s *apiservertest.Server) { signer(s, "abcdef", goldenKey, nil) }, nil, ""},
		"a wrong signature": {map[string]string{goldenField: "no"}, func(s *apiservertest.Server) { signer(s, "abcdef", goldenKey, nil) }, map[string]string{goldenField: golden}, ""},
		"of a token that is gone": {map[string]string{goldenField: golden, "jws-kubeconfig-012345": "old"}, func(s *apiservertest.Server) { signer(s, "abcdef", goldenKey, nil) },
			map[string]string{goldenField: golden}, ""},
		"two that expire": {nil, func(s *apiservertest.Server) {
			signer(s, "abcdef", goldenKey, map[string]string{"expiration": "2030-01-01T15:00:00Z"})
			signer(s, "012345", goldenKey, map[string]string{"expiration": "2030-01-01T13:00:00Z"})
			signer(s, "6789ab", goldenKey, map[string]string{"expiration": "2030-01-01T12:30:00Z", "usage-bootstrap-signing": "no"})
		}, map[string]string{goldenField: golden, "jws-kubeconfig-012345": "*"}, "2030-01-01T13:00:00Z"},
		"one that has expired": {map[string]string{goldenField: golden}, func(s *apiservertest.Server) {
			signer(s, "abcdef", goldenKey, map[string]string{"expiration": "2030-01-01T12:00:00Z"})
		}, map[string]string{}, ""},
		"one for nothing but authentication": {map[string]string{goldenField: golden}, func(s *apiservertest.Server) {
			signer(s, "abcdef", goldenKey, map[string]string{"usage-bootstrap-signing": ""})
		}, map[string]string{}, ""},
		"one with another id":     {map[string]string{goldenField: golden}, func(s *apiservertest.Server) { signer(s, "abcdef", goldenKey, map[string]string{"token-id": "fedcba"}) }, map[string]string{}, ""},
		"one without a secret":    {map[string]string{goldenField: golden}, func(s *apiservertest.Server) { signer(s, "abcdef", "", nil) }, map[string]string{}, ""},
		"one of another type":     {map[string]string{goldenField: golden}, func(s *apiservertest.Server) { signer(s, "abcdef", goldenKey, map[string]string{"type": "Opaque"}) }, map[string]string{}, ""},
		"one with too long an id": {map[string]string{goldenField: golden}, func(s *apiservertest.Server) { signer(s, "abcdefg", goldenKey, nil) }, map[string]string{}, ""},
	} {
		s := applytest.Serve(t)
		c.tokens(s)
		held := map[string]string{"kubeconfig": goldenInfo, "mine": "x"}
		maps.Copy(held, c.has)
		version := keepInfo(s, held)
		r := carry(t, open(t, s, atNoon), plan.Options{}, signs(version))[0]
		want, status := maps.Clone(held), events.Unchanged
		if c.want != nil {
			status = events.Applied
			maps.DeleteFunc(want, func(key, _ string) bool { return strings.HasPrefix(key, "jws-") })
			maps.Copy(want, c.want)
		}
		got := data(s)
		for key, value := range want {
			if value == "*" && strings.Count(got[key], ".") == 2 {
				want[key] = got[key]
			}
		}
		if r.Status != status || !maps.Equal(got, want) || (s.Answered("PUT "+infoPath) > 0) != (c.want != nil) {
			t.Errorf("%s: %s, and it holds %v, want %v", what, r.Status, got, want)
		}
		var told query.Signatures
		if r.Answer == nil || json.Unmarshal(r.Answer.Body, &told) != nil || !tellsOf(told, got, c.until) || string(r.Answer.Note) != `{"tokens":"5a"}` {
			t.Errorf("%s: the answer says %+v of %v until %q", what, told, got, c.until)
		}
		for _, request := range s.Requests() { // unknown fields stay
			if request.Method == http.MethodPut && (!strings.Contains(string(request.Body), `"unheardOf":{"n":12345678901234567}`) || !strings.Contains(string(request.Body), `"labels":{"l":"v"}`)) {
				t.Errorf("%s: the rest of it has changed: %s", what, request.Body)
			}
		}
		tellsNothing(t, what, s, r)
	}
}

// tellsNothing fails if an answer or a write has tokens.
func tellsNothing(t *testing.T, what string, s *apiservertest.Server, r events.Result) {
	t.Helper()
	text, err := json.Marshal(r)
	for _, secret := range []string{goldenKey, encoded(goldenKey), canary, encoded(canary), goldenInfo} {
		if err != nil || strings.Contains(string(text), secret) {
			t.Errorf("%s: the result tells what must not be told: %s", what, text)
		}
		for _, request := range s.Requests() {
			if secret != goldenInfo && strings.Contains(string(request.Body), secret) {
				t.Errorf("%s: a token is in a request: %s %s", what, request.Method, request.Path)
			}
		}
	}
}

// If signing fails cluster-info stays as it is, and the reason has none of the API server's words
// about tokens.
func TestNotSigned(t *testing.T) {
	refuse := func(method, path string, code int) func(apiservertest.Request) apiservertest.Fault {
		return func(r apiservertest.Request) apiservertest.Fault {
			if r.Method == method && strings.Contains(r.Path, path) {
				return apiservertest.Fault{Code: code, Message: canary}
			}
			return apiservertest.Fault{}
		}
	}
	for what, c := range map[string]struct {
		change func(*apiservertest.Server, *events.Command)
		broken func(apiservertest.Request) apiservertest.Fault
		status events.Status
		code   int
	}{
		"changed since":        {func(s *apiservertest.Server, _ *events.Command) { keepInfo(s, nil) }, nil, events.Conflict, 409},
		"another one":          {func(_ *apiservertest.Server, c *events.Command) { c.If.UID = "before" }, nil, events.Conflict, 409},
		"gone":                 {func(s *apiservertest.Server, _ *events.Command) { s.Remove(infoPath) }, nil, events.Absent, 404},
		"another ConfigMap":    {func(_ *apiservertest.Server, c *events.Command) { c.Name = "kube-root-ca.crt" }, nil, events.Refused, 0},
		"in another namespace": {func(_ *apiservertest.Server, c *events.Command) { c.Namespace = "shop" }, nil, events.Refused, 0},
		"in any version":       {func(_ *apiservertest.Server, c *events.Command) { c.If.ResourceVersion = "" }, nil, events.Refused, 0},
		"of another kind":      {func(_ *apiservertest.Server, c *events.Command) { c.Kind = "pods" }, nil, events.Refused, 0},
		"by an update":         {func(_ *apiservertest.Server, c *events.Command) { c.Verb = events.VerbUpdate }, nil, events.Refused, 0},
		"may not read tokens":  {nil, refuse("GET", "/secrets", 403), events.Refused, 403},
		"no such as tokens":    {nil, refuse("GET", "/secrets", 404), events.Refused, 404},
		"tokens are not there": {nil, refuse("GET", "/secrets", 500), events.Failed, 500},
		"may not write it":     {nil, refuse("PUT", "/cluster-info", 403), events.Refused, 403},
		"it is not taken":      {nil, refuse("PUT", "/cluster-info", 422), events.Refused, 422},
		"another was faster":   {nil, refuse("PUT", "/cluster-info", 409), events.Conflict, 409},
	} {
		s := applytest.Serve(t)
		signer(s, "abcdef", goldenKey, nil)
		version := keepInfo(s, map[string]string{"kubeconfig": goldenInfo})
		command := signs(version)
		if c.change != nil {
			c.change(s, &command)
		}
		s.Break(c.broken)
		hides := func(c *apply.Config) { c.Patience = 50 * time.Millisecond }
		r := carry(t, open(t, s, atNoon, hides), plan.Options{}, command)[0]
		if r.Status != c.status || r.Code != c.code || r.Answer != nil && len(r.Answer.Body) > 0 || data(s)[goldenField] != "" {
			t.Errorf("%s: the result is %+v, want %s, code %d, and no signature", what, r, c.status, c.code)
		}
		if c.broken != nil && strings.Contains(what, "tokens") && strings.Contains(r.Message, canary) {
			t.Errorf("%s: the API server's words are repeated: %s", what, r.Message)
		}
	}
}

// Without content to sign cluster-info stays as it is, and so do the signatures of others.
func TestNothingToSign(t *testing.T) {
	s := applytest.Serve(t)
	signer(s, "abcdef", goldenKey, nil)
	for _, held := range []map[string]string{nil, {"jws-kubeconfig-012345": "old"}} {
		version := keepInfo(s, held)
		if r := carry(t, open(t, s, atNoon), plan.Options{}, signs(version))[0]; r.Status != events.Unchanged || s.Answered("PUT "+infoPath) > 0 || string(r.Answer.Body) != `{}` {
			t.Errorf("%v: %+v", held, r)
		}
	}
}

// If the answer is lost the command does not count as done: the next turn reads cluster-info
// again.
func TestALostSignature(t *testing.T) {
	s := applytest.Serve(t)
	signer(s, "abcdef", goldenKey, nil)
	version := keepInfo(s, map[string]string{"kubeconfig": goldenInfo})
	lost := false
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Method == http.MethodPut && !lost {
			lost = true
			return apiservertest.Fault{Lost: true}
		}
		return apiservertest.Fault{}
	})
	d := open(t, s, atNoon, func(c *apply.Config) { c.Patience = 5 * time.Minute })
	r := carry(t, d, plan.Options{}, signs(version))[0]
	if r.Status != events.Conflict || r.Version == version || r.Version == "" || !r.Unsure {
		t.Errorf("the result is %+v, want a conflict that admits that it is unsure, at another version", r)
	}
	if r = carry(t, d, plan.Options{}, signs(r.Version))[0]; r.Status != events.Unchanged || data(s)[goldenField] != golden {
		t.Errorf("looked at again: %+v", r)
	}
	if r = carry(t, d, plan.Options{DryRun: true}, signs(r.Version))[0]; r.Status != events.DryRun {
		t.Errorf("tried: %+v", r)
	}
}
