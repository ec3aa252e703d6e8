package reconcile

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/pkg/events/redact"
)

func TestADescriptionHasTheNameWhereNothingElseIsSaid(t *testing.T) {
	d := Controller[struct{}]{Name: "c"}.Describe()
	if d.Name != "c" || d.Identity != "c" || d.Source != "c" || d.Queue != "c" {
		t.Errorf("a controller with a name only is %+v", d)
	}
	d = Controller[struct{}]{Name: "c", Identity: "i", Source: "s", Queue: "q"}.Describe()
	if d.Name != "c" || d.Identity != "i" || d.Source != "s" || d.Queue != "q" {
		t.Errorf("a controller with four names is %+v", d)
	}
}

// world is what a controller sees: the objects that it lists, and one outcome.
type world struct {
	Snapshot
	objects []metav1.Object
	last    events.Outcome
	had     bool
}

func (w world) Get(_ kinds.Name, namespace, name string) (metav1.Object, bool) {
	i := slices.IndexFunc(w.objects, func(o metav1.Object) bool { return o.GetNamespace() == namespace && o.GetName() == name })
	if i < 0 {
		return nil, false
	}
	return w.objects[i], true
}

func (w world) List(kinds.Name, string) []metav1.Object             { return w.objects }
func (w world) ControlledBy(kinds.Name, types.UID) []metav1.Object  { return w.objects }
func (w world) Orphans(kinds.Name, string) []metav1.Object          { return w.objects }
func (w world) Last(events.Key, events.Lane) (events.Outcome, bool) { return w.last, w.had }

func TestObjectsAreSeenAsTheirTypes(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"}}
	w := world{objects: []metav1.Object{pod, node}}
	if p, ok := Get(w, kinds.Pods, "ns", "p"); !ok || p != pod {
		t.Errorf("the pod is %v, %t", p, ok)
	}
	if p, ok := Get(w, kinds.Pods, "ns", "x"); ok || p != nil {
		t.Errorf("Get of a missing pod is %v, %t", p, ok)
	}
	if p, ok := Get(w, kinds.Pods, "ns", "n"); ok || p != nil {
		t.Errorf("Get of another kind's object is %v, %t", p, ok)
	}
	for how, all := range map[string][]*corev1.Pod{
		"list": List(w, kinds.Pods, ""), "children": ControlledBy(w, kinds.Pods, "u"), "orphans": Orphans(w, kinds.Pods, "ns"),
	} {
		if len(all) != 1 || all[0] != pod {
			t.Errorf("%s: the pods are %v, want the one", how, all)
		}
	}
}

func TestAChangeIsTheTurnOfItsObject(t *testing.T) {
	was, now := Object{kinds.Pods.Kind, &metav1.ObjectMeta{Namespace: "was", Name: "w"}}, Object{kinds.Pods.Kind, pod}
	keys := Own(kinds.Pods.Kind).Keys
	for what, c := range map[string]struct {
		was, now Object
		want     events.Key
	}{
		"it is new":  {Object{}, now, events.Key{Namespace: "ns", Name: "p"}},
		"it changed": {was, now, events.Key{Namespace: "ns", Name: "p"}},
		"it is gone": {was, Object{}, events.Key{Namespace: "was", Name: "w"}},
	} {
		if got := keys(nil, c.was, c.now); !slices.Equal(got, []events.Key{c.want}) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
	if ref := now.Ref(); ref != (events.Ref{Kind: "pods", Namespace: "ns", Name: "p"}) || now.None() || !(Object{}).None() {
		t.Errorf("the object is %v, there %t", ref, now.None())
	}
}

func TestWhatCannotBeObservedIsNotDecided(t *testing.T) {
	c := Controller[int]{
		Name:    "c",
		Observe: func(_ Snapshot, k events.Key) (int, bool) { return len(k.Name), k.Name != "" },
		Decide:  func(n int, now time.Time) Decision { return Wake(now.Add(time.Duration(n)), "later") },
	}
	now, key := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), events.Key{Name: "four"}
	if d, ok := c.Ask(nil, key, now); !ok || !d.WakeAt.Equal(now.Add(4)) {
		t.Errorf("asked: %+v, %t", d, ok)
	}
	if d, ok := c.Ask(nil, events.Key{}, now); ok || !reflect.DeepEqual(d, Decision{}) {
		t.Errorf("asked of nothing: %+v, %t", d, ok)
	}
	if view, ok, err := c.View(nil, key); string(view) != "4" || !ok || err != nil {
		t.Errorf("the view is %s, %t, %v", view, ok, err)
	}
	if view, ok, err := c.View(nil, events.Key{}); view != nil || ok || err != nil {
		t.Errorf("the view of nothing is %s, %t, %v", view, ok, err)
	}
	if d, err := c.Judge(json.RawMessage("3"), now); !d.WakeAt.Equal(now.Add(3)) || err != nil {
		t.Errorf("judged: %+v, %v", d, err)
	}
	if d, err := c.Judge(json.RawMessage(`"3"`), now); err == nil || !d.WakeAt.IsZero() {
		t.Errorf("judged what is no view: %+v, %v", d, err)
	}
	if c.Indifferent(nil, key, "a", "b", now) {
		t.Error("a controller that never said so takes one for the other")
	}
	c.AsGood = func(n int, chosen, other types.UID, _ time.Time) bool { return n == 4 && chosen == "a" && other == "b" }
	if !c.Indifferent(nil, key, "a", "b", now) || c.Indifferent(nil, key, "b", "a", now) || c.Indifferent(nil, events.Key{}, "a", "b", now) {
		t.Error("whether one is as good as the other is not as the controller says")
	}
}

