package nodes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodelifecycle"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/nodes"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/stage"
)

// TestNodesLiveAsUpstreams plays the life of some nodes, once with each node lifecycle controller. After each
// chapter the taints, labels and conditions of the nodes, the readiness of the pods and the Events must be
// the same.
func TestNodesLiveAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 10)
	rapid.Check(t, func(r *rapid.T) { anyFleet(r).livesAlike(t, r, stage.Refusal{}) })
}

// anyFleet is some nodes and their lives.
func anyFleet(r *rapid.T) *fleet {
	f := &fleet{out: map[string]bool{}}
	f.config.Large = rapid.SampledFrom([]int{0, 2, -1}).Draw(r, "large")
	f.config.Secondary = rapid.SampledFrom([]float32{0.05, -1}).Draw(r, "secondary rate")
	f.single = rapid.Bool().Draw(r, "one zone")
	for range rapid.IntRange(1, 7).Draw(r, "nodes") {
		f.join(r)
	}
	f.chapter()
	for range rapid.IntRange(1, 4).Draw(r, "chapters") {
		for _, name := range f.names {
			if !f.out[name] && rapid.IntRange(0, 1).Draw(r, name) == 0 {
				f.act(r, name)
			}
		}
		if rapid.IntRange(0, 5).Draw(r, "one more") == 0 {
			f.follow(r)
		}
		f.chapter()
	}
	return f
}

// livesAlike plays the life with both, with a refusal.
func (f *fleet) livesAlike(t *testing.T, r *rapid.T, refused stage.Refusal) {
	cluster := nodes.Cluster{Config: f.config, Chapters: f.chapters, Refused: refused}
	diff, err := cluster.Compare(t)
	for again := 0; again < raced && err == nil && diff != ""; again++ {
		diff, err = cluster.Compare(t)
	}
	if err != nil {
		r.Fatalf("%v\n%s", err, strings.Join(f.story, "\n"))
	}
	if diff != "" {
		r.Fatalf("upstream (-) and we (+) come to different ends %s%+v where is refused: %v\n%s", diff, f.config, refused, strings.Join(f.story, "\n"))
	}
}

// TestANewZoneEndsADisruption shows what docs/differences.md says about the first node of a zone that joins
// when no other node is ready.
func TestANewZoneEndsADisruption(t *testing.T) {
	f := &fleet{out: map[string]bool{}}
	f.add("east", "", false, 0)
	f.chapter()
	f.add("west", "", true, 0)
	f.chapter()
	diff, err := nodes.Cluster{Config: f.config, Chapters: f.chapters}.Compare(t)
	if want := "after chapter 1:\n+ n0 taint node.kubernetes.io/unreachable=:NoExecute\n"; err != nil || diff != want {
		t.Errorf("%v, %q, want %q", err, diff, want)
	}
}

// raced is how often upstream is asked again: when a zone gets so bad that evictions stop there, it is chance
// whether upstream taints one more node at the same moment.
const raced = 8

// fleet builds the life of some nodes.
type fleet struct {
	config   nodelifecycle.Config
	single   bool // all are in one zone
	names    []string
	zones    []string        // of the names
	out      map[string]bool // has been deleted
	moment   []func(*nodes.Kubelets)
	chapters []func(*nodes.Kubelets)
	story    []string
}

func (f *fleet) chapter() {
	moment := f.moment
	f.moment = nil
	f.chapters = append(f.chapters, func(k *nodes.Kubelets) {
		for _, act := range moment {
			act(k)
		}
	})
	f.story = append(f.story, "--")
}

func (f *fleet) does(act func(*nodes.Kubelets), what string, args ...any) {
	f.moment = append(f.moment, act)
	f.story = append(f.story, fmt.Sprintf(what, args...))
}

// follow adds a node to an existing zone: with the first node of a new zone upstream forgets that no node was
// ready, and evicts no pods of the others.
func (f *fleet) follow(t *rapid.T) {
	for i, name := range f.names {
		if !f.out[name] {
			f.add(f.zones[i], "", rapid.Bool().Draw(t, "speaks"), 1)
			return
		}
	}
}

// join adds a node with its lease and pods. A node that has not reported anything yet may never do so.
func (f *fleet) join(t *rapid.T) {
	zone := "east"
	if !f.single {
		zone = rapid.SampledFrom([]string{"east", "east", "west"}).Draw(t, "zone")
	}
	system := rapid.SampledFrom([]string{"", "linux", "windows"}).Draw(t, "system of old")
	f.add(zone, system, rapid.IntRange(0, 9).Draw(t, "speaks") > 0, rapid.IntRange(0, 2).Draw(t, "pods"))
}

