package record_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/record/recordtest"
)

// TestWhoItWas: managedFields have times in seconds, and our entry stays there long after
// another client has changed something without an entry.
func TestWhoItWas(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		hand := func() record.Hand {
			h, err := w.record.History(w.Context(), kinds.Deployments.Kind, web, 1)
			w.Must(err)
			return h.Versions[0].By
		}
		together := w.Delta(web, events.Is, events.FieldManager, replicas(7))
		together.Beside = []events.Manager{{Name: "alice", Operation: "Apply", Time: together.By.Time}}
		w.Say(together)
		if by := hand(); by.Manager != "" || !strings.Contains(by.Unknown, "alice") {
			w.Errorf("one of two of the same second is named: %+v", by)
		}
		proven := w.Delta(web, events.Is, "alice", replicas(9))
		proven.By.Time, proven.Proven, proven.Beside = together.By.Time, true, []events.Manager{together.By}
		w.Say(proven)
		if by := hand(); by.Manager != "alice" || by.Unknown != "" {
			w.Errorf("whose entry has changed: %+v", by)
		}
		scaling := w.Delta(web, events.Is, events.FieldManager, replicas(3))
		scaling.By.Time = together.By.Time
		scaling.Beside = []events.Manager{{Name: "kubectl", Operation: "Update", Subresource: "scale"}}
		w.Say(scaling)
		if by := hand(); by.Manager != "kubectl" || by.Subresource != "scale" {
			w.Errorf("scaled with kubectl: %+v", by)
		}
		noted := w.Delta(web, events.Is, events.FieldManager, func(o metav1.Object) { o.SetAnnotations(map[string]string{"note": "1"}) })
		noted.By.Time, noted.Beside = together.By.Time, scaling.Beside
		w.Say(noted)
		if by := hand(); by.Manager != "" || by.Unknown == "" {
			w.Errorf("the author of a note is taken for the author of the scaling, which managedFields has, too: %+v", by)
		}
		two := w.Delta(web, events.Is, events.FieldManager, replicas(4))
		two.By.Time = together.By.Time
		two.Beside = []events.Manager{{Name: "bob", Operation: "Apply", Subresource: "scale"}, scaling.Beside[0]}
		w.Say(two)
		if by := hand(); by.Manager != "" {
			w.Errorf("one of two who scaled is named: %+v", by)
		}
		untold := w.Delta(web, events.Is, events.FieldManager, replicas(8))
		w.Say(untold)
		if by := hand(); by.Manager != events.FieldManager || by.Controller != "" || by.Note == "" {
			w.Errorf("another %s: %+v", events.FieldManager, by)
		}
		found := w.Delta(web, events.Is, "carol", replicas(5))
		found.Sync = true
		w.Say(found)
		if by := hand(); by.Manager != "" || !strings.Contains(by.Unknown, "carol") {
			w.Errorf("the author of a version that a list found is %+v, want unknown, with carol named", by)
		}
		turn := w.Decide(deployments, web, "without effect", nil)
		stood := w.Delta(web, events.Is, events.FieldManager, replicas(9))
		w.Say(stood)
		w.Met(deployments, web, turn, stood)
		if by := hand(); by.Controller != "" {
			w.Errorf("a version that stood in our way is taken for ours: %+v", by)
		}
	})
}

func TestReportsAreFollowedWhenThatIsAskedFor(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		ready := w.Is(pod("a"), "kubelet", nil)
		report := w.Delta(webSet, events.Is, events.FieldManager, func(o metav1.Object) { o.(*appsv1.ReplicaSet).Status.ReadyReplicas = 1 })
		w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, "the status has changed", nil, trigger(pod("a"), ready)), report)
		said := w.Say(report)
		next := w.Delta(web, events.Is, events.FieldManager, func(o metav1.Object) { o.SetAnnotations(map[string]string{"revision": "1"}) })
		w.Done(deployments, web, w.Decide(deployments, web, "it is ready", nil, trigger(webSet, said)), next)
		w.Say(next)
		for follow, want := range map[bool]string{
			false: `deployments.apps:shop/web changed by deployment-controller: it is ready
  asked by replicasets.apps:shop/web-1 changed by replicaset-controller: the status has changed
  wanted since deployments.apps:shop/web changed by kubectl-scale
`,
			true: `deployments.apps:shop/web changed by deployment-controller: it is ready
  asked by replicasets.apps:shop/web-1 changed by replicaset-controller: the status has changed
    asked by pods:shop/a changed by kubelet
    wanted since replicasets.apps:shop/web-1 changed by deployment-controller: as many as are wanted
      asked by deployments.apps:shop/web changed by kubectl-scale
  wanted since deployments.apps:shop/web changed by kubectl-scale
`,
		} {
			c, err := w.record.Why(w.Context(), kinds.Deployments.Kind, web, record.Question{Last: true, Reports: follow})
			w.Must(err)
			if got := draw(c, ""); got != want {
				w.Errorf("with reports %v the cause is\n%swant\n%s", follow, got, want)
			}
			if began := c.Began(); began.Version.By.Manager != "kubectl-scale" {
				w.Errorf("the chain of causes begins with %+v, want the scaling", began.Version)
			}
		}
	})
}

