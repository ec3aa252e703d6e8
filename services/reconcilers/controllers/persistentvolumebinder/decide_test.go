package persistentvolumebinder

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func named(c *corev1.PersistentVolumeClaim, volume string) *corev1.PersistentVolumeClaim {
	c.Spec.VolumeName = volume
	return c
}

func of(c *corev1.PersistentVolumeClaim, class string) *corev1.PersistentVolumeClaim {
	c.Spec.StorageClassName = &class
	return c
}

func boundTo(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	v.Spec.ClaimRef, v.Status.Phase = refTo(c), corev1.VolumeBound
	return v
}

func class(name string, age time.Duration, annotation string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	if annotation != "" {
		c.Annotations = map[string]string{annotation: "true"}
	}
	return c
}

// The keys to which changes map.
func TestKeys(t *testing.T) {
	a, b, c, d := pvc("a", "1Gi"), named(pvc("b", "1Gi"), "v"), of(pvc("c", "1Gi"), fast), named(pvc("d", "1Gi"), "w")
	v, w := pv("v", "1Gi"), boundTo(pv("w", "1Gi"), d)
	world := reconciletest.NewWorld(kinds.StorageClasses.Kind, kinds.Pods.Kind).Put(kinds.PersistentVolumeClaims.Kind, a, b, c, d).Put(kinds.PersistentVolumes.Kind, v, w)
	p := reconciletest.Pod("p")
	for _, name := range []string{"a", "d", "not-there"} {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
	placed := p.DeepCopy()
	placed.Spec.NodeName = "n"
	again := placed.DeepCopy()
	freed := w.DeepCopy()
	freed.Spec.ClaimRef, freed.Status.Phase = nil, corev1.VolumeAvailable
	moved := named(d.DeepCopy(), "v")
	key := func(name string) events.Key { return keyOfClaim(reconciletest.Namespace, name) }
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		"a claim that comes":                 {kinds.PersistentVolumeClaims.Kind, nil, d, []events.Key{key("d"), keyOfVolume("w")}},
		"a claim that goes":                  {kinds.PersistentVolumeClaims.Kind, d, nil, []events.Key{key("d"), keyOfVolume("w")}},
		"a claim that names another volume":  {kinds.PersistentVolumeClaims.Kind, d, moved, []events.Key{key("d"), keyOfVolume("v"), keyOfVolume("w")}},
		"a claim that gets a second volume":  {kinds.PersistentVolumeClaims.Kind, pvc("d", "1Gi"), moved, []events.Key{key("d"), keyOfVolume("v"), keyOfVolume("w")}},
		"a claim that changes":               {kinds.PersistentVolumeClaims.Kind, b, b, []events.Key{key("b"), keyOfVolume("v")}},
		"a volume that is free":              {kinds.PersistentVolumes.Kind, v, v, []events.Key{keyOfVolume("v"), key("a"), key("b")}},
		"a volume that becomes free":         {kinds.PersistentVolumes.Kind, w, freed, []events.Key{keyOfVolume("w"), key("d"), key("a")}},
		"a volume that gets bound":           {kinds.PersistentVolumes.Kind, v, boundTo(v.DeepCopy(), a), []events.Key{keyOfVolume("v"), key("a"), key("b")}},
		"a volume that is bound":             {kinds.PersistentVolumes.Kind, w, w, []events.Key{keyOfVolume("w"), key("d")}},
		"a volume that comes, and is bound":  {kinds.PersistentVolumes.Kind, nil, w, []events.Key{keyOfVolume("w"), key("d")}},
		"a volume that goes":                 {kinds.PersistentVolumes.Kind, w, nil, []events.Key{keyOfVolume("w"), key("d")}},
		"a class":                            {kinds.StorageClasses.Kind, nil, class(fast, 0, ""), []events.Key{key("a"), key("c")}},
		"a class that goes":                  {kinds.StorageClasses.Kind, class("slow", 0, ""), nil, []events.Key{key("a")}},
		"a pod that waits":                   {kinds.Pods.Kind, nil, p, []events.Key{key("a")}},
		"a pod that gets a node":             {kinds.Pods.Kind, p, placed, []events.Key{key("a")}},
		"a pod that has one":                 {kinds.Pods.Kind, placed, again, nil},
		"a pod that goes and had no node":    {kinds.Pods.Kind, p, nil, []events.Key{key("a")}},
		"a pod that goes and had a node":     {kinds.Pods.Kind, placed, nil, nil},
		"a pod that changes while it waits":  {kinds.Pods.Kind, p, p, nil},
		"a pod that comes, and has its node": {kinds.Pods.Kind, nil, placed, nil},
	} {
		if got := world.Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s makes it the turn of %v, want %v", what, got, c.want)
		}
	}
}

