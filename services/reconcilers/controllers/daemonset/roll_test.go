package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// rolling returns a set whose pods are available after 20 seconds, with one old and one new
// revision. Each node is a text: "shut" closes it, "away" also evicts pods, "gone" removes it.
// Every other word is a pod of the revision with which it begins: "old" or "new", followed by
// "-late" (available in 15 seconds), "-unready", "-leaving", "-failed" or "-waits" (bound to its
// node only by its affinity).
func rolling(surge, unavailable string, nodes ...string) View {
	set := daemons("web")
	most, missing := intstr.Parse(surge), intstr.Parse(unavailable)
	set.Spec.MinReadySeconds = 20
	set.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
		MaxSurge: &most, MaxUnavailable: &missing,
	}}
	set.Spec.Template.Spec.Containers[0].Image = "nginx:new"
	v := View{Set: set, Revisions: []*appsv1.ControllerRevision{revisionOf(set, "nginx:old"), revisionOf(set, "nginx:new")}}
	v.Revisions[1].Revision = 2
	for i, text := range nodes {
		name := fmt.Sprintf("n%d", i)
		n := node(name)
		gone := false
		for at, word := range strings.Fields(text) {
			switch word {
			case "shut":
				n.Spec.Taints = []corev1.Taint{{Key: "example.com/shut", Effect: corev1.TaintEffectNoSchedule}}
			case "away":
				n.Spec.Taints = []corev1.Taint{{Key: "example.com/away", Effect: corev1.TaintEffectNoExecute}}
			case "gone":
				gone = true
			default:
				v.Pods = append(v.Pods, rolled(set, fmt.Sprintf("%s.%d.%d", word, i, at), word, name))
			}
		}
		if !gone {
			v.Nodes = append(v.Nodes, n)
		}
	}
	return v
}

func rolled(set *appsv1.DaemonSet, name, word, node string) *corev1.Pod {
	sort, state, _ := strings.Cut(word, "-")
	p := reconciletest.Pod(name, of(set), reconciletest.On(node))
	p.Labels[hashLabel] = "web-" + sort
	since := time.Hour
	switch state {
	case "late":
		since = 5 * time.Second
	case "unready":
		return p
	case "failed":
		p.Status.Phase = corev1.PodFailed
		return p
	case "waits":
		p.Spec = corev1.PodSpec{Affinity: bound(nil, node)}
		p.Status.Phase = corev1.PodPending
		return p
	case "leaving":
		reconciletest.Deleted[*corev1.Pod](now)(p)
	}
	reconciletest.ReadySince(now.Add(-since))(p)
	return p
}

// moves returns what a turn does to pods: "-" and the name of a deleted one, "+" and the node of a
// created one, and the time of the next turn.
func moves(v View) string {
	d := decide(v, now)
	var all []string
	for _, c := range d.Commands {
		switch {
		case c.Kind != kinds.Pods.Name:
		case c.Verb == events.VerbDelete:
			all = append(all, "-"+c.Name)
		case c.Verb == events.VerbCreate:
			all = append(all, "+"+nodeOf(parsed[corev1.Pod](c.Body)))
		}
	}
	if slices.Sort(all); !d.WakeAt.IsZero() {
		all = append(all, "again in "+d.WakeAt.Sub(now).String())
	}
	return strings.Join(all, " ")
}

