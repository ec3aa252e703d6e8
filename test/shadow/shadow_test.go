package shadow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/servicetest"
	"github.com/millrace/millrace/services/reconcilers/beside"
	"github.com/millrace/millrace/services/reconcilers/controllers/deployment"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shadow"
)

// compared is the time in which a finished scene must have been compared.
const compared = 10 * time.Second

const first, second = "registry.example/app:1", "registry.example/app:2"

var both = []string{"deployment-controller", "replicaset-controller"}

// TestBesideTheRealOne plays typical actions of users, and compares the decisions of Millrace's controllers
// with the writes of kube-controller-manager.
func TestBesideTheRealOne(t *testing.T) {
	s := begin(t)
	s.lookOn(t, mutants()...)
	namespace := s.namespace(t, "beside")
	for _, act := range []func(*testing.T, string){
		s.life, s.pausing, s.healing, s.recreating, s.forgetting, s.sets, s.refusals,
	} {
		act(t, namespace)
		s.rests(t, namespace)
	}
	s.sparing(t, namespace, "dear")
	s.caughtUp(t, namespace)

	parities, err := standing.New(s.bus).Parities(t.Context(), both, standing.Compared{Show: report.Agreements, Most: 40})
	must(t, err)
	if len(parities) != len(both) {
		t.Fatalf("there are shadows of %d controllers", len(parities))
	}
	minor, err := clustertest.Minor()
	must(t, err)
	for _, p := range parities {
		t.Logf("%s: %v", p.Controller, p.Findings)
		if p.Findings[report.Agreed] < 10 {
			t.Errorf("%s agrees only %d times: nothing was compared", p.Controller, p.Findings[report.Agreed])
		}
		for _, e := range p.Examples {
			if !e.Agreement.Explained() && (minor >= 36 || !otherHash(e)) {
				t.Errorf("%s: %s", p.Controller, text(e))
			} else if testing.Verbose() && e.Agreement != report.Agreed {
				t.Logf("%s: %s", p.Controller, text(e))
			}
		}
	}
	t.Run("nothing of ours was written", s.nothingWritten)
	t.Run("who is wrong is found out", func(t *testing.T) { s.foundOut(t, namespace) })
}

// otherHash reports whether the only difference is the hash of a pod template: that of an older
// kube-controller-manager is another one, since its templates have fewer fields.
func otherHash(e standing.Example) bool {
	of := func(path string) bool { return strings.HasSuffix(path, "pod-template-hash") }
	return slices.ContainsFunc(e.Differences, func(d report.Difference) bool { return of(d.Path) }) &&
		!slices.ContainsFunc(e.Differences, func(d report.Difference) bool { return !of(d.Path) && d.Path != "metadata.name" })
}

func text(e standing.Example) string {
	return fmt.Sprintf("%s %v: %s (%s) because %q, %+v", e.Agreement, e.Key, e.What, e.Note, e.Because, e.Differences)
}

// rests waits until no pod is terminating. The shadow assumes that KCM is a few changes of a namespace
// behind, and those changes could belong to the scene before.
func (s *site) rests(t *testing.T, namespace string) {
	t.Helper()
	eventually.Complete(t, patience, "no pod is on its way out", func() string {
		pods, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp != nil {
				return p.Name + " is"
			}
		}
		return ""
	})
}

// life is the life of a Deployment from its create to its end.
func (s *site) life(t *testing.T, namespace string) {
	s.deploy(t, namespace, "web", 3)
	for _, replicas := range []int{5, 2, 6} {
		s.patch(t, namespace, "web", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
		s.settled(t, namespace, "web", first)
	}
	for _, image := range []string{second, first} { // rolled out, and back
		s.image(t, namespace, "web", image)
		s.settled(t, namespace, "web", image)
	}
	s.image(t, namespace, "web", second)
	s.patch(t, namespace, "web", `{"spec":{"replicas":9}}`) // while the rollout goes on
	s.settled(t, namespace, "web", second)
	background := metav1.DeletePropagationBackground
	must(t, s.kube.AppsV1().Deployments(namespace).Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &background}))
	eventually.Complete(t, patience, "nothing of web is left", func() string { return s.pods(t, namespace, "web", 0) })
}

