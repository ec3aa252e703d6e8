package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// larger is a bound claim with 1Gi that requests 2Gi, and its volume.
func larger() (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	c := wanted("data")
	v := disk(c, corev1.VolumeBound)
	c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = v.Name, corev1.ClaimBound, sized("1Gi")
	c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "Other", Status: corev1.ConditionTrue}}
	c.Spec.Resources.Requests = sized("2Gi")
	return c, v
}

func sizeOf(list corev1.ResourceList) string {
	size := list[corev1.ResourceStorage]
	return size.String()
}

func both(t *testing.T, client *fake.Clientset) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	t.Helper()
	c, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-uid-data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c, v
}

// TestAClaimGrows: the claim gets the target size, the volume expands, and then the claim has
// its new capacity, and no condition of the resize.
func TestAClaimGrows(t *testing.T) {
	c, v := larger()
	d, client := on(c, v)
	var steps []string
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch a := a.(type) {
		case clienttesting.UpdateAction:
			s := a.GetObject().(*corev1.PersistentVolumeClaim).Status
			says := string(s.AllocatedResourceStatuses[corev1.ResourceStorage]) + " " + sizeOf(s.AllocatedResources) + " of " + sizeOf(s.Capacity)
			for _, condition := range s.Conditions {
				says += " " + string(condition.Type)
			}
			steps = append(steps, a.GetSubresource()+": "+says)
		case clienttesting.PatchAction:
			steps = append(steps, "volume")
		}
		return false, nil, nil
	})
	synced(t, d, aClaim, "shop", "data")
	want := []string{"status: ControllerResizeInProgress 2Gi of 1Gi Other Resizing", "volume", "status:  2Gi of 2Gi Other"}
	if len(steps) != len(want) {
		t.Fatalf("the steps are %q, want %q", steps, want)
	}
	for i := range want {
		if steps[i] != want[i] {
			t.Errorf("step %d is %q, want %q", i, steps[i], want[i])
		}
	}
	if c, v := both(t, client); sizeOf(c.Status.Capacity) != "2Gi" || sizeOf(v.Spec.Capacity) != "2Gi" {
		t.Errorf("the claim has %s and its volume %s", sizeOf(c.Status.Capacity), sizeOf(v.Spec.Capacity))
	}
	synced(t, d, aClaim, "shop", "data")
	if len(steps) != len(want) {
		t.Errorf("there are more steps: %q", steps[len(want):])
	}
}

// TestWhatWasBegunIsBroughtToItsEnd: a request in between is carried out afterwards, and a volume
// that has expanded already is not written again.
func TestWhatWasBegunIsBroughtToItsEnd(t *testing.T) {
	c, v := larger()
	c = resizing(c, resource.MustParse("2Gi"))
	c.Spec.Resources.Requests = sized("3Gi")
	v.Spec.Capacity = sized("2Gi")
	d, client := on(c, v)
	synced(t, d, aClaim, "shop", "data")
	if c, v := both(t, client); sizeOf(c.Status.Capacity) != "2Gi" || sizeOf(v.Spec.Capacity) != "2Gi" {
		t.Errorf("the claim has %s and its volume %s", sizeOf(c.Status.Capacity), sizeOf(v.Spec.Capacity))
	}
	for _, a := range client.Actions() {
		if a.GetVerb() == "patch" {
			t.Error("the volume is written again")
		}
	}
	synced(t, d, aClaim, "shop", "data")
	if c, v := both(t, client); sizeOf(c.Status.Capacity) != "3Gi" || sizeOf(v.Spec.Capacity) != "3Gi" {
		t.Errorf("then the claim has %s and its volume %s", sizeOf(c.Status.Capacity), sizeOf(v.Spec.Capacity))
	}
}

func TestWhatDoesNotGrow(t *testing.T) {
	for what, edit := range map[string]func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume){
		"a claim that has what it asks for": func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Spec.Resources.Requests = sized("1Gi")
		},
		"a claim that is not bound": func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Status.Phase = corev1.ClaimPending
		},
		"a volume of another driver": func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "example.com" },
		"a volume of no claim":       func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil },
		"a volume of another claim":  func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "x" },
	} {
		c, v := larger()
		edit(c, v)
		d, client := on(c, v)
		synced(t, d, aClaim, "shop", "data")
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" {
				t.Errorf("%s: it does %s", what, a.GetVerb())
			}
		}
	}
}
