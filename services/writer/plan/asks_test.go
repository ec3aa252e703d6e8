package plan

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// asked formats a request as one line.
func asked(r Request) string {
	text := fmt.Sprintf("%s %s/%s %s %s/%s", r.Verb, r.Kind, r.Subresource, r.Version, r.Namespace, r.Name)
	if r.Owner != nil {
		text += " of " + r.Owner.Name
	}
	if r.Delete != nil {
		text += fmt.Sprintf(" uid %s", *r.Delete.Preconditions.UID)
		if v := r.Delete.Preconditions.ResourceVersion; v != nil {
			text += " version " + *v
		}
		if g := r.Delete.GracePeriodSeconds; g != nil {
			text += fmt.Sprintf(" in %ds", *g)
		}
		if p := r.Delete.PropagationPolicy; p != nil {
			text += fmt.Sprintf(" %s", *p)
		}
	}
	if len(r.Body) > 0 {
		text += fmt.Sprintf(" %d bytes", len(r.Body))
	}
	return text + fmt.Sprintf(" %s try %d doubtful %t seen %d wait %t %v", r.PatchType, r.Try, r.Doubtful, r.Seen, r.Wait, r.After)
}

// The request of each step of a command.
func TestWhatEachStepAsks(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "first", UID: "u1"}
	second := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "second", UID: "u2"}
	adopts := deletion("p", "u")
	adopts.If.Alive = &events.Alive{Kind: "replicasets.apps", Version: "v2", Namespace: "other", Name: "web", UID: "rs"}
	free := deletion("a", "u")
	free.Kind, free.Namespace, free.If.Unused = kinds.ServiceCIDRs.Name, "", true
	unique := deletion("a", "u")
	unique.Verb, unique.Kind, unique.Namespace, unique.PatchType = events.VerbPatch, kinds.Nodes.Name, "", types.StrategicMergePatchType
	unique.If.Unshared, unique.Body = true, []byte(`{"spec":{"podCIDRs":["10.0.1.0/24"]}}`)
	orphaned := deletion("p", "u")
	orphaned.If.Absent, orphaned.If.Leaving = []metav1.OwnerReference{owner}, []metav1.OwnerReference{second}
	versioned := deletion("p", "u")
	versioned.If.ResourceVersion, versioned.GraceSeconds, versioned.Propagation = "7", new(int64), metav1.DeletePropagationOrphan
	patch := update("web", "1", `{"a":1}`)
	patch.Verb, patch.PatchType = events.VerbPatch, types.MergePatchType
	scale := update("web", "1", `{"a":1}`)
	scale.Subresource = subScale
	status := scale
	status.Subresource = "status"
	secret := create("s")
	secret.Kind = kinds.Secrets.Name
	question := events.Command{Verb: events.VerbAsk, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", Of: &owner, Subresource: subScale}
	search := events.Command{Verb: events.VerbAsk, Kind: "namespaces", Version: "v1", Name: "ns", Subresource: query.SubContents}
	const no = " try 0 doubtful false seen 0 wait false 0s"
	const once = " try 1 doubtful false seen 0 wait false 0s"
	for what, c := range map[string]struct {
		command events.Command
		at      step
		again   bool
		edit    func(*operation)
		want    string
	}{
		"who adopts":                 {adopts, alive, false, nil, "look replicasets.apps/ v2 other/web " + no},
		"the first owner":            {orphaned, absent, false, nil, "look pods/ v1 ns/p of first " + no},
		"the second owner":           {orphaned, absent, false, func(d *operation) { d.owner = 1 }, "look pods/ v1 ns/p of second " + no},
		"what needs it":              {free, unused, false, nil, "search servicecidrs.networking.k8s.io/users v1 /a " + no},
		"who shares it":              {unique, unshared, false, nil, "search nodes/ranges v1 /a " + no},
		"before a delete":            {deletion("p", "u"), before, true, nil, "look pods/ v1 ns/p " + no},
		"a delete":                   {deletion("p", "u"), write, false, nil, "delete pods/ v1 ns/p uid u " + once},
		"a delete with conditions":   {versioned, write, false, nil, "delete pods/ v1 ns/p uid u version 7 in 0s Orphan " + once},
		"a create":                   {create("p"), write, false, func(d *operation) { d.seen = 8 }, "create pods/ v1 ns/p 113 bytes  try 1 doubtful false seen 8 wait false 0s"},
		"a create again":             {create("p"), write, true, nil, "create pods/ v1 ns/p 113 bytes  try 1 doubtful true seen 0 wait false 0s"},
		"a create without an answer": {create("p"), write, false, func(d *operation) { d.lost = true }, "create pods/ v1 ns/p 113 bytes  try 1 doubtful true seen 0 wait false 0s"},
		"an update again":            {update("web", "1", `{"a":1}`), write, true, nil, "update replicasets.apps/ v1 ns/web 7 bytes " + once},
		"a patch":                    {patch, write, false, nil, "patch replicasets.apps/ v1 ns/web 7 bytes application/merge-patch+json" + once},
		"an update of a status":      {status, write, false, nil, "update replicasets.apps/status v1 ns/web 7 bytes " + once},
		"a scale":                    {scale, write, false, nil, "update replicasets.apps/scale v1 ns/web 7 bytes " + once},
		"a question":                 {question, ask, false, nil, "read pods/scale v1 ns/p of first " + no},
		"a search":                   {search, ask, false, func(d *operation) { d.body = []byte("{}") }, "search namespaces/contents v1 /ns 2 bytes " + no},
		"a create refused":           {create("p"), compare, false, nil, "read pods/ v1 ns/p " + no},
		"a delete refused":           {deletion("p", "u"), compare, true, nil, "look pods/ v1 ns/p " + no},
		"an update refused":          {update("web", "1", `{"a":1}`), compare, false, nil, "look replicasets.apps/ v1 ns/web " + no},
		"an update refused, again":   {update("web", "1", `{"a":1}`), compare, true, nil, "read replicasets.apps/ v1 ns/web " + no},
		"a scale refused":            {scale, compare, true, nil, "read replicasets.apps/scale v1 ns/web " + no},
		"a scale given up":           {scale, recheck, true, nil, "read replicasets.apps/scale v1 ns/web " + no},
		"a status refused":           {status, compare, true, nil, "read replicasets.apps/ v1 ns/web " + no},
		"a create given up":          {create("p"), recheck, true, nil, "read pods/ v1 ns/p " + no},
		"a delete given up":          {deletion("p", "u"), recheck, true, nil, "look pods/ v1 ns/p " + no},
		"a Secret refused":           {secret, compare, false, nil, "look secrets/ v1 ns/s " + no},
		"the same again": {
			deletion("p", "u"), compare, false, func(d *operation) { d.asked, d.last = true, Response{Code: 429, RetryAfter: 3 * time.Second} },
			"look pods/ v1 ns/p  try 0 doubtful false seen 0 wait true 3s",
		},
		"the next after an answer": {deletion("p", "u"), compare, false, func(d *operation) { d.asked, d.last = true, Response{Code: 409, RetryAfter: 3 * time.Second} }, "look pods/ v1 ns/p " + no},
	} {
		d := newOperation(0, c.command, c.command.Body, Options{Again: c.again})
		if d.step = c.at; c.edit != nil {
			c.edit(d)
		}
		if got := asked(d.request()); got != c.want {
			t.Errorf("%s asks\n%q, want\n%q", what, got, c.want)
		}
	}
}

// Whether the answer to a delete shows that the object is gone.
func TestWhatIsGoneAtOnce(t *testing.T) {
	none, some := int64(0), int64(30)
	for what, c := range map[string]struct {
		kind   kinds.Name
		object Object
		want   bool
	}{
		"the answer is no object":     {"pods", Object{}, true},
		"it is as it was":             {"pods", Object{UID: "u"}, true},
		"it leaves, without grace":    {"pods", Object{UID: "u", Deleting: true, Grace: &none}, true},
		"it leaves, in its own time":  {"pods", Object{UID: "u", Deleting: true, Grace: &some}, false},
		"it leaves, and does not say": {"pods", Object{UID: "u", Deleting: true}, false},
		"something holds it":          {"pods", Object{UID: "u", Deleting: true, Finalizers: true, Grace: &none}, false},
		"a namespace has contents":    {"namespaces", Object{UID: "u", Deleting: true, Grace: &none}, false},
	} {
		if got := gone(events.Command{Kind: c.kind}, c.object); got != c.want {
			t.Errorf("%s: the object is gone: %t, want %t", what, got, c.want)
		}
	}
}
