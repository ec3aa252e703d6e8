package manifests

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/access"
)

// spoiled is an installation in which one rule is broken.
type spoiled struct {
	says  string
	spoil func(*broken)
}

// broken has the objects of an installation while a test breaks them.
type broken struct{ all []runtime.Object }

// the is the first pod that runs a program.
func (b *broken) the(program string) pod {
	found := pods(b.all)
	return found[slices.IndexFunc(found, func(p pod) bool { return p.program() == program })]
}

func (b *broken) policy(name string) *networkingv1.NetworkPolicySpec {
	found := of[*networkingv1.NetworkPolicy](b.all)
	return &found[slices.IndexFunc(found, func(p *networkingv1.NetworkPolicy) bool { return p.Name == name })].Spec
}

// without removes a flag.
func without(program, flag string) func(*broken) {
	return func(b *broken) {
		c := b.the(program).container()
		c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--"+flag) })
	}
}

func with(program, flag string) func(*broken) {
	return func(b *broken) { c := b.the(program).container(); c.Args = append(c.Args, flag) }
}

func volume(p pod, name string) *corev1.Volume {
	i := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	return &p.Spec.Volumes[i]
}

var (
	yes, no = true, false
	anyone  = networkingv1.NetworkPolicyIngressRule{}
)

var spoiledBus = []spoiled{
	{"without --nats-accounts", without("bus", "nats-accounts")}, {"without --nats-tls-cert-file", without("bus", "nats-tls-cert-file")},
	{"without --nats-passwords-file", without("bus", "nats-passwords-file")}, {"without --nats-tls-key-file", without("bus", "nats-tls-key-file")},
	{"without --cluster-password-file", without("bus", "cluster-password-file")}, {"without --cluster-ca-file", without("bus", "cluster-ca-file")},
	{"the bus is insecure", with("bus", "--insecure-bus")},
	{"not given its accounts", func(b *broken) {
		maps := of[*corev1.ConfigMap](b.all)
		maps[slices.IndexFunc(maps, func(m *corev1.ConfigMap) bool { return m.Data["accounts.conf"] != "" })].Name = "another"
	}},
	{"the provisioner is missing", func(b *broken) { b.the(access.Provisioner).container().Args[0] = "notary" }},
	{"there are 0 buses", func(b *broken) { b.the("bus").container().Args[0] = "notary" }},
	{"without a user", without("writer", "nats-user")}, {"without a user", without("notary", "nats-password-file")},
	{"are one user of the bus", func(b *broken) {
		c := b.the("notary").container()
		for i := range c.Args {
			c.Args[i] = strings.Replace(c.Args[i], "--nats-user=notary", "--nats-user=writer", 1)
		}
	}},
	{"its own is", func(b *broken) { volume(b.the("writer"), "bus").Secret.SecretName = "millrace-bus" }},
	{"without a token of metrics", func(b *broken) { volume(b.the("writer"), "metrics").Secret.Optional = nil }},
	{"passwords in its", func(b *broken) { b.the("writer").container().EnvFrom = []corev1.EnvFromSource{{}} }},
	{"not the key turn.key.pub", without("writer", "turn-keys-file")}, {"not the key outcome.key ", without("writer", "outcome-signing-key-file")},
	{"not the key turn.key ", without("reconcilers", "turn-signing-key-file")}, {"without signatures", with("writer", "--insecure-unsigned")},
	{"the Secret a is in a file", func(b *broken) { b.all = append(b.all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}) }},
	{"talk without TLS", func(b *broken) {
		for _, m := range of[*corev1.ConfigMap](b.all) {
			if text := m.Data["services.yaml"]; text != "" {
				m.Data["services.yaml"] = strings.ReplaceAll(text, "tls://", "nats://")
			}
		}
	}},
	{"in 1 files", func(b *broken) {
		for _, m := range of[*corev1.ConfigMap](b.all) {
			delete(m.Data, "provisioner.yaml")
		}
	}},
}

var spoiledPods = []spoiled{
	{"which lets in any pod", func(b *broken) { of[*corev1.Namespace](b.all)[0].Labels = nil }},
	{"is told of every service", func(b *broken) { b.the("writer").Spec.EnableServiceLinks = &yes }},
	{"may run as root", func(b *broken) { b.the("writer").Spec.SecurityContext.RunAsNonRoot = nil }},
	{"make any system call", func(b *broken) { b.the("writer").Spec.SecurityContext.SeccompProfile = nil }},
	{"sees its node", func(b *broken) { b.the("bus").Spec.HostNetwork = true }},
	{"sees its node", func(b *broken) {
		volume(b.the("writer"), "config").VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}
	}},
	{"not alone in its pod", func(b *broken) { p := b.the("writer"); p.Spec.InitContainers = []corev1.Container{{}} }},
	{"may gain privileges", func(b *broken) { b.the("writer").container().SecurityContext.AllowPrivilegeEscalation = nil }},
	{"may gain privileges", func(b *broken) { b.the("writer").container().SecurityContext.Capabilities.Drop = nil }},
	{"write to its image", func(b *broken) { b.the("writer").container().SecurityContext.ReadOnlyRootFilesystem = &no }},
	{"take all memory", func(b *broken) { b.the("writer").container().Resources.Limits = nil }},
	{"runs whatever version", func(b *broken) { b.the("writer").container().Image = "registry:5000/millrace" }},
	{"runs whatever version", func(b *broken) { b.the("writer").container().Image = "millrace:latest" }},
	{"has a token of the API server: true", func(b *broken) { b.the("reconcilers").Spec.AutomountServiceAccountToken = nil }},
	{"has a token of the API server: false", func(b *broken) { b.the("watcher").Spec.AutomountServiceAccountToken = &no }},
	{"which is not there", func(b *broken) { b.the("writer").Spec.ServiceAccountName = "" }},
	{"or is no pod's", func(b *broken) {
		binding := of[*rbacv1.ClusterRoleBinding](b.all)[0]
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "millrace-system", Name: "default"})
	}},
	{"is bound, and is not there", func(b *broken) { of[*rbacv1.ClusterRole](b.all)[0].Name = "another" }},
	{"is of no use", func(b *broken) { of[*rbacv1.ClusterRole](b.all)[0].Name = "another" }},
	{"is in the namespace default", func(b *broken) { of[*corev1.ServiceAccount](b.all)[0].Namespace = "default" }},
}