// Upstream: rollingUpdate and manage.
func TestHowASetRolls(t *testing.T) {
	for what, c := range map[string]struct {
		surge, unavailable string
		nodes              []string
		edit               func(*appsv1.DaemonSet)
		want               string
	}{
		"one may be missing":                          {"0", "1", []string{"old", "old"}, nil, "-old.0.0"},
		"two may be missing":                          {"0", "2", []string{"old", "old", "old"}, nil, "-old.0.0 -old.1.0"},
		"of three a third, rounded up":                {"0", "34%", []string{"old", "old", "old"}, nil, "-old.0.0 -old.1.0"},
		"none may be either, which is one":            {"0", "0", []string{"old", "old"}, nil, "-old.0.0"},
		"none may be, and no node is a place":         {"0", "0", []string{"shut old"}, nil, ""},
		"one may be, and no node is a place":          {"0", "1", []string{"shut old"}, nil, "-old.0.1"},
		"the limits cannot be read":                   {"0", "all", []string{"old", "old-unready"}, nil, ""},
		"the surge cannot be read":                    {"all", "1", []string{"old", "old-unready"}, nil, ""},
		"one missing is one that may be":              {"0", "1", []string{"old", "new-unready"}, nil, ""},
		"one that is late is waited for":              {"0", "1", []string{"old", "new-late"}, nil, "again in 15s"},
		"so is one on a closed node":                  {"0", "1", []string{"old", "shut new-late"}, nil, "again in 15s"},
		"a late one is none while others are missing": {"0", "1", []string{"old", "old-leaving", "shut new-late"}, nil, ""},
		"an old one that is not ready goes at once":   {"0", "1", []string{"old", "old-unready"}, nil, "-old-unready.1.0"},
		"a leaving one is missing":                    {"0", "1", []string{"old", "old-leaving"}, nil, ""},
		"a closed node without pods does not count":   {"0", "1", []string{"old", "shut"}, nil, "-old.0.0"},
		"a closed node with a leaving pod counts":     {"0", "1", []string{"old", "shut old-leaving"}, nil, ""},
		"a pod of a node that is gone is missing":     {"0", "1", []string{"old", "gone old-unready"}, nil, "-old-unready.1.1"},
		"an expelled pod goes first":                  {"0", "1", []string{"old", "away new"}, nil, "-new.1.1"},
		"all are new":                                 {"0", "1", []string{"new", "new"}, nil, ""},
		"users delete them":                           {"0", "1", []string{"old", "old-unready"}, onDelete, ""},
		"nothing is said of how":                      {"0", "1", []string{"old", "old", "old"}, unsaid, "-old.0.0"},
		"nothing is said, and no node is a place":     {"0", "1", []string{"shut old"}, unsaid, ""},
		"nothing is said of how many":                 {"0", "2", []string{"old", "old"}, noNumbers, "-old.0.0"},
		"where users delete them, one of two goes":    {"1", "0", []string{"old-unready new-late"}, onDelete, "-old-unready.0.0 again in 15s"},

		"one node may have two":                     {"1", "0", []string{"old", "old"}, nil, "+n0"},
		"two nodes may have two":                    {"2", "0", []string{"old", "old", "old"}, nil, "+n0 +n1"},
		"half the nodes may":                        {"50%", "0", []string{"old", "old", "old"}, nil, "+n0 +n1"},
		"one has two":                               {"1", "0", []string{"old", "old new-unready"}, nil, ""},
		"the new one will soon be good":             {"1", "0", []string{"old", "old new-late"}, nil, "again in 15s"},
		"the new one is good":                       {"1", "0", []string{"old", "old new"}, nil, "-old.1.0"},
		"the old one is not ready":                  {"1", "0", []string{"old", "old-unready new-unready"}, nil, "-old-unready.1.0"},
		"the only one is old and not ready":         {"1", "0", []string{"old", "old-unready", "old-unready"}, nil, "+n0 +n1 +n2"},
		"two new ones are one too many":             {"1", "0", []string{"new new"}, nil, "-new.0.1"},
		"two old ones are one too many":             {"1", "0", []string{"old old new-unready"}, nil, "-old.0.1"},
		"on a closed node the old one stays":        {"1", "0", []string{"new", "shut old"}, nil, "-old.1.1"},
		"while it is needed":                        {"1", "0", []string{"new-unready", "shut old"}, nil, ""},
		"until another is available":                {"1", "0", []string{"new-late", "shut old"}, nil, "again in 15s"},
		"or one on another closed node":             {"1", "0", []string{"new-unready", "shut old", "shut new-late"}, nil, "again in 15s"},
		"one more than are needed":                  {"1", "0", []string{"new", "new-unready", "shut old", "shut old"}, nil, "-old.2.1"},
		"or two more":                               {"1", "0", []string{"new", "new", "shut old", "shut old"}, nil, "-old.2.1 -old.3.1"},
		"one that is not ready goes there":          {"1", "0", []string{"new-unready", "shut old-unready"}, nil, "-old-unready.1.1"},
		"two on one node are two of which one goes": {"1", "0", []string{"new", "shut old new-late"}, nil, "again in 15s"},
		"a node that is gone keeps what it has":     {"1", "0", []string{"new", "gone old-unready"}, nil, ""},
		"but for what never came to it":             {"1", "0", []string{"new", "gone old-waits"}, nil, "-old-waits.1.1"},
		"beside a leaving one a new one comes":      {"1", "0", []string{"old-leaving"}, nil, "+n0"},
		"a new one that failed is replaced":         {"1", "0", []string{"old new-failed"}, nil, "+n0 -new-failed.0.1"},
		"an old one that failed is replaced":        {"1", "0", []string{"old-failed new-unready"}, nil, "-old-failed.0.0"},
	} {
		v := rolling(c.surge, c.unavailable, c.nodes...)
		if c.edit != nil {
			c.edit(v.Set)
		}
		if got := moves(v); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// It is arbitrary which of two old pods is deleted first if both are available and alone on their
// nodes; for every other pod there is a reason.
func TestWhichPodsAreAsGood(t *testing.T) {
	for what, c := range map[string]struct {
		chosen, other string
		nodes         []string
		want          bool
	}{
		"two old ones":                    {"old.0.0", "old.1.0", []string{"old", "old", "old"}, true},
		"one of them is new":              {"old.0.0", "new.1.0", []string{"old", "new"}, false},
		"one of them is not ready":        {"old.0.0", "old-unready.1.0", []string{"old", "old-unready"}, false},
		"one of them has another":         {"old.0.0", "old.1.0", []string{"old", "old new"}, false},
		"one of them has another old one": {"old.0.0", "old.1.0", []string{"old", "old old"}, false},
		"one of them is not there":        {"old.0.0", "old.7.0", []string{"old", "old"}, false},
	} {
		v := rolling("0", "1", c.nodes...)
		if got := Controller.AsGood(v, types.UID("uid-"+c.chosen), types.UID("uid-"+c.other), now); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
	v := rolling("0", "1", "old", "old")
	if v.Set.Spec.Selector = nil; Controller.AsGood(v, "uid-old.0.0", "uid-old.1.0", now) {
		t.Error("a set without a selector has no pods, and one is as good as another")
	}
}

// A node waits one second after a second failure in a row, then two, four, and so on. A pod that
// lasted for half an hour, succeeded or had another revision resets the back-off.
func TestHowLongAFailureRests(t *testing.T) {
	for what, c := range map[string]struct {
		note string
		age  time.Duration
		edit func(*corev1.Pod)
		want string
	}{
		"the first":                     {"", 0, nil, "+n0 -new-failed.0.0"},
		"the second":                    {"1", 0, nil, "again in 1s"},
		"the second, a second later":    {"1", time.Second, nil, "+n0 -new-failed.0.0"},
		"the fourth":                    {"3", time.Second, nil, "again in 3s"},
		"the eleventh":                  {"10", 0, nil, "again in 8m32s"},
		"the twelfth":                   {"11", 0, nil, "again in 15m0s"},
		"the thousandth":                {"1000", 0, nil, "again in 15m0s"},
		"a note that is no number":      {"many", 0, nil, "+n0 -new-failed.0.0"},
		"a note that is less than none": {"-3", 0, nil, "+n0 -new-failed.0.0"},
		"of another revision":           {"5", 0, func(p *corev1.Pod) { p.Labels[hashLabel] = "web-old" }, "+n0 -new-failed.0.0"},
		"that ended well":               {"5", 0, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "+n0 -new-failed.0.0"},
		"of which one is leaving":       {"", 0, func(p *corev1.Pod) { reconciletest.Deleted[*corev1.Pod](now)(p) }, "+n0"},
	} {
		v := rolling("0", "1", "new-failed")
		p := v.Pods[0]
		p.Annotations, p.CreationTimestamp.Time = map[string]string{failuresNote: c.note}, now.Add(-c.age)
		if c.edit != nil {
			c.edit(p)
		}
		if got := moves(v); got != c.want {
			t.Errorf("a failure, %s: %q, want %q", what, got, c.want)
		}
	}
	for age, want := range map[time.Duration]string{30 * time.Minute: `"6"`, 31 * time.Minute: `"1"`} {
		v := rolling("0", "1", "new-failed")
		v.Pods[0].Annotations, v.Pods[0].CreationTimestamp.Time = map[string]string{failuresNote: "5"}, now.Add(-age)
		if body := string(decide(v, now).Commands[0].Body); !strings.Contains(body, failuresNote+`":`+want) {
			t.Errorf("after a pod that lasted %v the next one is %s, want %s failures", age, body, want)
		}
	}
}

// A new pod gets a name that no other pod has.
func TestNamesThatAreTaken(t *testing.T) {
	v := rolling("0", "1", "")
	first := decide(v, now).Commands[0].Name
	v.Pods = append(v.Pods, rolled(v.Set, first, "new", "n7"))
	if again := decide(v, now).Commands[0].Name; again == first {
		t.Errorf("%s is created, and is there", again)
	}
}

func onDelete(set *appsv1.DaemonSet) {
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
}

func unsaid(set *appsv1.DaemonSet) { set.Spec.UpdateStrategy.RollingUpdate = nil }

func noNumbers(set *appsv1.DaemonSet) {
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{}
}
