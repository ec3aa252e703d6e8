package reconcile

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestACopyIsThatPartOfTheKeysObject(t *testing.T) {
	whole := Copy{To: ".spec", From: ".spec.template.spec"}
	host := Copy{To: ".spec", From: ".spec.template.spec", But: []string{".hostname"}}
	image := Copy{To: ".spec", From: ".spec.template.spec", But: []string{".containers[*].image"}}
	plus := Copy{To: ".metadata.finalizers", From: ".spec.template.metadata.finalizers", Plus: []string{"x"}}
	more := Copy{To: ".metadata.finalizers", From: ".metadata.finalizers", Plus: []string{"x"}}
	several := Copy{To: ".spec.names", From: ".spec.template.spec.imagePullSecrets[*].name"}
	label := Copy{To: ".metadata.labels", From: ".spec.template.metadata.labels", But: []string{".x"}}
	none := Copy{To: ".spec.none", From: ".spec.template.spec.nodeName"}
	secrets := set(func(s *appsv1.StatefulSet) {
		s.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}, {Name: "t"}}
	})
	for what, c := range map[string]struct {
		copy Copy
		body string
		want string
	}{
		"the same":                       {whole, `{"spec":{"hostname":"h","containers":[{"image":"i","name":"c"}]}}`, ""},
		"with what is nothing":           {whole, `{"spec":{"hostname":"h","containers":[{"image":"i","name":"c","args":[],"command":null}],"x":{"y":{}},"z":""}}`, ""},
		"what is something":              {whole, `{"spec":{"hostname":"h","containers":[{"image":"i","name":"c"}],"hostNetwork":false}}`, "the body's .spec is not that of the key's object, .spec.template.spec"},
		"another image":                  {whole, `{"spec":{"hostname":"h","containers":[{"image":"j","name":"c"}]}}`, "the body's .spec is not that"},
		"a container more":               {whole, `{"spec":{"hostname":"h","containers":[{"image":"i","name":"c"},{"image":"i","name":"d"}]}}`, "the body's .spec is not that"},
		"none of it":                     {whole, `{}`, "the body's .spec is not that"},
		"a name twice":                   {whole, `{"spec":[{"a":1,"a":1}]}`, "the body is no object"},
		"another where it may be":        {host, `{"spec":{"hostname":"x","containers":[{"image":"i","name":"c"}]}}`, ""},
		"nothing where it may be":        {host, `{"spec":{"containers":[{"image":"i","name":"c"}]}}`, ""},
		"another beside that":            {host, `{"spec":{"hostname":"x","containers":[{"image":"j","name":"c"}]}}`, "the body's .spec.containers is not that"},
		"one more beside that":           {host, `{"spec":{"containers":[{"image":"i","name":"c"}],"hostNetwork":true}}`, "the body's .spec.hostNetwork is not that"},
		"one less beside that":           {host, `{"spec":{"hostname":"x"}}`, "the body's .spec.containers is not that"},
		"nothing at all":                 {host, `{}`, "the body's .spec.containers is not that"},
		"no object":                      {host, `{"spec":"x"}`, "the body's .spec is not that"},
		"another image, as it may be":    {image, `{"spec":{"hostname":"h","containers":[{"image":"j","name":"c"}]}}`, ""},
		"another name in the list":       {image, `{"spec":{"hostname":"h","containers":[{"image":"i","name":"d"}]}}`, "the body's .spec.containers[*].name is not that"},
		"another length of the list":     {image, `{"spec":{"hostname":"h","containers":[{"image":"i","name":"c"},{"image":"i","name":"c"}]}}`, "the body's .spec.containers is not that"},
		"no list":                        {image, `{"spec":{"hostname":"h","containers":{"image":"i","name":"c"}}}`, "the body's .spec.containers is not that"},
		"an element more, as it may be":  {plus, `{"metadata":{"finalizers":["a","x"]}}`, ""},
		"no element more":                {plus, `{"metadata":{"finalizers":["a"]}}`, ""},
		"one instead":                    {plus, `{"metadata":{"finalizers":["x"]}}`, "the body's .metadata.finalizers is not that"},
		"yet another":                    {plus, `{"metadata":{"finalizers":["a","x","y"]}}`, "the body's .metadata.finalizers is not that"},
		"no list of texts":               {plus, `{"metadata":{"finalizers":["a",1]}}`, "the body's .metadata.finalizers is not that"},
		"no list where there is none":    {more, `{"metadata":{"finalizers":{"x":1}}}`, "the body's .metadata.finalizers is not that"},
		"more than nothing":              {more, `{"metadata":{"finalizers":["x"]}}`, ""},
		"the first of several":           {several, `{"spec":{"names":"s"}}`, ""},
		"the second of several":          {several, `{"spec":{"names":"t"}}`, ""},
		"none of several":                {several, `{"spec":{"names":"u"}}`, "the body's .spec.names is not that"},
		"what may be, where there is no": {label, `{"metadata":{"labels":{"x":"y"}}}`, ""},
		"another, where there is none":   {label, `{"metadata":{"labels":{"y":"x"}}}`, "the body's .metadata.labels.y is not that"},
		"null is nothing":                {none, `{"spec":{"none":null}}`, ""},
		"an empty text is nothing":       {none, `{"spec":{"none":""}}`, ""},
		"an empty list is nothing":       {none, `{"spec":{"none":[]}}`, ""},
		"an empty object is nothing":     {none, `{"spec":{"none":{}}}`, ""},
		"0 is something":                 {none, `{"spec":{"none":0}}`, "the body's .spec.none is not that"},
		"a list of nothing":              {none, `{"spec":{"none":[""]}}`, "the body's .spec.none is not that"},
	} {
		write := Write{Verb: events.VerbCreate, Kind: "pods", Copies: []Copy{c.copy}}
		own := set()
		if c.copy.To == several.To {
			own = secrets
		}
		said(t, what, offer{write: write, own: own, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", c.body)}.verdict(), c.want)
		whole := write
		whole.Fields = []string{".spec", ".metadata"}
		said(t, what+", in a whole", offer{write: whole, own: own, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", c.body)}.verdict(), c.want)
	}
	write := Write{Verb: events.VerbCreate, Kind: "pods", Copies: []Copy{whole}}
	other := about(events.VerbCreate, kinds.Pods.Kind, "web-0", `{"spec":{"hostname":"x"}}`)
	said(t, "of another version", offer{write: write, command: other, turn: func(turn *events.Turn) { turn.ResourceVersion = "6" }}.verdict(), superseded+"is not that")
	said(t, "of an object that is not known", offer{write: write, command: other, unknown: true}.verdict(), "is not that")
}

// What is bounded as a whole is read where a part of it is a copy.
func TestACopyInWhatIsBoundedAsAWhole(t *testing.T) {
	for body, want := range map[string]string{
		`{"spec":{"template":{"a":1},"name":"h"}}`:       "",
		`{"spec":{"template":{"a":1}}}`:                  "the body's .spec.name is not that",
		`{"spec":{"name":{"x":1}}}`:                      "the body's .spec.name is not that",
		`{"spec":[{"name":"h"}]}`:                        "the body's .spec.name is not that",
		`{"spec":"h"}`:                                   "", // which the API server refuses
		`{"spec":{"name":"h"},"metadata":{"name":"x"}}`:  "",
		`{"spec":{"name":"h"},"metadata":{"labels":{}}}`: "",
	} {
		write := Write{Verb: events.VerbCreate, Kind: "pods", Fields: []string{".spec"}, Copies: []Copy{{To: ".spec.name", From: ".spec.template.spec.hostname"}}}
		said(t, body, offer{write: write, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", body)}.verdict(), want)
	}
}

func TestACopyMayBeOfARevision(t *testing.T) {
	write := Write{Verb: events.VerbCreate, Kind: "pods", Copies: []Copy{{To: ".spec.hostname", From: ".spec.template.spec.hostname", Revision: true}}}
	yes := true
	revision := func(uid types.UID, data string) map[events.Ref]metav1.Object {
		r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(data)}}
		r.OwnerReferences = []metav1.OwnerReference{{UID: uid, Controller: &yes}}

		return map[events.Ref]metav1.Object{{Kind: kinds.ControllerRevisions.Name, Namespace: "ns", Name: "web-1"}: r}
	}
	body := func(hostname, name string) string {
		return `{"metadata":{"labels":{"controller-revision-hash":"` + name + `"}},"spec":{"hostname":"` + hostname + `"}}`
	}
	const old = `{"spec":{"template":{"spec":{"hostname":"old"}}}}`
	nameless := map[events.Ref]metav1.Object{}
	for ref, r := range revision("set", old) {
		ref.Name = ""
		nameless[ref] = r
	}
	for what, c := range map[string]struct {
		others map[events.Ref]metav1.Object
		body   string
		want   string
	}{
		"as it is":                {nil, body("h", "web-1"), ""},
		"as it was":               {revision("set", old), body("old", "web-1"), ""},
		"as it never was":         {revision("set", old), body("x", "web-1"), "or of its revision"},
		"of one that is gone":     {nil, body("old", "web-1"), superseded + "no revision"},
		"of another one":          {revision("set", old), body("old", "web-2"), superseded + "no revision"},
		"of none":                 {revision("set", old), `{"spec":{"hostname":"old"}}`, superseded + "no revision"},
		"of one without a name":   {nameless, `{"spec":{"hostname":"old"}}`, superseded + "no revision"},
		"of a revision of others": {revision("other", old), body("old", "web-1"), superseded + "no revision"},
		"of one without a sense":  {revision("set", `[]`), body("old", "web-1"), superseded + "no revision"},
		"of no revision": {
			map[events.Ref]metav1.Object{{Kind: kinds.ControllerRevisions.Name, Namespace: "ns", Name: "web-1"}: set()},
			body("old", "web-1"), superseded + "no revision",
		},
	} {
		said(t, what, offer{write: write, others: c.others, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", c.body)}.verdict(), c.want)
	}
}

func TestACopyMayBeOfWhatTheKeysObjectNames(t *testing.T) {
	service := func(ip string) *corev1.Service { return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip}} }
	ref := func(name string) events.Ref { return events.Ref{Kind: "services", Namespace: "ns", Name: name} }
	write := Write{Verb: events.VerbCreate, Kind: "pods", Copies: []Copy{{
		To: ".spec.hostname", From: ".spec.clusterIP", Of: &Named{Kind: "services", By: ".metadata.finalizers[*]"},
	}}}
	names := set(func(s *appsv1.StatefulSet) { s.Finalizers = []string{"a", "b"} })
	for what, c := range map[string]struct {
		own    metav1.Object
		others map[events.Ref]metav1.Object
		want   string
	}{
		"of the first":        {names, map[events.Ref]metav1.Object{ref("a"): service("h"), ref("b"): service("x")}, ""},
		"of the second":       {names, map[events.Ref]metav1.Object{ref("a"): service("x"), ref("b"): service("h")}, ""},
		"the first is gone":   {names, map[events.Ref]metav1.Object{ref("b"): service("h")}, ""},
		"of neither":          {names, map[events.Ref]metav1.Object{ref("a"): service("x"), ref("b"): service("y")}, superseded + "is not that of any services"},
		"of one not named":    {names, map[events.Ref]metav1.Object{ref("c"): service("h")}, superseded + "is not that of any services"},
		"both are gone":       {names, nil, superseded + "is not that of any services"},
		"none is named":       {set(), map[events.Ref]metav1.Object{ref("a"): service("h")}, "names no services"},
		"of the key's object": {set(func(s *appsv1.StatefulSet) { s.Finalizers = []string{"x"} }), nil, superseded + "is not that of any services"},
	} {
		said(t, what, offer{write: write, own: c.own, others: c.others, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", `{"spec":{"hostname":"h"}}`)}.verdict(), c.want)
	}
}

func TestAPodHasTheClaimsOfItsOwn(t *testing.T) {
	write := Write{Verb: events.VerbCreate, Kind: "pods", Copies: []Copy{{
		To: ".spec.volumes", From: ".spec.template.spec.volumes", Claims: ".spec.volumeClaimTemplates[*].metadata.name",
	}}}
	own := set(func(s *appsv1.StatefulSet) {
		s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "tmp"}}
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}, {ObjectMeta: metav1.ObjectMeta{Name: "log"}}}
	})
	const data, log, tmp = `{"name":"data","persistentVolumeClaim":{"claimName":"data-web-0"}}`, `{"name":"log","persistentVolumeClaim":{"claimName":"log-web-0"}}`, `{"name":"tmp"}`
	volumes := func(of ...string) string { return `{"spec":{"volumes":[` + strings.Join(of, ",") + `]}}` }
	for what, c := range map[string]struct {
		body string
		want string
	}{
		"its claims":                 {volumes(data, log, tmp), ""},
		"its claims, at the end":     {volumes(tmp, log, data), ""},
		"not all of them":            {volumes(data, tmp), ""},
		"the volume in place of one": {volumes(`{"name":"data"}`, log, tmp), "is not that"},
		"none in place of a volume":  {volumes(log, tmp), "is not that"},
		"the claim of another pod":   {volumes(strings.Replace(data, "web-0", "web-1", 1), log, tmp), "is not that"},
		"and then its own":           {volumes(strings.Replace(data, "web-0", "web-1", 1), data, log, tmp), "is not that"},
		"a claim of another name":    {volumes(data, strings.ReplaceAll(log, "log", "x"), tmp), "is not that"},
		"more said of a claim":       {volumes(strings.Replace(data, "}}", `,"readOnly":true}}`, 1), log, tmp), "is not that"},
		"a volume of the host":       {volumes(data, log, `{"name":"tmp","hostPath":{"path":"/"}}`), "is not that"},
		"without a volume":           {volumes(data, log), "is not that"},
		"no volumes":                 {`{}`, "is not that"},
		"no list of volumes":         {`{"spec":{"volumes":{"name":"data"}}}`, "is not that"},
	} {
		said(t, what, offer{write: write, own: own, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", c.body)}.verdict(), c.want)
	}
	said(t, "none where there are none", offer{write: write, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", `{}`)}.verdict(), "")
}

// Many creates share a body, which is checked once; the parts that depend on a name are
// checked for each.
func TestWhatOneBodyHoldsIsNotTakenForAnothers(t *testing.T) {
	own := set(func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	})
	writes := Writes{
		{Verb: events.VerbCreate, Kind: "pods", Copies: []Copy{{To: ".spec.volumes", From: ".spec.template.spec.volumes", Claims: ".spec.volumeClaimTemplates[*].metadata.name"}}},
		{Verb: events.VerbCreate, Kind: "configmaps", Fields: []string{".data"}},
		{Verb: events.VerbCreate, Kind: "services", Fields: []string{".spec"}},
		{Verb: events.VerbUpdate, Kind: "pods", Changes: []string{".spec"}},
	}
	d := Controller[struct{}]{Name: "c", Owns: &kinds.StatefulSets.Kind, Writes: writes}.Describe()
	others := map[events.Ref]metav1.Object{
		{Kind: "pods", Namespace: "ns", Name: "plain"}:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}},
		{Kind: "pods", Namespace: "ns", Name: "labelled"}: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{"a": "b"}}},
	}
	reads := map[string]int{}
	check := d.Fits(events.Turn{Key: events.Key{Namespace: "ns", Name: "web"}, UID: "set", ResourceVersion: "7"},
		func() metav1.Object { reads["own"]++; return own },
		func(r events.Ref) metav1.Object { reads[r.Name]++; return others[r] })
	volumes := `{"spec":{"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data-web-0"}}]}}`
	pod, next := about(events.VerbCreate, kinds.Pods.Kind, "web-0", volumes), about(events.VerbCreate, kinds.Pods.Kind, "web-1", "")
	next.Body = pod.Body
	said(t, "a pod with its claim", check(pod), "")
	said(t, "another pod with that claim", check(next), "is not that")

	long := json.RawMessage(`{"data":{}}                  `)
	good := about(events.VerbCreate, kinds.ConfigMaps.Kind, "a", "")
	good.Body = long[:11]
	said(t, "a body", check(good), "")
	said(t, "that body again", check(good), "")
	longer, rest := about(events.VerbCreate, kinds.ConfigMaps.Kind, "a", ""), append(long, ']')
	longer.Body = rest
	first := longer
	first.Body = rest[:11]
	said(t, "the beginning of a text", check(first), "")
	said(t, "the whole text", check(longer), "the body is no object")
	same := about(events.VerbCreate, kinds.Services.Kind, "a", "")
	same.Body = json.RawMessage(`{"data":{"a":"b"}}`)
	said(t, "a body for another kind", check(same), "the body holds .data")
	same.Kind = kinds.ConfigMaps.Name
	said(t, "a body that fits", check(same), "")
	same.Kind = kinds.Services.Name
	said(t, "that body for another kind", check(same), "the body holds .data")
	said(t, "a body of that length", check(about(events.VerbCreate, kinds.ConfigMaps.Kind, "a", `{"spec":{"a":"b"}}`)), "the body holds .spec")
	none := about(events.VerbCreate, kinds.ConfigMaps.Kind, "a", "")
	said(t, "no body", check(none), "")
	said(t, "no body again", check(none), "")

	plain, labelled := about(events.VerbUpdate, kinds.Pods.Kind, "plain", `{"spec":{"a":"b"}}`), about(events.VerbUpdate, kinds.Pods.Kind, "labelled", "")
	labelled.Body = plain.Body
	said(t, "an update", check(plain), "")
	said(t, "that update of another", check(labelled), "the update changes .metadata.labels")
	said(t, "that update again", check(labelled), "the update changes .metadata.labels")
	for what, n := range reads {
		if n != 1 {
			t.Errorf("%s is read %d times", what, n)
		}
	}
}

