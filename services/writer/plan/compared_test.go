package plan

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// An omitted value and a zero value are the same. All else must be equal, in the same order, down
// to the notation of numbers.
func TestWhatIsWithinAnother(t *testing.T) {
	for _, c := range []struct {
		want, have string
		is         bool
	}{
		{`{}`, `{}`, true}, {`{"a":1}`, `{"a":1,"b":2}`, true}, {`{"a":1,"b":2}`, `{"a":1}`, false}, {`{"a":1}`, `{"a":2}`, false}, {`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":""}`, `{}`, true}, {`{"a":0}`, `{}`, true}, {`{"a":false}`, `{}`, true}, {`{"a":[]}`, `{}`, true}, {`{"a":{}}`, `{}`, true}, {`{"a":null}`, `{}`, true},
		{`{"a":{"b":""}}`, `{}`, true}, {`{"a":{"b":"c"}}`, `{}`, false}, {`{"a":{"b":"","c":"d"}}`, `{}`, false},
		{`{"a":"x"}`, `{}`, false}, {`{"a":7}`, `{}`, false}, {`{"a":true}`, `{}`, false}, {`{"a":[1]}`, `{}`, false}, {`{"a":[0]}`, `{}`, false},
		{`{"a":""}`, `{"a":"x"}`, false}, {`{"a":0}`, `{"a":7}`, false}, {`{"a":false}`, `{"a":true}`, false}, {`{"a":[]}`, `{"a":[1]}`, false},
		{`{"a":null}`, `{"a":7}`, true}, {`{"a":{}}`, `{"a":{"b":1}}`, true},
		{`{"a":[1,2]}`, `{"a":[1,2]}`, true}, {`{"a":[1,2]}`, `{"a":[2,1]}`, false}, {`{"a":[1,2]}`, `{"a":[1,2,3]}`, false},
		{`{"a":[{"b":1}]}`, `{"a":[{"b":1,"c":2}]}`, true}, {`{"a":[{"b":1}]}`, `{"a":[{"c":2}]}`, false}, {`{"a":[1]}`, `{"a":{"0":1}}`, false}, {`{"a":{"b":1}}`, `{"a":[1]}`, false},
		{`{"a":1.0}`, `{"a":1}`, false}, {`{"a":12345678901234567890}`, `{"a":12345678901234567891}`, false},
	} {
		if got := within(read(json.RawMessage(c.want)), read(json.RawMessage(c.have))); got != c.is {
			t.Errorf("%s is within %s: %t", c.want, c.have, got)
		}
	}
}

// An update's effect exists if the objects differ only in what the API server manages and in the
// half that the subresource does not write.
func TestWhatAnUpdateHasMade(t *testing.T) {
	const live = `{"kind":"K","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"9","generation":4,"managedFields":[{"manager":"m"}],
		"creationTimestamp":"2026-01-01T00:00:00Z","selfLink":"/x","labels":{"c":"d"}},"spec":{"x":1},"status":{"y":2}}`
	for what, c := range map[string]struct {
		body, subresource string
		done              bool
	}{
		"the same":                        {live, "", true},
		"an older version":                {strings.NewReplacer(`"resourceVersion":"9"`, `"resourceVersion":"8"`, `"generation":4`, `"generation":3`, `"/x"`, `"/y"`, `"manager":"m"`, `"manager":"o"`).Replace(live), "", true},
		"without what the server manages": {`{"metadata":{"uid":"u","labels":{"c":"d"}},"spec":{"x":1}}`, "", true},
		"of another uid":                  {strings.Replace(live, `"u"`, `"v"`, 1), "", false},
		"another label":                   {strings.Replace(live, `"c":"d"`, `"c":"e"`, 1), "", false},
		"a label more":                    {strings.Replace(live, `"c":"d"`, `"c":"d","e":"f"`, 1), "", false},
		"a label less":                    {strings.Replace(live, `"c":"d"`, ``, 1), "", false},
		"another specification":           {strings.Replace(live, `"x":1`, `"x":2`, 1), "", false},
		"the same, of the status":         {strings.Replace(live, `"x":1`, `"x":2`, 1), "status", true},
		"another status":                  {strings.Replace(live, `"y":2`, `"y":3`, 1), "", true},
		"another status, of the status":   {strings.Replace(live, `"y":2`, `"y":3`, 1), "status", false},
		"a status with less in it":        {strings.Replace(live, `"y":2`, ``, 1), "status", false},
		"nothing that can be read":        {`7`, "", false},
	} {
		if got := updated(json.RawMessage(c.body), json.RawMessage(live), c.subresource); got != c.done {
			t.Errorf("%s: the update is done: %t, want %t", what, got, c.done)
		}
	}
	if updated(json.RawMessage(live), json.RawMessage(`x`), "") {
		t.Error("an update counts as done with an object that cannot be read")
	}
}