func TestAnOutcomeIsOfTheObjectThatIsSeen(t *testing.T) {
	own := &metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}
	for what, c := range map[string]struct {
		uid         types.UID
		version     string
		had         bool
		own         metav1.Object
		of, answers bool
	}{
		"none":                     {"u", "7", false, own, false, false},
		"of the object as it is":   {"u", "7", true, own, true, true},
		"of an earlier version":    {"u", "6", true, own, true, false},
		"of no version":            {"u", "", true, &metav1.ObjectMeta{UID: "u"}, true, false},
		"of an earlier object":     {"v", "7", true, own, false, false},
		"of no object":             {"", "7", true, own, false, false},
		"of no object, nor now":    {"", "7", true, nil, false, false},
		"of an object without uid": {"", "7", true, &metav1.ObjectMeta{ResourceVersion: "7"}, false, false},
	} {
		w := world{had: c.had, last: events.Outcome{UID: c.uid, ResourceVersion: c.version}}
		o, ok := LastOf(w, events.Key{}, events.LaneWrite, c.own)
		if ok != c.of || !ok && !reflect.DeepEqual(o, events.Outcome{}) {
			t.Errorf("%s: the last is %+v, %t", what, o, ok)
		}
		o, ok = Answers(w, events.Key{}, c.own)
		if ok != c.answers || !ok && !reflect.DeepEqual(o, events.Outcome{}) {
			t.Errorf("%s: the answer is %+v, %t", what, o, ok)
		}
		if _, ok := LastOfAny(w, events.Key{}, events.LaneWrite); ok != c.had {
			t.Errorf("%s: the last of any is there %t", what, ok)
		}
	}
}

func TestATimeIsAheadBeyondTenSeconds(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for by, ahead := range map[time.Duration]bool{-time.Hour: false, 0: false, 10 * time.Second: false, 10*time.Second + 1: true} {
		if Ahead(now.Add(by), now) != ahead {
			t.Errorf("%v: %t", by, !ahead)
		}
	}
}

func TestANoteIsReadFromItsResult(t *testing.T) {
	answer := func(note string) events.Result {
		return events.Result{Answer: &events.Answer{Note: json.RawMessage(note)}}
	}
	for what, c := range map[string]struct {
		result events.Result
		want   string
	}{
		"a note":        {answer(`{"name":"x"}`), ""},
		"no answer":     {events.Result{}, "there is none"},
		"no note":       {answer(""), "there is none"},
		"another shape": {answer(`{"name":1}`), "the note cannot be read: json"},
	} {
		var note struct{ Name string }
		said(t, what, ReadNote(c.result, &note), c.want)
		if got := note.Name; (got == "x") != (c.want == "") {
			t.Errorf("%s: the name is %q", what, got)
		}
	}
}

