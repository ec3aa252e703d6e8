package selinuxwarning

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLawsOfVolumes(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyVolume), now, reconciletest.Content(2, told), reconciletest.Indifferent(shuffled),
		reconciletest.Law[View]{Name: "mutual", Holds: mutual}, reconciletest.Law[View]{Name: "once", Holds: once},
		reconciletest.Law[View]{Name: "discreet", Holds: discreet})
}

func TestLawsOfPods(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyOwn), now, reconciletest.Content(2, told))
}

// mutual: the metric has every pair of pods that conflict, in both orders, and no other pair.
func mutual(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	want := map[string]bool{}
	for i, a := range v.Uses {
		for j, b := range v.Uses {
			x, okX := v.wantOf(a)
			y, okY := v.wantOf(b)
			if i == j || !okX || !okY {
				continue
			}
			if x.policy != y.policy {
				want[fmt.Sprint("SELinuxChangePolicy ", x.pod.Name, x.policy, y.pod.Name, y.policy)] = true
			}
			if labelsConflict(x.label, y.label) {
				want[fmt.Sprint("SELinuxLabel ", x.pod.Name, x.label, y.pod.Name, y.label)] = true
			}
		}
	}
	figures := c.Decide(v, now).Figures
	for _, f := range figures {
		if is := fmt.Sprint(f.Labels[0], " ", f.Labels[2], f.Labels[3], f.Labels[5], f.Labels[6]); !want[is] || f.Value != 1 {
			return fmt.Errorf("it counts %s as %v", is, f.Value)
		}
	}
	if len(figures) != len(want) {
		return fmt.Errorf("the figures count %d conflicts of %d", len(figures), len(want))
	}
	return nil
}

// once: if no Events were recorded before, each pod of a conflict gets one Event. No Event is
// recorded again.
func once(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	v.Known = nil
	d := c.Decide(v, now)
	if len(d.Commands) != len(d.Figures) {
		return fmt.Errorf("it tells %d of %d conflicts", len(d.Commands), len(d.Figures))
	}
	said := map[string]bool{}
	for _, command := range d.Commands {
		n := command.OnApplied
		if said[fmt.Sprint(*n)] && sameNamespace(v) {
			return fmt.Errorf("it tells %s twice", n.Message)
		}
		said[fmt.Sprint(*n)] = true
	}
	if again := c.Decide(told(v, d, now), now); len(again.Commands) > 0 {
		return errors.New("it tells the same again")
	}
	return nil
}

func sameNamespace(v View) bool {
	return !slices.ContainsFunc(v.Uses, func(u Use) bool { return u.Pod.Namespace != v.Uses[0].Pod.Namespace })
}

// discreet: no Event of a pod names a pod in another namespace.
func discreet(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		for _, u := range v.Uses {
			if n := command.OnApplied; n != nil && u.Pod.Namespace != n.About.Namespace && strings.Contains(n.Message, " pod "+u.Pod.Name+" ") {
				return fmt.Errorf("%s of %s is told of %s in %s", n.About.Name, n.About.Namespace, u.Pod.Name, u.Pod.Namespace)
			}
		}
	}
	return nil
}

// told returns the view after all Events of a decision were recorded.
func told(v View, d reconcile.Decision, _ time.Time) View {
	for _, c := range d.Commands {
		var n note
		if len(c.Note) == 0 {
			continue
		}
		if err := json.Unmarshal(c.Note, &n); err != nil {
			panic(err)
		}
		v.Told, v.Known = n.Volumes, n.Known
	}
	return v
}

func shuffled(t *rapid.T, v View) View {
	if len(v.Uses) > 0 {
		v.Uses = rapid.Permutation(v.Uses).Draw(t, "order")
	}
	return v
}

var (
	levels   = []string{"", "s0:c1", "s0:c2"}
	someType = []string{"", "", "container_t", "spc_t"}
)

func anyOptions(t *rapid.T, what string) *corev1.SELinuxOptions {
	if rapid.IntRange(0, 3).Draw(t, what) == 0 {
		return nil
	}
	return &corev1.SELinuxOptions{Type: rapid.SampledFrom(someType).Draw(t, what+" type"), Level: rapid.SampledFrom(levels).Draw(t, what+" level")}
}

