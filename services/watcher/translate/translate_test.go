package translate_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/watcher/translate"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestObjectKeepsWhoChangedItAndDropsTheFields(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "u1", ResourceVersion: "7",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update"}},
	}}
	d, err := translate.Object(kinds.Pods.Kind, events.Is, pod, translate.Stamp{At: now, Epoch: 2})
	if err != nil {
		t.Fatal(err)
	}
	if d.By.Name != "kubectl" || d.Epoch != 2 || d.Form != kinds.Full {
		t.Errorf("delta is %+v", d)
	}
	back, err := kinds.Decode(kinds.Pods.Kind, d.ContentType, d.Body)
	if err != nil {
		t.Fatal(err)
	}
	if back.GetName() != "web" || len(back.GetManagedFields()) != 0 {
		t.Errorf("body decodes to %+v", back)
	}
}

func TestSecretsNeverCarryTheirContent(t *testing.T) {
	kind := kinds.Kind{Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: true, Form: kinds.Full}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s", UID: "u", ResourceVersion: "1", Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"p":"` + canary + `"}}`, "kept": "yes",
		}},
		Data: map[string][]byte{"p": []byte(canary)},
	}
	d, err := translate.Object(kind, events.Is, secret, translate.Stamp{At: now})
	if err != nil {
		t.Fatal(err)
	}
	if d.Form != kinds.Metadata || strings.Contains(string(d.Body), canary) || !strings.Contains(string(d.Body), "kept") {
		t.Errorf("form %s, body %q", d.Form, d.Body)
	}
}

// applied is an object as kubectl leaves it, whose copy has what only the object should.
func applied(content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetNamespace("a")
	u.SetName("web")
	u.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: `{"password":"` + canary + `"}`, "kept": "yes"})
	return u
}

const canary = "hunter2-canary"

// TestCopiesAreToldOnlyWhereTheyAreWrittenBack: metadata never has a copy of the object,
// whatever is said of its kind; an object in full has it where its kind keeps it.
func TestCopiesAreToldOnlyWhereTheyAreWrittenBack(t *testing.T) {
	custom := kinds.Kind{Name: "databases.example.com", Version: "v1", Kind: "Database", Form: kinds.Metadata}
	keep := redact.Policy{Copies: map[kinds.Name][]string{custom.Name: nil, "pods": nil, "configmaps": {"web"}}}
	config := kinds.ConfigMaps.Kind
	for name, c := range map[string]struct {
		kind kinds.Kind
		obj  runtime.Object
		size translate.Size
		hide redact.Policy
		told bool
	}{
		"a custom resource":                   {custom, applied(map[string]any{"spec": map[string]any{"password": canary}}), translate.Whole, keep, false},
		"metadata as the API server gives it": {custom, &metav1.PartialObjectMetadata{ObjectMeta: meta()}, translate.Whole, keep, false},
		"a pod":                               {kinds.Pods.Kind, &corev1.Pod{ObjectMeta: meta()}, translate.Whole, redact.Policy{}, false},
		"a pod that is written back":          {kinds.Pods.Kind, &corev1.Pod{ObjectMeta: meta()}, translate.Whole, keep, true},
		"one that is too large":               {kinds.Pods.Kind, &corev1.Pod{ObjectMeta: meta()}, translate.Brief, keep, false},
		"an object that is written back":      {config, &corev1.ConfigMap{ObjectMeta: meta()}, translate.Whole, keep, true},
		"another of the kind":                 {config, &corev1.ConfigMap{ObjectMeta: meta()}, translate.Whole, redact.Policy{Copies: map[kinds.Name][]string{"configmaps": {"other"}}}, false},
	} {
		before, err := translate.Object(c.kind, events.Is, c.obj.DeepCopyObject(), translate.Stamp{At: now, Size: c.size, Hide: redact.Policy{Copies: map[kinds.Name][]string{c.kind.Name: nil}}})
		if err != nil {
			t.Fatal(err)
		}
		d, err := translate.Object(c.kind, events.Is, c.obj, translate.Stamp{At: now, Size: c.size, Hide: c.hide})
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(d.Body, []byte(canary)) != c.told || !bytes.Contains(d.Body, []byte("kept")) {
			t.Errorf("%s: the body is %q, want the value in it: %t", name, d.Body, c.told)
		}
		if again := translate.Hidden(c.kind, before, c.hide); !bytes.Equal(again.Body, d.Body) || again.Form != d.Form {
			t.Errorf("%s: said again it is %s %q, want %s %q", name, again.Form, again.Body, d.Form, d.Body)
		}
	}
}

