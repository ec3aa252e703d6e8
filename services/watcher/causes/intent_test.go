package causes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// TestWhatWantsNothingNew: statuses, bindings, and the end of what was deleted.
func TestWhatWantsNothingNew(t *testing.T) {
	t.Parallel()
	before := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 1, Labels: map[string]string{"a": "1", "b": "2"}, Annotations: map[string]string{"c": "3"}}}
	}
	now := metav1.Now()
	kubelet, writer := events.Manager{Name: "kubelet", Subresource: "status"}, events.Manager{Name: events.FieldManager, Subresource: "status"}
	for name, c := range map[string]struct {
		kind   kinds.Name
		op     events.Op
		by     events.Manager
		beside []events.Manager
		proven bool
		from   func(*corev1.Pod)
		to     func(*corev1.Pod)
		want   bool
	}{
		"a status":                                 {by: kubelet, want: true},
		"of a kind without generations":            {by: kubelet, from: func(p *corev1.Pod) { p.Generation = 0 }, to: func(p *corev1.Pod) { p.Generation = 0 }, want: true},
		"who knows what of such a kind":            {by: events.Manager{Name: "kubectl"}, from: func(p *corev1.Pod) { p.Generation = 0 }, to: func(p *corev1.Pod) { p.Generation = 0 }},
		"a status in the second of the create":     {by: events.Manager{Name: events.FieldManager}, beside: []events.Manager{kubelet}, want: true},
		"a heartbeat":                              {kind: "nodes", by: kubelet},
		"a lease":                                  {kind: "leases.coordination.k8s.io", by: kubelet},
		"a status of ours that was not told of":    {by: writer},
		"one in the same second as another":        {by: kubelet, beside: []events.Manager{writer}},
		"one that is proven to be of the other":    {by: kubelet, beside: []events.Manager{writer}, proven: true, want: true},
		"one that is proven to be ours":            {by: writer, beside: []events.Manager{kubelet}, proven: true},
		"a binding":                                {to: func(p *corev1.Pod) { p.Spec.NodeName = "n" }, want: true},
		"a binding that brings labels of the node": {to: func(p *corev1.Pod) { p.Spec.NodeName, p.Labels["zone"] = "n", "z" }, want: true},
		"a new generation":                         {by: kubelet, to: func(p *corev1.Pod) { p.Generation = 2 }},
		"a label":                                  {by: kubelet, to: func(p *corev1.Pod) { p.Labels["a"] = "2" }},
		"labels that change places":                {by: kubelet, to: func(p *corev1.Pod) { p.Labels = map[string]string{"a": "2", "b": "1"} }},
		"an annotation":                            {by: kubelet, to: func(p *corev1.Pod) { p.Annotations = nil }},
		"a finalizer":                              {by: kubelet, to: func(p *corev1.Pod) { p.Finalizers = []string{"f"} }},
		"an owner":                                 {by: kubelet, to: func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "o"}} }},
		"a deletion":                               {by: kubelet, to: func(p *corev1.Pod) { p.DeletionTimestamp = &now }},
		"the end of what was being deleted":        {op: events.Gone, from: func(p *corev1.Pod) { p.DeletionTimestamp = &now }, want: true},
		"the end of what was not":                  {op: events.Gone},
	} {
		was, is := before(), before()
		for edit, pod := range map[*func(*corev1.Pod)]*corev1.Pod{&c.from: was, &c.to: is} {
			if *edit != nil {
				(*edit)(pod)
			}
		}
		d := events.Delta{Kind: kinds.Pods.Name, Op: events.Is, By: c.by, Proven: c.proven, Beside: c.beside}
		if c.kind != "" {
			d.Kind = c.kind
		}
		if c.op != "" {
			d.Op = c.op
		}
		told := NewWrites(tracetest.New().Tracer("watcher", trace.Options{}))
		told.receive(trace.Write{ID: "w", Begins: true})
		if got := told.isReport(d, intentIn(was), intentIn(is)); got != c.want {
			t.Errorf("%s: the change reports: %t, want %t", name, got, c.want)
		}
	}
}

