package resourceclaim

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

const namespace = reconciletest.Namespace

func world() *reconciletest.World {
	return reconciletest.NewWorld(kinds.Pods.Kind, kinds.ResourceClaims.Kind, kinds.ResourceClaimTemplates.Kind)
}

// using returns a pod that names a claim that exists without it.
func using(name, claim string) *corev1.Pod {
	p := reconciletest.Pod(name)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "e", ResourceClaimName: &claim}}
	return p
}

func at[T metav1.Object](obj T, edits ...reconciletest.Edit[T]) T {
	for _, edit := range edits {
		edit(obj)
	}
	return obj
}

func succeeded(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func TestWhoseTurnAPodIs(t *testing.T) {
	extended := reconciletest.Pod("x", reconciletest.InPhase(corev1.PodFailed))
	extended.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "shared"}
	skipped := pod("p", "e")
	skipped.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "e"}}
	other := says(pod("p", "e"), "e", "strange")
	w := world().Put(kinds.ResourceClaims.Kind, claim("shared", reconciletest.Pod("reserved")), of(pod("p"), "e", claim("p-e-1")), of(pod("q"), "e", claim("q-e-1")), claim("strange"))
	anew := reconciletest.Pod("u")
	anew.UID = "uid-anew"
	itself, shared := keyOfPod(reconciletest.Pod("p")), keyOfClaim(namespace, "shared")
	for what, c := range map[string]struct {
		was, now *corev1.Pod
		want     []events.Key
	}{
		"a pod without claims":                                         {nil, reconciletest.Pod("p"), nil},
		"one whose claim is to be made":                                {nil, pod("p", "e"), []events.Key{itself}},
		"one whose claim is there":                                     {nil, says(pod("p", "e"), "e", "p-e-1"), nil},
		"one whose claim has gone":                                     {nil, says(pod("p", "e"), "e", "p-e-0"), []events.Key{itself}},
		"one whose claim is another's":                                 {nil, other, nil},
		"one that does without":                                        {nil, skipped, nil},
		"one that names a claim":                                       {nil, using("u", "shared"), nil},
		"one that names none that is there":                            {nil, using("u", "none"), nil},
		"one with a node, and no reservation":                          {nil, at(using("u", "shared"), reconciletest.On("n")), []events.Key{shared}},
		"one with a node and a reservation":                            {nil, at(using("reserved", "shared"), reconciletest.On("n")), nil},
		"one that has ended":                                           {nil, at(using("u", "shared"), succeeded), []events.Key{shared}},
		"one that is deleted, without a node":                          {nil, deleted(using("u", "shared")), []events.Key{shared}},
		"one that is deleted, and may run":                             {nil, deleted(at(using("u", "shared"), reconciletest.On("n"))), nil},
		"one that has gone":                                            {at(using("u", "shared"), reconciletest.On("n")), nil, []events.Key{shared}},
		"one whose name another one has now":                           {at(using("u", "shared"), reconciletest.On("n")), anew, []events.Key{shared}},
		"one with extended resources that ends":                        {nil, extended, []events.Key{shared}},
		"one that has ended before it had a claim":                     {nil, at(pod("r", "e"), succeeded), nil},
		"one that has ended, and was not seen to say its claim's name": {nil, at(pod("q", "e"), succeeded), []events.Key{keyOfClaim(namespace, "q-e-1")}},
		"one that has gone, and was not seen to say it":                {pod("q", "e"), nil, []events.Key{keyOfClaim(namespace, "q-e-1")}},
	} {
		var was, now metav1.Object
		if c.was != nil {
			was = c.was
		}
		if c.now != nil {
			now = c.now
			w.Put(kinds.Pods.Kind, c.now)
		}
		if got := w.Keys(Controller, kinds.Pods.Kind, was, now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
}

func TestWhoseTurnAClaimIs(t *testing.T) {
	running := at(using("running", "shared"), reconciletest.On("n"))
	lacking := says(pod("lacking", "e"), "e", "lacking-e-1")
	waiting := at(using("waiting", "first"), reconciletest.On("n"))
	waiting.Spec.ResourceClaims = append(waiting.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "f", ResourceClaimName: ptr.To("second")})
	w := world().Put(kinds.Pods.Kind, running, lacking, waiting, pod("new", "e"), at(using("ended", "shared"), succeeded)).
		Put(kinds.ResourceClaims.Kind, claim("second"))
	all := []events.Key{keyOfClaim(namespace, "first"), keyOfClaim(namespace, "second")}
	other := func(change func(c *resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
		c := claim("first")
		change(c)
		return c
	}
	for what, c := range map[string]struct {
		was, now *resourcev1.ResourceClaim
		want     []events.Key
	}{
		"one with other devices' status": {claim("first"), other(func(c *resourcev1.ResourceClaim) {
			c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d"}}
		}), all[:1]},
		"one that is allocated":  {other(func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil }), claim("first"), all},
		"one that was made anew": {other(func(c *resourcev1.ResourceClaim) { c.UID = "before" }), claim("first"), all},
		"one that was reserved":  {claim("first", reconciletest.Pod("x")), claim("first"), all},
		"one of another owner":   {of(pod("new"), "f", claim("first")), claim("first"), all},
		"one for another entry": {other(func(c *resourcev1.ResourceClaim) {
			c.Annotations = map[string]string{resourcev1.PodResourceClaimAnnotation: "f"}
		}), claim("first"), all},
		"a claim that no pod names":       {nil, claim("alone"), []events.Key{keyOfClaim(namespace, "alone")}},
		"one of a pod with a node":        {nil, claim("shared"), []events.Key{keyOfClaim(namespace, "shared")}},
		"one that a pod waits for":        {nil, claim("first"), []events.Key{keyOfClaim(namespace, "first"), keyOfClaim(namespace, "second")}},
		"one that was made":               {nil, of(pod("new"), "e", claim("new-e-1")), []events.Key{keyOfClaim(namespace, "new-e-1"), keyOfPod(pod("new"))}},
		"one that a pod says it has goes": {of(lacking, "e", claim("lacking-e-1")), nil, []events.Key{keyOfClaim(namespace, "lacking-e-1"), keyOfPod(lacking)}},
	} {
		var was, now metav1.Object
		if c.was != nil {
			was = c.was
		}
		if c.now != nil {
			now = c.now
			w.Put(kinds.ResourceClaims.Kind, c.now)
		}
		if got := w.Keys(Controller, kinds.ResourceClaims.Kind, was, now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
}

func TestWhoseTurnATemplateIs(t *testing.T) {
	w := world().Put(kinds.Pods.Kind, pod("p", "e"), using("q", "t"), at(pod("r", "e"), succeeded))
	if got := w.Keys(Controller, kinds.ResourceClaimTemplates.Kind, nil, plan("t")); !slices.Equal(got, []events.Key{keyOfPod(pod("p"))}) {
		t.Errorf("a template makes it the turn of %v", got)
	}
	for what, c := range map[string][2]metav1.Object{"another template": {nil, plan("u")}, "one that goes": {plan("t"), nil}} {
		if got := w.Keys(Controller, kinds.ResourceClaimTemplates.Kind, c[0], c[1]); len(got) > 0 {
			t.Errorf("%s makes it the turn of %v", what, got)
		}
	}
}

// A pod on a node gets a reservation of a claim when it has all claims that are made for it, and
// those before this one.
func TestReserves(t *testing.T) {
	shared := claim("shared")
	two := func(first corev1.PodResourceClaim) *corev1.Pod {
		p := at(using("p", "shared"), reconciletest.On("n"))
		p.Spec.ResourceClaims = append([]corev1.PodResourceClaim{first}, p.Spec.ResourceClaims...)
		return p
	}
	made := corev1.PodResourceClaim{Name: "m", ResourceClaimTemplateName: ptr.To("t")}
	leaving, empty := deleted(claim("shared")), claim("shared")
	empty.Status.Allocation = nil
	p := two(made)
	w := world().Put(kinds.ResourceClaims.Kind, shared, of(p, "m", claim("mine")), claim("strange"))
	skip := two(made)
	skip.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "m"}}
	for what, c := range map[string]struct {
		pod   *corev1.Pod
		claim *resourcev1.ResourceClaim
		want  bool
	}{
		"with a node":                    {at(using("p", "shared"), reconciletest.On("n")), shared, true},
		"without":                        {using("p", "shared"), shared, false},
		"without devices":                {at(using("p", "shared"), reconciletest.On("n")), empty, false},
		"of a claim that is deleted":     {at(using("p", "shared"), reconciletest.On("n")), leaving, false},
		"that it does not name":          {at(using("p", "strange"), reconciletest.On("n")), shared, false},
		"after one that is not made yet": {two(made), shared, false},
		"after one that was made":        {says(two(made), "m", "mine"), shared, true},
		"after one that is another's":    {says(two(made), "m", "strange"), shared, false},
		"after one that it does without": {skip, shared, true},
		"after one that is not there":    {two(corev1.PodResourceClaim{Name: "m", ResourceClaimName: ptr.To("none")}), shared, false},
		"after one of a newer API":       {two(corev1.PodResourceClaim{Name: "m"}), shared, false},
		"of a pod that has ended":        {at(using("p", "shared"), reconciletest.On("n"), succeeded), shared, false},
		"of a pod that ends":             {deleted(at(using("p", "shared"), reconciletest.On("n"))), shared, false},
	} {
		if got := reserves(c.pod, c.claim, lookup(w, namespace)); got != c.want {
			t.Errorf("a pod %s: %v", what, got)
		}
	}
}