func anyPod(t *rapid.T, namespace, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "4"}}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: anyOptions(t, "of the pod")}
	if policy := rapid.SampledFrom([]corev1.PodSELinuxChangePolicy{"", "", corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive}).Draw(t, "policy"); policy != "" {
		p.Spec.SecurityContext.SELinuxChangePolicy = &policy
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "containers") {
		c := corev1.Container{Name: fmt.Sprint("c", i), VolumeMounts: []corev1.VolumeMount{{Name: rapid.SampledFrom([]string{"data", "data", "data", "other"}).Draw(t, "mounts")}}}
		if rapid.IntRange(0, 2).Draw(t, "says something") == 0 {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: anyOptions(t, "of the container")}
		}
		if rapid.IntRange(0, 3).Draw(t, "init") == 0 {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

// anyVolume returns a volume that some pods use, some of which have their Events.
func anyVolume(t *rapid.T) View {
	v := View{Name: "kubernetes.io/csi/d^vol", Mounts: rapid.IntRange(0, 4).Draw(t, "mounts") > 0}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		name := fmt.Sprint("web-", i)
		u := Use{anyPod(t, rapid.SampledFrom([]string{"shop", "shop", "bank"}).Draw(t, "namespace"), name), []string{"data"}}
		if rapid.Bool().Draw(t, "twice") {
			u.Volumes = []string{"data", "other"}
		}
		v.Uses = append(v.Uses, u)
		if rapid.Bool().Draw(t, "known") {
			if v.Known == nil {
				v.Known = map[types.UID]string{}
			}
			v.Known[types.UID(name)] = "before"
			if w, ok := v.wantOf(u); ok && rapid.Bool().Draw(t, "as it is") {
				v.Known[types.UID(name)] = w.digest()
			}
		}
	}
	return v
}

// anyOwn returns the view of a pod.
func anyOwn(t *rapid.T) View {
	some := [][]string{nil, {"data"}, {"data", "other"}}
	v := View{Pod: anyPod(t, "shop", "web"), Found: rapid.SampledFrom(some).Draw(t, "found"), Told: rapid.SampledFrom(some).Draw(t, "told")}
	if rapid.IntRange(0, 7).Draw(t, "ended") == 7 {
		v.Pod.Status.Phase = corev1.PodFailed
	}
	return v
}

// many returns a volume that n pods use, each of which wants another label.
func many(n int) View {
	v := View{Name: "kubernetes.io/csi/d^vol", Mounts: true}
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%04d", i), UID: types.UID(fmt.Sprint(i))}}
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: fmt.Sprint("s0:c", i)}}
		p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "data"}}}}
		v.Uses = append(v.Uses, Use{p, []string{"data"}})
	}
	return v
}

// If very many pods use a volume, every turn still fits into a message. The next turns record the
// other Events, and come to an end.
func TestManyPods(t *testing.T) {
	v, at := many(200), now
	about, turns := map[string]int{}, 0
	for ; ; turns++ {
		d := Controller.Decide(v, at)
		if len(d.Figures) != mostShown {
			t.Fatalf("the figures count %d conflicts", len(d.Figures))
		}
		if len(d.Commands) == 0 {
			break
		}
		if len(d.Commands) > mostAtOnce+4*mostOfPod || turns > 100 {
			t.Fatalf("turn %d tells %d Events", turns, len(d.Commands))
		}
		for _, c := range d.Commands {
			about[c.OnApplied.About.Name]++
		}
		if v = told(v, d, at); len(v.Known) < len(v.Uses) && !d.WakeAt.Equal(at.Add(time.Second)) {
			t.Fatalf("%d pods were told, and it is woken at %v", len(v.Known), d.WakeAt)
		}
		at = at.Add(time.Second)
	}
	if turns < 10 || len(about) != len(v.Uses) {
		t.Errorf("after %d turns %d pods were told", turns, len(about))
	}
	if last := about["web-0199"]; last != mostOfPod {
		t.Errorf("the last one is told of %d others", last)
	}
}

// A pod that has its Events and now wants another label may have to wait until others have theirs.
// It gets new Events later.
func TestWhoHasToWaitIsNotForgotten(t *testing.T) {
	v := many(60)
	last := v.Uses[59].Pod.UID
	v.Known = map[types.UID]string{last: "before"}
	d := Controller.Decide(v, now)
	if next := told(v, d, now); next.Known[last] != "before" || d.WakeAt.IsZero() {
		t.Errorf("of the last pod the view has %q, and the decision wakes at %v", next.Known[last], d.WakeAt)
	}
}