// TestWhatCannotBeReadIsSaidByItsName: of a stored object that cannot be read it is
// unknown what is to be hidden; so all of it is.
func TestWhatCannotBeReadIsSaidByItsName(t *testing.T) {
	custom := kinds.Kind{Name: "databases.example.com", Version: "v1", Kind: "Database", Form: kinds.Full}
	rule := func(text string) redact.Policy {
		r, err := redact.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return redact.Policy{Rules: redact.Rules{r}}
	}
	copied := `{"metadata":{"annotations":{"` + corev1.LastAppliedConfigAnnotation + `":"` + canary
	for name, c := range map[string]struct {
		kind        kinds.Kind
		form        kinds.Form
		contentType string
		body        string
		hide        redact.Policy
	}{
		"a Secret":                        {kinds.Secrets.Kind, kinds.Metadata, kinds.Protobuf, "\xff" + canary, redact.Policy{}},
		"a Secret in another type":        {kinds.Secrets.Kind, kinds.Metadata, "text/plain", canary, redact.Policy{}},
		"a pod under a rule":              {kinds.Pods.Kind, kinds.Full, kinds.Protobuf, "k8s\x00" + canary, rule("pods:.spec.containers[*].env")},
		"metadata under a rule":           {kinds.Pods.Kind, kinds.Metadata, kinds.JSON, `{"metadata":"` + canary, rule("pods:.metadata.annotations[*]")},
		"a custom resource under a rule":  {custom, kinds.Full, kinds.JSON, `{"spec":{"password":"` + canary, rule("databases.example.com:.spec.password")},
		"what has a copy, without a rule": {kinds.Pods.Kind, kinds.Full, kinds.JSON, copied, redact.Policy{}},
	} {
		stored := events.Delta{
			Op: events.Is, Kind: c.kind.Name, Ref: events.Ref{Kind: c.kind.Name, Namespace: "a", Name: "web"}, UID: "u", ResourceVersion: "7", Generation: 3,
			Form: c.form, ContentType: c.contentType, Body: []byte(c.body),
		}
		d := translate.Hidden(c.kind, stored, c.hide)
		if bytes.Contains(d.Body, []byte(canary)) || d.Form != kinds.Metadata || d.Ref != stored.Ref || d.UID != "u" {
			t.Errorf("%s: the hidden delta is %+v, %q; want metadata without the value", name, d, d.Body)
			continue
		}
		kind := c.kind
		kind.Form = d.Form
		m, err := kinds.Decode(kind, d.ContentType, d.Body)
		if err != nil || m.GetNamespace() != "a" || m.GetName() != "web" || m.GetUID() != "u" || m.GetResourceVersion() != "7" || m.GetGeneration() != 3 {
			t.Errorf("%s: what is told is %+v, %v", name, m, err)
		}
	}
}