func (s *site) pausing(t *testing.T, namespace string) {
	s.deploy(t, namespace, "paused", 3)
	s.patch(t, namespace, "paused", `{"spec":{"paused":true}}`)
	s.image(t, namespace, "paused", second)
	s.patch(t, namespace, "paused", `{"spec":{"replicas":4}}`)
	eventually.Complete(t, patience, "the paused one has grown", func() string { return s.pods(t, namespace, "paused", 4) })
	s.patch(t, namespace, "paused", `{"spec":{"paused":false}}`)
	s.settled(t, namespace, "paused", second)
}

func (s *site) healing(t *testing.T, namespace string) {
	s.deploy(t, namespace, "hurt", 3)
	pods, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=hurt"})
	must(t, err)
	must(t, s.kube.CoreV1().Pods(namespace).Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{}))
	// One pod loses its label, and a new pod replaces it.
	free := []byte(`{"metadata":{"labels":{"app":"free"}}}`)
	_, err = s.kube.CoreV1().Pods(namespace).Patch(t.Context(), pods.Items[1].Name, types.MergePatchType, free, metav1.PatchOptions{})
	must(t, err)
	eventually.Complete(t, patience, "three others are there", func() string { return s.pods(t, namespace, "hurt", 3) })
	s.settled(t, namespace, "hurt", first)
}

// sparing checks that a scale-down deletes the pods with the lowest deletion costs, and no others: a
// controller that chooses differently is wrong in every state of the view. But the shadow must see the
// scale-down before the pods go, or it attributes the deletes to another manager.
func (s *site) sparing(t *testing.T, namespace, name string) {
	s.deploy(t, namespace, name, 4)
	these := metav1.ListOptions{LabelSelector: "app=" + name}
	pods, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), these)
	must(t, err)
	for i, p := range pods.Items {
		cost := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, corev1.PodDeletionCost, 1+i)
		_, err := s.kube.CoreV1().Pods(namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(cost), metav1.PatchOptions{})
		must(t, err)
	}
	// The shadow assumes that KCM is up to 32 changes of a kind behind, and without the costs any choice
	// would be right. So the test makes more changes than that afterwards.
	for i := range 40 {
		touch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, i)
		_, err := s.kube.CoreV1().Pods(namespace).Patch(t.Context(), pods.Items[i%4].Name, types.MergePatchType, []byte(touch), metav1.PatchOptions{})
		must(t, err)
	}
	s.patch(t, namespace, name, `{"spec":{"replicas":2}}`)
	s.settled(t, namespace, name, first)
	eventually.Complete(t, patience, "the two that cost the most are left", func() string {
		left, err := s.kube.CoreV1().Pods(namespace).List(t.Context(), these)
		if err != nil {
			return err.Error()
		}
		var costs []string
		for _, p := range left.Items {
			costs = append(costs, p.Annotations[corev1.PodDeletionCost])
		}
		if slices.Sort(costs); !slices.Equal(costs, []string{"3", "4"}) {
			return fmt.Sprintf("the costs of those that are left are %q", costs)
		}
		return ""
	})
}

func (s *site) recreating(t *testing.T, namespace string) {
	d := application("again", 3, first)
	d.Spec.Strategy.Type = "Recreate"
	d.Spec.MinReadySeconds = 1
	_, err := s.kube.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{})
	must(t, err)
	s.settled(t, namespace, "again", first)
	s.image(t, namespace, "again", second)
	s.settled(t, namespace, "again", second)
}

// forgetting makes the controller delete old revisions.
func (s *site) forgetting(t *testing.T, namespace string) {
	s.deploy(t, namespace, "short", 2)
	s.patch(t, namespace, "short", `{"spec":{"revisionHistoryLimit":1}}`)
	for _, image := range []string{second, first + "1", first + "2"} {
		s.image(t, namespace, "short", image)
		s.settled(t, namespace, "short", image)
	}
	eventually.Complete(t, patience, "two sets are left", func() string {
		sets, err := s.kube.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=short"})
		if err != nil || len(sets.Items) != 2 {
			return fmt.Sprint(len(sets.Items), err)
		}
		return ""
	})
}