func TestElementsOfAListComeAndGo(t *testing.T) {
	ref := events.Ref{Kind: "nodes", Name: "n"}
	node := func(keys ...string) map[events.Ref]metav1.Object {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"}}
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: "NoSchedule"})
		}
		return map[events.Ref]metav1.Object{ref: n}
	}
	taints := func(keys ...string) string {
		var all []string
		for _, key := range keys {
			all = append(all, `{"effect":"NoSchedule","key":"`+key+`"}`)
		}
		return `{"spec":{"taints":[` + strings.Join(all, ",") + `]}}`
	}
	write := Write{Verb: events.VerbPatch, Kind: "nodes", Elements: []Elements{{Path: ".spec.taints", By: "key", One: []string{"mine", "ours"}}}}
	older := func(c *events.Command) { c.If.ResourceVersion = "6" }
	for what, c := range map[string]struct {
		others map[events.Ref]metav1.Object
		body   string
		change func(*events.Command)
		want   string
	}{
		"nothing changes":           {node("a", "mine", "b"), taints("a", "mine", "b"), nil, ""},
		"one goes":                  {node("a", "mine", "b"), taints("a", "b"), nil, ""},
		"one comes":                 {node("a", "b"), taints("a", "b", "ours"), nil, ""},
		"one comes for another":     {node("a", "mine"), taints("ours", "a"), nil, ""},
		"one comes to none":         {node(), taints("mine"), nil, ""},
		"all go":                    {node("mine"), taints(), nil, ""},
		"nothing is said":           {node("a"), `{"spec":{}}`, nil, ""},
		"another goes":              {node("a", "mine"), taints("mine"), nil, "the body changes other elements of .spec.taints"},
		"another comes":             {node(), taints("a"), nil, "the body changes other elements"},
		"the others change places":  {node("a", "b"), taints("b", "a"), nil, "the body changes other elements"},
		"another changes":           {node("a"), strings.Replace(taints("a"), "NoSchedule", "NoExecute", 1), nil, "the body changes other elements"},
		"it changed since":          {node("a"), taints(), older, superseded + "the body changes other elements"},
		"it is not known":           {nil, taints("mine"), nil, superseded + "is not known"},
		"no list":                   {node("a"), `{"spec":{"taints":{"a":"b"}}}`, nil, "the body changes other elements"},
		"no list of objects":        {node("a"), `{"spec":{"taints":["a"]}}`, nil, "the body changes other elements"},
		"an element without a name": {node(), `{"spec":{"taints":[{"effect":"NoSchedule"}]}}`, nil, "the body changes other elements"},
		"a directive":               {node("a"), `{"spec":{"$patch":"replace"}}`, nil, "the body holds $patch beside .spec.taints"},
		"a field beside it":         {node("a"), `{"spec":{"podCIDR":"x"}}`, nil, ""},
		"no condition":              {node("a"), taints(), func(c *events.Command) { c.Verb, c.If = events.VerbCreate, nil }, superseded + "the body changes other elements"},
	} {
		command := about(events.VerbPatch, kinds.Nodes.Kind, "n", c.body)
		command.Namespace = ""
		if c.change != nil {
			c.change(&command)
		}
		write.Verb = command.Verb
		said(t, what, offer{write: write, others: c.others, command: command}.verdict(), c.want)
	}
}