// TestWhatHasNoRuleIsSaidAsItWas, whether it can be read or not; and where a rule hides a part
// of the metadata that was stored, the rest is said.
func TestWhatHasNoRuleIsSaidAsItWas(t *testing.T) {
	stored := events.Delta{
		Op: events.Is, Kind: "pods", Ref: events.Ref{Kind: "pods", Namespace: "a", Name: "web"}, Form: kinds.Full, ContentType: kinds.Protobuf, Body: []byte("damaged"),
	}
	if d := translate.Hidden(kinds.Pods.Kind, stored, redact.Policy{}); string(d.Body) != "damaged" || d.Form != kinds.Full {
		t.Errorf("a body that cannot be read is recorded as %q, want unchanged", d.Body)
	}
	r, err := redact.Parse("pods:.metadata.annotations[*]")
	if err != nil {
		t.Fatal(err)
	}
	brief := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": canary}}}
	if stored.Body, err = kinds.Encode(kinds.Pods.Kind, brief); err != nil {
		t.Fatal(err)
	}
	stored.Form = kinds.Metadata
	d := translate.Hidden(kinds.Pods.Kind, stored, redact.Policy{Rules: redact.Rules{r}})
	kind := kinds.Pods.Kind
	kind.Form = d.Form
	m, err := kinds.Decode(kind, d.ContentType, d.Body)
	if err != nil || m.GetLabels()["app"] != "web" || m.GetAnnotations()["a"] == canary {
		t.Errorf("the object is recorded as %+v, %v", m, err)
	}
	custom := kinds.Kind{Name: "databases.example.com", Version: "v1", Kind: "Database", Form: kinds.Full}
	if r, err = redact.Parse("databases.example.com:.spec.password"); err != nil {
		t.Fatal(err)
	}
	stored = events.Delta{
		Op: events.Is, Kind: custom.Name, Ref: events.Ref{Kind: custom.Name, Namespace: "a", Name: "web"}, Form: kinds.Full, ContentType: kinds.JSON,
		Body: []byte(`{"metadata":{"name":"web"},"spec":{"password":"` + canary + `","size":3}}`),
	}
	if d = translate.Hidden(custom, stored, redact.Policy{Rules: redact.Rules{r}}); d.Form != kinds.Full || !bytes.Contains(d.Body, []byte(`"size":3`)) || bytes.Contains(d.Body, []byte(canary)) {
		t.Errorf("a custom resource is said as %s %s", d.Form, d.Body)
	}
}

// TestWhatIsAboutNoObjectIsSaidAsItIs, whatever is hidden of its kind.
func TestWhatIsAboutNoObjectIsSaidAsItIs(t *testing.T) {
	r, err := redact.Parse("pods:.spec.nodeName")
	if err != nil {
		t.Fatal(err)
	}
	pods := redact.Policy{Rules: redact.Rules{r}}
	for what, c := range map[string]struct {
		kind kinds.Kind
		d    events.Delta
		hide redact.Policy
	}{
		"a mark":            {kinds.Pods.Kind, translate.Mark("pods", "7", translate.Stamp{}), pods},
		"a gap":             {kinds.Pods.Kind, translate.Gap("pods", "7", translate.Stamp{}), pods},
		"a mark of Secrets": {kinds.Secrets.Kind, translate.Mark("secrets", "7", translate.Stamp{}), redact.Policy{}},
	} {
		if d := translate.Hidden(c.kind, c.d, c.hide); !reflect.DeepEqual(d, c.d) {
			t.Errorf("%s is said as %+v, %q", what, d, d.Body)
		}
	}
}

// TestBareIsWhatNamesAndDates: of the largest objects that is told by which they are known,
// and whether they are on their way out.
func TestBareIsWhatNamesAndDates(t *testing.T) {
	created, deleted := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now)
	for name, end := range map[string]*metav1.Time{"one that stays": nil, "one that is being deleted": &deleted} {
		pod := &corev1.Pod{ObjectMeta: meta(), Spec: corev1.PodSpec{NodeName: canary}}
		pod.UID, pod.ResourceVersion, pod.Generation, pod.CreationTimestamp, pod.DeletionTimestamp = "u", "7", 3, created, end
		want := metav1.ObjectMeta{
			Namespace: "a", Name: "web", UID: "u", ResourceVersion: "7", Generation: 3, CreationTimestamp: created, DeletionTimestamp: end,
		}
		d, err := translate.Object(kinds.Pods.Kind, events.Is, pod, translate.Stamp{At: now, Size: translate.Bare})
		if err != nil {
			t.Fatal(err)
		}
		kind := kinds.Pods.Kind
		kind.Form = d.Form
		got, err := kinds.Decode(kind, d.ContentType, d.Body)
		if err != nil {
			t.Fatal(err)
		}
		if p := got.(*metav1.PartialObjectMetadata); !equality.Semantic.DeepEqual(p.ObjectMeta, want) || d.Deleting != (end != nil) {
			t.Errorf("%s is told as %+v, deleting %t", name, p.ObjectMeta, d.Deleting)
		}
	}
}

func meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "a", Name: "web", Annotations: applied(map[string]any{}).GetAnnotations()}
}

func TestResumeOnlyWhereAPositionIsComplete(t *testing.T) {
	for _, c := range []struct {
		name string
		last events.Delta
		want bool
	}{
		{"a change", events.Delta{Op: events.Is, ResourceVersion: "5"}, true},
		{"an end", events.Delta{Op: events.Gone, ResourceVersion: "5"}, true},
		{"a mark", events.Delta{Op: events.Mark, ResourceVersion: "5"}, true},
		{"a finding of a relist", events.Delta{Op: events.Is, ResourceVersion: "5", Sync: true}, false},
		{"a gap", events.Delta{Op: events.Gap, ResourceVersion: "5"}, false},
	} {
		if _, got := translate.Resume(c.last); got != c.want {
			t.Errorf("%s: resume is %t, want %t", c.name, got, c.want)
		}
	}
}

// thing is an object of a toy cluster.
type thing struct {
	uid     types.UID
	version int
}

// cluster is a toy cluster, its past, and what a watcher told of it.
type cluster struct {
	t       *rapid.T
	world   map[string]thing
	clock   int
	creates int
	past    []backup
	log     []events.Delta
}

type backup struct {
	clock int
	world map[string]thing
}

func (c *cluster) say(d events.Delta) { c.log = append(c.log, d) }

func (c *cluster) bury(sequence uint64, epoch uint64) {
	c.say(translate.Tombstone(c.log[sequence-1], translate.Stamp{At: now, Epoch: epoch}))
}

// change makes or changes an object, or ends it.
func (c *cluster) change(name string, end bool) {
	c.past = append(c.past, backup{c.clock, maps.Clone(c.world)})
	c.clock++
	o, there := c.world[name]
	if end {
		delete(c.world, name)
		return
	}
	if !there {
		c.creates++
		o.uid = types.UID(fmt.Sprint("u", c.creates))
	}
	o.version = c.clock
	c.world[name] = o
}

// relist reads everything while the world may change under it, as a streamed
// list does. It begins anew when an object shows that the history is another.
func (c *cluster) relist(epoch uint64, changes int) *translate.Relist {
	state := translate.NewState()
	for i, d := range c.log {
		state.Fold(d, uint64(i+1))
	}
	r := state.Compare(fmt.Sprint(c.clock), epoch)
	for _, name := range slices.Sorted(maps.Keys(c.world)) {
		if !c.find(r, name) {
			return c.relist(r.Epoch()+1, changes)
		}
	}
	for range changes {
		name := rapid.SampledFrom(names).Draw(c.t, "changed meanwhile")
		before, there := c.world[name]
		c.change(name, rapid.Bool().Draw(c.t, "ended meanwhile"))
		if _, still := c.world[name]; still {
			c.find(r, name)
		} else if there && r.Lose(events.Ref{Kind: "pods", Name: name}, before.uid) {
			c.say(c.delta(events.Gone, name, thing{before.uid, c.clock}, r))
		}
	}
	for _, sequence := range r.Missing() {
		c.bury(sequence, r.Epoch())
	}
	c.say(translate.Mark("pods", fmt.Sprint(c.clock), translate.Stamp{At: now, Epoch: r.Epoch()}))
	return r
}

