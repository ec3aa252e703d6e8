package command

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/stream"
)

// installations are the manifests that are applied together.
var installations = map[string][]string{
	"kubernetes": {"kubernetes", "notary"}, "kubernetes-ha": {"kubernetes", "kubernetes-ha", "notary"}, "kubernetes-shadow": {"kubernetes-shadow"},
	"kubernetes-split": {"kubernetes", "kubernetes-split", "notary"},
}

// pods are the templates of what runs.
func pods(all []runtime.Object) (found []*corev1.PodTemplateSpec) {
	for _, s := range of[*appsv1.StatefulSet](all) {
		found = append(found, &s.Spec.Template)
	}
	for _, d := range of[*appsv1.Deployment](all) {
		found = append(found, &d.Spec.Template)
	}
	return found
}

// flagOf is the value of a flag in arguments.
func flagOf(args []string, name string) string {
	for _, arg := range args {
		if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
			return value
		}
	}
	return ""
}

// unsafe says what is missing before nobody reaches more of an installation than he should.
func unsafe(all []runtime.Object) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	policies := of[*networkingv1.NetworkPolicy](all)
	wrong = append(wrong, lackingParts(all, policies)...)
	if !slices.ContainsFunc(policies, deniesAll) {
		say("no policy denies everything by default")
	}
	for _, p := range policies {
		for _, rule := range p.Spec.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) == 0 {
				say("policy %s opens a port to everybody, or every port", p.Name)
			}
		}
	}
	for _, pod := range pods(all) {
		c := pod.Spec.Containers[0]
		if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
			say("%s is told of every service of the namespace", c.Name)
		}
		wrong = append(wrong, unsafeSecrets(c, pod.Spec.Volumes)...)
		wrong = append(wrong, unsafeSignatures(c)...)
		if c.Args[0] == "bus" {
			wrong = append(wrong, unsafeBus(c.Args)...)
		}
		for _, port := range c.Ports {
			if port.Name != "health" && !allowed(policies, pod.Labels, port.Name) {
				say("no policy says who reaches port %s of %s", port.Name, c.Name)
			}
		}
	}
	for _, m := range of[*corev1.ConfigMap](all) {
		for _, name := range []string{"services.yaml", "provisioner.yaml"} {
			if text := m.Data[name]; !strings.Contains(text, "nats-url: tls://") || !strings.Contains(text, "nats-ca-file:") || strings.Contains(text, "@") {
				say("the services are told to talk without TLS, or a password")
			}
		}
	}
	return wrong
}

// lackingParts says which parts are missing without which the services do nothing: whoever
// makes streams for them, and the way to the bus.
func lackingParts(all []runtime.Object, policies []*networkingv1.NetworkPolicy) (wrong []string) {
	provides := func(p *corev1.PodTemplateSpec) bool {
		c := p.Spec.Containers[0]
		return c.Args[0] == access.Provisioner && flagOf(c.Args, "nats-user") == access.Provisioner
	}
	if !slices.ContainsFunc(pods(all), provides) {
		wrong = append(wrong, "nothing makes streams: the provisioner is missing")
	}
	for _, pod := range pods(all) {
		component := pod.Labels["app.kubernetes.io/component"]
		if pod.Spec.Containers[0].Args[0] != "bus" && !letTo(policies, component, "nats") {
			wrong = append(wrong, "no policy lets "+component+" to the bus")
		}
	}
	return wrong
}

// letTo tells whether a policy lets pods of a component to a port.
func letTo(policies []*networkingv1.NetworkPolicy, component, port string) bool {
	names := func(from networkingv1.NetworkPolicyPeer) bool {
		return from.PodSelector != nil && slices.ContainsFunc(from.PodSelector.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
			return e.Key == "app.kubernetes.io/component" && e.Operator == metav1.LabelSelectorOpIn && slices.Contains(e.Values, component)
		})
	}
	return slices.ContainsFunc(policies, func(p *networkingv1.NetworkPolicy) bool {
		return slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return slices.ContainsFunc(r.From, names) && slices.ContainsFunc(r.Ports, func(on networkingv1.NetworkPolicyPort) bool { return on.Port.String() == port })
		})
	})
}

