package nodes

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam/cidrset"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodeipam"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// NodeRanges is a cluster in which nodes are added and deleted, one after the other.
type NodeRanges struct {
	Config nodeipam.Config
	// First are the nodes, one at most, that exist before the controllers begin.
	First []*corev1.Node
	Steps []NodeStep
}

// NodeStep is the next event: a node is added, or one is deleted. During the step some patches of nodes are
// refused.
type NodeStep struct {
	Comes   *corev1.Node
	Refused stage.Refusal
	// Goes is the index of the deleted node among those with ranges, in the order of the ranges: which node
	// has which is chance if several wait for one.
	Goes int
}

// patienceOfRanges is longer than upstream's longest back-off.
const patienceOfRanges = 1100 * time.Second

// rangeTries is how often upstream tries at once to give a node a range. After so many refusals it uses the
// next range.
const rangeTries = 3

// rangesSide is one of the two controllers with its nodes.
type rangesSide interface {
	refuse(stage.Refusal)
	nodes() []*corev1.Node
	come(*corev1.Node)
	leave(name string)
	settle() error
	told() []string
}

// Compare shows the difference after some step; "" if there is none.
func (w NodeRanges) Compare(t *testing.T) (diff string) {
	synctest.Test(t, func(t *testing.T) {
		theirs, end := w.theirs(t)
		defer end()
		ours := w.ours(t)
		for at := -1; at < len(w.Steps); at++ {
			var step NodeStep
			if at >= 0 {
				step = w.Steps[at]
			}
			var waited int // nodes without ranges before ours gives some
			for _, side := range []rangesSide{theirs, ours} {
				side.refuse(step.Refused)
				if at >= 0 {
					w.take(step, side)
				}
				waited = waiting(side)
				for range 1 + step.Refused.Times/rangeTries { // upstream's back-off may be at its limit
					if err := side.settle(); err != nil {
						t.Error(err)
					}
				}
			}
			if one, other := standing(theirs, step.Refused), standing(ours, step.Refused); one != other {
				diff = fmt.Sprintf("after step %d:\n- %s\n+ %s", at, one, other)
				return
			}
			if step.Refused.Times >= rangeTries {
				exemption.Uses("next-range-after-a-failure")
				if gave := waited - waiting(ours); step.Refused.Times >= rangeTries*gave {
					diff = untold(theirs, ours)
				} // otherwise ours may have shared the refusals out among the nodes, so that none was given up
				return
			}
			if w.leaks(ours) {
				exemption.Uses("range-without-its-pair")
				return
			}
		}
	})
	return diff
}

// waiting is how many nodes have no ranges.
func waiting(side rangesSide) (n int) {
	for _, node := range side.nodes() {
		if len(node.Spec.PodCIDRs) == 0 {
			n++
		}
	}
	return n
}

// leaks reports whether a node waits because of the second range alone: upstream takes a first range for it
// at each try, and gives none of these to another node.
func (w NodeRanges) leaks(ours rangesSide) bool {
	waits := slices.ContainsFunc(ours.nodes(), func(n *corev1.Node) bool { return len(n.Spec.PodCIDRs) == 0 })
	if !waits || len(w.Config.Cluster) < 2 {
		return false
	}
	first := nodeipam.New(nodeipam.Config{Cluster: w.Config.Cluster[:1], Services: w.Config.Services})
	seen := reconciletest.NewWorld(kinds.Nodes.Kind)
	for _, n := range ours.nodes() {
		seen.Put(kinds.Nodes.Kind, n)
	}
	d, _ := first.Ask(seen, allNodes, objects.Now)
	return slices.ContainsFunc(d.Commands, func(c events.Command) bool { return c.Verb == events.VerbPatch })
}

func (w NodeRanges) take(s NodeStep, side rangesSide) {
	if s.Comes != nil {
		side.come(w.apart(side.nodes(), s.Comes))
		return
	}
	var having []*corev1.Node
	for _, n := range side.nodes() {
		if len(n.Spec.PodCIDRs) > 0 {
			having = append(having, n)
		}
	}
	slices.SortFunc(having, func(a, b *corev1.Node) int { return strings.Compare(rangesOf(a), rangesOf(b)) })
	if len(having) > 0 {
		side.leave(having[s.Goes%len(having)].Name)
	}
}

// apart is a node without its own ranges, if these clash with others.
func (w NodeRanges) apart(nodes []*corev1.Node, n *corev1.Node) *corev1.Node {
	n = n.DeepCopy()
	clash, late := w.clash(nodes, n), w.late(n)
	if clash {
		exemption.Uses("one-block-of-two")
	}
	if late {
		exemption.Uses("second-range-alone")
	}
	if clash || late {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "", nil
	}
	return n
}