// A merge patch's effect exists: objects are merged, null removes a field, and all else is
// replaced. The preconditions do not count.
func TestWhatAMergePatchHasMade(t *testing.T) {
	const live = `{"metadata":{"uid":"u","resourceVersion":"9","labels":{"a":"b","c":"d"}},"spec":{"list":[1,2],"object":{"x":1,"y":2}}}`
	for patch, done := range map[string]bool{
		`{}`: true, `{"metadata":{"uid":"v","resourceVersion":"7"}}`: true, `{"metadata":{"labels":{"a":"b"}}}`: true, `{"metadata":{"labels":{"a":"x"}}}`: false,
		`{"metadata":{"labels":{"a":null}}}`: false, `{"metadata":{"labels":{"e":null}}}`: true, `{"metadata":{"labels":{"e":"f"}}}`: false,
		`{"metadata":{"uid":"v","labels":{"e":"f"}}}`: false, `{"spec":{"list":[1,2]}}`: true, `{"spec":{"list":[1]}}`: false, `{"spec":{"list":[1,2,3]}}`: false,
		`{"spec":{"object":{"x":1}}}`: true, `{"spec":{"object":{"x":2}}}`: false, `{"spec":{"object":null}}`: false, `{"spec":{"other":{"x":null}}}`: true,
		`{"spec":{"other":{"x":1}}}`: false, `[]`: false, ``: false,
	} {
		if got := merged(json.RawMessage(patch), json.RawMessage(live)); got != done {
			t.Errorf("%s: the patch is done: %t, want %t", patch, got, done)
		}
	}
	if merged(json.RawMessage(`{}`), json.RawMessage(`[]`)) {
		t.Error("a patch counts as done with an object that is none")
	}
}

// Lists of owners are equal in any order if every field of each owner is.
func TestWhichOwnersAreTheSame(t *testing.T) {
	yes, no := true, false
	a := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "a", UID: "u", BlockOwnerDeletion: &yes}
	b := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "b", UID: "v"}
	with := func(edit func(*metav1.OwnerReference)) []metav1.OwnerReference {
		c := a
		edit(&c)
		return []metav1.OwnerReference{c, b}
	}
	for what, c := range map[string]struct {
		other []metav1.OwnerReference
		same  bool
	}{
		"the same": {[]metav1.OwnerReference{a, b}, true}, "in another order": {[]metav1.OwnerReference{b, a}, true},
		"one less": {[]metav1.OwnerReference{a}, false}, "one twice": {[]metav1.OwnerReference{a, a}, false}, "one more": {[]metav1.OwnerReference{a, b, b}, false},
		"another version": {with(func(o *metav1.OwnerReference) { o.APIVersion = "apps/v2" }), false},
		"another kind":    {with(func(o *metav1.OwnerReference) { o.Kind = "Deployment" }), false},
		"another name":    {with(func(o *metav1.OwnerReference) { o.Name = "c" }), false},
		"another uid":     {with(func(o *metav1.OwnerReference) { o.UID = "w" }), false},
		"it blocks not":   {with(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = &no }), false},
		"it does not say": {with(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = nil }), false},
		"no controller":   {with(func(o *metav1.OwnerReference) { o.Controller = &no }), true},
	} {
		if got := sameOwners([]metav1.OwnerReference{a, b}, c.other); got != c.same {
			t.Errorf("%s: they are the same: %t", what, got)
		}
	}
}

// The controller is the owner with controller: true, whatever its position.
func TestWhichOwnerIsTheController(t *testing.T) {
	for text, want := range map[string]string{
		`{"metadata":{"ownerReferences":[{"uid":"a"},{"uid":"b","controller":true}]}}`: "b", `{"metadata":{"ownerReferences":[{"uid":"a","controller":false}]}}`: "",
		`{"metadata":{}}`: "", `{}`: "", `{"metadata":{"ownerReferences":[7,{"uid":"b","controller":true}]}}`: "b", `{"metadata":[]}`: "",
	} {
		if got := controllerOf(read(json.RawMessage(text))); got != want {
			t.Errorf("%s is controlled by %q, want %q", text, got, want)
		}
	}
}