// sets tests ReplicaSets without a Deployment.
func (s *site) sets(t *testing.T, namespace string) {
	set := replicaSet(application("alone", 10, first))
	_, err := s.kube.AppsV1().ReplicaSets(namespace).Create(t.Context(), set, metav1.CreateOptions{})
	must(t, err)
	eventually.Complete(t, patience, "ten are ready", func() string { return s.ready(t, namespace, "alone", 10) })
	for _, left := range []int32{8, 6, 4, 3} { // each scale-down makes other pods surplus
		s.scaleSet(t, namespace, "alone", left)
		eventually.Complete(t, patience, fmt.Sprint(left, " are left"), func() string { return s.ready(t, namespace, "alone", left) })
	}
}

// refusals makes the API server refuse creates for a while.
func (s *site) refusals(t *testing.T, _ string) {
	namespace := s.namespace(t, "poor")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": quantity("2")}}}
	quota, err := s.kube.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{})
	must(t, err)
	eventually.Complete(t, patience, "the quota is in force", func() string {
		q, err := s.kube.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "two", metav1.GetOptions{})
		if err != nil || q.Status.Hard == nil {
			return fmt.Sprint("no status yet ", err)
		}
		quota = q
		return ""
	})
	_, err = s.kube.AppsV1().ReplicaSets(namespace).Create(t.Context(), replicaSet(application("rich", 4, first)), metav1.CreateOptions{})
	must(t, err)
	eventually.Complete(t, patience, "the refusal is reported", func() string {
		set, err := s.kube.AppsV1().ReplicaSets(namespace).Get(t.Context(), "rich", metav1.GetOptions{})
		if err != nil || len(set.Status.Conditions) == 0 {
			return fmt.Sprint("no condition ", err)
		}
		return ""
	})
	eventually.Complete(t, patience, "the quota is raised", func() string {
		q, err := s.kube.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "two", metav1.GetOptions{})
		if err == nil {
			q.Spec.Hard["pods"] = quantity("9")
			_, err = s.kube.CoreV1().ResourceQuotas(namespace).Update(t.Context(), q, metav1.UpdateOptions{})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	eventually.Complete(t, patience, "four are ready", func() string { return s.ready(t, namespace, "rich", 4) })
}

// caughtUp waits until the shadow has compared the last write.
func (s *site) caughtUp(t *testing.T, namespace string) {
	t.Helper()
	s.deploy(t, namespace, "last", 1)
	eventually.Complete(t, patience, "the last write has been compared, and nothing is open", func() string {
		d, err := s.kube.AppsV1().Deployments(namespace).Get(t.Context(), "last", metav1.GetOptions{})
		must(t, err)
		parities, err := standing.New(s.bus).Parities(t.Context(), both[:1], standing.Compared{Show: report.Agreements, Most: 1000})
		must(t, err)
		for _, p := range parities {
			for _, e := range p.Examples {
				if e.Version == d.ResourceVersion {
					return s.open(t)
				}
			}
		}
		return "version " + d.ResourceVersion + " has no finding"
	})
}

// nothingWritten: every request of ours in the audit log is a read.
func (s *site) nothingWritten(t *testing.T) {
	ours := s.requests(t)
	if len(ours) == 0 {
		t.Error("the audit log has no request of ours at all: it cannot tell")
	}
	for _, r := range ours {
		if !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
			t.Errorf("%s %s %s/%s as %s", r.Verb, r.ObjectRef.Resource, r.ObjectRef.Namespace, r.ObjectRef.Name, r.User.Username)
		}
	}
	for _, controller := range both {
		for _, stream := range []string{"TURN_", "OUTCOME_"} {
			if state, err := s.bus.StreamState(t.Context(), stream+controller); err == nil {
				t.Errorf("there is a stream %s%s with %d messages", stream, controller, state.Messages)
			}
		}
	}
}

// mutant is a controller with a mistake, and the kinds of difference that must reveal it.
type mutant struct {
	reconcile.Any
	by []report.Agreement
}