// Events and metrics cut a label that is too long to read.
func TestALongLabel(t *testing.T) {
	v := many(2)
	v.Uses[0].Pod.Spec.SecurityContext.SELinuxOptions.Level = strings.Repeat("ä", 1<<16)
	d := Controller.Decide(v, now)
	if len(d.Commands) != 2 || len(d.Figures) != 2 {
		t.Fatalf("the decision has %d Events and %d figures, want 2 of each", len(d.Commands), len(d.Figures))
	}
	for i, c := range d.Commands {
		if text := c.OnApplied.Message; len(text) > 2*longest || strings.ToValidUTF8(text, "?") != text || !strings.Contains(text, "ä...") {
			t.Errorf("the Event has the message %q", text)
		}
		if text := strings.Join(d.Figures[i].Labels, " "); len(text) > 2*longest || strings.ToValidUTF8(text, "?") != text {
			t.Errorf("the figure has the labels %q", text)
		}
	}
	if v.Uses[1].Pod.Spec.SecurityContext.SELinuxOptions.Level = strings.Repeat("ä", 1<<16) + "!"; len(Controller.Decide(v, now).Figures) != 2 {
		t.Error("labels that differ in what is not shown do not conflict")
	}
}

// Upstream: pkg/controller/volume/selinuxwarning/translator.
func TestLabelsThatConflict(t *testing.T) {
	for _, c := range []struct {
		a, b      string
		conflicts bool
	}{
		{"", "", false},
		{"", "u:r:t:", false},
		{"", "u:r:t:s0", true},
		{"u:r:t:s0", "u:r:t:s0", false},
		{"u:r:t:s0", "u:r:t:s1", true},
		{"u:r:t:s0", ":::s0", false},
		{"u:r:t:s0", ":::s0:c1", true},
		{"u:r:t:s0:c1", "u:r:t:s0:c2", true},
		{"u::t:s0", ":r::s0", false},
		{"u:::s0", "v:::s0", true},
		{":r::s0", ":q::s0", true},
		{"::t:s0", "::s:s0", true},
		{"::t:", "::t:s0", true},
	} {
		if got, back := labelsConflict(c.a, c.b), labelsConflict(c.b, c.a); got != c.conflicts || back != c.conflicts {
			t.Errorf("%q and %q conflict: %v, %v", c.a, c.b, got, back)
		}
	}
}

// The options of a container replace those of its pod, even if they are empty.
func TestLabelsOfContainers(t *testing.T) {
	options := func(level string) *corev1.SecurityContext {
		return &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
	}
	mounts := []corev1.VolumeMount{{Name: "logs"}, {Name: "data"}}
	for what, c := range map[string]struct {
		edit func(s *corev1.PodSpec)
		want []string
	}{
		"none":            {func(s *corev1.PodSpec) { s.SecurityContext = nil }, nil},
		"of the pod":      {func(*corev1.PodSpec) {}, []string{":::s0"}},
		"of a container":  {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = options("s1") }, []string{":::s1"}},
		"nothing of that": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = &corev1.SecurityContext{} }, []string{":::s0"}},
		"an empty one":    {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = options("") }, []string{""}},
		"another volume":  {func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts = mounts[:1] }, nil},
		"three": {func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{VolumeMounts: mounts, SecurityContext: options("s2")}, {VolumeMounts: mounts, SecurityContext: options("s0")}}
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{VolumeMounts: mounts, SecurityContext: options("s3")}}}
		}, []string{":::s2", ":::s0", ":::s3"}},
		"a device": {func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts, s.Containers[0].VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data"}}
		}, nil},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SELinuxOptions: options("s0").SELinuxOptions}, Containers: []corev1.Container{{VolumeMounts: mounts}}}}
		c.edit(&p.Spec)
		if got := labelsIn(p, "data"); !slices.Equal(got, c.want) {
			t.Errorf("%s: the labels are %q", what, got)
		}
	}
	if l := labelOf(&corev1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0:c1"}); l != "u:r:t:s0:c1" {
		t.Errorf("a whole label is %q", l)
	}
}

// The view has the note of the result that has one.
func TestNotes(t *testing.T) {
	noting := func(text string) events.Result {
		return events.Result{Answer: &events.Answer{Note: json.RawMessage(text)}}
	}
	for what, c := range map[string]struct {
		results []events.Result
		want    []string
	}{
		"nothing":        {nil, nil},
		"without notes":  {[]events.Result{{}, {Answer: &events.Answer{}}}, nil},
		"unreadable":     {[]events.Result{noting(`{"volumes":"x"}`)}, nil},
		"the second one": {[]events.Result{{}, noting(`{"volumes":["x"]}`)}, []string{"x"}},
	} {
		if n := noted(events.Outcome{Results: c.results}); !slices.Equal(n.Volumes, c.want) {
			t.Errorf("%s: the note has %v", what, n.Volumes)
		}
	}
}
