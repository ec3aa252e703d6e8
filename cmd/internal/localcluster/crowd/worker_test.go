package crowd

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func newWorker(client *fake.Clientset) *worker {
	c := &Crowd{client: client, done: map[string]int{}, failed: map[string]int{}}
	return &worker{crowd: c, namespace: "work", rand: rand.New(rand.NewPCG(1, 1))}
}

// TestWorkersUseEveryKind: workers create, change (if the kind has a change) and delete objects of
// each kind, and never exceed its maximum.
func TestWorkersUseEveryKind(t *testing.T) {
	client := fake.NewClientset()
	w := newWorker(client)
	made := map[string]int{}
	for range 400 {
		before := len(w.have)
		if err := w.make(t.Context()); err == nil {
			made[w.have[before].kind.name]++
		}
		have := map[string]int{}
		for _, one := range w.have {
			if have[one.kind.name]++; have[one.kind.name] > one.kind.most {
				t.Fatalf("there are %d of %s", have[one.kind.name], one.kind.name)
			}
		}
		for _, do := range []func() error{
			func() error { return w.change(t.Context()) }, func() error { return w.remove(t.Context()) }, func() error { return w.makeAnew(t.Context()) },
		} {
			if err := do(); err != nil && err != errNothing {
				t.Fatal(err)
			}
		}
	}
	for _, k := range workloads {
		if made[k.name] == 0 {
			t.Errorf("no %s was made", k.name)
		}
	}
	verbs := map[string]bool{}
	for _, a := range client.Actions() {
		verbs[a.GetVerb()+" "+a.GetResource().Resource] = true
	}
	for _, want := range []string{
		"patch statefulsets", "delete statefulsets", "patch daemonsets", "delete daemonsets", "patch jobs", "delete jobs", "delete cronjobs",
		"patch replicasets", "delete replicasets", "patch replicationcontrollers", "delete replicationcontrollers", "patch poddisruptionbudgets", "delete poddisruptionbudgets",
	} {
		if !verbs[want] {
			t.Errorf("there was no %s", want)
		}
	}
}

// TestWhatWorkersLeave: at the end there is no quota, no active CronJob, and no suspended Job,
// because these would keep the cluster from becoming quiet.
func TestWhatWorkersLeave(t *testing.T) {
	client := fake.NewClientset()
	w := newWorker(client)
	for i := range workloads {
		k := &workloads[i]
		if err := w.makeNamed(t.Context(), thing{k, names(k.name, 1)}); err != nil {
			t.Fatal(err)
		}
		if k.name == "job" {
			if err := w.patch(t.Context(), thing{k, names(k.name, 1)}, map[string]any{"suspend": true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.limit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.lift(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.endRuns(t.Context()); err != nil {
		t.Fatal(err)
	}
	quotas, err := client.CoreV1().ResourceQuotas("work").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(quotas.Items) > 0 {
		t.Errorf("the quotas are %v, %v", quotas.Items, err)
	}
	jobs, err := client.BatchV1().Jobs("work").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) != 1 || *jobs.Items[0].Spec.Suspend {
		t.Errorf("the jobs are %v, %v", jobs.Items, err)
	}
	crons, err := client.BatchV1().CronJobs("work").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(crons.Items) != 1 || !*crons.Items[0].Spec.Suspend {
		t.Errorf("the cron jobs are %v, %v", crons.Items, err)
	}
}

// TestClaimsAreBound: a claim gets a volume of its own, also after an attempt that stopped halfway.
func TestClaimsAreBound(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-db-0", Namespace: "work", UID: "u"}}
	half := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data-db-1", Namespace: "work", UID: "v"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "volume-v"},
	}
	client := fake.NewClientset(claim, half)
	c := &Crowd{client: client}
	for _, one := range []*corev1.PersistentVolumeClaim{claim, half} {
		if err := c.bindOne(t.Context(), one.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		bound, err := client.CoreV1().PersistentVolumeClaims("work").Get(t.Context(), one.Name, metav1.GetOptions{})
		if err != nil || bound.Status.Phase != corev1.ClaimBound || bound.Spec.VolumeName != "volume-"+string(one.UID) {
			t.Errorf("the claim is %+v, %v", bound, err)
		}
	}
	volume, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "volume-u", metav1.GetOptions{})
	if err != nil || volume.Spec.ClaimRef.UID != "u" {
		t.Errorf("the volume is %+v, %v", volume, err)
	}
}