// unsafeSignatures says where a service does not sign what others act on with its own key,
// or does not know the keys of what it acts on. A shadow stores nothing that counts.
func unsafeSignatures(c corev1.Container) (wrong []string) {
	asked := map[string]map[string]string{
		"reconcilers": {"turn-signing-key-file": turnKey, "turn-keys-file": turnKey + publicKeys, "outcome-keys-file": outcomeKey + publicKeys},
		"writer":      {"outcome-signing-key-file": outcomeKey, "outcome-keys-file": outcomeKey + publicKeys, "turn-keys-file": turnKey + publicKeys},
	}[flagOf(c.Args, "nats-user")]
	for flag, name := range asked {
		if got := flagOf(c.Args, flag); got != "/etc/bus/"+name {
			wrong = append(wrong, fmt.Sprintf("%s has --%s=%s, not the key %s of its Secret", c.Name, flag, got, name))
		}
	}
	if slices.Contains(c.Args, "--insecure-unsigned") {
		wrong = append(wrong, c.Name+" does without signatures")
	}
	return wrong
}

func deniesAll(p *networkingv1.NetworkPolicy) bool {
	s := p.Spec
	return len(s.PodSelector.MatchLabels)+len(s.PodSelector.MatchExpressions) == 0 && len(s.PolicyTypes) == 2 && len(s.Ingress)+len(s.Egress) == 0
}

// allowed tells whether a policy for the pod names who reaches a port.
func allowed(policies []*networkingv1.NetworkPolicy, pod map[string]string, port string) bool {
	return slices.ContainsFunc(policies, func(p *networkingv1.NetworkPolicy) bool {
		return labels.SelectorFromSet(p.Spec.PodSelector.MatchLabels).Matches(labels.Set(pod)) &&
			slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
				return len(r.From) > 0 && slices.ContainsFunc(r.Ports, func(on networkingv1.NetworkPolicyPort) bool { return on.Port.String() == port })
			})
	})
}

func unsafeBus(args []string) (wrong []string) {
	asked := []string{"nats-accounts", "nats-passwords-file", "nats-tls-cert-file", "nats-tls-key-file"}
	if flagOf(args, "cluster-listen") != "" {
		asked = append(asked, "cluster-password-file", "cluster-ca-file")
	}
	for _, flag := range asked {
		if flagOf(args, flag) == "" {
			wrong = append(wrong, "the bus is started without --"+flag)
		}
	}
	if slices.Contains(args, "--insecure-bus") {
		wrong = append(wrong, "the bus is insecure")
	}
	return wrong
}

// unsafeSecrets says where a service has not its own Secret alone: its user's.
func unsafeSecrets(c corev1.Container, volumes []corev1.Volume) (wrong []string) {
	user, own := flagOf(c.Args, "nats-user"), "millrace-bus"
	if c.Args[0] != "bus" {
		own = "millrace-" + user + "-bus"
		if !slices.Contains(stream.Users, user) || flagOf(c.Args, "nats-password-file") == "" {
			wrong = append(wrong, c.Name+" comes to the bus without a user")
		}
	}
	var mounted []string
	for _, v := range volumes {
		if v.Secret != nil && v.Secret.SecretName == "millrace-metrics" { // a token that opens metrics alone, where there is one
			if v.Secret.Optional == nil || !*v.Secret.Optional {
				wrong = append(wrong, c.Name+" does not start without a token of metrics")
			}
			continue
		}
		if v.Secret != nil {
			mounted = append(mounted, v.Secret.SecretName)
		}
		if v.Projected != nil {
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					mounted = append(mounted, source.Secret.Name)
				}
			}
		}
	}
	mounted = slices.DeleteFunc(mounted, func(name string) bool { return c.Name == "notary" && name == "millrace-notary" }) // its key
	if !slices.Equal(mounted, []string{own}) {
		wrong = append(wrong, fmt.Sprintf("%s has the Secrets %v, and its own is %s", c.Name, mounted, own))
	}
	if len(c.EnvFrom) > 0 || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }) {
		wrong = append(wrong, c.Name+" has passwords in its environment")
	}
	return wrong
}

func installation(t *testing.T, name string) (all []runtime.Object) {
	t.Helper()
	for _, folder := range installations[name] {
		all = append(all, manifests(t, folder)...)
	}
	return all
}