// What a claim sees of classes, pods and volumes.
func TestObserveClaim(t *testing.T) {
	const current, beta = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"
	late := class("late", time.Hour, "")
	late.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	waiting, ended, leaving, placed := reconciletest.Pod("w"), reconciletest.Pod("e", reconciletest.InPhase(corev1.PodFailed)), reconciletest.Pod("l", reconciletest.Deleted[*corev1.Pod](now)), reconciletest.Pod("p", reconciletest.On("n"))
	pods := []*corev1.Pod{waiting, ended, leaving, placed, reconciletest.Pod("another")}
	for _, p := range pods[:4] {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}}}}
	}
	world := reconciletest.NewWorld(kinds.PersistentVolumes.Kind).Put(kinds.StorageClasses.Kind, late, class("old", 2*time.Hour, current), class("new", time.Hour, beta), class("also", time.Hour, current))
	for _, p := range pods {
		world.Put(kinds.Pods.Kind, p)
	}
	see := func(c *corev1.PersistentVolumeClaim) View {
		v, ok := observe(world.Put(kinds.PersistentVolumeClaims.Kind, c), keyOfClaim(c.Namespace, c.Name))
		if !ok {
			t.Fatal("observe does not find the claim")
		}
		return v
	}
	if v := see(pvc("a", "1Gi")); v.Default != "also" || v.Class != nil || v.Waiting != nil {
		t.Errorf("of a claim of no class the view has %+v", v)
	}
	if v := see(of(pvc("a", "1Gi"), "late")); v.Default != "" || v.Class != late || !slices.Equal(v.Waiting, []string{"w"}) {
		t.Errorf("of a claim that waits the view has %+v", v)
	}
	selected := of(pvc("a", "1Gi"), "late")
	selected.Annotations = map[string]string{selectedNode: "n"}
	if v := see(selected); v.Waiting != nil {
		t.Errorf("of a claim with a node the view has the pods %v", v.Waiting)
	}
	old := pvc("a", "1Gi")
	old.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "late"}
	if v := see(old); v.Class != late || v.Default != "" {
		t.Errorf("of a claim with the old annotation the view has %+v", v)
	}
	mine, taken, free, other := boundTo(pv("mine", "1Gi"), old), boundTo(pv("taken", "1Gi"), pvc("b", "1Gi")), pv("free", "1Gi"), pv("other", "1Gi")
	other.Spec.StorageClassName = "x"
	world.Put(kinds.PersistentVolumes.Kind, mine, taken, free, other)
	if v := see(pvc("a", "1Gi")); !slices.Equal(v.Volumes, []*corev1.PersistentVolume{free, mine}) {
		t.Errorf("the view has the volumes %v", v.Volumes)
	}
	if v := see(named(pvc("a", "1Gi"), "taken")); v.Named != taken || v.Volumes != nil || v.Default != "" {
		t.Errorf("of a claim that names a volume the view has %+v", v)
	}
	if _, ok := observe(world, keyOfClaim(reconciletest.Namespace, "none")); ok {
		t.Error("observe finds a claim that is not there")
	}
	if _, ok := observe(world, keyOfVolume("none")); ok {
		t.Error("observe finds a volume that is not there")
	}
}

// An answer is valid for the object that it is about, until that changes.
func TestAnswers(t *testing.T) {
	claim := named(pvc("a", "1Gi"), "v")
	claim.Annotations = map[string]string{completed: "yes"}
	volume := boundTo(pv("v", "1Gi"), claim)
	world := reconciletest.NewWorld(kinds.PersistentVolumes.Kind, kinds.PersistentVolumeClaims.Kind)
	asked := func(key events.Key, own metav1.Object, version string, of events.Ref, status events.Status, body any) {
		r := events.Result{Ref: of, Status: status}
		if body != nil {
			r.Answer = &events.Answer{Body: reconcile.Body(body)}
		}
		world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: own.GetUID(), ResourceVersion: version, At: now, Results: []events.Result{r}})
	}
	toClaim, toVolume := keyOfClaim(claim.Namespace, "a"), keyOfVolume("v")
	ofVolume, ofClaim := events.Ref{Kind: kinds.PersistentVolumes.Name, Name: "v"}, events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: claim.Namespace, Name: "a"}
	look := func(key events.Key) View {
		v, _ := observe(world, key)
		return v
	}
	world.Put(kinds.PersistentVolumeClaims.Kind, claim)
	asked(toClaim, claim, "1", ofVolume, events.Answered, volume)
	if v := look(toClaim); v.Live == nil || !v.Live.There || v.Live.Claim != claim.UID || !v.Live.At.Equal(now) {
		t.Errorf("the view hears of the volume %+v", v.Live)
	}
	asked(toClaim, claim, "1", ofVolume, events.Answered, pv("v", "1Gi"))
	if v := look(toClaim); v.Live == nil || !v.Live.There || v.Live.Claim != "" {
		t.Errorf("the view hears of a free volume %+v", v.Live)
	}
	asked(toClaim, claim, "1", ofVolume, events.Absent, nil)
	if v := look(toClaim); v.Live == nil || v.Live.There {
		t.Errorf("the view hears of a volume that is gone %+v", v.Live)
	}
	asked(toClaim, claim, "0", ofVolume, events.Absent, nil)
	if v := look(toClaim); v.Live != nil {
		t.Errorf("the view has what was said of an older version: %+v", v.Live)
	}
	asked(toClaim, claim, "1", ofClaim, events.Absent, nil)
	if v := look(toClaim); v.Live != nil {
		t.Errorf("the view hears of what it did not ask for: %+v", v.Live)
	}
	asked(toClaim, claim, "1", ofVolume, events.Answered, map[string]string{"kind": "Pod"})
	if v := look(toClaim); v.Live != nil || v.Unread == nil {
		t.Errorf("an answer of another kind is read as %+v, unread: %+v", v.Live, v.Unread)
	}
	world.Remove(kinds.PersistentVolumeClaims.Name, claim.Namespace, "a")
	world.Put(kinds.PersistentVolumes.Kind, volume)
	asked(toVolume, volume, "1", ofClaim, events.Answered, claim)
	if v := look(toVolume); v.Live == nil || !v.Live.There || v.Live.Claim != claim.UID || v.Holder != nil {
		t.Errorf("the view hears of the claim %+v", v.Live)
	}
}