// late reports whether a node has a range outside of the cluster, and behind it one inside, which upstream
// does not reach, and gives to other nodes.
func (w NodeRanges) late(n *corev1.Node) bool {
	outside := false
	for i, text := range n.Spec.PodCIDRs {
		r, err := query.ParseRange(text)
		inside := err == nil && r.Overlaps(netip.MustParsePrefix(w.Config.Cluster[i].CIDR))
		if inside && outside {
			return true
		}
		outside = outside || !inside
	}
	return false
}

// clash reports whether a node has a part of a block of which others, or Services, have a part. Upstream
// gives such a block away when one of them is deleted.
func (w NodeRanges) clash(nodes []*corev1.Node, n *corev1.Node) bool {
	others := query.Ranged{Ranges: slices.Clone(w.Config.Services)}
	for _, other := range nodes {
		others.Ranges = append(others.Ranges, other.Spec.PodCIDRs...)
	}
	for i, text := range n.Spec.PodCIDRs {
		r, err := query.ParseRange(text)
		if err != nil {
			continue
		}
		if mask := w.Config.Cluster[i].Mask; r.Bits() > mask {
			r = netip.PrefixFrom(r.Addr(), mask).Masked()
		}
		if _, some := others.Overlaps([]netip.Prefix{r}); some {
			return true
		}
	}
	return false
}

func rangesOf(n *corev1.Node) string {
	return strings.Join(append([]string{n.Spec.PodCIDR + ":"}, n.Spec.PodCIDRs...), " ")
}

// standing is the ranges of nodes, and the nodes with an Event that there is none. If upstream uses the next
// range, and may give it to another waiting node, it is only the number of nodes with ranges.
func standing(side rangesSide, refused stage.Refusal) string {
	var have []string
	for _, n := range side.nodes() {
		if refused.Times < rangeTries {
			have = append(have, rangesOf(n))
		} else {
			have = append(have, fmt.Sprint(len(n.Spec.PodCIDRs)))
		}
	}
	slices.Sort(have)
	told := slices.DeleteFunc(side.told(), assignmentFailed)
	return fmt.Sprintf("%q, told %q", have, told)
}

func assignmentFailed(line string) bool { return strings.HasPrefix(line, "CIDRAssignmentFailed ") }

// untold shows where upstream has an Event about a refused range, and ours has none. Ours emits it when the
// writer gives up, and upstream after some tries; which of several waiting nodes is tried is chance.
func untold(theirs, ours rangesSide) (diff string) {
	told := slices.ContainsFunc(theirs.told(), assignmentFailed)
	if told {
		exemption.Uses("refused-range-told-at-once")
	}
	if told && !slices.ContainsFunc(ours.told(), assignmentFailed) {
		diff = fmt.Sprintf("- %q\n+ %q\n", theirs.told(), ours.told())
	}
	return diff
}

// allNodes is the only key of our controller.
var allNodes = events.Key{Name: "ranges"}

// ourRanges is our side: an actor with the writer's door.
type ourRanges struct{ *stage.Actor }

func (w NodeRanges) ours(t *testing.T) rangesSide {
	o := &ourRanges{&stage.Actor{Controller: nodeipam.New(w.Config), Now: objects.Now}}
	o.Stage = stage.NewStage(func() time.Time { return o.Now }, kinds.Nodes.Kind)
	o.Door = func(r plan.Request) plan.Response { return o.door(t, r) }
	for _, n := range w.First {
		o.come(w.apart(nil, n))
	}
	o.Begin(kinds.Nodes.Kind)
	return o
}

// door answers like the writer's door: it knows the ranges of all nodes. No node gets a second one.
func (o *ourRanges) door(t *testing.T, r plan.Request) plan.Response {
	if r.Verb == plan.Search && r.Subresource == query.SubRanges {
		all := []query.Ranged{}
		for _, n := range o.nodes() {
			all = append(all, query.Ranged{Name: n.Name, UID: n.UID, Ranges: n.Spec.PodCIDRs})
		}
		return plan.Response{Code: http.StatusOK, Body: []byte(effect.JSON(all))}
	}
	if n, there := o.Stage.API.Get(nodeRef(r.Name)).(*corev1.Node); there && r.Verb.Writes() && len(n.Spec.PodCIDRs) > 0 {
		t.Errorf("ours gives %s ranges, which has %v", r.Name, n.Spec.PodCIDRs)
	}
	return o.Stage.API.Do(r)
}

func (o *ourRanges) nodes() (all []*corev1.Node) {
	for _, obj := range o.Stage.API.List(kinds.Nodes.Name) {
		all = append(all, obj.(*corev1.Node))
	}
	return all
}

