package nodelifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	controller = New(Config{})
	now        = reconciletest.Now
)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now,
		reconciletest.Content(12, applied),
		reconciletest.Law[View]{Name: "merciful", Holds: merciful},
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			if v.Zone != nil {
				zone := *v.Zone
				zone.Members = rapid.Permutation(zone.Members).Draw(t, "members")
				v.Zone = &zone
			}
			return v
		}))
}

func anyView(t *rapid.T) View {
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		return View{Name: "n0", Known: types.UID(rapid.SampledFrom([]string{"", "u"}).Draw(t, "known"))}
	case 1, 2, 3, 4:
		v := View{Node: anyNode(t, "n0"), FullDisruption: rapid.Bool().Draw(t, "full disruption"), Renewed: anyTime(t, "renewed")}
		v.Known = rapid.SampledFrom([]types.UID{"", v.Node.UID}).Draw(t, "known")
		for i := range rapid.IntRange(0, 2).Draw(t, "pods") {
			v.Pods = append(v.Pods, reconciletest.Pod(fmt.Sprint("p", i), reconciletest.On("n0"), readyPod))
		}
		return v
	default:
		z := &Zone{Name: "r:\x00:z", Last: anyTime(t, "last"), Failed: rapid.SampledFrom([]string{"", "n0"}).Draw(t, "failed")}
		z.Sight = events.Sight{Since: anyTime(t, "since"), Until: anyTime(t, "until")}
		for i := range rapid.IntRange(1, 6).Draw(t, "members") {
			z.Members = append(z.Members, Member{anyNode(t, fmt.Sprint("n", i)), anyTime(t, "heard"), anyTime(t, "lease heard")})
		}
		v := View{Zone: z, FullDisruption: rapid.Bool().Draw(t, "full disruption"), Sound: anyTime(t, "sound")}
		v.Silenced = v.Sound.IsZero() && !v.FullDisruption && rapid.Bool().Draw(t, "silenced")
		return v
	}
}

func anyTime(t *rapid.T, what string) time.Time {
	if rapid.IntRange(0, 5).Draw(t, what+" at all") == 0 {
		return time.Time{}
	}
	return ago(time.Duration(rapid.IntRange(0, 120).Draw(t, what)) * time.Second)
}

func anyNode(t *rapid.T, name string) *corev1.Node {
	n := node(name)
	n.CreationTimestamp = metav1.NewTime(anyTime(t, "created"))
	n.Labels = map[string]string{corev1.LabelOSStable: "linux"}
	if rapid.Bool().Draw(t, "known by its old label") {
		n.Labels["beta.kubernetes.io/os"] = rapid.SampledFrom([]string{"linux", "plan9"}).Draw(t, "label")
	}
	if rapid.IntRange(0, 4).Draw(t, "excluded") == 0 {
		n.Labels[exclude] = ""
	}
	n.Spec.Unschedulable = rapid.Bool().Draw(t, "unschedulable")
	for _, of := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeDiskPressure} {
		if status := rapid.SampledFrom([]corev1.ConditionStatus{"", "True", "False", "Unknown"}).Draw(t, string(of)); status != "" {
			says(of, status, anyTime(t, "transition"))(n)
		}
	}
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, "mine"}), 0, 2, rapid.ID).Draw(t, "taints") {
		effect := rapid.SampledFrom([]corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}).Draw(t, "effect")
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
	return n
}

func node(name string, edits ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"}}
	for _, edit := range edits {
		edit(n)
	}
	return n
}

func says(of corev1.NodeConditionType, status corev1.ConditionStatus, since time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: of, Status: status, LastTransitionTime: metav1.NewTime(since)})
	}
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func readyPod(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		switch {
		case c.Verb == events.VerbRecord && v.Node == nil:
			v.Known = ""
		case c.Verb == events.VerbRecord:
			v.Known = v.Node.UID
		case c.Kind == kinds.Pods.Name:
			v.Pods = slices.DeleteFunc(slices.Clone(v.Pods), func(p *corev1.Pod) bool { return p.Name == c.Name })
		case v.Node != nil:
			v.Node = merged(v.Node, c)
		default:
			zone := *v.Zone
			zone.Members = slices.Clone(zone.Members)
			for i := range zone.Members {
				if zone.Members[i].Node.Name == c.Name {
					zone.Members[i].Node = merged(zone.Members[i].Node, c)
				}
			}
			if c.Subresource == "" {
				zone.Last = now
			}
			v.Zone = &zone
		}
	}
	return v
}

func merged(n *corev1.Node, c events.Command) *corev1.Node {
	after, err := strategicpatch.StrategicMergePatch(reconcile.Body(n), c.Body, corev1.Node{})
	if err != nil {
		panic(err)
	}
	var next corev1.Node
	if err := json.Unmarshal(after, &next); err != nil {
		panic(err)
	}
	return &next
}

// merciful: no pods are evicted from a ready node, when no node is ready, from more than
// one node at once, or before the rate allows it. And no node becomes unknown that was
// heard within the grace period, or was not watched for as long.
func merciful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Zone == nil {
		return nil
	}
	deletes := 0
	for _, command := range c.Decide(v, now).Commands {
		at := slices.IndexFunc(v.Zone.Members, func(m Member) bool { return m.Node.Name == command.Name })
		m := v.Zone.Members[at]
		if command.Subresource == "status" {
			for _, heard := range []time.Time{m.Renewed, v.Zone.Sight.Since} {
				if v.Zone.Sight.Until.Sub(heard) <= 50*time.Second {
					return fmt.Errorf("%s was heard, or no node was watched, within the grace", m.Node.Name)
				}
			}
			continue
		}
		if v.Silenced && len(driven(merged(m.Node, command))) == 0 {
			continue
		}
		if deletes++; deletes > 1 || v.Silenced || ready(m.Node) || v.FullDisruption || now.Sub(v.Zone.Last) < 10*time.Second {
			return fmt.Errorf("the pods of %s have to go without need", m.Node.Name)
		}
	}
	return nil
}
