package limits

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

const head = "apiVersion: millrace.io/v1alpha1\nkind: WriteLimits\n"

func TestParse(t *testing.T) {
	s, err := Parse([]byte(head + `limits:
- name: pods
  controllers: [replicaset-controller, "*"]
  verbs: [delete]
  kinds: [pods]
  namespaces: [shop]
  per: namespace
  max: 50
  within: 1m
- {name: claims, verbs: [delete, update], kinds: [persistentvolumeclaims, deployments.apps], max: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	pods, claims := s.Limits[0], s.Limits[1]
	if pods.Max != 50 || pods.Within.Duration != time.Minute || pods.Per != PerNamespace || claims.Per != PerController {
		t.Errorf("the limits are %+v and %+v", pods, claims)
	}
	if got := s.Controllers(); !slices.Equal(got, []string{"replicaset-controller"}) {
		t.Errorf("the limits are of the controllers %v, want replicaset-controller", got)
	}
	var none *Set
	if none.Controllers() != nil || none.NewWindow("a") != nil {
		t.Error("no limits limit something")
	}
}

// An invalid file gets one error that names the limit and says what to write.
func TestParseErrors(t *testing.T) {
	limit := func(fields string) string {
		return head + "limits: [{name: a, verbs: [delete], kinds: [pods]" + fields + "}]"
	}
	for what, c := range map[string]struct{ text, want string }{
		"no YAML":               {"{", "read the write limits"},
		"another kind":          {"apiVersion: v1\nkind: Pod", `"millrace.io/v1alpha1" and "WriteLimits"`},
		"no limits":             {head, "list at least one"},
		"an unknown field":      {limit(", most: 3"), `"most"`},
		"a bad name":            {head + "limits: [{name: A, max: 0}]", "DNS label"},
		"no verbs":              {head + "limits: [{name: a, kinds: [pods], max: 0}]", "no verbs"},
		"no kinds":              {head + "limits: [{name: a, verbs: [delete], max: 0}]", "no kinds"},
		"an unknown verb":       {head + "limits: [{name: a, verbs: [evict], kinds: [pods], max: 0}]", `"evict" is no verb`},
		"a kind as in a body":   {head + "limits: [{name: a, verbs: [delete], kinds: [Pod], max: 0}]", `"Pod" is no kind`},
		"every kind":            {head + `limits: [{name: a, verbs: [delete], kinds: ["*"], max: 0}]`, `"*" is no kind`},
		"an unknown scope":      {limit(", max: 0, per: node"), `per is "node"`},
		"fewer than none":       {limit(", max: -1"), "max is -1"},
		"no time":               {limit(", max: 5"), "within is 0s"},
		"too long a time":       {limit(", max: 5, within: 2h"), "from 1s to 1h0m0s"},
		"a time for approvals":  {limit(", max: 0, within: 1m"), "leave within out"},
		"two limits of a name":  {strings.TrimSuffix(limit(", max: 0"), "]") + ", {name: a, verbs: [delete], kinds: [pods], max: 0}]", `two limits are named "a"`},
		"the limit is numbered": {head + "limits: [{name: a, verbs: [delete], kinds: [pods], max: 0}, {name: b, max: 0}]", `limit 2, "b"`},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

func TestWhichCommandsALimitCounts(t *testing.T) {
	l := Limit{Name: "a", Verbs: []events.Verb{events.VerbDelete, events.VerbUpdate}, Kinds: []kinds.Name{"pods"}, Namespaces: []string{"shop"}}
	command := func(change func(*events.Command)) events.Command {
		c := events.Command{Verb: events.VerbDelete, Kind: "pods", Namespace: "shop", Name: "a"}
		change(&c)
		return c
	}
	for what, c := range map[string]struct {
		change func(*events.Command)
		want   bool
	}{
		"as it is":          {func(*events.Command) {}, true},
		"another verb":      {func(c *events.Command) { c.Verb = events.VerbCreate }, false},
		"another kind":      {func(c *events.Command) { c.Kind = "nodes" }, false},
		"another namespace": {func(c *events.Command) { c.Namespace = "till" }, false},
		"an update":         {func(c *events.Command) { c.Verb = events.VerbUpdate }, true},
		"a status":          {func(c *events.Command) { c.Verb, c.Subresource = events.VerbUpdate, "status" }, false},
	} {
		if got := l.limits(command(c.change)); got != c.want {
			t.Errorf("%s: the limit applies: %t, want %t", what, got, c.want)
		}
	}
	if got := (&Set{Limits: []Limit{{Controllers: []string{"a"}}, {Controllers: []string{"*"}}, {}}}).of("b"); len(got) != 2 {
		t.Errorf("%d limits are about another controller", len(got))
	}
}