// The same Event is recorded again after a while, and another one at once.
func TestTellsOnceInAWhile(t *testing.T) {
	claim := pvc("a", "1Gi")
	key := keyOfClaim(claim.Namespace, "a")
	world := reconciletest.NewWorld(kinds.PersistentVolumes.Kind, kinds.StorageClasses.Kind, kinds.Pods.Kind).Put(kinds.PersistentVolumeClaims.Kind, claim)
	first, _ := Controller.Ask(world, key, now)
	if len(first.Commands) != 1 || first.Commands[0].OnApplied == nil || first.Commands[0].OnApplied.Reason != failedBinding {
		t.Fatalf("the decision has the commands %+v", first.Commands)
	}
	remember := func(note json.RawMessage, status events.Status) {
		world.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: claim.UID, At: now, Results: []events.Result{{Status: status, Answer: &events.Answer{Note: note}}}})
	}
	remember(first.Commands[0].Note, events.Applied)
	if d, _ := Controller.Ask(world, key, now); len(d.Commands) > 0 || !d.WakeAt.Equal(now.Add(again)) {
		t.Errorf("told before, the decision has the commands %v, and wakes at %v", d.Commands, d.WakeAt)
	}
	if d, _ := Controller.Ask(world, key, now.Add(again)); len(d.Commands) != 1 {
		t.Errorf("after a while the decision has the commands %v", d.Commands)
	}
	remember(reconcile.Body(told{"something else"}), events.Applied)
	if d, _ := Controller.Ask(world, key, now); len(d.Commands) != 1 {
		t.Errorf("something else was told, and the decision has the commands %v", d.Commands)
	}
	remember(first.Commands[0].Note, events.Refused)
	if d, _ := Controller.Ask(world, key, now); len(d.Commands) != 1 {
		t.Errorf("it could not be told, and the decision has the commands %v", d.Commands)
	}
}

// The figures of a volume, of a claim, and of a default class that is assigned.
func TestFigures(t *testing.T) {
	claim := of(pvc("a", "1Gi"), fast)
	claim.Status.Phase, claim.Spec.VolumeAttributesClassName = corev1.ClaimBound, new("gold")
	volume := boundTo(pv("v", "1Gi"), claim)
	volume.Spec.NFS = &corev1.NFSVolumeSource{}
	figures := append(View{Volume: volume}.countedVolume(), View{Claim: claim}.countedClaim())
	want := map[string][]string{volumes: {nfs, "Filesystem"}, boundVolumes: {""}, boundClaims: {reconciletest.Namespace, fast, "gold"}}
	for _, f := range figures {
		if !slices.Equal(f.Labels, want[f.Metric]) {
			t.Errorf("%s %v, want %v", f.Metric, f.Labels, want[f.Metric])
		}
	}
	d := View{Claim: pvc("a", "1Gi"), Default: fast}.decideClaim(now)
	if len(d.Figures) != 4 || d.Figures[0].Failed || !d.Figures[1].Failed || d.Figures[2].Metric != notRetroactive || d.Figures[3].Metric != unboundClaims {
		t.Errorf("a default class is counted as %+v", d.Figures)
	}
}