func TestWhatAClaimSees(t *testing.T) {
	c := of(pod("owner"), "e", claim("c", reconciletest.Pod("a"), reconciletest.Pod("b")))
	w := world().Put(kinds.ResourceClaims.Kind, c).
		Put(kinds.Pods.Kind, reconciletest.Pod("a"), reconciletest.Pod("owner"), reconciletest.Pod("else"), at(using("w", "c"), reconciletest.On("n")))
	key := keyOfClaim(namespace, "c")
	v, ok := observe(w, key)
	if !ok || len(v.Pods) != 2 || len(v.Waiting) != 1 || v.Waiting[0].Name != "w" || v.Live != nil || v.Deallocated {
		t.Fatalf("the view is %+v, found: %v", v, ok)
	}
	if _, ok := observe(w, keyOfClaim(namespace, "none")); ok {
		t.Error("observe finds a claim that is not there")
	}
	text, err := json.Marshal(reconciletest.Pod("b"))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(version string, r events.Result) *reconciletest.World {
		r.Ref = events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: "b"}
		return w.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: c.UID, ResourceVersion: version, At: now, Results: []events.Result{r}})
	}
	there := events.Result{Status: events.Answered, Answer: &events.Answer{Body: text}}
	for what, a := range map[string]struct {
		version      string
		result       events.Result
		told, unread bool
		uid          types.UID
	}{
		"is there":            {"1", there, true, false, "uid-b"},
		"is not":              {"1", events.Result{Status: events.Absent}, true, false, ""},
		"was there before":    {"0", there, false, false, ""},
		"is none to read":     {"1", events.Result{Status: events.Answered, Answer: &events.Answer{Body: []byte(`{}`)}}, false, true, ""},
		"cannot be asked for": {"1", events.Result{Status: events.Failed}, false, false, ""},
		"may not be read of":  {"1", events.Result{Status: events.Refused}, false, false, ""},
	} {
		v, _ := observe(answer(a.version, a.result), key)
		if uid, told := v.Live["b"]; told != a.told || uid != a.uid || (v.Unread != nil) != a.unread {
			t.Errorf("a pod that %s: %+v, %+v", what, v.Live, v.Unread)
		}
	}
	for version, want := range map[string]bool{"1": true, "0": false} {
		w.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: c.UID, Results: []events.Result{
			{Status: events.Applied, Ref: events.Ref{Kind: kinds.ResourceClaims.Name, Namespace: namespace, Name: "c"}, Version: version},
		}})
		if v, _ := observe(w, key); v.Deallocated != want {
			t.Errorf("with the version %s of the last report Deallocated is %v", version, v.Deallocated)
		}
	}
}

