package nodes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"
	upstream "k8s.io/kubernetes/pkg/controller/nodelifecycle"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/nodelifecycle"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/effect"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/kcm"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// Cluster is some nodes with their pods and leases, in chapters: each has the writes of nodes and users at one
// moment. Nodes that are not silent renew their leases all the time.
type Cluster struct {
	Config   nodelifecycle.Config
	Chapters []func(*Kubelets)
	// Refused is the API server's refusal from the second chapter on.
	Refused stage.Refusal
	// Changed, when set, modifies our controller.
	Changed func(reconcile.Any) reconcile.Any
}

// Kubelets acts as the kubelets of a cluster.
type Kubelets struct {
	API *apiserver.API
	// Silent nodes renew no lease.
	Silent map[string]bool
	// Told are nodes that have reported themselves as not ready. The Events about their pods differ
	// intentionally.
	Told map[string]bool

	now   func() time.Time
	heard func(kinds.Name, string, string)
}

// The time of a chapter, the interval of lease renewals, and the interval at which evicting nodes are
// counted.
const (
	chapterOfNodes = 4 * time.Minute
	renewal        = 10 * time.Second
	// furthest is how many nodes either controller may be ahead: when a zone gets better or worse, upstream
	// waits again for as long as the new rate takes for one or two.
	furthest = 4
)

// Report is a node's status report: change modifies its status.
func (k *Kubelets) Report(name string, change func(*corev1.Node)) {
	k.API.Change(nodeRef(name), func(o metav1.Object) {
		n := o.(*corev1.Node)
		change(n)
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(k.now().Truncate(time.Second))
		}
	})
	k.heard(kinds.Nodes.Name, "", name)
}

// renewLease renews a lease.
func renewLease(o metav1.Object, now time.Time) {
	at := metav1.NewMicroTime(now)
	o.(*coordinationv1.Lease).Spec.RenewTime = &at
}

func nodeRef(name string) events.Ref { return events.Ref{Kind: kinds.Nodes.Name, Name: name} }

// renew renews the leases of all nodes that are not silent.
func (k *Kubelets) renew() {
	for _, obj := range k.API.List(kinds.Nodes.Name) {
		if name := obj.GetName(); !k.Silent[name] {
			ref := events.Ref{Kind: kinds.Leases.Name, Namespace: corev1.NamespaceNodeLease, Name: name}
			k.API.Change(ref, func(o metav1.Object) { renewLease(o, k.now()) })
			k.heard(ref.Kind, ref.Namespace, name)
		}
	}
}

// reel is the compared state after a chapter: the objects, and at intervals the number of nodes of each zone
// whose pods are evicted.
type reel struct {
	lines   []string
	blamed  bool // no node is ready, among all nodes or among those that count
	evicted []map[string]int
}

// Compare runs the chapters with both, and shows the differences; "" if there are none.
//
// Upstream begins with a cluster in which it evicts no pods: at each start it forgets the state of the nodes,
// removes the evicting taints, and begins again. It measures silence in its own rounds, so times are not
// compared. The speed of evictions is: at no time may either be more than some nodes of a zone ahead. If no
// node is ready, upstream removes these taints at the moment that it finds that out, and may add one at the
// same moment, which then stays.
func (w Cluster) Compare(t *testing.T) (diff string, err error) {
	var theirs []reel
	upstreams := w
	if w.forgets() {
		upstreams.Refused = stage.Refusal{}
		exemption.Uses("taint-tried-again")
	}
	failed := kcm.WithGates(nil, func() { synctest.Test(t, func(*testing.T) { theirs, err = upstreams.theirs() }) })
	if err = errors.Join(failed, err); err != nil {
		return "", fmt.Errorf("ask upstream: %w", err)
	}
	ours, err := w.ours()
	if err != nil {
		return "", fmt.Errorf("ask ours: %w", err)
	}
	stays := map[string]bool{}
	for i := range theirs {
		theirs[i].lines, stays = theirs[i].withoutStaying(ours[i], stays)
		if diff := effect.EqualSets(theirs[i].lines, ours[i].lines); diff != "" {
			return fmt.Sprintf("after chapter %d:\n%s", i, diff), nil
		}
		if theirs[i].blamed {
			continue
		}
		for at := range theirs[i].evicted {
			a, b := theirs[i].evicted[at], ours[i].evicted[at]
			for _, zone := range slices.Sorted(maps.Keys(a)) {
				if ahead := a[zone] - b[zone]; ahead > furthest || ahead < -furthest {
					return fmt.Sprintf("in chapter %d after %v:\n- %d nodes of zone %q\n+ %d nodes\n", i, time.Duration(at+1)*renewal, a[zone], zone, b[zone]), nil
				}
			}
		}
	}
	return "", nil
}