// Claims that search at once spread over the volumes of one size, because a claim that
// loses its volume to another has to begin again.
func TestClaimsSpreadOverVolumesOfOneSize(t *testing.T) {
	const many = 200
	world := reconciletest.NewWorld(kinds.StorageClasses.Kind, kinds.Pods.Kind)
	for i := range many {
		world.Put(kinds.PersistentVolumes.Kind, pv(fmt.Sprintf("disk-%d", i), "1Gi"))
	}
	world.Put(kinds.PersistentVolumes.Kind, pv("larger", "2Gi"))
	chosen := map[string]bool{}
	for i := range many {
		claim := pvc(fmt.Sprintf("data-%d", i), "1Gi")
		world.Put(kinds.PersistentVolumeClaims.Kind, claim)
		v, _ := observe(world, keyOfClaim(claim.Namespace, claim.Name))
		if len(v.Volumes) > mostOffered {
			t.Fatalf("a claim sees %d volumes", len(v.Volumes))
		}
		chosen[v.match(false).Name] = true
	}
	// A random choice hits 126 of 200.
	if len(chosen) < 100 || chosen["larger"] {
		t.Errorf("%d claims want %d volumes, the larger one among them: %t", many, len(chosen), chosen["larger"])
	}
}

// A claim sees the best of many volumes, wherever they are in the list.
func TestOfManyVolumesTheBestAreSeen(t *testing.T) {
	for at := range 10 {
		world := reconciletest.NewWorld(kinds.StorageClasses.Kind, kinds.Pods.Kind)
		for i := range 10 {
			size := "3Gi"
			if i == at {
				size = "2Gi"
			}
			world.Put(kinds.PersistentVolumes.Kind, pv(fmt.Sprintf("disk-%d", i), size))
		}
		claim := pvc("data", "1Gi")
		world.Put(kinds.PersistentVolumeClaims.Kind, claim)
		if v, _ := observe(world, keyOfClaim(claim.Namespace, claim.Name)); v.match(false).Name != fmt.Sprintf("disk-%d", at) {
			t.Errorf("the claim is matched with %s, want the smallest, disk-%d", v.match(false).Name, at)
		}
	}
}

// The time from the request to a provisioner until the claim gets its volume is measured.
func TestHowLongAProvisionerTook(t *testing.T) {
	claim := of(pvc("a", "1Gi"), fast)
	claim.Annotations = map[string]string{provisioner: "csi.example.com"}
	key, asked := keyOfClaim(claim.Namespace, "a"), now.Add(-1500*time.Millisecond)
	immediate := storagev1.VolumeBindingImmediate
	storage := class(fast, time.Hour, "")
	storage.Provisioner, storage.VolumeBindingMode = "csi.example.com", &immediate
	update := events.Result{Ref: events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: claim.Namespace, Name: "a"}, Status: events.Applied}
	question := events.Result{Ref: events.Ref{Kind: kinds.PersistentVolumes.Name, Name: "v"}, Status: events.Answered}
	conflict := update
	conflict.Status = events.Conflict
	for what, c := range map[string]struct {
		last   []events.Result
		change func(c *corev1.PersistentVolumeClaim)
		took   float64
	}{
		"it was asked":                   {last: []events.Result{update}, took: 1.5},
		"something else came after that": {last: []events.Result{question}},
		"it could not be asked":          {last: []events.Result{conflict}},
		"nothing is remembered":          {},
		"another program has asked it":   {last: []events.Result{update}, change: func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }},
		"it was never asked":             {last: []events.Result{update}, change: func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }},
	} {
		is := claim.DeepCopy()
		if c.change != nil {
			c.change(is)
		}
		volume := pv("v", "1Gi")
		volume.Spec.ClaimRef, volume.Spec.StorageClassName = refTo(is), fast
		world := reconciletest.NewWorld(kinds.Pods.Kind).Put(kinds.PersistentVolumeClaims.Kind, is).Put(kinds.PersistentVolumes.Kind, volume).
			Put(kinds.StorageClasses.Kind, storage)
		if c.last != nil {
			world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, UID: claim.UID, Decided: asked, At: now.Add(-time.Second), Results: c.last})
		}
		d, _ := Controller.Ask(world, key, now)
		var took []float64
		errors := 0
		for _, f := range d.Figures {
			labelled := slices.Equal(f.Labels, []string{"csi.example.com", "provision"})
			switch {
			case f.Metric == operationTook && labelled && f.Of == update.Ref && !f.Failed:
				took = append(took, f.Value)
			case f.Metric == operationErrors && labelled && f.Failed:
				errors++
			}
		}
		if len(d.Commands) != 1 || c.took == 0 && len(took)+errors > 0 || c.took > 0 && (errors != 1 || !slices.Equal(took, []float64{c.took})) {
			t.Errorf("%s: the decision has the commands %v and the figures %+v", what, d.Commands, d.Figures)
		}
	}
}