func TestWhatAPodSees(t *testing.T) {
	p := says(pod("p", "a", "b"), "a", "strange")
	w := world().Put(kinds.Pods.Kind, p).Put(kinds.ResourceClaims.Kind, of(p, "a", claim("mine")), claim("strange"), claim("else")).
		Put(kinds.ResourceClaimTemplates.Kind, plan("t"), plan("u"))
	key := keyOfPod(p)
	v, ok := observe(w, key)
	if !ok || len(v.Claims) != 2 || len(v.Templates) != 1 || v.Names["a"] != "" || !strings.HasPrefix(v.Names["b"], "p-b-") || len(v.Told) > 0 {
		t.Fatalf("the view is %+v, found: %v", v, ok)
	}
	if _, ok := observe(w, keyOfPod(pod("none"))); ok {
		t.Error("observe finds a pod that is not there")
	}
	first := v.Names["b"]
	changed := says(pod("p", "a", "b"), "a", "strange")
	changed.ResourceVersion = "2"
	if v, _ = observe(w.Put(kinds.Pods.Kind, changed), key); v.Names["b"] != first {
		t.Errorf("a pod that has changed has its claim called %s, and before %s", v.Names["b"], first)
	}
	w.Put(kinds.ResourceClaims.Kind, claim(first))
	second, _ := observe(w, key)
	if second.Names["b"] == first {
		t.Errorf("the pod gets the claim name %s, which another claim has", first)
	}
	w.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: p.UID, Results: []events.Result{
		{Status: events.Refused, Reason: string(metav1.StatusReasonAlreadyExists), Ref: events.Ref{Kind: kinds.ResourceClaims.Name, Name: second.Names["b"]}},
	}}).Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: p.UID, Results: []events.Result{
		{Status: events.Applied, Ref: events.Ref{Kind: kinds.Events.Name, Name: "told"}}, {Status: events.Failed, Ref: events.Ref{Kind: kinds.Events.Name, Name: "not told"}},
	}})
	if third, _ := observe(w, key); third.Names["b"] == first || third.Names["b"] == second.Names["b"] || !slices.Equal(third.Told, []string{"told"}) {
		t.Errorf("after two names that others have it takes %s; it was told %v", third.Names["b"], third.Told)
	}
}

// Gates that the controller does not read are not in its settings.
func TestGates(t *testing.T) {
	c := New(gate.Set{gate.DRAPrioritizedList: false, gate.PodDeletionCost: false})
	w := world().Put(kinds.Pods.Kind, pod("p", "a"))
	if v, _ := c.Observe(w, keyOfPod(pod("p"))); v.Gates.On(gate.DRAPrioritizedList) || len(v.Gates) != 1 {
		t.Errorf("the view has the gates %v", v.Gates)
	}
	if Controller.Settings != nil {
		t.Errorf("with the defaults it has the settings %s", Controller.Settings)
	}
}