// TestManifestsAreSafe: whatever way of Kubernetes that we ship has users, TLS, a Secret for
// each service alone, and policies for who reaches what.
func TestManifestsAreSafe(t *testing.T) {
	for name := range installations {
		for _, wrong := range unsafe(installation(t, name)) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

// TestUnsafeManifestsAreFound: each check notices what it is for.
func TestUnsafeManifestsAreFound(t *testing.T) {
	bus := func(all []runtime.Object) *corev1.Container {
		i := slices.IndexFunc(pods(all), func(p *corev1.PodTemplateSpec) bool { return p.Labels["app.kubernetes.io/component"] == "nats" })
		return &pods(all)[i].Spec.Containers[0]
	}
	writer := func(all []runtime.Object) *corev1.PodTemplateSpec {
		i := slices.IndexFunc(pods(all), func(p *corev1.PodTemplateSpec) bool { return p.Labels["app.kubernetes.io/component"] == "writer" })
		return pods(all)[i]
	}
	without := func(flag string) func([]runtime.Object) {
		return func(all []runtime.Object) {
			c := bus(all)
			c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--"+flag) })
		}
	}
	policy := func(all []runtime.Object, name string) *networkingv1.NetworkPolicy {
		found := of[*networkingv1.NetworkPolicy](all)
		return found[slices.IndexFunc(found, func(p *networkingv1.NetworkPolicy) bool { return p.Name == name })]
	}
	yes := true
	for says, spoil := range map[string]func([]runtime.Object){
		"without --nats-accounts": without("nats-accounts"), "without --nats-tls-cert-file": without("nats-tls-cert-file"), "without --nats-passwords-file": without("nats-passwords-file"),
		"without --cluster-password-file": without("cluster-password-file"), "without --cluster-ca-file": without("cluster-ca-file"),
		"the bus is insecure": func(all []runtime.Object) { c := bus(all); c.Args = append(c.Args, "--insecure-bus") },
		"without a user":      func(all []runtime.Object) { c := &writer(all).Spec.Containers[0]; c.Args = c.Args[:2] },
		"its own is": func(all []runtime.Object) {
			v := writer(all).Spec.Volumes
			v[slices.IndexFunc(v, func(v corev1.Volume) bool { return v.Name == "bus" })].Secret.SecretName = "millrace-bus"
		},
		"not the key turn.key.pub": func(all []runtime.Object) {
			c := &writer(all).Spec.Containers[0]
			c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--turn-keys-file") })
		},
		"without signatures": func(all []runtime.Object) {
			c := &writer(all).Spec.Containers[0]
			c.Args = append(c.Args, "--insecure-unsigned")
		},
		"the provisioner is missing": func(all []runtime.Object) {
			for _, p := range pods(all) {
				if p.Labels["app.kubernetes.io/component"] == access.Provisioner {
					p.Spec.Containers[0].Args[0] = "notary"
				}
			}
		},
		"lets writer to the bus": func(all []runtime.Object) {
			for _, name := range []string{"millrace-nats", "millrace-bus"} {
				policy(all, name).Spec.Ingress[0].From[0].PodSelector.MatchExpressions[0].Values = []string{"reader"}
			}
		},
		"without a token of metrics": func(all []runtime.Object) {
			v := writer(all).Spec.Volumes
			v[slices.IndexFunc(v, func(v corev1.Volume) bool { return v.Name == "metrics" })].Secret.Optional = nil
		},
		"passwords in its":          func(all []runtime.Object) { writer(all).Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{}} },
		"is told of every service":  func(all []runtime.Object) { writer(all).Spec.EnableServiceLinks = &yes },
		"denies everything":         func(all []runtime.Object) { policy(all, "millrace-default-deny").Spec.PolicyTypes = nil },
		"opens a port to everybody": func(all []runtime.Object) { policy(all, "millrace-health").Spec.Ingress[0].From = nil },
		"who reaches port cluster":  func(all []runtime.Object) { p := policy(all, "millrace-nats"); p.Spec.Ingress = p.Spec.Ingress[:1] },
		"talk without TLS": func(all []runtime.Object) {
			m := of[*corev1.ConfigMap](all)[0]
			m.Data["services.yaml"] = strings.ReplaceAll(m.Data["services.yaml"], "tls://", "nats://")
		},
	} {
		all := installation(t, "kubernetes-ha")
		spoil(all)
		if found := unsafe(all); !slices.ContainsFunc(found, func(w string) bool { return strings.Contains(w, says) }) {
			t.Errorf("%q is not noticed: %v", says, found)
		}
	}
}

// TestNoPasswordsInTheRepository: a file that we ship names passwords and holds none.
func TestNoPasswordsInTheRepository(t *testing.T) {
	ok(t, filepath.WalkDir(deployments, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, line := range heldPasswords(string(text)) {
			t.Errorf("%s holds a password: %s", path, line)
		}
		return err
	}))
	if len(heldPasswords("user: a, password: secret")) == 0 || len(heldPasswords("nats://a:secret@nats:4222")) == 0 {
		t.Error("a password is not noticed")
	}
}

