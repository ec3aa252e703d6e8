package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// TestRuns: runs interprets the flags of a kube-controller-manager as that does itself.
func TestRuns(t *testing.T) {
	t.Parallel()
	const deployment, replicas, tokens, signer, nodes = "deployment-controller", "replicaset-controller", "serviceaccount-token-controller", "certificatesigningrequest-signing-controller", "node-ipam-controller"
	for _, c := range []struct {
		line string
		yes  []string
		no   []string
	}{
		{"kube-controller-manager", []string{deployment, replicas, "root-ca-certificate-publisher-controller"}, []string{tokens, signer, nodes, "token-cleaner-controller", "service-lb-controller"}},
		{"kube-controller-manager --controllers=*,-deployment-controller", []string{replicas}, []string{deployment}},
		{"kube-controller-manager --controllers=*,-deployment", []string{replicas}, []string{deployment}},
		{"kube-controller-manager --controllers=-deployment,*,deployment", []string{replicas}, []string{deployment}},
		{"kube-controller-manager --controllers=deployment,-deployment", []string{deployment}, []string{replicas}},
		{"kube-controller-manager --controllers -replicaset --controllers *,tokencleaner", []string{deployment, "token-cleaner-controller"}, []string{replicas}},
		{"kube-controller-manager --service-account-private-key-file=/sa.key --cluster-signing-kubelet-client-cert-file=/ca.crt --allocate-node-cidrs", []string{tokens, signer, nodes}, nil},
		{"kube-controller-manager --allocate-node-cidrs=false --cluster_signing_cert_file=", nil, []string{nodes}},
	} {
		got := runs(strings.Fields(c.line))
		for _, name := range c.yes {
			if !slices.Contains(got, name) {
				t.Errorf("%s: %s is not run", c.line, name)
			}
		}
		for _, name := range c.no {
			if slices.Contains(got, name) {
				t.Errorf("%s: %s is run", c.line, name)
			}
		}
	}
	if got := runs([]string{"kube-controller-manager"}); len(got) < 20 || len(got) >= len(controllers.Catalog()) {
		t.Errorf("by default %d are run", len(got))
	}
}

func TestManagers(t *testing.T) {
	t.Parallel()
	held := Lease{Holder: "kcm_1", Renewed: now.Add(-3 * time.Second), For: 15 * time.Second}
	late := Lease{Holder: "kcm_1", Renewed: now.Add(-time.Hour), For: 15 * time.Second}
	renewing := late
	renewing.Again = true
	ahead := Lease{Holder: "kcm_1", Renewed: now.Add(time.Hour), For: 15 * time.Second}
	beside := [][]string{{"kube-controller-manager", "--controllers=*,-deployment"}}
	acting := []string{"deployment-controller", "replicaset-controller"}
	forbidden := errors.New("leases is forbidden")
	expect(t, []expectation{
		{"alone", Managers{Now: now}.Finding(acting, ""), OK, "nothing holds the Lease kube-system/kube-controller-manager"},
		{"it has ended", Managers{Lease: late, Now: now}.Finding(acting, ""), OK, "kcm_1 has not renewed"},
		{"it is active", Managers{Lease: held, Now: now}.Finding(acting, ""), Warning, "kcm_1 renews its Lease…deployment-controller, replicaset-controller…--controllers='*,-deployment-controller,-replicaset-controller'"},
		{"its clock is behind", Managers{Lease: renewing, Now: now}.Finding(acting, ""), Warning, "renews"},
		{"its clock is ahead", Managers{Lease: ahead, Now: now}.Finding(acting, ""), Warning, "renews"},
		{"its flags cannot be read", Managers{Lease: held, Now: now, PodsErr: errors.New("pods is forbidden")}.Finding(acting, ""), Warning, "pods is forbidden"},
		{"it runs one of them", Managers{Lease: held, Now: now, Pods: beside}.Finding(acting, ""), Failed, "1 controllers are run twice: replicaset-controller…-replicaset-controller'"},
		{"it runs neither", Managers{Lease: held, Now: now, Pods: beside}.Finding(acting[:1], ""), OK, "leaves to Millrace"},
		{"it holds no Lease", Managers{Now: now, Pods: beside}.Finding(acting, ""), Failed, "a pod of it runs"},
		{"two of them", Managers{Now: now, Pods: append(beside, []string{"kube-controller-manager"})}.Finding(acting, ""), Failed, "2 controllers"},
		{"none acts", Managers{Lease: held, Now: now}.Finding(nil, ""), OK, "no controller acts"},
		{"this one waits", Managers{Lease: held, Now: now}.Finding(acting, "--enable-leader-migration"), OK, "--enable-leader-migration"},
		{"it cannot be known", Managers{Lease: Lease{Err: forbidden}, PodsErr: forbidden}.Finding(acting, ""), NotChecked, "leases is forbidden"},
		{"its pod alone can be seen", Managers{Lease: Lease{Err: forbidden}, Pods: beside}.Finding(acting, ""), Failed, "a pod of it runs"},
	})
}

func TestLeaseOf(t *testing.T) {
	t.Parallel()
	holder, seconds, at := "kcm_1", int32(15), metav1.NewMicroTime(now)
	have := []coordinationv1.Lease{{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at}}}
	if got := leaseOf(have); got.Holder != holder || got.For != 15*time.Second || !got.Renewed.Equal(now) {
		t.Errorf("the Lease says %+v", got)
	}
	for name, none := range map[string][]coordinationv1.Lease{"no Lease": nil, "a Lease that was given back": {{}}} {
		if l := leaseOf(none); l.held(now) {
			t.Errorf("%s is held: %+v", name, l)
		}
	}
	for after, want := range map[time.Duration]bool{15 * time.Second: true, 16 * time.Second: false} {
		if got := leaseOf(have).held(now.Add(after)); got != want {
			t.Errorf("%v after it was renewed it is held: %t", after, got)
		}
	}
}

func TestCommandsOf(t *testing.T) {
	t.Parallel()
	pod := func(phase corev1.PodPhase, command, args []string) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: command, Args: args}}}, Status: corev1.PodStatus{Phase: phase}}
	}
	line := []string{"kube-controller-manager", "--controllers=*"}
	going := pod(corev1.PodRunning, line, nil)
	going.DeletionTimestamp = &metav1.Time{Time: now}
	got := commandsOf([]corev1.Pod{
		pod(corev1.PodRunning, line, nil), pod(corev1.PodFailed, line, nil), going,
		pod(corev1.PodRunning, []string{"/usr/local/bin/kube-controller-manager"}, []string{"-v=2"}),
		pod(corev1.PodRunning, []string{"sleep", "kube-controller-manager-not"}, nil),
	})
	if len(got) != 2 || !slices.Equal(got[0], line) || len(got[1]) != 2 {
		t.Errorf("they are %q", got)
	}
}
