package reconcile

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// offer is a command that is offered for a turn of the set ns/web, with what its writer knows.
type offer struct {
	write   Write
	own     metav1.Object
	unknown bool // the key's object
	others  map[events.Ref]metav1.Object
	turn    func(*events.Turn)
	command events.Command
}

// set is the object of the key.
func set(change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set", ResourceVersion: "7", Labels: map[string]string{"app": "web"}},
		Spec: appsv1.StatefulSetSpec{ServiceName: "headless", Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"a"}},
			Spec:       corev1.PodSpec{Hostname: "h", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func (o offer) verdict() error {
	turn := events.Turn{Controller: "c", Key: events.Key{Namespace: "ns", Name: "web"}, UID: "set", ResourceVersion: "7"}
	if o.turn != nil {
		o.turn(&turn)
	}
	d := Controller[struct{}]{Name: "c", Owns: &kinds.StatefulSets.Kind, Writes: Writes{o.write}}.Describe()
	own := o.own
	if own == nil && !o.unknown {
		own = set()
	}
	return d.Fits(turn, func() metav1.Object { return own }, func(r events.Ref) metav1.Object { return o.others[r] })(o.command)
}

// superseded, before what is said of a command, stands for one that may have agreed with
// another version of what it is held against.
const superseded = "superseded: "

// said reports whether an error says something; nothing: there is none.
func said(t *testing.T, what string, err error, want string) {
	t.Helper()
	text, later := strings.CutPrefix(want, superseded)
	switch {
	case want == "" && err == nil:
	case want == "" || err == nil || !strings.Contains(err.Error(), text) || errors.Is(err, events.ErrSuperseded) != later:
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// a command about an object in ns, with a body.
func about(verb events.Verb, kind kinds.Kind, name, body string, change ...func(*events.Command)) events.Command {
	c := events.Command{Verb: verb, Kind: kind.Name, Version: kind.Version, Namespace: "ns", Name: name, Body: json.RawMessage(body)}
	if verb != events.VerbCreate {
		c.If = &events.If{UID: "set", ResourceVersion: "7"}
	}
	if verb == events.VerbPatch {
		c.PatchType = types.StrategicMergePatchType
	}
	for _, do := range change {
		do(&c)
	}
	return c
}

func TestAPromiseSaysWhichObject(t *testing.T) {
	pods, sets := kinds.Pods.Kind, kinds.StatefulSets.Kind
	elsewhere := func(c *events.Command) { c.Namespace = "other" }
	long := strings.Repeat("l", 60)
	longKey := func(turn *events.Turn) { turn.Key.Name = long }
	namespace := func(turn *events.Turn) { turn.Key = events.Key{Name: "ns"} }
	nothing := func(turn *events.Turn) { turn.Key = events.Key{} }
	for what, c := range map[string]struct {
		write   Write
		command events.Command
		turn    func(*events.Turn)
		want    string
	}{
		"nothing is said of the object":     {Write{}, about(events.VerbCreate, pods, "x", "", elsewhere), nil, ""},
		"a version that is not written":     {Write{}, about(events.VerbCreate, pods, "x", "", func(c *events.Command) { c.Version = "v2" }), nil, "pods are written in version v1"},
		"any kind, in any version":          {Write{Any: true}, about(events.VerbCreate, pods, "x", "", func(c *events.Command) { c.Version = "v2" }), nil, ""},
		"the key's object":                  {Write{On: Itself}, about(events.VerbDelete, sets, "web", ""), nil, ""},
		"another kind of the key's name":    {Write{On: Itself}, about(events.VerbDelete, pods, "web", ""), nil, "is not the object of the key"},
		"another name of the key's kind":    {Write{On: Itself}, about(events.VerbDelete, sets, "x", ""), nil, "is not the object of the key"},
		"the key's name elsewhere":          {Write{On: Itself}, about(events.VerbDelete, sets, "web", "", elsewhere), nil, "is not the object of the key"},
		"an older object of the key's name": {Write{On: Itself}, about(events.VerbDelete, sets, "web", "", func(c *events.Command) { c.If.UID = "old" }), nil, "is not the object of the key"},
		"a turn that saw none":              {Write{On: Itself}, about(events.VerbDelete, sets, "web", "", func(c *events.Command) { c.If.UID = "old" }), func(turn *events.Turn) { turn.UID = "" }, ""},
		"an older one of another stand":     {Write{On: Beside}, about(events.VerbDelete, sets, "web", "", func(c *events.Command) { c.If.UID = "old" }), nil, ""},
		"the kind that the key names":       {Write{On: Itself}, about(events.VerbCreate, pods, "web", ""), func(turn *events.Turn) { turn.Key.Kind = "pods" }, ""},
		"another than the key names":        {Write{On: Itself}, about(events.VerbCreate, sets, "web", ""), func(turn *events.Turn) { turn.Key.Kind = "pods" }, "is not the object of the key"},
		"a namesake":                        {Write{On: Namesake}, about(events.VerbCreate, pods, "web", ""), nil, ""},
		"no namesake":                       {Write{On: Namesake}, about(events.VerbCreate, pods, "x", ""), nil, "is not of the key's namespace and name"},
		"a namesake elsewhere":              {Write{On: Namesake}, about(events.VerbCreate, pods, "web", "", elsewhere), nil, "is not of the key's namespace and name"},
		"beside":                            {Write{On: Beside}, about(events.VerbCreate, pods, "x", ""), nil, ""},
		"not beside":                        {Write{On: Beside}, about(events.VerbCreate, pods, "x", "", elsewhere), nil, "is not in the key's namespace"},
		"within":                            {Write{On: Within}, about(events.VerbCreate, pods, "x", ""), namespace, ""},
		"not within":                        {Write{On: Within}, about(events.VerbCreate, pods, "x", "", elsewhere), namespace, "is not in the namespace that is the key"},
		"within no namespace":               {Write{On: Within}, about(events.VerbCreate, pods, "x", "", func(c *events.Command) { c.Namespace = "" }), nothing, "is not in the namespace that is the key"},
		"named after the key":               {Write{Name: After}, about(events.VerbCreate, pods, "web-0", ""), nil, ""},
		"named before the key":              {Write{Name: After}, about(events.VerbCreate, pods, "data-web", ""), nil, "is not named after the key"},
		"as much of a long name as counts":  {Write{Name: After}, about(events.VerbCreate, pods, long[:40]+"-0", ""), longKey, ""},
		"less of a long name than counts":   {Write{Name: After}, about(events.VerbCreate, pods, long[:39]+"-0", ""), longKey, "is not named after the key"},
		"the key amid":                      {Write{Name: Amid}, about(events.VerbCreate, pods, "data-web-0", ""), nil, ""},
		"the key at the begin":              {Write{Name: Amid}, about(events.VerbCreate, pods, "web-0", ""), nil, "is not with the key's name in its own"},
		"any name":                          {Write{}, about(events.VerbCreate, pods, "x", ""), nil, ""},
		"one of some names":                 {Write{Named: []string{"x", "y"}}, about(events.VerbCreate, pods, "y", ""), nil, ""},
		"none of some names":                {Write{Named: []string{"x", "y"}}, about(events.VerbCreate, pods, "z", ""), nil, "only x, y may be written"},
	} {
		c.write.Verb = c.command.Verb
		if !c.write.Any {
			c.write.Kind = c.command.Kind
		}
		said(t, what, offer{write: c.write, turn: c.turn, command: c.command}.verdict(), c.want)
	}
	said(t, "what was not promised", offer{write: Write{Verb: events.VerbCreate, Kind: "pods"}, command: about(events.VerbDelete, pods, "x", "")}.verdict(), "never promised to delete pods")
}

func TestAPromiseSaysOnWhichConditions(t *testing.T) {
	sets := kinds.StatefulSets.Kind
	seconds := func(s int64) func(*events.Command) { return func(c *events.Command) { c.GraceSeconds = &s } }
	when := func(change func(*events.If)) func(*events.Command) {
		return func(c *events.Command) { change(c.If) }
	}
	noUID, noVersion := when(func(i *events.If) { i.UID = "" }), when(func(i *events.If) { i.ResourceVersion = "" })
	unused, unshared := when(func(i *events.If) { i.Unused = true }), when(func(i *events.If) { i.Unshared = true })
	how := func(p types.PatchType) func(*events.Command) { return func(c *events.Command) { c.PatchType = p } }
	orphan := func(c *events.Command) { c.Propagation = metav1.DeletePropagationOrphan }
	for what, c := range map[string]struct {
		write  Write
		verb   events.Verb
		change func(*events.Command)
		want   string
	}{
		"a create has none":           {Write{}, events.VerbCreate, nil, ""},
		"an update without a uid":     {Write{}, events.VerbUpdate, noUID, "which uid it means"},
		"a patch without a uid":       {Write{}, events.VerbPatch, noUID, "which uid it means"},
		"a delete without a uid":      {Write{}, events.VerbDelete, noUID, "which uid it means"},
		"no condition at all":         {Write{}, events.VerbDelete, func(c *events.Command) { c.If = nil }, "which uid it means"},
		"an update of any version":    {Write{}, events.VerbUpdate, noVersion, "which version it means"},
		"a patch of any version":      {Write{}, events.VerbPatch, noVersion, ""},
		"a patch of the version seen": {Write{Unchanged: true}, events.VerbPatch, nil, ""},
		"a patch of another version":  {Write{Unchanged: true}, events.VerbPatch, noVersion, "which version it means"},
		"of what is used":             {Write{Unused: true}, events.VerbDelete, nil, "nothing may need its object"},
		"of what is unused":           {Write{Unused: true}, events.VerbDelete, unused, ""},
		"of ranges that are shared":   {Write{Unshared: true}, events.VerbPatch, nil, "no other object may have its ranges"},
		"of ranges of its own":        {Write{Unshared: true}, events.VerbPatch, unshared, ""},
		"a strategic patch":           {Write{}, events.VerbPatch, nil, ""},
		"a merge patch":               {Write{}, events.VerbPatch, how(types.MergePatchType), "a patch of type"},
		"a merge patch as promised":   {Write{How: []types.PatchType{types.MergePatchType}}, events.VerbPatch, how(types.MergePatchType), ""},
		"a strategic one beside that": {Write{How: []types.PatchType{types.MergePatchType}}, events.VerbPatch, nil, "a patch of type"},
		"at once":                     {Write{AtOnce: true}, events.VerbDelete, seconds(0), ""},
		"at once, not promised":       {Write{}, events.VerbDelete, seconds(0), "gives 0 s to end"},
		"soon":                        {Write{AtOnce: true}, events.VerbDelete, seconds(1), "gives 1 s to end"},
		"an orphaning delete":         {Write{Propagation: []metav1.DeletionPropagation{metav1.DeletePropagationOrphan}}, events.VerbDelete, orphan, ""},
		"the dependents orphaned":     {Write{Propagation: []metav1.DeletionPropagation{metav1.DeletePropagationForeground}}, events.VerbDelete, orphan, "the propagation"},
		"an unbounded delete":         {Write{Propagation: []metav1.DeletionPropagation{metav1.DeletePropagationForeground}}, events.VerbDelete, nil, ""},
	} {
		command := about(c.verb, sets, "web", "{}")
		if c.change != nil {
			c.change(&command)
		}
		c.write.Verb, c.write.Kind = c.verb, sets.Name
		said(t, what, offer{write: c.write, command: command}.verdict(), c.want)
	}
}

func TestAPromiseSaysWhatTheKeysObjectHas(t *testing.T) {
	pods := kinds.Pods.Kind
	owner := func(kind, name string, uid types.UID) func(*events.Command) {
		return func(c *events.Command) {
			c.If.Absent = []metav1.OwnerReference{{Kind: "Other", Name: "x"}, {Kind: kind, Name: name, UID: uid}}
		}
	}
	absent := Write{Verb: events.VerbDelete, Kind: "pods", Absent: &Absent{Kind: "Service", NamedBy: ".spec.serviceName", UIDBy: ".metadata.labels['app']"}}
	named := Write{Verb: events.VerbCreate, Kind: "pods", NamedBy: ".spec.serviceName"}
	where := Write{Verb: events.VerbCreate, Kind: "pods", Where: ".metadata.deletionTimestamp"}
	newer := func(turn *events.Turn) { turn.ResourceVersion = "6" }
	ending := set(func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{} })
	for what, c := range map[string]struct {
		offer
		want string
	}{
		"it names the object":          {offer{write: named, command: about(events.VerbCreate, pods, "headless", "")}, ""},
		"it names another":             {offer{write: named, command: about(events.VerbCreate, pods, "x", "")}, "does not name"},
		"it may have named it":         {offer{write: named, turn: newer, command: about(events.VerbCreate, pods, "x", "")}, superseded + "does not name"},
		"the owner is absent":          {offer{write: absent, command: about(events.VerbDelete, pods, "x", "", owner("Service", "headless", ""))}, ""},
		"the owner of a uid is absent": {offer{write: absent, command: about(events.VerbDelete, pods, "x", "", owner("Service", "headless", "web"))}, ""},
		"nothing is absent":            {offer{write: absent, command: about(events.VerbDelete, pods, "x", "")}, "does not name the Service"},
		"another kind is absent":       {offer{write: absent, command: about(events.VerbDelete, pods, "x", "", owner("Pod", "headless", ""))}, "does not name the Service"},
		"another owner is absent":      {offer{write: absent, command: about(events.VerbDelete, pods, "x", "", owner("Service", "other", ""))}, "does not name the Service"},
		"another uid is absent":        {offer{write: absent, command: about(events.VerbDelete, pods, "x", "", owner("Service", "headless", "other"))}, "does not name the Service"},
		"it may have been absent":      {offer{write: absent, turn: newer, command: about(events.VerbDelete, pods, "x", "")}, superseded + "does not name the Service"},
		"it has what it must":          {offer{write: where, own: ending, command: about(events.VerbCreate, pods, "x", "")}, ""},
		"it has not what it must":      {offer{write: where, command: about(events.VerbCreate, pods, "x", "")}, "the key's object has no"},
		"it may have had it":           {offer{write: where, turn: newer, command: about(events.VerbCreate, pods, "x", "")}, superseded + "the key's object has no"},
	} {
		said(t, what, c.verdict(), c.want)
	}
	report := Write{Verb: events.VerbPatch, Kind: kinds.StatefulSets.Name, Subresource: "status", Where: ".metadata.deletionTimestamp"}
	status := about(events.VerbPatch, kinds.StatefulSets.Kind, "web", "{}", func(c *events.Command) { c.Subresource = "status" })
	said(t, "of a report the object is not known", offer{write: report, command: status}.verdict(), "")
}

func TestAPromiseSaysWhoTheControllerIs(t *testing.T) {
	child := func(verb events.Verb) Write { return Write{Verb: verb, Kind: "pods", Child: true} }
	owners := func(of string) string { return `{"metadata":{"ownerReferences":[` + of + `]}}` }
	const right = `{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","uid":"set","controller":true}`
	for what, c := range map[string]struct {
		verb events.Verb
		body string
		turn func(*events.Turn)
		want string
	}{
		"the key's object":         {events.VerbCreate, owners(right), nil, ""},
		"with another owner":       {events.VerbCreate, owners(`{"kind":"Node","name":"n","uid":"n"},` + right), nil, ""},
		"none":                     {events.VerbCreate, `{}`, nil, "does not name the key's object as the controller"},
		"an owner only":            {events.VerbCreate, owners(strings.Replace(right, "true", "false", 1)), nil, "does not name the key's object as the controller"},
		"none in an update":        {events.VerbUpdate, `{}`, nil, "does not name the key's object as the controller"},
		"none in a patch":          {events.VerbPatch, `{}`, nil, ""},
		"another in a patch":       {events.VerbPatch, owners(strings.Replace(right, "web", "x", 1)), nil, "names the controller"},
		"another that is ended":    {events.VerbPatch, owners(strings.Replace(right, `"name":"web"`, `"$patch":"delete","name":"x"`, 1)), nil, ""},
		"another kind":             {events.VerbCreate, owners(strings.Replace(right, "StatefulSet", "Job", 1)), nil, "names the controller"},
		"another group":            {events.VerbCreate, owners(strings.Replace(right, "apps/v1", "v1", 1)), nil, "names the controller"},
		"another name":             {events.VerbCreate, owners(strings.Replace(right, "web", "x", 1)), nil, "names the controller"},
		"another uid":              {events.VerbCreate, owners(strings.Replace(right, `"set"`, `"old"`, 1)), nil, "names the controller"},
		"one beside the right one": {events.VerbCreate, owners(right + "," + strings.Replace(right, "web", "x", 1)), nil, "names the controller"},
		"of a turn that saw none":  {events.VerbCreate, owners(strings.Replace(right, `"set"`, `""`, 1)), func(turn *events.Turn) { turn.UID = "" }, "names the controller"},
		"of the key's own kind": {
			events.VerbCreate, owners(strings.Replace(strings.Replace(right, "StatefulSet", "Job", 1), "apps/v1", "batch/v1", 1)),
			func(turn *events.Turn) { turn.Key.Kind = kinds.Jobs.Name }, "",
		},
		"no object": {events.VerbCreate, `[]`, nil, "the body is no object"},
	} {
		said(t, what, offer{write: child(c.verb), turn: c.turn, command: about(c.verb, kinds.Pods.Kind, "web-0", c.body)}.verdict(), c.want)
	}
	ofNone := Controller[struct{}]{Name: "c", Writes: Writes{child(events.VerbCreate)}}.Describe()
	turn := events.Turn{Controller: "c", Key: events.Key{Namespace: "ns", Name: "web"}, UID: "set"}
	said(t, "keys that are no objects", ofNone.Fits(turn, nil, nil)(about(events.VerbCreate, kinds.Pods.Kind, "web-0", owners(right))), "names the controller")
}

func TestAPromiseSaysWhatABodyHolds(t *testing.T) {
	fields := func(paths ...string) Write { return Write{Fields: paths} }
	image := Write{Fields: []string{".spec"}, Values: []Value{{".spec.containers[*].image", []string{"a", "b"}}}}
	phase := Write{Values: []Value{{".status.phase", []string{"Failed"}}}}
	removes := Write{Removes: true}
	for what, c := range map[string]struct {
		write Write
		verb  events.Verb
		body  string
		want  string
	}{
		"nothing is said of it":        {Write{}, events.VerbCreate, `[]`, ""},
		"its name":                     {fields(), events.VerbCreate, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"ns","uid":"u","resourceVersion":"1"}}`, ""},
		"a field":                      {fields(".spec"), events.VerbCreate, `{"spec":{"a":{"b":1}}}`, ""},
		"another field":                {fields(".spec"), events.VerbCreate, `{"status":{"a":1}}`, "the body holds .status"},
		"a field in another":           {fields(".spec.a"), events.VerbCreate, `{"spec":{"a":1}}`, ""},
		"another one there":            {fields(".spec.a"), events.VerbCreate, `{"spec":{"a":1,"b":1}}`, "the body holds .spec.b"},
		"all of what holds it":         {fields(".spec.a"), events.VerbCreate, `{"spec":[1]}`, "the body holds .spec"},
		"what is empty in an object":   {fields(".spec.a"), events.VerbCreate, `{"status":{},"data":[],"x":null,"y":""}`, ""},
		"what is empty in a patch":     {fields(".spec.a"), events.VerbPatch, `{"status":{}}`, "the body holds .status"},
		"nothing in a patch":           {fields(".spec.a"), events.VerbPatch, `{"status":null}`, "the body holds .status"},
		"false is something":           {fields(".spec.a"), events.VerbCreate, `{"x":false}`, "the body holds .x"},
		"a directive for a field":      {fields(".spec.a"), events.VerbPatch, `{"spec":{"$setElementOrder/a":["x"]}}`, ""},
		"a directive for another":      {fields(".spec.a"), events.VerbPatch, `{"spec":{"$setElementOrder/b":["x"]}}`, "the body holds .spec.b"},
		"a name with a slash":          {fields(".metadata.annotations['a']"), events.VerbPatch, `{"metadata":{"annotations":{"b/a":"x"}}}`, "the body holds"},
		"a directive for all":          {fields(".spec.a"), events.VerbPatch, `{"spec":{"$patch":"replace"}}`, "the body holds"},
		"one of some values":           {image, events.VerbCreate, `{"spec":{"containers":[{"image":"a"},{"image":"b"}]}}`, ""},
		"another in the list":          {image, events.VerbCreate, `{"spec":{"containers":[{"image":"a"},{"image":"c"}]}}`, "the body has c at .spec.containers[*].image"},
		"an element that does not say": {image, events.VerbCreate, `{"spec":{"containers":[{"image":"a"},{}]}}`, "the body has <nil> at"},
		"no list, of another value":    {image, events.VerbCreate, `{"spec":{"containers":{"image":"a"}}}`, "the body has map"},
		"no value at all":              {phase, events.VerbCreate, `{"status":{}}`, ""},
		"the value":                    {phase, events.VerbCreate, `{"status":{"phase":"Failed"}}`, ""},
		"another value":                {phase, events.VerbCreate, `{"status":{"phase":"Running"}}`, "the body has Running at .status.phase"},
		"a value that is no text":      {phase, events.VerbCreate, `{"status":{"phase":1}}`, "the body has 1 at .status.phase"},
		"what holds it is no object":   {phase, events.VerbCreate, `{"status":"so"}`, "the body has so at .status.phase"},
		"it takes elements away":       {removes, events.VerbPatch, `{"metadata":{"uid":"u"},"spec":[{"$patch":"delete","key":"k"}]}`, ""},
		"it adds an element":           {removes, events.VerbPatch, `{"spec":[{"$patch":"delete","key":"k"},{"key":"l"}]}`, "spec holds what is not taken away"},
		"it adds one before":           {removes, events.VerbPatch, `{"spec":[{"key":"l"},{"$patch":"delete","key":"k"}]}`, "spec holds what is not taken away"},
		"it replaces what is no list":  {removes, events.VerbPatch, `{"spec":{"$patch":"delete"}}`, "spec holds what is not taken away"},
		"a name is there twice":        {fields(".spec"), events.VerbCreate, `{"spec":{},"spec":{}}`, "the body is no object"},
		"a value that cannot be read":  {fields(".status"), events.VerbCreate, `{"spec":{"a":1,"a":2}}`, "the body is no object"},
		"a directive in the whole":     {fields(".spec"), events.VerbPatch, `{"$retainKeys/spec":["a"]}`, ""},
	} {
		c.write.Verb, c.write.Kind = c.verb, "pods"
		said(t, what, offer{write: c.write, command: about(c.verb, kinds.Pods.Kind, "x", c.body)}.verdict(), c.want)
	}
}
