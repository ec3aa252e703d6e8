package record_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
)

// TestWhoItWas: field managers are dated by the second, and ours is in the fields
// long after another has changed something without a trace.
func TestWhoItWas(t *testing.T) {
	tell(t, func(w *world) {
		w.scaled()
		hand := func() record.Hand {
			h, err := w.record.History(w.Context(), kinds.Deployments.Kind, web, 1)
			w.must(err)
			return h.Versions[0].By
		}
		together := w.delta(web, events.Is, events.FieldManager, replicas(7))
		together.Beside = []events.Manager{{Name: "alice", Operation: "Apply"}}
		w.say(together)
		if by := hand(); by.Manager != "alice" || by.Unknown != "" {
			w.Errorf("in the same second as ours: %+v", by)
		}
		scaling := w.delta(web, events.Is, events.FieldManager, replicas(3))
		scaling.Beside = []events.Manager{{Name: "kubectl", Operation: "Update", Subresource: "scale"}}
		w.say(scaling)
		if by := hand(); by.Manager != "kubectl" || by.Subresource != "scale" {
			w.Errorf("scaled with kubectl: %+v", by)
		}
		noted := w.delta(web, events.Is, events.FieldManager, func(o metav1.Object) { o.SetAnnotations(map[string]string{"note": "1"}) })
		noted.Beside = scaling.Beside
		w.say(noted)
		if by := hand(); by.Manager != "" || by.Unknown == "" {
			w.Errorf("who scaled it is taken for who noted something on it: %+v", by)
		}
		untold := w.delta(web, events.Is, events.FieldManager, replicas(8))
		w.say(untold)
		if by := hand(); by.Manager != "" || by.Controller != "" || by.Unknown == "" {
			w.Errorf("without a trace: %+v", by)
		}
		turn := w.decide(deployments, web, "in vain", nil)
		stood := w.delta(web, events.Is, events.FieldManager, replicas(9))
		w.say(stood)
		w.met(deployments, web, turn, stood)
		if by := hand(); by.Controller != "" {
			w.Errorf("a version that stood in our way is taken for ours: %+v", by)
		}
	})
}

func TestReportsAreFollowedWhenThatIsAskedFor(t *testing.T) {
	tell(t, func(w *world) {
		w.scaled()
		ready := w.is(pod("a"), "kubelet", nil)
		report := w.delta(webSet, events.Is, events.FieldManager, func(o metav1.Object) { o.(*appsv1.ReplicaSet).Status.ReadyReplicas = 1 })
		w.done(replicaSets, webSet, w.decide(replicaSets, webSet, "the status has changed", nil, trigger(pod("a"), ready)), report)
		said := w.say(report)
		next := w.delta(web, events.Is, events.FieldManager, func(o metav1.Object) { o.SetAnnotations(map[string]string{"revision": "1"}) })
		w.done(deployments, web, w.decide(deployments, web, "it is ready", nil, trigger(webSet, said)), next)
		w.say(next)
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
			c, err := w.record.Why(w.Context(), kinds.Deployments.Kind, web, record.Moment{}, "", follow)
			w.must(err)
			if got := draw(c, ""); got != want {
				w.Errorf("reports %v:\n%swant\n%s", follow, got, want)
			}
			if began := c.Began(); began.Version.By.Manager != "kubectl-scale" {
				w.Errorf("it began with %+v", began.Version)
			}
		}
	})
}