// A turn may reach each bound, and not exceed it.
func TestHowMuchATurnMayHold(t *testing.T) {
	const kind = "pods"
	of := func(edit func(*events.Turn)) events.Turn {
		turn := events.Turn{
			Lane: events.LaneWrite, Kind: kind, UID: "u", Key: events.Key{Namespace: "ns", Name: "a"}, Shapes: []json.RawMessage{json.RawMessage(`{}`)},
			Notices:  []events.Notice{{About: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "a"}, Type: "Normal", Reason: "R", Message: "m"}},
			Commands: []events.Command{{Verb: events.VerbDelete, Kind: kind, Namespace: "ns", Name: "a"}},
		}
		edit(&turn)
		return turn
	}
	if MaxBody != 3145728 || maxNotice != 16384 { // the API server takes as large a body
		t.Errorf("a body may have %d bytes, a message %d", MaxBody, maxNotice)
	}
	large := func(n int) json.RawMessage { return json.RawMessage(strings.Repeat(" ", n)) }
	many := func(n int) []events.Command {
		all := make([]events.Command, n)
		for i := range all {
			all[i] = events.Command{Verb: events.VerbDelete, Kind: kind, Namespace: "ns", Name: "a"}
		}
		return all
	}
	for what, c := range map[string]struct {
		edit  func(*events.Turn)
		fault string
	}{
		"as it is":                       {func(*events.Turn) {}, ""},
		"as many commands as may be":     {func(t *events.Turn) { t.Commands = many(MaxCommands) }, ""},
		"one more":                       {func(t *events.Turn) { t.Commands = many(MaxCommands + 1) }, "10000 are the most"},
		"a shape as large as may be":     {func(t *events.Turn) { t.Shapes[0] = large(MaxBody) }, ""},
		"a larger one":                   {func(t *events.Turn) { t.Shapes[0] = large(MaxBody + 1) }, "shape 1 has"},
		"a body as large as may be":      {func(t *events.Turn) { t.Commands[0].Body = large(MaxBody) }, ""},
		"a larger body":                  {func(t *events.Turn) { t.Commands[0].Body = large(MaxBody + 1) }, "command 0: its body has"},
		"the last shape":                 {func(t *events.Turn) { t.Commands[0].Shape = 1 }, ""},
		"a shape beyond":                 {func(t *events.Turn) { t.Commands[0].Shape = 2 }, "its shape is the 2. of 1"},
		"a shape before":                 {func(t *events.Turn) { t.Commands[0].Shape = -1 }, "its shape is the -1."},
		"a shape and a body":             {func(t *events.Turn) { t.Commands[0].Shape, t.Commands[0].Body = 1, large(1) }, "a body and a shape"},
		"a body alone":                   {func(t *events.Turn) { t.Commands[0].Body = large(1) }, ""},
		"the last notice, done":          {func(t *events.Turn) { t.Commands[0].Applied = 1 }, ""},
		"the last notice, failed":        {func(t *events.Turn) { t.Commands[0].Failed = 1 }, ""},
		"a notice beyond, done":          {func(t *events.Turn) { t.Commands[0].Applied = 2 }, "its notices are"},
		"a notice beyond, failed":        {func(t *events.Turn) { t.Commands[0].Failed = 2 }, "its notices are"},
		"a notice before, done":          {func(t *events.Turn) { t.Commands[0].Applied = -1 }, "its notices are"},
		"a notice before, failed":        {func(t *events.Turn) { t.Commands[0].Failed = -1 }, "its notices are"},
		"a warning":                      {func(t *events.Turn) { t.Notices[0].Type = "Warning" }, ""},
		"a notice of another type":       {func(t *events.Turn) { t.Notices[0].Type = "Info" }, "notice 1: its type"},
		"a reason as long as may be":     {func(t *events.Turn) { t.Notices[0].Reason = strings.Repeat("r", 128) }, ""},
		"a longer reason":                {func(t *events.Turn) { t.Notices[0].Reason = strings.Repeat("r", 129) }, "its reason has 129"},
		"a message as long as may be":    {func(t *events.Turn) { t.Notices[0].Message = strings.Repeat("m", maxNotice) }, ""},
		"a longer message":               {func(t *events.Turn) { t.Notices[0].Message = strings.Repeat("m", maxNotice+1) }, "its message has"},
		"a notice about no name":         {func(t *events.Turn) { t.Notices[0].About.Name = "../x" }, "notice 1: it is about no object"},
		"no lane":                        {func(t *events.Turn) { t.Lane = "x" }, "there is no lane"},
		"a command of the other lane":    {func(t *events.Turn) { t.Lane = events.LaneStatus }, "it belongs to lane"},
		"a kind without a uid":           {func(t *events.Turn) { t.UID = "" }, "and not both"},
		"a uid without a kind":           {func(t *events.Turn) { t.Kind = "" }, "and not both"},
		"neither":                        {func(t *events.Turn) { t.Kind, t.UID = "", "" }, ""},
		"another kind than its keys are": {func(t *events.Turn) { t.Kind = "nodes" }, "and the controller's keys are pods"},
		"its key is of that kind":        {func(t *events.Turn) { t.Kind, t.Key.Kind = "nodes", "nodes" }, ""},
		"its key is of another kind":     {func(t *events.Turn) { t.Key.Kind = "nodes" }, "its key about one of"},
	} {
		err := Check(of(c.edit), kind)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", what, err, c.fault)
		}
	}
	if err := Check(of(func(t *events.Turn) { t.Kind = "nodes" }), ""); err != nil {
		t.Errorf("the keys are of no kind: %v", err)
	}
}