// TestOneAnswerEverywhere: history, get and why name the same author of each version, even if it
// occurs several times.
func TestOneAnswerEverywhere(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		bound := w.Delta(pod("a"), events.Is, "", func(o metav1.Object) { o.(*corev1.Pod).Spec.NodeName = "node-1" })
		bound.By = events.Manager{}
		w.Say(bound)
		h, err := w.record.History(w.Context(), kinds.Pods.Kind, pod("a"), 0)
		w.Must(err)
		if by := h.Versions[len(h.Versions)-1].By; !strings.Contains(by.Unknown, "bound to node-1") || !strings.Contains(by.Unknown, "default-scheduler") {
			w.Errorf("a binding is by %+v", by)
		}
		for _, kept := range []bool{false, true} {
			if kept {
				again := w.Delta(web, events.Is, "", nil)
				last := w.newest(web)
				again.By, again.Sync, again.ResourceVersion = last.By, true, last.ResourceVersion
				w.Say(again)
			}
			for kind, ref := range map[*kinds.Kind]events.Ref{&kinds.Pods.Kind: pod("a"), &kinds.Deployments.Kind: web, &kinds.ReplicaSets.Kind: webSet} {
				h, err := w.record.History(w.Context(), *kind, ref, 0)
				w.Must(err)
				want := h.Versions[len(h.Versions)-1]
				for i := len(h.Versions) - 1; want.Event == record.Kept; i-- {
					want = h.Versions[i]
				}
				state, err := w.record.One(w.Context(), *kind, ref, record.Moment{})
				w.Must(err)
				hands, err := w.record.Authors(w.Context(), *kind, state.Entries)
				w.Must(err)
				if !reflect.DeepEqual(hands[0], want.By) {
					w.Errorf("%v is by %+v in its history, and by %+v in a list", ref, want.By, hands[0])
				}
				c, err := w.record.Why(w.Context(), *kind, ref, record.Question{Last: true, Reports: true})
				w.Must(err)
				hand := map[string]record.Hand{want.Object.String() + want.ResourceVersion: want.By}
				w.agrees(c, hand)
			}
		}
	})
}

// agrees checks that a version has the same author in every view.
func (w *world) agrees(c *record.Cause, hands map[string]record.Hand) {
	w.Helper()
	id := c.Version.Object.String() + c.Version.ResourceVersion
	if by, known := hands[id]; known && !reflect.DeepEqual(by, c.Version.By) {
		w.Errorf("%s is by %+v and by %+v", id, by, c.Version.By)
	}
	hands[id] = c.Version.By
	for _, behind := range c.Causes {
		w.agrees(behind, hands)
	}
}

func (w *world) newest(ref events.Ref) events.Delta {
	w.Helper()
	state, err := w.record.One(w.Context(), recordtest.KindOf(ref.Kind), ref, record.Moment{})
	w.Must(err)
	return state.Entries[0].Delta
}

// TestWhatIsExplainedTwiceIsSaidOnce: a version made by a turn keeps its author where it occurs
// again.
func TestWhatIsExplainedTwiceIsSaidOnce(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		made := w.Delta(webSet, events.Is, events.FieldManager, replicas(4))
		turn := w.Decide(deployments, web, "as many as are wanted", nil)
		said := w.Say(made)
		w.Done(deployments, web, turn, made)
		next := w.Delta(pod("c"), events.Is, events.FieldManager, nil)
		asked := trigger(webSet, said)
		w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, "too few Pods", nil, asked), next)
		created := w.Say(next)
		again := w.Delta(webSet, events.Is, events.FieldManager, func(o metav1.Object) { o.(*appsv1.ReplicaSet).Status.Replicas = 2 })
		w.Done(replicaSets, webSet, w.Decide(replicaSets, webSet, "the status has changed", nil, asked, trigger(pod("c"), created)), again)
		w.Say(again)
		c, err := w.record.Why(w.Context(), kinds.ReplicaSets.Kind, webSet, record.Question{Last: true, Reports: true})
		w.Must(err)
		w.agrees(c, map[string]record.Hand{})
		if met := c.Causes[1].Causes[0]; met.Note != record.Again || met.Version.By.Controller != deployments {
			w.Errorf("met again: %+v", met)
		}
	})
}

// TestWhyAnswersWithWhatIsWanted: the last change of most objects is a status, which has no
// cause to explain.
func TestWhyAnswersWithWhatIsWanted(t *testing.T) {
	tell(t, func(w *world) {
		w.Scaled()
		w.Is(pod("a"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodRunning })
		why := func(q record.Question) *record.Cause {
			c, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("a"), q)
			w.Must(err)
			return c
		}
		c := why(record.Question{})
		if c.Version.Event != record.Created || c.Version.By.Controller != replicaSets || c.Last == nil || c.Last.By.Manager != "kubelet" {
			w.Errorf("by default: %+v, last %+v", c.Version, c.Last)
		}
		last := why(record.Question{Last: true})
		if last.Version.By.Manager != "kubelet" || last.Last != nil {
			w.Errorf("the last change: %+v", last.Version)
		}
		if exactly := why(record.Question{At: record.Moment{Version: last.Version.ResourceVersion}}); exactly.Version.ResourceVersion != last.Version.ResourceVersion {
			w.Errorf("asked about a version: %+v", exactly.Version)
		}
		w.Is(pod("a"), "kubectl-label", func(o metav1.Object) { o.SetLabels(map[string]string{"a": "b"}) })
		w.Is(pod("a"), "kubelet", func(o metav1.Object) {
			o.(*corev1.Pod).Spec.NodeName = "node-1"
			o.SetLabels(map[string]string{"a": "b", "zone": "z"}) // a binding copies these from the node
		})
		if labelled := why(record.Question{}); labelled.Version.By.Manager != "kubectl-label" || labelled.Last == nil {
			w.Errorf("a label: %+v", labelled.Version)
		}
		for _, field := range []string{"metadata.deletionTimestamp", "spec.nodename"} {
			if _, err := w.record.Why(w.Context(), kinds.Pods.Kind, pod("a"), record.Question{Field: field}); !errors.Is(err, record.ErrNotThere) {
				w.Errorf("a field that was never set, %s: %v", field, err)
			}
		}
	})
}