func TestAnUpdateChangesWhatItMay(t *testing.T) {
	write := Write{Verb: events.VerbUpdate, Kind: kinds.StatefulSets.Name, Changes: []string{".spec.replicas", ".metadata.annotations['a']"}}
	text := func(change func(*appsv1.StatefulSet)) string { return string(Body(set(change))) }
	number := func(n int32) *int32 { return &n }
	for what, c := range map[string]struct {
		body string
		want string
	}{
		"nothing":     {text(func(*appsv1.StatefulSet) {}), ""},
		"what it may": {text(func(s *appsv1.StatefulSet) { s.Spec.Replicas = number(3); s.Annotations = map[string]string{"a": "b"} }), ""},
		"what is the API's": {text(func(s *appsv1.StatefulSet) {
			s.Kind, s.APIVersion, s.ResourceVersion, s.Generation, s.Status.Replicas = "StatefulSet", "apps/v1", "8", 5, 3
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		}), ""},
		"another annotation": {text(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{"b": "b"} }), "the update changes .metadata.annotations.b"},
		"a label":            {text(func(s *appsv1.StatefulSet) { s.Labels = nil }), "the update changes .metadata.labels"},
		"the spec":           {text(func(s *appsv1.StatefulSet) { s.Spec.Template.Finalizers = nil }), "the update changes .spec.template"},
		"its name":           {text(func(s *appsv1.StatefulSet) { s.Name = "x" }), "the update changes .metadata.name"},
	} {
		said(t, what, offer{write: write, command: about(events.VerbUpdate, kinds.StatefulSets.Kind, "web", c.body)}.verdict(), c.want)
	}
	label := about(events.VerbUpdate, kinds.StatefulSets.Kind, "web", text(func(s *appsv1.StatefulSet) { s.Labels = nil }))
	said(t, "of another version", offer{write: write, command: label, turn: func(turn *events.Turn) { turn.ResourceVersion = "6" }}.verdict(), superseded+"the update changes")
	said(t, "of what is not known", offer{write: write, command: label, unknown: true}.verdict(), superseded+"is not known")
	report := write
	report.Subresource, label.Subresource = "status", "status"
	said(t, "of a report it is not known", offer{write: report, command: label}.verdict(), "")
}

