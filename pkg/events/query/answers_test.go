package query_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

var dawn = time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)

// A pod with a node uses a claim that one of its volumes names, or that is made for it.
func TestWhichPodsUseAClaim(t *testing.T) {
	named := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "p-v"}}}
	made := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	other := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	now, zero, some := metav1.NewTime(dawn), int64(0), int64(5)
	owned := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "up", Controller: new(true)}}}}
	strange := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "uq", Controller: new(true)}}}}
	for name, c := range map[string]struct {
		node    string
		deleted *metav1.Time
		grace   *int64
		volumes []corev1.Volume
		uses    bool
		want    query.User
		needs   bool // the claim that it owns
		others  bool // another one's claim
	}{
		"named":             {"n", nil, nil, []corev1.Volume{other, named}, true, query.User{Name: "p", UID: "up"}, true, true},
		"made for it":       {"n", nil, nil, []corev1.Volume{made}, true, query.User{Name: "p", UID: "up", Own: true}, true, false},
		"both":              {"n", nil, nil, []corev1.Volume{made, named}, true, query.User{Name: "p", UID: "up"}, true, true},
		"neither":           {"n", nil, nil, []corev1.Volume{other}, false, query.User{}, false, false},
		"on no node":        {"", nil, nil, []corev1.Volume{named}, false, query.User{}, false, false},
		"shut down":         {"n", &now, &zero, []corev1.Volume{made}, true, query.User{Name: "p", UID: "up", Own: true, Down: true}, false, false},
		"being shut down":   {"n", &now, &some, []corev1.Volume{made}, true, query.User{Name: "p", UID: "up", Own: true}, true, false},
		"deleted, no grace": {"n", &now, nil, []corev1.Volume{made}, true, query.User{Name: "p", UID: "up", Own: true}, true, false},
		"not deleted":       {"n", nil, &zero, []corev1.Volume{made}, true, query.User{Name: "p", UID: "up", Own: true}, true, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "up", DeletionTimestamp: c.deleted, DeletionGracePeriodSeconds: c.grace}}
		pod.Spec.NodeName, pod.Spec.Volumes = c.node, c.volumes
		got, uses := query.UserOf(pod, "p-v")
		if got != c.want || uses != c.uses {
			t.Errorf("%s: the user is %+v (uses: %t), want %+v, %t", name, got, uses, c.want, c.uses)
		}
		if uses && (got.Needs(owned) != c.needs || got.Needs(strange) != c.others || got.Needs(&corev1.PersistentVolumeClaim{}) != c.others) {
			t.Errorf("%s: the pod needs its own claim: %t, that of another: %t, one without owner: %t", name, got.Needs(owned), got.Needs(strange), got.Needs(&corev1.PersistentVolumeClaim{}))
		}
		var users query.Users
		for range 101 {
			users.Take(pod, "p-v")
		}
		if uses && (users.Count != 101 || len(users.Pods) != 100) || !uses && users.Count != 0 {
			t.Errorf("%s: of 101 pods %d are counted and %d named", name, users.Count, len(users.Pods))
		}
	}
}

// Where nothing is held, nothing is named again.
func TestNothingIsNamedOfNothing(t *testing.T) {
	contents := query.Contents{Kinds: []query.Holding{{Kind: "a"}, {Kind: "b"}}}
	contents.Limit(map[kinds.Name]string{"a": "x"})
	for _, h := range contents.Kinds {
		if h.Part || h.Again {
			t.Errorf("of %s a part is named: %t, again: %t; want all, once", h.Kind, h.Part, h.Again)
		}
	}
}

// Metrics are read if the wanted number of replicas is in the question's range.
func TestWhereMetricsAreRead(t *testing.T) {
	q := query.ReadingsQuestion{Least: 2, Most: 4}
	for replicas, want := range map[int32]bool{0: false, 1: false, 2: true, 4: true, 5: false} {
		if got := q.Counts(replicas); got != want {
			t.Errorf("with %d replicas the readings count: %t, want %t", replicas, got, want)
		}
	}
	if q.Zero = true; !q.Counts(0) || q.Counts(1) {
		t.Error("where none are wanted they are read if that is asked for")
	}
}