// An object that arrives in protobuf (kinds.Raw) has the same intent as one in its Go type.
func TestAnIntentOfWhatIsSent(t *testing.T) {
	t.Parallel()
	p := watchertest.AVersion("a", 1, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Generation, p.Labels, p.Finalizers = "n", 3, map[string]string{"a": "b"}, []string{"f"}
		p.OwnerReferences = []metav1.OwnerReference{{UID: "o", Name: "owner", APIVersion: "v1", Kind: "Node"}}
	})
	sent, err := kinds.Encode(kinds.Pods.Kind, p)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := kinds.ReadRaw(kinds.Pods.Kind, sent)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := intentIn(raw), intentIn(p); got != want || got.node != "n" {
		t.Errorf("the intent is %+v as it is sent, and %+v in its Go type; want the same", got, want)
	}
	other := p.DeepCopy()
	if other.OwnerReferences[0].Name = "other"; intentIn(other) == intentIn(p) {
		t.Error("another owner is the same")
	}
	if other.OwnerReferences[0].Name = "owner"; intentIn(other) != intentIn(p) {
		t.Error("the same owner is another")
	}
}

// A version comes from a write that its writer has reported, or from what it reports on. A version
// of our writers without a report is a miss, except for heartbeats and known objects.
func TestWhereAVersionComesFrom(t *testing.T) {
	t.Parallel()
	ours := func(d *events.Delta) { d.By.Name = events.FieldManager }
	for what, c := range map[string]struct {
		change              func(*events.Delta)
		kind                kinds.Name
		known, told, writes bool
		missed, reports, is bool
	}{
		"another's":              {change: func(*events.Delta) {}, told: true},
		"ours, of which is told": {change: ours, told: true, writes: true, is: true},
		"ours, of which is not":  {change: ours, told: true, missed: true},
		"where writers are mute": {change: ours},
		"a heartbeat":            {change: ours, kind: "leases.coordination.k8s.io", told: true},
		"a known one":            {change: ours, told: true, known: true, reports: true},
		"an end":                 {change: func(d *events.Delta) { ours(d); d.Op = events.Gone }, told: true},
	} {
		k := traceable(t, memory.New(memory.Options{}), tracetest.New())
		if c.told {
			k.writes.receive(trace.Write{ID: "other", About: watchertest.APod("other"), Begins: true})
		}
		if c.writes {
			k.writes.receive(trace.Write{ID: "1", About: watchertest.APod("a"), UID: "u", Version: "7", Trace: events.Trace{Parent: request}})
		}
		d := watchertest.ADelta("a", 7)
		if d.Kind = "pods"; c.kind != "" {
			d.Kind = c.kind
		}
		p := watchertest.AVersion("a", 7, func(p *corev1.Pod) {
			p.Generation, p.Labels, p.Annotations = 2, map[string]string{"l": "1"}, map[string]string{"n": "2"}
		})
		if c.known {
			k.versions.Put("u", seen{events.Trace{Parent: "before"}, intentIn(p)})
		}
		c.change(&d)
		k.why = late
		o := k.origin(d, p)
		if o.Ours != c.is || o.Missed != c.missed || o.Reports != c.reports || (o.Cause.Parent == request) != c.is || (o.Before.Parent == "before") != c.known {
			t.Errorf("%s: the origin is %+v", what, o)
		}
		if o.Labels["l"] != "1" || o.Notes["n"] != "2" {
			t.Errorf("%s: the origin has the labels %v and the notes %v", what, o.Labels, o.Notes)
		}
		g, given := k.writes.untracked.Get(version{"u", "7"})
		if given != (!c.is && d.Op == events.Is) || given && g != (untracked{"pods", late}) {
			t.Errorf("%s: it is kept as %+v (%t)", what, g, given)
		}
	}
}

// An intent does not depend on the order of labels, annotations, finalizers and owners.
func TestAnIntentHasNoOrder(t *testing.T) {
	t.Parallel()
	with := func(change func(*metav1.ObjectMeta)) intent {
		m := &metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}
		change(m)
		return intentIn(m)
	}
	plain := with(func(*metav1.ObjectMeta) {})
	for what, change := range map[string]func(*metav1.ObjectMeta){
		"a label": func(m *metav1.ObjectMeta) { m.Labels["a"] = "c" }, "an annotation": func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"a": "b"} },
		"a finalizer": func(m *metav1.ObjectMeta) { m.Finalizers = []string{"a"} }, "an owner": func(m *metav1.ObjectMeta) { m.OwnerReferences = []metav1.OwnerReference{{UID: "u"}} },
		"a generation": func(m *metav1.ObjectMeta) { m.Generation = 3 }, "a deletion": func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &metav1.Time{} },
	} {
		if with(change) == plain {
			t.Errorf("%s changes nothing", what)
		}
	}
	if with(func(m *metav1.ObjectMeta) { m.ResourceVersion = "7" }) != plain {
		t.Error("a version changes what is wanted")
	}
}
