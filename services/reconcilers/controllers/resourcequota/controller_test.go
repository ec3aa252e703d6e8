package resourcequota

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	key     = events.Key{Namespace: reconciletest.Namespace, Name: "limits"}
	secrets = kinds.Kind{Name: "secrets", Version: "v1", Kind: "Secret", Namespaced: true, Form: kinds.Metadata}
	widgets = kinds.Kind{Name: "widgets.example.com", Version: "v1", Kind: "Widget", Namespaced: true, Form: kinds.Metadata}
)

func some(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name}}
}

func TestObserve(t *testing.T) {
	world := reconciletest.NewWorld(kinds.ResourceQuotas.Kind)
	if _, ok := controller.Observe(world, key); ok {
		t.Error("there is a view of a quota that is gone")
	}
	pod, claim := reconciletest.Pod("p"), &corev1.PersistentVolumeClaim{ObjectMeta: some("c").ObjectMeta}
	elsewhere := reconciletest.Pod("p", reconciletest.In[*corev1.Pod]("elsewhere"))
	world.Put(kinds.Pods.Kind, pod, elsewhere).Put(kinds.Services.Kind, &corev1.Service{ObjectMeta: some("s").ObjectMeta}).
		Put(kinds.PersistentVolumeClaims.Kind, claim).Put(kinds.ResourceClaims.Kind, devices("d")).Put(kinds.DeviceClasses.Kind, gold()).
		Put(secrets, some("a"), some("b")).Put(widgets).Put(kinds.Nodes.Kind)
	for _, c := range []struct {
		hard                                     string
		pods, services, claims, devices, classes int
		counts                                   map[corev1.ResourceName]int64
	}{
		{hard: "requests.cpu", pods: 1},
		{hard: "services", services: 1},
		{hard: "requests.storage", claims: 1},
		{hard: "count/resourceclaims.resource.k8s.io", pods: 1, devices: 1, classes: 1},
		{hard: "requests.example.com/gpu", pods: 1, devices: 1, classes: 1},
		{hard: "requests.example.com/other", pods: 1},
		{hard: "secrets", counts: map[corev1.ResourceName]int64{"secrets": 2}},
		{hard: "count/secrets", counts: map[corev1.ResourceName]int64{"count/secrets": 2}},
		{hard: "count/widgets.example.com", counts: map[corev1.ResourceName]int64{"count/widgets.example.com": 0}},
		{hard: "count/unheard.of"},
		{hard: "count/nodes"},
	} {
		world.Put(kinds.ResourceQuotas.Kind, quota(amounts(c.hard, "1")))
		v, _ := controller.Observe(world, key)
		if len(v.Pods) != c.pods || len(v.Services) != c.services || len(v.Claims) != c.claims || len(v.Devices) != c.devices || len(v.Classes) != c.classes {
			t.Errorf("with the limit %s the view has %d pods, %d services, %d claims, %d claims to devices, %d classes",
				c.hard, len(v.Pods), len(v.Services), len(v.Claims), len(v.Devices), len(v.Classes))
		}
		if len(v.Counts) != len(c.counts) || len(c.counts) > 0 && v.Counts[corev1.ResourceName(c.hard)] != c.counts[corev1.ResourceName(c.hard)] {
			t.Errorf("of %s the figures are %v", c.hard, v.Counts)
		}
	}
}

