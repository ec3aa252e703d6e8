package daemonset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// large returns a set whose template has just changed, with a pod on each of many nodes.
func large(nodes int) View {
	set := daemons("web")
	set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
		MaxSurge: ptr.To(intstr.FromInt32(0)), MaxUnavailable: ptr.To(intstr.FromString("10%")),
	}}
	set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpExists}}}},
	}}}
	v := View{Set: set}
	v.Revisions = append(v.Revisions, revisionOf(set, "nginx:1"), revisionOf(set, "nginx:0"))
	v.Revisions[0].Revision = 2
	for i := range nodes {
		name := fmt.Sprintf("n%05d", i)
		v.Nodes = append(v.Nodes, node(name))
		p := reconciletest.Pod("web-"+name, of(set), reconciletest.On(name), reconciletest.ReadySince(now.Add(-time.Hour)))
		p.Labels[hashLabel] = "web-0"
		v.Pods = append(v.Pods, p)
	}
	return v
}

// TestALargeSet checks that the time of a turn is linear in the number of nodes, and that
// it respects Burst. With a quadratic algorithm the test would take many minutes.
func TestALargeSet(t *testing.T) {
	const nodes = 30000
	deletions, creates := 0, 0
	v := large(nodes)
	for _, c := range decide(v, now).Commands {
		if c.Verb == events.VerbDelete {
			deletions++
		}
	}
	v.Pods = nil
	for _, c := range decide(v, now).Commands {
		if c.Verb == events.VerbCreate {
			creates++
		}
	}
	if deletions != 250 || creates != 250 {
		t.Errorf("of %d nodes %d lose their pod and %d get one, want 250 of each in a turn", nodes, deletions, creates)
	}
}

// The bodies of creates together do not exceed the limit of a turn.
func TestALargeTemplate(t *testing.T) {
	v := large(100)
	v.Pods, v.Set.Spec.Template.Annotations = nil, map[string]string{"note": strings.Repeat("x", 1<<17)}
	v.Revisions = []*appsv1.ControllerRevision{revisionOf(v.Set, "nginx:1")}
	creates, size := 0, 0
	for _, c := range decide(v, now).Commands {
		if c.Verb == events.VerbCreate {
			creates, size = creates+1, size+len(c.Body)
		}
	}
	if creates == 0 || creates > 10 || size > 1<<20 {
		t.Errorf("%d creates in one turn have %d bytes", creates, size)
	}
}

// A turn creates at least one pod, however large the template is.
func TestATemplateThatFillsATurn(t *testing.T) {
	v := large(3)
	v.Pods, v.Set.Spec.Template.Annotations = nil, map[string]string{"note": strings.Repeat("x", template.Weight)}
	v.Revisions = []*appsv1.ControllerRevision{revisionOf(v.Set, "nginx:1")}
	if got := moves(v); got != "+n00000" {
		t.Errorf("with a template as large as a turn may be the decision is %q, want one pod", got)
	}
}

func BenchmarkRollOn5000Nodes(b *testing.B) {
	v := large(5000)
	for b.Loop() {
		decide(v, now)
	}
}

func BenchmarkCreatesOn5000Nodes(b *testing.B) {
	v := large(5000)
	v.Pods = nil
	for b.Loop() {
		decide(v, now)
	}
}
