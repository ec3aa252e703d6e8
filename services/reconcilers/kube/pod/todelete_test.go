package pod_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/pod"
)

// Pods of every sort, from first to go to last. The pods that became ready 50
// and 49 minutes ago are of one age by powers of two, so their uids decide.
func TestToDeleteGoldenOrder(t *testing.T) {
	type spec struct {
		name, node string
		phase      corev1.PodPhase
		ready      time.Duration // 0: not ready
		cost       string
		restarts   int32
	}
	specs := []spec{
		{name: "unassigned"},
		{name: "pending", node: "n1", phase: corev1.PodPending},
		{name: "unknown", node: "n1", phase: corev1.PodUnknown},
		{name: "not-ready", node: "n1", phase: corev1.PodRunning},
		{name: "cheap", node: "n1", phase: corev1.PodRunning, ready: time.Minute, cost: "-5"},
		{name: "co-located", node: "n2", phase: corev1.PodRunning, ready: 99 * time.Hour},
		{name: "uid-1", node: "n1", phase: corev1.PodRunning, ready: 50 * time.Minute},
		{name: "uid-2", node: "n1", phase: corev1.PodRunning, ready: 49 * time.Minute},
		{name: "restarting", node: "n1", phase: corev1.PodRunning, ready: 99 * time.Hour, restarts: 3},
		{name: "steady", node: "n1", phase: corev1.PodRunning, ready: 99 * time.Hour},
	}
	var pods []*corev1.Pod
	var want []string
	for _, s := range specs {
		p := &corev1.Pod{}
		if s.ready > 0 {
			p = ready(now.Add(-s.ready))
		}
		p.Name, p.UID, p.Spec.NodeName, p.Status.Phase = s.name, types.UID(s.name), s.node, s.phase
		p.CreationTimestamp = metav1.NewTime(now.Add(-100 * time.Hour))
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: s.restarts}}
		if s.cost != "" {
			p.Annotations = map[string]string{corev1.PodDeletionCost: s.cost}
		}
		pods, want = append(pods, p), append(want, s.name)
	}
	crowd := pod.Crowd{"n1": 1, "n2": 2}
	for count := range len(pods) {
		slices.Reverse(pods)
		if got := namesOf(pod.ToDelete(pods, crowd, true, count, now)); !slices.Equal(got, want[:count]) {
			t.Fatalf("the first %d to go are %v, want %v", count, got, want[:count])
		}
	}
}

func namesOf(pods []*corev1.Pod) []string {
	names := make([]string, 0, len(pods))
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

// Of any two pods the one goes that the rules, one by one, say. Three can be in
// a circle, so nothing is asked of them but that the order given does not matter.
func TestToDeleteAgreesWithTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		crowd := pod.Crowd{"a": rapid.IntRange(0, 2).Draw(t, "on a"), "b": 1}
		x := anyPod(t, "x")
		y := akin(t, x)
		costs := rapid.Bool().Draw(t, "costs count")
		got := pod.ToDelete([]*corev1.Pod{x, y}, crowd, costs, 1, now)[0]
		if !costs {
			x.Annotations, y.Annotations = nil, nil
		}
		switch {
		case before(x, y, crowd) && got != x, before(y, x, crowd) && got != y:
			t.Fatalf("%s goes first; the rules say the other", got.Name)
		}
	})
}

func TestToDeleteDoesNotDependOnTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []*corev1.Pod
		for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
			pods = append(pods, anyPod(t, fmt.Sprintf("p%d", i)))
		}
		given := slices.Clone(pods)
		count := rapid.IntRange(0, 9).Draw(t, "count")
		first := pod.ToDelete(pods, nil, true, count, now)
		if len(first) != min(count, len(pods)) {
			t.Fatalf("%d of %d pods are to be deleted, want %d", len(first), len(pods), count)
		}
		if !slices.Equal(pods, given) {
			t.Fatal("the list that was given has been sorted")
		}
		second := pod.ToDelete(rapid.Permutation(pods).Draw(t, "order"), nil, true, count, now)
		if !slices.Equal(first, second) {
			t.Fatalf("%v are to be deleted, in another order %v", namesOf(first), namesOf(second))
		}
	})
}

