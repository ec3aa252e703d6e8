package volumeexpander

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(2, applied),
		reconciletest.Law[View]{Name: "to the point", Holds: toThePoint})
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, _ time.Time) View {
	claim := *v.Claim
	v.Claim, v.Told = &claim, nil
	for _, c := range d.Commands {
		if c.Verb == events.VerbRecord {
			v.Told = append(v.Told, c.Name)
			continue
		}
		claim.Annotations = maps.Clone(claim.Annotations)
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, resizer, driver)
	}
	return v
}

// toThePoint: a claim that asks for no more than it has, or whose volume is another claim's, is
// left alone. Only a volume of an in-tree plugin that was migrated gets the name of a resizer.
func toThePoint(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	asked, had := v.Claim.Spec.Resources.Requests[corev1.ResourceStorage], v.Claim.Status.Capacity[corev1.ResourceStorage]
	idle := asked.Cmp(had) <= 0 && (v.Volume == nil || v.Volume.Annotations[before] == "")
	if len(d.Commands) > 0 && (idle || v.Volume == nil || v.Volume.Spec.ClaimRef == nil || v.Volume.Spec.ClaimRef.UID != v.Claim.UID) {
		return fmt.Errorf("it wants %s of a claim with nothing to expand", d.Because)
	}
	for _, command := range d.Commands {
		if command.Verb == events.VerbPatch && v.Volume.Spec.AWSElasticBlockStore == nil {
			return fmt.Errorf("it names the resizer of a volume that needs none")
		}
	}
	return nil
}

const driver = "ebs.csi.aws.com"

// anyView returns a claim that asks for a size, with some volume.
func anyView(t *rapid.T) View {
	size := func(what string) corev1.ResourceList {
		text := rapid.SampledFrom([]string{"", "5Gi", "5120Mi", "10Gi"}).Draw(t, what)
		if text == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	v := View{Claim: claim()}
	v.Claim.Spec.Resources.Requests, v.Claim.Status.Capacity = size("asked"), size("had")
	v.Claim.Status.Phase = rapid.SampledFrom([]corev1.PersistentVolumeClaimPhase{corev1.ClaimBound, corev1.ClaimBound, corev1.ClaimBound, corev1.ClaimPending, corev1.ClaimLost}).Draw(t, "phase")
	if name := rapid.SampledFrom([]string{"", driver, "another"}).Draw(t, "resizer"); name != "" {
		v.Claim.Annotations = map[string]string{resizer: name}
	}
	if rapid.IntRange(0, 7).Draw(t, "volume") == 7 {
		return v
	}
	v.Volume = volume(rapid.SampledFrom([]corev1.PersistentVolumeSource{
		{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}},
		{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "v"}},
		{FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: "f"}},
	}).Draw(t, "source"))
	switch rapid.IntRange(0, 7).Draw(t, "bound to") {
	case 0:
		v.Volume.Spec.ClaimRef = nil
	case 1:
		v.Volume.Spec.ClaimRef.UID = "another"
	}
	if rapid.IntRange(0, 3).Draw(t, "on the way") == 0 {
		v.Volume.Annotations = map[string]string{before: "4Gi"}
	}
	v.Told = rapid.SampledFrom([][]string{nil, {"ExternalExpanding 10Gi after 5Gi"}, {"ExternalExpanding 10Gi after 0"}}).Draw(t, "told")
	return v
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c", ResourceVersion: "7"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
	}
}

func volume(source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "v"},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "c"}, PersistentVolumeSource: source},
	}
}

func TestObserve(t *testing.T) {
	key := events.Key{Namespace: "shop", Name: "data"}
	world := reconciletest.NewWorld(kinds.PersistentVolumes.Kind).Put(kinds.PersistentVolumeClaims.Kind, claim())
	if v, ok := observe(world, key); !ok || v.Volume != nil || v.Told != nil {
		t.Errorf("of a claim alone the view has %+v, found: %v", v, ok)
	}
	pv := volume(corev1.PersistentVolumeSource{})
	event, patch := events.Ref{Kind: kinds.Events.Name, Namespace: "shop", Name: "told"}, events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: "shop", Name: "data"}
	world.Put(kinds.PersistentVolumes.Kind, pv).Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: "c", Results: []events.Result{
		{Ref: event, Status: events.Applied}, {Ref: patch, Status: events.Applied},
		{Ref: events.Ref{Kind: kinds.Events.Name, Namespace: "shop", Name: "not told"}, Status: events.Refused},
	}})
	if v, ok := observe(world, key); !ok || v.Volume != pv || !slices.Equal(v.Told, []string{"told"}) {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
	if _, ok := observe(world, events.Key{Namespace: "shop", Name: "other"}); ok {
		t.Error("observe finds a claim that is not there")
	}
	for name, keys := range map[string][]events.Key{
		"a claim":  world.Keys(Controller, kinds.PersistentVolumeClaims.Kind, nil, claim()),
		"a volume": world.Keys(Controller, kinds.PersistentVolumes.Kind, nil, pv),
	} {
		if !slices.Equal(keys, []events.Key{key}) {
			t.Errorf("%s makes it the turn of %v", name, keys)
		}
	}
	free := volume(corev1.PersistentVolumeSource{})
	free.Spec.ClaimRef = nil
	if keys := world.Keys(Controller, kinds.PersistentVolumes.Kind, pv, free); len(keys) > 0 {
		t.Errorf("a volume that is free makes it the turn of %v", keys)
	}
}