func TestWhoseTurn(t *testing.T) {
	told := quota(amounts("pods", "9", "services.nodeports", "9", "requests.storage", "9", "count/widgets.example.com", "9", "requests.example.com/gpu", "9"))
	told.Status = corev1.ResourceQuotaStatus{Hard: told.Spec.Hard, Used: amounts("pods", "1", "services.nodeports", "0", "requests.storage", "1", "requests.example.com/gpu", "0")}
	more := told.DeepCopy()
	more.Spec.Hard["pods"] = amounts("pods", "10")["pods"]
	charged := told.DeepCopy()
	charged.Status.Used["pods"] = amounts("pods", "2")["pods"]
	again := told.DeepCopy()
	again.UID = "another"
	world := reconciletest.NewWorld().Put(kinds.ResourceQuotas.Kind, told).Put(kinds.DeviceClasses.Kind, gold())
	pod := func(edits ...reconciletest.Edit[*corev1.Pod]) *corev1.Pod { return reconciletest.Pod("p", edits...) }
	resized := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Resources: &corev1.ResourceRequirements{Requests: amounts("cpu", "1")}}}
	}
	started := func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}} }
	service := func(how corev1.ServiceType) *corev1.Service {
		return &corev1.Service{ObjectMeta: some("s").ObjectMeta, Spec: corev1.ServiceSpec{Type: how}}
	}
	claim := func(asked, class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: some("c").ObjectMeta, Spec: corev1.PersistentVolumeClaimSpec{
			Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", asked)}, VolumeAttributesClassName: ptr.To(class),
		}}
	}
	mine := []events.Key{key}
	for what, c := range map[string]struct {
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		"a new quota":              {kinds.ResourceQuotas.Kind, nil, told, mine},
		"other limits":             {kinds.ResourceQuotas.Kind, told, more, mine},
		"a charge":                 {kinds.ResourceQuotas.Kind, told, charged, nil},
		"another quota":            {kinds.ResourceQuotas.Kind, told, again, mine},
		"a quota gone":             {kinds.ResourceQuotas.Kind, told, nil, nil},
		"a new pod":                {kinds.Pods.Kind, nil, pod(), nil},
		"a pod gone":               {kinds.Pods.Kind, pod(), nil, mine},
		"a pod in another's place": {kinds.Pods.Kind, pod(), pod(func(p *corev1.Pod) { p.UID = "other" }), mine},
		"a pod that runs":          {kinds.Pods.Kind, pod(), pod(reconciletest.InPhase(corev1.PodRunning)), nil},
		"a pod that has ended":     {kinds.Pods.Kind, pod(), pod(reconciletest.InPhase(corev1.PodFailed)), mine},
		"still ended":              {kinds.Pods.Kind, pod(reconciletest.InPhase(corev1.PodFailed)), pod(reconciletest.InPhase(corev1.PodFailed)), nil},
		"a deadline":               {kinds.Pods.Kind, pod(), pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(int64(1)) }), mine},
		"a resize":                 {kinds.Pods.Kind, pod(started), pod(resized), mine},
		"a start":                  {kinds.Pods.Kind, pod(), pod(resized), nil},
		"exposed":                  {kinds.Services.Kind, service("ClusterIP"), service("NodePort"), mine},
		"still inside":             {kinds.Services.Kind, service("ClusterIP"), service("ExternalName"), nil},
		"more storage":             {kinds.PersistentVolumeClaims.Kind, claim("1", ""), claim("2", ""), mine},
		"as much as ever":          {kinds.PersistentVolumeClaims.Kind, claim("1", ""), claim("1000m", ""), nil},
		"another attribute":        {kinds.PersistentVolumeClaims.Kind, claim("1", ""), claim("1", "fast"), mine},
		"devices back":             {kinds.ResourceClaims.Kind, devices("d"), nil, mine},
		"a new claim":              {kinds.ResourceClaims.Kind, nil, devices("d"), nil},
		"a kind heard of now":      {widgets, nil, some("w"), mine},
		"a widget gone":            {widgets, some("w"), nil, mine},
		"a widget changed":         {widgets, some("w"), some("w"), nil},
		"what no quota limits":     {secrets, some("a"), nil, nil},
		"of the cluster":           {kinds.Nodes.Kind, &corev1.Node{}, nil, nil},
		"a class":                  {kinds.DeviceClasses.Kind, nil, &resourcev1.DeviceClass{}, nil},
	} {
		if got := unique(world.Keys(controller, c.kind, c.was, c.now)); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", what, got, c.want)
		}
	}
}

func unique(keys []events.Key) []events.Key { return slices.Compact(keys) }

// Every quota is counted again in each period, and quotas are spread over it. With a
// negative period they are never counted again.
func TestThePeriod(t *testing.T) {
	moments := map[time.Time]bool{}
	for _, uid := range []types.UID{"a", "b", "c", "d"} {
		v := View{Quota: quota(nil), Period: DefaultPeriod}
		v.Quota.UID = uid
		first := v.next(now)
		if !first.After(now) || first.Sub(now) > DefaultPeriod || !v.next(first).Equal(first.Add(DefaultPeriod)) {
			t.Errorf("counted at %v and %v, now is %v", first, v.next(first), now)
		}
		moments[first] = true
	}
	if len(moments) < 3 {
		t.Errorf("four quotas are counted at %v", moments)
	}
	if d := decide(View{Quota: quota(nil), Period: -1}, now); !d.WakeAt.IsZero() {
		t.Errorf("without a period it wakes at %v", d.WakeAt)
	}
}