var spoiledPolicies = []spoiled{
	{"denies everything", func(b *broken) { b.policy("millrace-default-deny").PolicyTypes = nil }},
	{"writer reaches port nats of nats: false", func(b *broken) {
		for _, name := range []string{"millrace-nats", "millrace-bus"} {
			b.policy(name).Ingress[0].From[0].PodSelector.MatchExpressions[0].Values = []string{"reader"}
		}
	}},
	{"writer reaches port nats of nats: false", func(b *broken) { b.policy("millrace-services").Egress = nil }},
	{"a pod of another namespace reaches port nats of nats: true", func(b *broken) { b.policy("millrace-nats").Ingress[0].From = nil }},
	{"look-alike of another namespace reaches port nats of nats: true", func(b *broken) {
		b.policy("millrace-nats").Ingress[0].From[0].NamespaceSelector = &metav1.LabelSelector{}
	}},
	{"writer reaches port cluster of nats: true", func(b *broken) {
		b.policy("millrace-nats").Ingress[0].Ports = nil
		b.policy("millrace-services").Egress[1].Ports = nil
	}},
	{"another pod of the namespace reaches port health of writer: true", func(b *broken) {
		b.policy("millrace-health").Ingress[0].From = nil
		b.policy("millrace-default-deny").PodSelector.MatchLabels = map[string]string{"a": "b"}
	}},
	{"a pod of another namespace reaches port health of writer: true", func(b *broken) { p := b.policy("millrace-health"); p.Ingress = append(p.Ingress, anyone) }},
	{"a pod of another namespace reaches port cluster of nats: true", func(b *broken) {
		b.policy("millrace-nats").Ingress[1].From[0] = networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}
	}},
	{"nats reaches port cluster of nats: false", func(b *broken) { p := b.policy("millrace-nats"); p.Ingress = p.Ingress[:1] }},
	{"a scraper reaches port health of writer: false", func(b *broken) { b.policy("millrace-health").Ingress = nil }},
	{"reconcilers goes out to port 443: true", func(b *broken) { b.policy("millrace-api").PodSelector = metav1.LabelSelector{} }},
	{"writer goes out to port 80: true", func(b *broken) { b.policy("millrace-api").Egress[0].Ports = nil }},
	{"watcher goes out to port 6443: false", func(b *broken) { b.policy("millrace-api").Egress = nil }},
}

// TestUnsafeManifestsAreFound: each check notices the mistake that it is for.
func TestUnsafeManifestsAreFound(t *testing.T) {
	text := rendered(t, "kubernetes-ha")
	for _, c := range slices.Concat(spoiledBus, spoiledPods, spoiledPolicies) {
		b := &broken{decoded(t, text)}
		c.spoil(b)
		if found := unsafe(b.all); !slices.ContainsFunc(found, func(w string) bool { return strings.Contains(w, c.says) }) {
			t.Errorf("%q is not noticed: %v", c.says, found)
		}
	}
}

// TestSplitWritersAreKeptApart: writers with different controllers share no user and no Secret.
func TestSplitWritersAreKeptApart(t *testing.T) {
	text := rendered(t, "kubernetes-split")
	writers := func(b *broken) (some []pod) {
		for _, p := range pods(b.all) {
			if p.program() == "writer" {
				some = append(some, p)
			}
		}
		return some
	}
	var users []string
	for _, p := range writers(&broken{decoded(t, text)}) {
		users = append(users, p.flag("nats-user"))
	}
	if slices.Sort(users); !slices.Equal(users, slices.Sorted(slices.Values(access.SplitWriters))) {
		t.Errorf("the writers are the users %v", users)
	}
	b := &broken{decoded(t, text)}
	for _, p := range writers(b) {
		c := p.container()
		for i := range c.Args {
			c.Args[i] = strings.Replace(c.Args[i], p.flag("nats-user"), access.Writer, 1)
		}
		volume(p, "bus").Secret.SecretName = "millrace-writer-bus"
	}
	if found := unsafe(b.all); !slices.ContainsFunc(found, func(w string) bool { return strings.Contains(w, "are one user of the bus, writer") }) {
		t.Errorf("it is not noticed that all are one user: %v", found)
	}
}