// withoutStaying removes from upstream's lines the evicting taints that stay where no node is ready, and
// those that still stay when a node is ready again, by the nodes' names.
func (r reel) withoutStaying(ours reel, before map[string]bool) (lines []string, stays map[string]bool) {
	stays = map[string]bool{}
	for _, line := range r.lines {
		name, _, _ := strings.Cut(line, " ")
		drives := strings.HasSuffix(line, string(corev1.TaintEffectNoExecute)) && !slices.Contains(ours.lines, line)
		if drives && (r.blamed || before[name]) {
			stays[name] = true
		} else {
			lines = append(lines, line)
		}
	}
	return lines, stays
}

// forgets reports whether upstream forgets a NoSchedule taint, or a label, after a temporary refusal, until
// the node changes again. Ours is then compared with an upstream without refusals.
func (w Cluster) forgets() bool {
	return w.Refused.Kind == kinds.Nodes.Name && !w.Refused.Status && w.Refused.Times > 0 && w.Refused.Times < 1<<30
}

var nodeKinds = []kinds.Kind{kinds.Nodes.Kind, kinds.Pods.Kind, kinds.Leases.Kind}

// play runs the chapters; rest lets the controller act for a duration.
func (w Cluster) play(s *stage.Stage, k *Kubelets, rest func(time.Duration) error) (reels []reel, err error) {
	for i, chapter := range w.Chapters {
		if i == 1 {
			s.SetRefusal(w.Refused)
		}
		var r reel
		s.Do(func(*apiserver.API) { chapter(k) })
		for range int(chapterOfNodes / renewal) {
			s.Do(func(*apiserver.API) { k.renew() })
			if err := rest(renewal); err != nil {
				return nil, err
			}
			s.Do(func(*apiserver.API) { r.evicted = append(r.evicted, evicted(k.API)) })
		}
		s.Do(func(*apiserver.API) {
			r.lines, r.blamed = k.lines(s.Told), noneReady(k.API.List(kinds.Nodes.Name))
		})
		reels = append(reels, r)
	}
	return reels, nil
}

// noneReady reports whether no node is ready, or there are nodes that count and none of them is.
func noneReady(nodes []metav1.Object) bool {
	counts := func(n metav1.Object) bool {
		_, excluded := n.GetLabels()["node.kubernetes.io/exclude-disruption"]
		return !excluded
	}
	return !slices.ContainsFunc(nodes, func(n metav1.Object) bool { return isReady(n) && (counts(n) || !slices.ContainsFunc(nodes, counts)) })
}