// Which asks are valid, and how verbs are labelled.
func TestWhatMayBeAsked(t *testing.T) {
	secret := &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "a"}
	node := &metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "a"}
	for what, c := range map[string]struct {
		command events.Command
		right   bool
	}{
		"a pod":                  {events.Command{Verb: events.VerbAsk, Kind: kinds.Pods.Name, Name: "a"}, true},
		"a Secret":               {events.Command{Verb: events.VerbAsk, Kind: kinds.Secrets.Name, Name: "a"}, false},
		"readings of an object":  {events.Command{Verb: events.VerbAsk, Kind: kinds.Pods.Name, Subresource: query.SubReadings, Of: node}, true},
		"readings of a Secret":   {events.Command{Verb: events.VerbAsk, Kind: kinds.Pods.Name, Subresource: query.SubReadings, Of: secret}, true},
		"readings of no object":  {events.Command{Verb: events.VerbAsk, Kind: kinds.Pods.Name, Subresource: query.SubReadings}, false},
		"the expiry of a token":  {events.Command{Verb: events.VerbAsk, Kind: kinds.Secrets.Name, Namespace: "kube-system", Subresource: query.SubExpiry, Name: "a"}, true},
		"that of another Secret": {events.Command{Verb: events.VerbAsk, Kind: kinds.Secrets.Name, Namespace: "shop", Subresource: query.SubExpiry, Name: "a"}, false},
		"that of a pod":          {events.Command{Verb: events.VerbAsk, Kind: kinds.Pods.Name, Namespace: "kube-system", Subresource: query.SubExpiry, Name: "a"}, false},
		"that of a reference":    {events.Command{Verb: events.VerbAsk, Kind: kinds.Secrets.Name, Namespace: "kube-system", Subresource: query.SubExpiry, Name: "a", Of: secret}, false},
		"a token as it is":       {events.Command{Verb: events.VerbAsk, Kind: kinds.Secrets.Name, Namespace: "kube-system", Name: "a"}, false},
		"a Secret, by reference": {events.Command{Verb: events.VerbAsk, Of: secret, Name: "a"}, false},
	} {
		if fault := questionFault(c.command); (fault == "") != c.right {
			t.Errorf("%s: the fault of the question is %q, want none: %t", what, fault, c.right)
		}
	}
	for _, v := range []events.Verb{events.VerbCreate, events.VerbUpdate, events.VerbPatch, events.VerbDelete, events.VerbRecord, events.VerbAsk} {
		if VerbOf(v) != string(v) {
			t.Errorf("%s counts as %s", v, VerbOf(v))
		}
	}
	if VerbOf("drop") != "unknown" {
		t.Errorf("one that is unknown counts as %s", VerbOf("drop"))
	}
}