// mutants are controllers with one mistake each, under their own names.
func mutants() []mutant {
	surge := deployment.Controller
	surge.Name, surge.Decide = "one-more-surge", func(v deployment.View, now time.Time) reconcile.Decision {
		d := v.Deployment.DeepCopy()
		if r := d.Spec.Strategy.RollingUpdate; r != nil {
			most := intstr.FromInt32(int32(1 + *d.Spec.Replicas/2))
			r.MaxSurge = &most
		}
		v.Deployment = d
		return deployment.Controller.Decide(v, now)
	}
	costly := replicaset.Controller
	costly.Name, costly.Decide = "costly-deletions", func(v replicas.View, now time.Time) reconcile.Decision {
		pods := make([]*corev1.Pod, len(v.Pods))
		for i, p := range v.Pods {
			pods[i] = p.DeepCopy()
			cost, ok := p.Annotations[corev1.PodDeletionCost]
			if !ok {
				cost = fmt.Sprint(p.CreationTimestamp.Unix() % 1000)
			}
			pods[i].Annotations = map[string]string{corev1.PodDeletionCost: "-" + cost}
			if i%2 == 0 && !ok {
				pods[i].Spec.NodeName = ""
			}
		}
		v.Pods = pods
		return replicaset.Controller.Decide(v, now)
	}
	fewer := replicaset.Controller
	fewer.Name, fewer.Decide = "one-pod-less", func(v replicas.View, now time.Time) reconcile.Decision {
		set := v.Set.DeepCopy()
		if *set.Spec.Replicas > 1 {
			*set.Spec.Replicas--
		}
		v.Set = set
		return replicaset.Controller.Decide(v, now)
	}
	blind := replicaset.Controller
	blind.Name, blind.Decide = "unready", func(v replicas.View, now time.Time) reconcile.Decision {
		pods := make([]*corev1.Pod, len(v.Pods))
		for i, p := range v.Pods {
			pods[i] = p.DeepCopy()
			pods[i].Status.Conditions = nil
		}
		v.Pods = pods
		return replicaset.Controller.Decide(v, now)
	}
	return []mutant{
		{surge, []report.Agreement{report.Differs}},
		{costly, []report.Agreement{report.Differs}},
		{fewer, []report.Agreement{report.KCMOnly, report.WeOnly, report.Differs}},
		{blind, []report.Agreement{report.Differs, report.KCMOnly}},
	}
}

// lookOn runs controllers in shadow in this process until the test ends.
func (s *site) lookOn(t *testing.T, wrong ...mutant) {
	t.Helper()
	config := beside.Config{Bus: s.bus, Code: "test", Settings: shadow.Settings{Patience: 20 * time.Second}}
	for _, m := range wrong {
		config.Controllers = append(config.Controllers, m.Any)
	}
	service, err := beside.New(config)
	must(t, err)
	servicetest.Run(t, "the shadow of mutants", service.Run)
	eventually.Complete(t, patience, "the mutants look on", func() string {
		for _, check := range service.Checks() {
			if err := check(); err != nil {
				return err.Error()
			}
		}
		return ""
	})
}

// mostScenes is the maximum number of extra scenes for all mutants together.
const mostScenes = 3

// foundOut: each mutant has unexplained differences of its kind. If the shadow sees a pod go before it sees
// that there are too many, it attributes the delete to another manager, so one scene may show nothing on a
// slow machine: then the test plays it again.
func (s *site) foundOut(t *testing.T, namespace string) {
	played, scenes := time.Now(), 0
	for _, m := range mutants() {
		name := m.Describe().Name
		eventually.Complete(t, patience, name+" is found out", func() string { // scenes are seen for nothing while the order is doubtful
			parities, err := standing.New(s.bus).Parities(t.Context(), []string{name}, standing.Compared{})
			must(t, err)
			if len(parities) == 0 {
				return "no shadow"
			}
			if slices.ContainsFunc(m.by, func(a report.Agreement) bool { return parities[0].Findings[a] > 0 }) {
				t.Logf("%s: %v, after %d more scenes of at most %d", name, parities[0].Findings, scenes, mostScenes)
				return ""
			}
			if time.Since(played) > compared && scenes < mostScenes {
				scenes++
				s.sparing(t, namespace, fmt.Sprint("dear-", scenes))
				played = time.Now()
			}
			return fmt.Sprint(parities[0].Findings)
		})
	}
}
