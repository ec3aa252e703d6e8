package deployment

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func rolling(replicas int32, surge, unavailable string) *appsv1.Deployment {
	d := reconciletest.Deployment("web", replicas)
	d.Spec.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: new(intstr.Parse(surge)), MaxUnavailable: new(intstr.Parse(unavailable)),
		},
	}
	return d
}

// sized returns a set with a size and the annotation of how many replicas were allowed;
// later places are older.
func sized(place int, size, most int32) *set {
	seen := reconciletest.ReplicaSet("web-"+strconv.Itoa(9-place), size)
	seen.Annotations = map[string]string{mostNote: strconv.Itoa(int(most))}
	return &set{seen: seen, size: size, notes: seen.Annotations}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		surge, unavailable string
		replicas           int32
		more, less         int32
	}{
		{"25%", "25%", 1, 1, 0},
		{"25%", "25%", 3, 1, 0},
		{"25%", "25%", 10, 3, 2},
		{"30%", "30%", 7, 3, 2},
		{"0", "1%", 10, 0, 1},
		{"0", "0", 5, 0, 1},
		{"50%", "0", 3, 2, 0},
		{"1", "100%", 4, 1, 4},
	} {
		more, less := bounds(rolling(c.replicas, c.surge, c.unavailable))
		if more != c.more || less != c.less {
			t.Errorf("%+v: %d more, %d less", c, more, less)
		}
	}
	if got := least(rolling(2, "0", "5")); got != 0 {
		t.Errorf("5 of 2 may be missing: at least %d", got)
	}
	if got := least(rolling(0, "0", "0")); got != 0 {
		t.Errorf("none is wanted: at least %d", got)
	}
}

func TestTargetOfTheNewSet(t *testing.T) {
	for _, c := range []struct {
		replicas       int32
		surge          string
		has, old, want int32
	}{
		{10, "25%", 0, 10, 3},
		{10, "25%", 3, 10, 3},
		{10, "25%", 3, 8, 5},
		{10, "25%", 5, 5, 8},
		{3, "0", 0, 3, 0},
		{3, "0", 0, 2, 1},
		{3, "0", 5, 0, 3},
	} {
		r := &rollout{deployment: rolling(c.replicas, c.surge, "1"), old: []*set{sized(0, c.old, 0)}}
		if got := r.target(c.has); got != c.want {
			t.Errorf("%+v: target %d", c, got)
		}
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		replicas int32
		surge    string
		most     int32
		sizes    []int32
		want     []int32
	}{
		{20, "3", 13, []int32{8, 5}, []int32{14, 9}},
		{5, "3", 13, []int32{8, 5}, []int32{5, 3}},
		{10, "25%", 5, []int32{2, 2, 1}, []int32{5, 5, 3}},
		{3, "0", 10, []int32{5, 5}, []int32{1, 2}},
		{10, "3", 13, []int32{8, 5}, []int32{8, 5}},
		{0, "3", 13, []int32{8, 5}, []int32{0, 0}},
	} {
		r := &rollout{deployment: rolling(c.replicas, c.surge, "0")}
		var sets []*set
		for i, size := range c.sizes {
			sets = append(sets, sized(i, size, c.most))
		}
		if got := r.shares(sets); !slices.Equal(got, c.want) {
			t.Errorf("%+v: shares %v", c, got)
		}
	}
}

func TestHistoryForgetsTheOldest(t *testing.T) {
	if got := remember("", "1"); got != "1" {
		t.Errorf("the first: %q", got)
	}
	if got := remember("1,2", "3"); got != "1,2,3" {
		t.Errorf("another: %q", got)
	}
	long := strings.Repeat("12345,", 332) + "12345"
	got := remember(long, "67890")
	if len(got) > historyLength || !strings.HasSuffix(got, ",12345,67890") || !strings.HasPrefix(got, "12345,") {
		t.Errorf("%d characters, %.12s ... %s", len(got), got, got[len(got)-12:])
	}
}