func (c *cluster) delta(op events.Op, name string, o thing, r *translate.Relist) events.Delta {
	return events.Delta{
		Op: op, Ref: events.Ref{Kind: "pods", Name: name}, UID: o.uid, ResourceVersion: fmt.Sprint(o.version), Epoch: r.Epoch(), Sync: true,
	}
}

// find is false when the object shows that the history is another one.
func (c *cluster) find(r *translate.Relist, name string) bool {
	o := c.world[name]
	f := r.See(events.Ref{Kind: "pods", Name: name}, o.uid, fmt.Sprint(o.version))
	if f.Rewound {
		return false
	}
	if f.Replaced != 0 {
		c.bury(f.Replaced, r.Epoch())
	}
	if f.Changed {
		c.say(c.delta(events.Is, name, o, r))
	}
	return true
}

// restore takes the cluster back to a backup, and lets time pass without us.
func (c *cluster) restore() {
	if len(c.past) == 0 {
		return
	}
	b := rapid.SampledFrom(c.past).Draw(c.t, "backup")
	c.clock, c.world = b.clock, maps.Clone(b.world)
	c.past = slices.DeleteFunc(c.past, func(p backup) bool { return p.clock > b.clock })
	c.clock += rapid.IntRange(0, 30).Draw(c.t, "other changes since")
}

var names = []string{"a", "b", "c"}

// TestRelistsLoseNothing: whatever a watcher missed, the deltas of its relist
// fold to what is there; an object that was replaced ends before it begins;
// and a relist of what is known already says nothing.
func TestRelistsLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{t: t, world: map[string]thing{}, clock: 1}
		epoch, highest, restored := uint64(0), 0, false
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch name := rapid.SampledFrom(names).Draw(t, "name"); rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				c.change(name, false)
			case 2:
				c.change(name, true)
			case 3:
				c.restore()
				restored = true
			default:
				back := c.clock < highest
				got := c.relist(0, rapid.IntRange(0, 3).Draw(t, "changes meanwhile")).Epoch()
				if got == epoch && back || got != epoch && !restored {
					t.Fatalf("epoch %d after %d, at %d after %d", got, epoch, c.clock, highest)
				}
				epoch, highest, restored = got, c.clock, false
			}
		}
		c.relist(0, 0)
		said := len(c.log)
		c.relist(0, 0)
		if len(c.log) != said+1 {
			t.Fatalf("a relist of what is known said %d deltas beside its mark", len(c.log)-said-1)
		}
		check(t, c.log, c.world)
	})
}

func check(t *rapid.T, log []events.Delta, world map[string]thing) {
	live, told := map[string]events.Delta{}, map[events.Ref]map[string]bool{}
	for _, d := range log {
		before, there := live[d.Ref.Name]
		switch d.Op {
		case events.Is:
			if there && before.UID != d.UID {
				t.Fatalf("%v began before the other one ended", d.Ref)
			}
			id := fmt.Sprint(d.ID(), d.Epoch)
			if told[d.Ref][id] {
				t.Fatalf("%s was said twice", id)
			}
			if told[d.Ref] == nil {
				told[d.Ref] = map[string]bool{}
			}
			told[d.Ref][id], live[d.Ref.Name] = true, d
		case events.Gone:
			if !there || before.UID != d.UID {
				t.Fatalf("%v ended without being there", d.Ref)
			}
			delete(live, d.Ref.Name)
			if d.Sync {
				// The version of an end that a relist found is not known, so a
				// backup may bring the time before it back unnoticed.
				delete(told, d.Ref)
			}
		case events.Mark, events.Gap:
		}
	}
	if len(live) != len(world) {
		t.Fatalf("folded %v, want %v", live, world)
	}
	for name, o := range world {
		if d := live[name]; d.UID != o.uid || d.ResourceVersion != fmt.Sprint(o.version) {
			t.Fatalf("%s folds to %s at %s, want %v", name, d.UID, d.ResourceVersion, o)
		}
	}
}