// told are the Events, each once, without their messages.
func (o *ourRanges) told() []string {
	all := map[string]bool{}
	for _, line := range o.Stage.Told {
		part := strings.Fields(line)
		all[part[4]+" "+part[2]] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func (o *ourRanges) refuse(r stage.Refusal) { o.Stage.SetRefusal(r) }

func (o *ourRanges) come(n *corev1.Node) {
	o.Stage.Do(func(api *apiserver.API) { api.Load(kinds.Nodes.Name, n) })
}

func (o *ourRanges) leave(name string) {
	o.Stage.Do(func(api *apiserver.API) { api.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Nodes.Name, Name: name}) })
}

func (o *ourRanges) settle() error { return o.Until(o.Now.Add(patienceOfRanges)) }

// theirRanges is upstream's side.
type theirRanges struct {
	t      *testing.T
	client *fake.Clientset
	mu     sync.Mutex
	events map[string]bool
	// refused refuses patches of nodes.
	refused func(plan.Request) *plan.Response
}

func (w NodeRanges) theirs(t *testing.T) (side rangesSide, end func()) {
	time.Sleep(time.Until(objects.Now))
	var world []runtime.Object
	list := &corev1.NodeList{}
	for _, n := range w.First {
		n = w.apart(nil, n)
		world = append(world, n.DeepCopy())
		if w.takes(t, n) { // otherwise upstream would not begin
			list.Items = append(list.Items, *n.DeepCopy())
		}
	}
	o := &theirRanges{t: t, client: fake.NewSimpleClientset(world...), events: map[string]bool{}, refused: stage.Refusal{}.Refuses()}
	o.client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		told := action.(clienttesting.CreateAction).GetObject().(*corev1.Event)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.events[told.Reason+" "+told.InvolvedObject.Name] = true
		if want := fmt.Sprintf("Node %s status is now: %s", told.InvolvedObject.Name, told.Reason); told.Type != corev1.EventTypeNormal || !strings.HasSuffix(told.Message, want) {
			t.Errorf("upstream tells %+v", told)
		}
		return false, nil, nil
	})
	o.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if answer := o.refused(plan.Request{Verb: plan.Patch, Kind: kinds.Nodes.Name}); answer != nil {
			return true, nil, stage.StatusError(*answer)
		}
		return false, nil, nil
	})
	params := ipam.CIDRAllocatorParams{}
	for _, r := range w.Config.Cluster {
		params.ClusterCIDRs = append(params.ClusterCIDRs, network(t, r.CIDR))
		params.NodeCIDRMaskSizes = append(params.NodeCIDRMaskSizes, r.Mask)
	}
	for i, r := range w.Config.Services {
		if params.ServiceCIDR = network(t, r); i == 0 {
			continue
		}
		params.ServiceCIDR, params.SecondaryServiceCIDR = network(t, w.Config.Services[0]), network(t, r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(o.client, 0)
	allocator, err := ipam.NewCIDRRangeAllocator(ctx, o.client, factory.Core().V1().Nodes(), params, list)
	if err != nil {
		t.Fatalf("make upstream's allocator: %v", err)
	}
	factory.Start(ctx.Done())
	synctest.Wait()
	done := make(chan struct{})
	go func() { allocator.Run(ctx); close(done) }()
	return o, func() {
		cancel()
		<-done
		factory.Shutdown()
	}
}

// takes reports whether upstream can mark the ranges of a node as used.
func (w NodeRanges) takes(t *testing.T, n *corev1.Node) bool {
	for i, text := range n.Spec.PodCIDRs {
		set, err := cidrset.NewCIDRSet(network(t, w.Config.Cluster[i].CIDR), w.Config.Cluster[i].Mask)
		if err != nil {
			t.Fatal(err)
		}
		if set.Occupy(network(t, text)) != nil {
			exemption.Uses("node-outside")
			return false
		}
	}
	return true
}

func network(t *testing.T, text string) *net.IPNet {
	_, r, err := net.ParseCIDR(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (o *theirRanges) nodes() (all []*corev1.Node) {
	list, err := o.client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

func (o *theirRanges) told() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.events))
}

func (o *theirRanges) come(n *corev1.Node) {
	if _, err := o.client.CoreV1().Nodes().Create(context.Background(), n.DeepCopy(), metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *theirRanges) leave(name string) {
	if err := o.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

func (o *theirRanges) settle() error {
	synctest.Wait()
	time.Sleep(patienceOfRanges)
	synctest.Wait()
	return nil
}

func (o *theirRanges) refuse(r stage.Refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = r.Refuses()
}

// RangedNode is a node with ranges of its own, or without any.
func RangedNode(name string, ranges ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "10"}}
	if len(ranges) > 0 {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = ranges[0], ranges
	}
	return n
}