func TestAnAnswerThatCannotBeReadWaitsHalfAMinute(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	unread := &Unread{Because: "it is no object", At: now}
	if d := unread.Ask(now.Add(30*time.Second-1), "x"); !d.WakeAt.Equal(now.Add(30 * time.Second)) {
		t.Errorf("before: %+v", d)
	}
	if d := unread.Ask(now.Add(30*time.Second), "x"); !d.WakeAt.IsZero() {
		t.Errorf("then: %+v", d)
	}
}

func TestQuestionsSayWhatTheyAreAbout(t *testing.T) {
	obj := &metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7"}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs"}
	seen, there := &events.If{UID: "u", ResourceVersion: "7"}, &events.If{UID: "u"}
	merge := types.MergePatchType
	for what, c := range map[string]struct{ got, want events.Command }{
		"a subresource of an owner": {AskOf("ns", owner, "scale", "n"), events.Command{
			Verb: events.VerbAsk, Namespace: "ns", Name: "web", Of: &owner, Subresource: "scale", Note: json.RawMessage(`"n"`),
		}},
		"an object": {AskFor(kinds.Pods.Kind, "ns", "p"), events.Command{Verb: events.VerbAsk, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p"}},
		"contents": {AskContents(obj, query.ContentsQuestion{}), events.Command{
			Verb: events.VerbAsk, Kind: "namespaces", Version: "v1", Name: "p", Subresource: query.SubContents, Body: Body(query.ContentsQuestion{}), If: there,
		}},
		"users": {AskUsers(obj), events.Command{
			Verb: events.VerbAsk, Kind: "persistentvolumeclaims", Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubUsers, If: there,
		}},
		"expiry": {AskExpiry(obj), events.Command{
			Verb: events.VerbAsk, Kind: "secrets", Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubExpiry, If: seen,
		}},
		"objects": {AskObjects(kinds.Pods.Kind, obj, query.ObjectsQuestion{}), events.Command{
			Verb: events.VerbAsk, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubObjects,
			Body: Body(query.ObjectsQuestion{}), Note: Body(query.ObjectsQuestion{}), If: there,
		}},
		"types": {AskTypes(obj), events.Command{
			Verb: events.VerbAsk, Kind: kinds.ValidatingAdmissionPolicies.Name, Version: "v1", Name: "p", Subresource: query.SubTypes, Body: Body(obj), If: there,
		}},
		"a token": {FillToken(obj, "a", "au"), events.Command{
			Verb: events.VerbPatch, Kind: "secrets", Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubToken, PatchType: merge, If: seen,
			Body: json.RawMessage(`{"metadata":{"annotations":{"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"au"}}}`),
		}},
		"signatures": {SignClusterInfo(obj), events.Command{
			Verb: events.VerbPatch, Kind: "configmaps", Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubSignatures, PatchType: merge, If: seen, Body: json.RawMessage(`{}`),
		}},
		"a proof": {ProveToken(obj, Noting("n")), events.Command{
			Verb: events.VerbPatch, Kind: "secrets", Version: "v1", Namespace: "ns", Name: "p", PatchType: merge, If: seen,
			Body: json.RawMessage(`{"type":"kubernetes.io/service-account-token"}`), Note: json.RawMessage(`"n"`),
		}},
		"a certificate": {Certify(obj, "s"), events.Command{
			Verb: events.VerbPatch, Kind: kinds.CertificateSigningRequests.Name, Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubCertificate,
			PatchType: merge, If: seen, Body: json.RawMessage(`{"spec":{"signerName":"s"}}`),
		}},
		"an approval": {UpdateApproval(kinds.Pods.Kind, obj), events.Command{
			Verb: events.VerbUpdate, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubApproval, Body: Body(obj), If: seen,
		}},
		"a delete that orphans": {Delete(kinds.Pods.Kind, obj, Propagate(metav1.DeletePropagationOrphan)), events.Command{
			Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", If: there, Propagation: "Orphan",
		}},
		"a create that is told": {Create(kinds.Pods.Kind, "ns", "p", json.RawMessage(`{}`), WithEvents(notice(), nil), IfUnused()), events.Command{
			Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", Body: json.RawMessage(`{}`), OnApplied: notice(), If: &events.If{Unused: true},
		}},
		"an Event": {Record(*notice()), events.Command{Verb: events.VerbRecord, OnApplied: notice()}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %s, want %s", what, Body(c.got), Body(c.want))
		}
	}
	if ref := About(kinds.Pods.Kind, obj); ref != (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7"}) {
		t.Errorf("an Event is about %+v", ref)
	}
}

func TestFiguresGoWithWhatTheyAreAbout(t *testing.T) {
	write, status := Delete(kinds.Pods.Kind, pod), UpdateStatus(kinds.Nodes.Kind, &metav1.ObjectMeta{Name: "n"})
	free, ofWrite, ofStatus, ofNone := Count("free", 1), Count("write", 1), Count("status", 1), Count("none", 1)
	ofWrite.Of, ofStatus.Of, ofNone.Of = write.Ref(), status.Ref(), events.Ref{Kind: "pods", Name: "x"}
	figures := []Figure{free, ofWrite, ofStatus, ofNone}
	names := func(d Decision) (all []string) {
		for _, f := range d.Figures {
			all = append(all, f.Metric)
		}
		return all
	}
	for what, c := range map[string]struct {
		commands        []events.Command
		writes, reports []string
	}{
		"both":          {[]events.Command{write, status}, []string{"free", "write"}, []string{"status"}},
		"a write only":  {[]events.Command{write}, []string{"free", "write"}, nil},
		"a report only": {[]events.Command{status}, nil, []string{"free", "status"}},
		"no command":    {nil, nil, []string{"free"}},
	} {
		d := Do("because", c.commands...)
		d.Figures = figures
		if writes, reports := names(d.In(events.LaneWrite)), names(d.In(events.LaneStatus)); !slices.Equal(writes, c.writes) || !slices.Equal(reports, c.reports) {
			t.Errorf("%s: %v go with the write, %v with the report", what, writes, reports)
		}
	}
	if joined := names(Join(Decision{Figures: figures[:2]}, Decision{Figures: figures[2:]})); len(joined) != 4 {
		t.Errorf("joined: %v", joined)
	}
}

func TestJoinedDecisionsAreAsTheirParts(t *testing.T) {
	write, status := Do("write", Delete(kinds.Pods.Kind, pod)), Do("status", UpdateStatus(kinds.Pods.Kind, pod))
	blind := write
	blind.StatusBlind = true
	if !Join(blind, status).StatusBlind || Join(blind, write).StatusBlind || Join(write, status).StatusBlind {
		t.Error("a decision is blind to the status if all parts that act are, and else not")
	}
	sure := status
	sure.Sure = true
	if !Join(status, sure).Sure || Join(status, write).Sure {
		t.Error("a decision is sure if one of its parts is, and else not")
	}
	for n := range 4 {
		parts := slices.Repeat([]Decision{write}, n)
		if d := Join(parts...); d.Retry || d.Sure || d.ReportFirst || d.StatusBlind == (n > 0) || !d.Passing {
			t.Errorf("%d parts that only write are joined to %+v", n, d)
		}
		all := write
		all.Retry, all.Sure, all.ReportFirst, all.StatusBlind = true, true, true, true
		if d := Join(append(parts, all)...); !d.Retry || !d.Sure || !d.ReportFirst || d.StatusBlind != (n == 0) {
			t.Errorf("%d parts and one that wants more are joined to %+v", n, d)
		}
		if d := Join(append([]Decision{all}, parts...)...); !d.Retry || !d.Sure || !d.ReportFirst || d.StatusBlind != (n == 0) {
			t.Errorf("one part that wants more and %d others are joined to %+v", n, d)
		}
	}
	if LatestWake.YearDay() != 1 || LatestWake.Hour()+LatestWake.Minute()+LatestWake.Second()+LatestWake.Nanosecond() != 0 {
		t.Errorf("the latest wake is at %v, not when a year begins", LatestWake)
	}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	again := Decision{Because: "again", Retry: true}
	for want, parts := range map[string][]Decision{
		"write; status": {Nothing("idle"), write, status},
		"later; write":  {Wake(at, "later"), Nothing("idle"), write, {}},
		"again":         {Nothing("idle"), again},
		"first":         {{}, Nothing("first"), Nothing("second")},
		"":              {{}, {}},
		"write":         {write, {WakeAt: at}},
	} {
		if got := Join(parts...).Because; got != want {
			t.Errorf("because %q, want %q", got, want)
		}
	}
	if d := Join(write, status); !d.WakeAt.IsZero() || len(d.In(events.LaneWrite).Commands) != 1 || d.In(events.LaneWrite).Commands[0].Verb != events.VerbDelete {
		t.Errorf("joined: %+v", d)
	}
}

func TestWhoseAnnotationsAreRead(t *testing.T) {
	own := Description{Inputs: []Input{Own(kinds.Pods.Kind)}}
	writes := func(w ...Write) Description { return Description{Inputs: own.Inputs, Writes: w} }
	update := func(kind kinds.Name, subresource string) Write {
		return Write{Verb: events.VerbUpdate, Kind: kind, Subresource: subresource}
	}
	also := own
	also.Inputs = []Input{{Kind: kinds.Pods.Kind, Also: []redact.Path{redact.MustParsePath(".spec.containers[*].env[*].name")}}}
	named := Description{Inputs: []Input{{Kind: kinds.Nodes.Kind}, {Kind: kinds.Pods.Kind, Named: []string{"a", "b"}}}}
	for what, c := range map[string]struct {
		d     Description
		path  string
		reads bool
		only  []string
	}{
		"of Kubernetes":                 {own, ".metadata.annotations['kubernetes.io/x']", true, nil},
		"of a part of Kubernetes":       {own, ".metadata.annotations['apps.kubernetes.io/x']", true, nil},
		"of another domain":             {own, ".metadata.annotations['example.com/x']", false, nil},
		"of one that ends so":           {own, ".metadata.annotations['notkubernetes.io/x']", false, nil},
		"of no domain":                  {own, ".metadata.annotations['x']", true, nil},
		"all of them":                   {own, ".metadata.annotations", true, nil},
		"each of them":                  {own, ".metadata.annotations[*]", true, nil},
		"a part of a label":             {own, ".metadata.labels['example.com/x']", true, nil},
		"a status with annotations":     {writes(update("pods", "status")), ".metadata.annotations['example.com/x']", true, nil},
		"the status of another kind":    {writes(update("nodes", "status")), ".metadata.annotations['example.com/x']", false, nil},
		"a status of any kind":          {writes(Write{Verb: events.VerbUpdate, Any: true, Subresource: "status"}), ".metadata.annotations['example.com/x']", false, nil},
		"an update of another kind":     {writes(update("nodes", "")), ".spec.containers[*].args", false, nil},
		"a patch":                       {writes(Write{Verb: events.VerbPatch, Kind: "pods"}), ".spec.containers[*].args", false, nil},
		"an update":                     {writes(update("nodes", ""), update("pods", "")), ".spec.containers[*].args", true, nil},
		"arguments of one container":    {own, ".spec.initContainers[*].command[*]", false, nil},
		"an image":                      {own, ".spec.containers[*].image", true, nil},
		"what is read also":             {also, ".spec.containers[*].env[*].name", true, nil},
		"what holds that":               {also, ".spec.containers[*].env", true, nil},
		"what is beside that":           {also, ".spec.containers[*].env[*].value", false, nil},
		"of some names":                 {named, ".spec.containers[*].args", true, []string{"a", "b"}},
		"of a kind that is not read":    {Description{Inputs: []Input{{Kind: kinds.Nodes.Kind}}}, ".spec", false, nil},
		"of a kind that is read second": {Description{Inputs: []Input{{Kind: kinds.Pods.Kind, Bare: true}, Own(kinds.Pods.Kind)}}, ".spec", true, nil},
	} {
		reads, only := c.d.Reads("pods", redact.MustParsePath(c.path))
		if reads != c.reads || !slices.Equal(only, c.only) {
			t.Errorf("%s: read %t, only %v", what, reads, only)
		}
	}
	every := Description{Inputs: []Input{{Kind: kinds.Pods.Kind, Every: true, Named: []string{"x"}}, {Kind: kinds.Pods.Kind, Named: []string{"a"}}}}
	if got := every.Named("pods"); !slices.Equal(got, []string{"a"}) || every.Named("nodes") != nil {
		t.Errorf("the names are %v, and %v of another kind", got, every.Named("nodes"))
	}
}