func heldPasswords(text string) (lines []string) {
	for line := range strings.Lines(text) {
		_, word, is := strings.Cut(line, "password: ")
		_, login, url := strings.Cut(line, "nats://")
		login, _, at := strings.Cut(login, "@")
		_, given, named := strings.Cut(login, ":")
		if is && !strings.HasPrefix(word, "$") && !strings.HasPrefix(strings.TrimSpace(line), "#") || url && at && named && !strings.HasPrefix(given, "$") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestSecrets: each service is given its own password alone, the bus all of them; a second
// run changes nothing, and a bus starts with what is made and lets each user in.
func TestSecrets(t *testing.T) {
	dir, etc := t.TempDir(), t.TempDir()
	made, err := makeCredentials(dir, busHosts("millrace-system"))
	ok(t, err)
	again, err := makeCredentials(dir, nil)
	ok(t, err)
	first, err := yaml.Marshal(made.secrets("a"))
	ok(t, err)
	second, err := yaml.Marshal(again.secrets("a"))
	ok(t, err)
	if string(first) != string(second) {
		t.Error("a second run makes other credentials")
	}
	if strings.Contains(string(first), "BEGIN EC") || strings.Contains(string(first), string(made.authority.Key)) {
		t.Error("the key of the authority is handed out")
	}
	for _, secret := range made.secrets("a") {
		for name, holder := range map[string]string{turnKey: "reconcilers", outcomeKey: "writer"} {
			text := fmt.Sprint(secret.StringData)
			if has := strings.Contains(text, made.signing[name]); has != (secret.Name == "millrace-"+holder+"-bus") {
				t.Errorf("%s has %s: %t", secret.Name, name, has)
			}
			reads := secret.Name == "millrace-reader-bus" || secret.Name == "millrace-reconcilers-bus" || secret.Name == "millrace-writer-bus"
			if has := secret.StringData[name+publicKeys] == made.signing[name+publicKeys]; has != reads {
				t.Errorf("%s has the public part of %s: %t", secret.Name, name, has)
			}
		}
	}
	for _, secret := range made.secrets("a") {
		for user, password := range made.passwords {
			text := fmt.Sprint(secret.StringData)
			if has := strings.Contains(text, password); has != (secret.Name == "millrace-bus" || secret.Name == "millrace-"+user+"-bus") {
				t.Errorf("%s has the password of %s: %t", secret.Name, user, has)
			}
		}
	}
	for name, text := range made.secrets("a")[0].StringData {
		ok(t, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600))
	}
	for _, user := range stream.Users {
		t.Setenv(stream.PasswordOf(user), "") // and back, after the test
	}
	ok(t, (&securityOptions{passwords: filepath.Join(etc, "passwords")}).setPasswords())
	running, err := stream.Serve(stream.ServerOptions{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Accounts: filepath.Join(deployments, "nats", "accounts.conf"),
		TLS: stream.TLSOptions{CertFile: filepath.Join(etc, "tls.crt"), KeyFile: filepath.Join(etc, "tls.key")},
	})
	ok(t, err)
	t.Cleanup(func() { ok(t, running.Close()) })
	for _, user := range stream.Users {
		password := filepath.Join(etc, user)
		ok(t, os.WriteFile(password, []byte(made.passwords[user]), 0o600))
		b, err := stream.Connect(t.Context(), stream.Options{URL: running.URL(), User: user, PasswordFile: password, CAFile: filepath.Join(etc, "ca.crt")})
		if err != nil {
			t.Errorf("%s is not let in: %v", user, err)
			continue
		}
		ok(t, b.Close())
	}
}