// The API server takes metadata from the body of a status.
func TestAStatusKeepsTheMetadata(t *testing.T) {
	write := Write{Verb: events.VerbUpdate, Kind: kinds.StatefulSets.Name, Subresource: "status", On: Itself}
	noting := write
	noting.Changes = []string{".metadata.annotations['a']"}
	text := func(change func(*appsv1.StatefulSet)) string { return string(Body(set(change))) }
	for what, c := range map[string]struct {
		write Write
		body  string
		want  string
	}{
		"a status":              {write, text(func(s *appsv1.StatefulSet) { s.Status.Replicas = 3 }), ""},
		"a spec, which is left": {write, text(func(s *appsv1.StatefulSet) { s.Spec.Template.Finalizers = nil }), ""},
		"another version":       {write, text(func(s *appsv1.StatefulSet) { s.ResourceVersion = "8" }), ""},
		"an annotation":         {write, text(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{"a": "b"} }), "the status changes .metadata.annotations"},
		"one that it may":       {noting, text(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{"a": "b"} }), ""},
		"one beside that":       {noting, text(func(s *appsv1.StatefulSet) { s.Annotations = map[string]string{"b": "b"} }), "the status changes .metadata.annotations.b"},
		"no labels":             {write, text(func(s *appsv1.StatefulSet) { s.Labels = nil }), "the status changes .metadata.labels"},
		"no metadata":           {write, `{"status":{}}`, "the status changes .metadata"},
		"no object":             {write, `[]`, "the body is no object"},
	} {
		command := about(events.VerbUpdate, kinds.StatefulSets.Kind, "web", c.body)
		command.Subresource = "status"
		said(t, what, offer{write: c.write, command: command}.verdict(), c.want)
		said(t, what+", not known", offer{write: c.write, command: command, unknown: true}.verdict(), superseded+"the key's object is not known")
	}
	label := about(events.VerbUpdate, kinds.StatefulSets.Kind, "web", text(func(s *appsv1.StatefulSet) { s.Labels = nil }))
	label.Subresource = "status"
	said(t, "of another version", offer{write: write, command: label, turn: func(turn *events.Turn) { turn.ResourceVersion = "6" }}.verdict(), superseded+"the status changes")
	beside := write
	beside.On = Namesake
	said(t, "of another object it is not read", offer{write: beside, command: label}.verdict(), "")
}

// A part that lies deep in what is bounded as a whole is found where it is.
func TestACopyDeepInAWhole(t *testing.T) {
	write := Write{Verb: events.VerbCreate, Kind: "pods", Fields: []string{".spec"}, Copies: []Copy{{To: ".spec.a.b.c", From: ".spec.template.spec.hostname"}}}
	for body, want := range map[string]string{
		`{"spec":{"a":{"b":{"c":"h"}}}}`: "", `{"spec":{"a":{"b":{"c":"x"}}}}`: "is not that", `{"spec":{"a":{"b":{"d":"h"}}}}`: "is not that",
		`{"spec":{"a":{"c":"h"}}}`: "is not that", `{"spec":{"a":{}}}`: "is not that",
	} {
		said(t, body, offer{write: write, command: about(events.VerbCreate, kinds.Pods.Kind, "web-0", body)}.verdict(), want)
	}
}
