package credentials_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

func asksExpiry(name, version string) events.Command {
	return events.Command{
		Verb: events.VerbAsk, Kind: "secrets", Version: "v1", Namespace: "kube-system", Name: name, Subresource: query.SubExpiry,
		If: &events.If{UID: types.UID("uid-" + name), ResourceVersion: version},
	}
}

// The answer has a token's expiry and nothing else of its content. A Secret of another type is not
// even read.
func TestExpiry(t *testing.T) {
	for what, c := range map[string]struct {
		kind  string
		holds map[string]string
		want  string
	}{
		"a token":                 {bootstrapType, map[string]string{"expiration": "2030-01-01T13:00:00+01:00", "token-secret": canary}, `{"at":"2030-01-01T12:00:00Z"}`},
		"one that does not":       {bootstrapType, map[string]string{"token-secret": canary}, `{}`},
		"one that cannot be read": {bootstrapType, map[string]string{"expiration": canary}, `{"unreadable":true}`},
		"another Secret":          {"Opaque", map[string]string{"expiration": "2030-01-01T12:00:00Z"}, `{"other":true}`},
	} {
		s := applytest.Serve(t)
		version := keepBootstrap(s, "abc", c.kind, c.holds)
		keepBootstrap(s, "abcd", bootstrapType, map[string]string{"expiration": "2000-01-01T12:00:00Z"})
		r := carry(t, open(t, s), plan.Options{}, asksExpiry("abc", version))[0]
		if r.Status != events.Answered || r.Version != version || r.UID != "uid-abc" || r.Answer == nil || string(r.Answer.Body) != c.want {
			t.Errorf("%s: %+v, want %s", what, r, c.want)
		}
		untold(t, what, r)
		for _, request := range s.Requests() {
			whole := !strings.Contains(request.Header.Get("Accept"), "as=PartialObjectMetadata")
			if whole && request.Query.Get("fieldSelector") != "metadata.name=abc,type="+bootstrapType {
				t.Errorf("%s: asked for more than the token: %s %v", what, request.Path, request.Query)
			}
		}
	}
}

// There is no answer about a Secret that is not the one seen, or that the API server does not
// return; nor are the API server's words in it.
func TestExpiryThatIsNotTold(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*apiservertest.Server, *events.Command)
		broken int
		status events.Status
		code   int
	}{
		"changed since":     {func(s *apiservertest.Server, _ *events.Command) { keepBootstrap(s, "abc", bootstrapType, nil) }, 0, events.Conflict, 409},
		"another one":       {func(_ *apiservertest.Server, c *events.Command) { c.If.UID = "before" }, 0, events.Absent, 200},
		"gone":              {func(s *apiservertest.Server, _ *events.Command) { s.Remove(bootstrapPath + "abc") }, 0, events.Absent, 404},
		"in any namespace":  {func(_ *apiservertest.Server, c *events.Command) { c.Namespace = "shop" }, 0, events.Refused, 0},
		"it may not":        {nil, http.StatusForbidden, events.Refused, http.StatusForbidden},
		"no answer":         {nil, http.StatusInternalServerError, events.Failed, http.StatusInternalServerError},
		"there are no such": {nil, http.StatusNotFound, events.Refused, http.StatusNotFound},
	} {
		s := applytest.Serve(t)
		version := keepBootstrap(s, "abc", bootstrapType, map[string]string{"expiration": "2030-01-01T12:00:00Z"})
		command := asksExpiry("abc", version)
		if c.change != nil {
			c.change(s, &command)
		}
		s.Break(func(apiservertest.Request) apiservertest.Fault {
			return apiservertest.Fault{Code: c.broken, Message: canary}
		})
		r := carry(t, open(t, s, func(c *apply.Config) { c.Patience = 50 * time.Millisecond }), plan.Options{}, command)[0]
		if r.Status != c.status || r.Code != c.code || r.Answer != nil {
			t.Errorf("%s: the result is %+v, want %s, code %d, and no answer", what, r, c.status, c.code)
		}
		untold(t, what, r)
	}
}

// If a list has more than requested, only the token of that name counts.
func TestExpiryAmongOthers(t *testing.T) {
	s := applytest.Serve(t)
	secret := func(name, kind, until string) map[string]any {
		return map[string]any{
			"type": kind, "data": map[string]any{"expiration": encoded(until)},
			"metadata": map[string]any{"name": name, "namespace": "kube-system", "uid": "uid-" + name, "resourceVersion": "7"},
		}
	}
	s.Put(strings.TrimSuffix(bootstrapPath, "/"), "", map[string]any{"items": []any{
		secret("abc", "Opaque", "2001-01-01T12:00:00Z"), secret("abcd", bootstrapType, "2002-01-01T12:00:00Z"), secret("abc", bootstrapType, "2030-01-01T12:00:00Z"),
	}})
	r := carry(t, open(t, s), plan.Options{}, asksExpiry("abc", "7"))[0]
	if r.Status != events.Answered || string(r.Answer.Body) != `{"at":"2030-01-01T12:00:00Z"}` {
		t.Errorf("the result is %+v, want the last time that the Secrets of the token say", r)
	}
}

// An answer that is no list of Secrets is not repeated either.
func TestExpiryOfWhatIsNone(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(strings.TrimSuffix(bootstrapPath, "/"), "u", map[string]any{"kind": "SecretList", "items": canary})
	r := carry(t, open(t, s, func(c *apply.Config) { c.Patience = 50 * time.Millisecond }), plan.Options{}, asksExpiry("abc", "1"))[0]
	text, err := json.Marshal(r)
	if err != nil || r.OK() || !strings.Contains(string(text), "no list of secrets") {
		t.Errorf("%s (%v)", text, err)
	}
	untold(t, "no list", r)
}

// The client library logs answers at a high verbosity, but none with tokens.
func TestTokensAreNotLogged(t *testing.T) {
	s := applytest.Serve(t)
	version := keepBootstrap(s, "abc", bootstrapType, map[string]string{"token-secret": canary})
	info := keepInfo(s, map[string]string{"kubeconfig": goldenInfo})
	signer(s, "abcdef", goldenKey, map[string]string{"mine": canary})
	d := open(t, s)
	for what, c := range map[string]struct {
		request plan.Request
		logged  bool
	}{
		"an ordinary read": {plan.Request{Verb: plan.Read, Kind: "secrets", Version: "v1", Namespace: "kube-system", Name: "abc"}, true},
		"signatures": {plan.Request{
			Verb: plan.Patch, Kind: "configmaps", Version: "v1", Namespace: "kube-public", Name: "cluster-info", Subresource: query.SubSignatures,
			Body: fmt.Appendf(nil, `{"metadata":{"uid":"c","resourceVersion":%q}}`, info),
		}, false},
		"when a token expires": {plan.Request{Verb: plan.Search, Kind: "secrets", Version: "v1", Namespace: "kube-system", Name: "abc", Subresource: query.SubExpiry}, false},
	} {
		var log strings.Builder
		verbose := funcr.New(func(_, line string) { log.WriteString(line) }, funcr.Options{Verbosity: 10})
		r := d.Do(klog.NewContext(t.Context(), verbose), actor, c.request, "")
		if r.Code != http.StatusOK || what != "signatures" && r.Object.ResourceVersion != version {
			t.Errorf("%s: the answer is %+v, want code 200 at the same version", what, r)
		}
		if logged := strings.Contains(log.String(), encoded(canary)); logged != c.logged {
			t.Errorf("%s: what the Secret holds is logged: %v", what, logged)
		}
	}
}