func isReady(obj metav1.Object) bool {
	return slices.ContainsFunc(obj.(*corev1.Node).Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// evicted is the number of nodes with an evicting taint in each zone.
func evicted(api *apiserver.API) map[string]int {
	count := map[string]int{}
	for _, obj := range api.List(kinds.Nodes.Name) {
		zone := obj.GetLabels()[corev1.LabelTopologyZone]
		count[zone] += 0
		if slices.ContainsFunc(obj.(*corev1.Node).Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoExecute && strings.HasPrefix(t.Key, "node.kubernetes.io/")
		}) {
			count[zone]++
		}
	}
	return count
}

// lines are the compared lines.
func (k *Kubelets) lines(told []string) (lines []string) {
	for _, obj := range k.API.List(kinds.Nodes.Name) {
		n := obj.(*corev1.Node)
		lines = append(lines, fmt.Sprintf("%s labels %v", n.Name, n.Labels))
		for _, t := range n.Spec.Taints {
			lines = append(lines, fmt.Sprintf("%s taint %s=%s:%s", n.Name, t.Key, t.Value, t.Effect))
		}
		for _, c := range n.Status.Conditions {
			lines = append(lines, fmt.Sprintf("%s %s=%s %s %s", n.Name, c.Type, c.Status, c.Reason, c.Message))
		}
	}
	ofTold := map[string]bool{}
	for _, obj := range k.API.List(kinds.Pods.Name) {
		p := obj.(*corev1.Pod)
		if ofTold[p.Name] = k.Told[p.Spec.NodeName]; ofTold[p.Name] {
			continue
		}
		for _, c := range p.Status.Conditions {
			lines = append(lines, fmt.Sprintf("%s %s=%s", p.Name, c.Type, c.Status))
		}
	}
	for _, line := range told {
		if about := strings.Fields(line)[2]; !ofTold[about] {
			lines = append(lines, line)
		}
	}
	return lines
}

func (w Cluster) ours() ([]reel, error) {
	a := &stage.Actor{Controller: nodelifecycle.New(w.Config), Now: objects.Now}
	if w.Changed != nil {
		a.Controller = w.Changed(a.Controller)
	}
	now := func() time.Time { return a.Now }
	a.Stage = stage.NewStage(now, nodeKinds...)
	a.Begin(nodeKinds...)
	since := objects.Now.Add(-time.Hour)
	a.Before = func(see *reconciletest.World) { see.Watch(kinds.Leases.Name, since, a.Now) }
	k := &Kubelets{API: a.Stage.API, Silent: map[string]bool{}, Told: map[string]bool{}, now: now, heard: func(kind kinds.Name, namespace, name string) {
		a.See.Hear(kind, namespace, name, a.Now)
	}}
	return w.play(a.Stage, k, func(long time.Duration) error { return a.Until(a.Now.Add(long)) })
}

func (w Cluster) theirs() (reels []reel, err error) {
	time.Sleep(time.Until(objects.Now))
	s := stage.NewStage(time.Now, nodeKinds...)
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := informers.NewSharedInformerFactory(client, 0)
	core := f.Core().V1()
	rate := func(of, usual float32) float32 { return max(cmp.Or(of, usual), 0) }
	nc, err := upstream.NewNodeLifecycleController(ctx, f.Coordination().V1().Leases(), core.Pods(), core.Nodes(), f.Apps().V1().DaemonSets(), eventful{client, sink(s)},
		5*time.Second, time.Minute, 50*time.Second, rate(w.Config.Rate, 0.1), rate(w.Config.Secondary, 0.01), int32(cmp.Or(w.Config.Large, 50)), cmp.Or(w.Config.Many, 0.55))
	if err != nil {
		return nil, fmt.Errorf("make the node lifecycle controller: %w", err)
	}
	f.Start(ctx.Done())
	synctest.Wait()
	k := &Kubelets{API: s.API, Silent: map[string]bool{}, Told: map[string]bool{}, now: time.Now, heard: func(kinds.Name, string, string) {}}
	stage.Beside(nc.Run, func() {
		reels, err = w.play(s, k, func(long time.Duration) error {
			time.Sleep(long)
			synctest.Wait()
			return nil
		})
	})
	cancel()
	f.Shutdown()
	return reels, err
}

// eventful is a client for a controller that writes Events through the REST client below the typed client.
type eventful struct {
	kubernetes.Interface
	events rest.Interface
}

// CoreV1 returns the client of the core group.
func (e eventful) CoreV1() coreclient.CoreV1Interface {
	return eventfulCore{e.Interface.CoreV1(), e.events}
}

type eventfulCore struct {
	coreclient.CoreV1Interface
	events rest.Interface
}

// RESTClient returns the client below.
func (e eventfulCore) RESTClient() rest.Interface { return e.events }

// sink is a client that accepts Events only.
func sink(s *stage.Stage) rest.Interface {
	return &restfake.RESTClient{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(), GroupVersion: corev1.SchemeGroupVersion, VersionedAPIPath: "/api/v1",
		Client: restfake.CreateHTTPClient(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			var e corev1.Event
			if err := json.Unmarshal(body, &e); err != nil {
				return nil, err
			}
			if r.Method == http.MethodPost {
				s.Locked(func() {
					s.Told = append(s.Told, effect.Told(e.InvolvedObject.Name, e.Type, e.Reason, e.Message).String())
				})
			}
			e.APIVersion, e.Kind = "v1", "Event"
			if body, err = json.Marshal(e); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}, nil
		}),
	}
}