func (f *fleet) add(zone, system string, speaks bool, pods int) {
	name := fmt.Sprint("n", len(f.names))
	f.names, f.zones = append(f.names, name), append(f.zones, zone)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	if system != "" {
		n.Labels[corev1.LabelOSStable], n.Labels["beta.kubernetes.io/os"] = "linux", system
	}
	renewed := metav1.NewMicroTime(objects.Now.Add(-time.Hour)) // upstream never checks a lease again that was never renewed
	f.does(func(k *nodes.Kubelets) {
		put(k, kinds.Nodes.Kind, "", n)
		put(k, kinds.Leases.Kind, corev1.NamespaceNodeLease, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
		if k.Silent[name] = !speaks; speaks {
			k.Report(name, func(n *corev1.Node) {
				for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
					say(n, c, corev1.ConditionFalse)
				}
				say(n, corev1.NodeReady, corev1.ConditionTrue)
			})
		}
		for i := range pods {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, "-pod-", i)}, Spec: corev1.PodSpec{NodeName: name}}
			put(k, kinds.Pods.Kind, "default", p)
		}
		wellPods(k, name)
	}, "%s joins with labels %v, speaks: %v", name, n.Labels, speaks)
}

// wellPods makes the pods of a node report that they are ready.
func wellPods(k *nodes.Kubelets, name string) {
	for _, obj := range k.API.List(kinds.Pods.Name) {
		if obj.(*corev1.Pod).Spec.NodeName == name {
			k.API.Change(events.Ref{Kind: kinds.Pods.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}, func(o metav1.Object) {
				o.(*corev1.Pod).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			})
		}
	}
}

func put(k *nodes.Kubelets, kind kinds.Kind, namespace string, obj metav1.Object) {
	body, err := yaml.Marshal(obj)
	if err == nil {
		body, err = yaml.YAMLToJSON(body)
	}
	if err != nil {
		panic(err) // an API object
	}
	k.API.Do(plan.Request{Verb: plan.Create, Kind: kind.Name, Version: kind.Version, Namespace: namespace, Name: obj.GetName(), Body: body})
}

func say(n *corev1.Node, of corev1.NodeConditionType, status corev1.ConditionStatus) {
	at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == of })
	if at < 0 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: of})
		at = len(n.Status.Conditions) - 1
	}
	c := &n.Status.Conditions[at]
	if c.Status != status {
		c.Status, c.Reason, c.Message = status, "Kubelet", "said by the kubelet"
	}
}

// act is a write of a node or a user.
func (f *fleet) act(t *rapid.T, name string) {
	report := func(of corev1.NodeConditionType, status corev1.ConditionStatus) {
		f.does(func(k *nodes.Kubelets) {
			if !k.Silent[name] {
				k.Told[name] = k.Told[name] || of == corev1.NodeReady && status == corev1.ConditionFalse
				k.Report(name, func(n *corev1.Node) { say(n, of, status) })
			}
		}, "%s says %s=%s unless it is silent", name, of, status)
	}
	change := func(change func(*corev1.Node), what string, args ...any) {
		f.does(func(k *nodes.Kubelets) {
			k.API.Change(events.Ref{Kind: kinds.Nodes.Name, Name: name}, func(o metav1.Object) { change(o.(*corev1.Node)) })
		}, name+" "+what, args...)
	}
	switch rapid.SampledFrom([]string{"silent", "silent", "silent", "revives", "revives", "not ready", "ready", "pressure", "cordon", "exclude", "taint", "label", "remove"}).Draw(t, "act") {
	case "silent":
		f.does(func(k *nodes.Kubelets) { k.Silent[name] = true }, "%s falls silent", name)
	case "revives":
		f.does(func(k *nodes.Kubelets) {
			k.Silent[name] = false
			k.Report(name, func(n *corev1.Node) {
				for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
					say(n, c, corev1.ConditionFalse)
				}
				say(n, corev1.NodeReady, corev1.ConditionTrue)
			})
			wellPods(k, name)
		}, "%s is well", name)
	case "not ready":
		report(corev1.NodeReady, corev1.ConditionFalse)
	case "ready":
		report(corev1.NodeReady, corev1.ConditionTrue)
	case "pressure":
		of := rapid.SampledFrom([]corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}).Draw(t, "of")
		report(of, rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse}).Draw(t, "is"))
	case "cordon":
		cordoned := rapid.IntRange(0, 2).Draw(t, "cordoned") > 0
		change(func(n *corev1.Node) { n.Spec.Unschedulable = cordoned }, "is cordoned: %v", cordoned)
	case "exclude": // if all nodes of a zone are excluded, upstream stops no evictions there, whatever the state of the other zones
		if !f.single {
			return
		}
		change(func(n *corev1.Node) { n.Labels["node.kubernetes.io/exclude-disruption"] = "" }, "is excluded")
	case "taint":
		taint := corev1.Taint{Key: rapid.SampledFrom([]string{"example.com/own", corev1.TaintNodeMemoryPressure}).Draw(t, "key"), Effect: corev1.TaintEffectNoSchedule}
		change(func(n *corev1.Node) {
			n.Spec.Taints = append(slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key }), taint)
		}, "gets the taint %s", taint.Key)
	case "label":
		change(func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "arm64" }, "has another architecture")
	case "remove":
		f.out[name] = true
		f.does(func(k *nodes.Kubelets) {
			k.API.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Nodes.Name, Name: name})
			k.API.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Leases.Name, Namespace: corev1.NamespaceNodeLease, Name: name})
		}, "%s is removed", name)
	}
}