func anyPod(t *rapid.T, name string) *corev1.Pod {
	moments := rapid.SampledFrom([]time.Time{{}, now, now.Add(time.Second), now.Add(-9 * time.Second), now.Add(-10 * time.Second), now.Add(-time.Hour)})
	p := &corev1.Pod{}
	if rapid.Bool().Draw(t, "ready") {
		p = ready(moments.Draw(t, "since"))
	}
	p.Name, p.UID = name, types.UID(rapid.SampledFrom([]string{"u1", "u2", "u3"}).Draw(t, "uid"))
	p.CreationTimestamp = metav1.NewTime(moments.Draw(t, "created"))
	p.Spec.NodeName = rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(t, "node")
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", "Pending", "Unknown", "Running", "Running"}).Draw(t, "phase")
	if cost := rapid.SampledFrom([]string{"", "", "1", "-1", "+7", "08"}).Draw(t, "cost"); cost != "" {
		p.Annotations = map[string]string{corev1.PodDeletionCost: cost}
	}
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{{Name: "beside", RestartPolicy: &always}, {Name: "before"}}
	restarts := rapid.Int32Range(0, 2)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: restarts.Draw(t, "restarts")}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "beside", RestartCount: restarts.Draw(t, "beside")}, {Name: "before", RestartCount: restarts.Draw(t, "before")},
	}
	return p
}

// akin is a pod that differs from another in some things only, so that the last
// rules get their chance.
func akin(t *rapid.T, x *corev1.Pod) *corev1.Pod {
	y, other := x.DeepCopy(), anyPod(t, "y")
	y.Name, y.UID = other.Name, other.UID
	changes := []func(){
		func() { y.Spec.NodeName = other.Spec.NodeName },
		func() { y.Status.Phase = other.Status.Phase },
		func() { y.Status.Conditions = other.Status.Conditions },
		func() { y.Annotations = other.Annotations },
		func() { y.Status.ContainerStatuses = other.Status.ContainerStatuses },
		func() { y.Status.InitContainerStatuses = other.Status.InitContainerStatuses },
		func() { y.CreationTimestamp = other.CreationTimestamp },
	}
	from := rapid.IntRange(0, len(changes)-1).Draw(t, "first that may differ")
	for _, change := range changes[from:] {
		change()
	}
	return y
}

// before is the rules as they are written down, with upstream's logarithm: x
// goes before y.
func before(x, y *corev1.Pod, crowd pod.Crowd) bool {
	if (x.Spec.NodeName == "") != (y.Spec.NodeName == "") {
		return x.Spec.NodeName == ""
	}
	phases := map[corev1.PodPhase]int{corev1.PodUnknown: 1, corev1.PodRunning: 2}
	if a, b := phases[x.Status.Phase], phases[y.Status.Phase]; a != b {
		return a < b
	}
	sinceX, readyX := pod.ReadySince(x)
	sinceY, readyY := pod.ReadySince(y)
	if readyX != readyY {
		return !readyX
	}
	if a, b := cost(x), cost(y); a != b {
		return a < b
	}
	if a, b := crowd[x.Spec.NodeName], crowd[y.Spec.NodeName]; a != b {
		return a > b
	}
	if readyX && !sinceX.Equal(sinceY) {
		return younger(x, y, sinceX, sinceY)
	}
	if a, b := x.Status.ContainerStatuses[0].RestartCount, y.Status.ContainerStatuses[0].RestartCount; a != b {
		return a > b
	}
	if a, b := x.Status.InitContainerStatuses[0].RestartCount, y.Status.InitContainerStatuses[0].RestartCount; a != b {
		return a > b
	}
	if !x.CreationTimestamp.Equal(&y.CreationTimestamp) {
		return younger(x, y, x.CreationTimestamp.Time, y.CreationTimestamp.Time)
	}
	return false
}

func younger(x, y *corev1.Pod, a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero()
	}
	if p, q := magnitude(a), magnitude(b); p != q {
		return p < q
	}
	return x.UID < y.UID
}

func magnitude(at time.Time) int {
	if age := now.Sub(at); age > 0 {
		return int(math.Log2(float64(age)))
	}
	return -1
}

func cost(p *corev1.Pod) int {
	text := p.Annotations[corev1.PodDeletionCost]
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		return 0
	}
	return n
}

// What losing a pod costs is a decimal number of 32 bits, written in the plainest way.
func TestWhatLosingAPodCosts(t *testing.T) {
	for text, want := range map[string]int32{
		"": 0, "0": 0, "7": 7, "10": 10, "-5": -5, "2147483647": math.MaxInt32, "2147483648": 0, "-2147483648": math.MinInt32, "-2147483649": 0,
		"+7": 0, "07": 0, "much": 0, "1.5": 0,
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.PodDeletionCost: text}}}
		if got := pod.DeletionCost(p); got != want {
			t.Errorf("a cost of %q is %d, want %d", text, got, want)
		}
	}
}

// Only pods that are at work are company.
func TestWhoIsCompany(t *testing.T) {
	crowd := pod.Crowd{}
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}, Spec: corev1.PodSpec{NodeName: string(phase)}}
		crowd.Join(p)
		p.DeletionTimestamp = &metav1.Time{Time: now}
		crowd.Join(p)
	}
	if len(crowd) != 2 || crowd["Running"] != 1 || crowd["Pending"] != 1 {
		t.Errorf("company is %v", crowd)
	}
}
