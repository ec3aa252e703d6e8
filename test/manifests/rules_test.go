package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events/access"
)

// unsafe returns the reasons why an installation exposes more than it should.
func unsafe(all []runtime.Object) (wrong []string) {
	for _, rule := range []func([]runtime.Object) []string{bus, users, signatures, secrets, settings, restricted, accounts, reach} {
		wrong = append(wrong, rule(all)...)
	}
	return wrong
}

// pod is a pod template, and its namespace.
type pod struct {
	*corev1.PodTemplateSpec
	namespace string
}

func pods(all []runtime.Object) (found []pod) {
	for _, s := range of[*appsv1.StatefulSet](all) {
		found = append(found, pod{&s.Spec.Template, s.Namespace})
	}
	for _, d := range of[*appsv1.Deployment](all) {
		found = append(found, pod{&d.Spec.Template, d.Namespace})
	}
	return found
}

func (p pod) container() *corev1.Container { return &p.Spec.Containers[0] }

func (p pod) component() string { return p.Labels["app.kubernetes.io/component"] }

// program is the sub-command of millrace.
func (p pod) program() string { return p.container().Args[0] }

// flag is the value of a flag.
func (p pod) flag(name string) string {
	for _, arg := range p.container().Args {
		if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
			return value
		}
	}
	return ""
}

// bus: there is a bus with accounts and TLS, also on its routes, and a provisioner.
func bus(all []runtime.Object) (wrong []string) {
	buses, providing := 0, false
	for _, p := range pods(all) {
		providing = providing || p.program() == access.Provisioner && p.flag("nats-user") == access.Provisioner
		if p.program() != "bus" {
			continue
		}
		buses++
		asked := []string{"nats-accounts", "nats-passwords-file", "nats-tls-cert-file", "nats-tls-key-file"}
		if p.flag("cluster-listen") != "" {
			asked = append(asked, "cluster-password-file", "cluster-ca-file")
		}
		for _, flag := range asked {
			if p.flag(flag) == "" {
				wrong = append(wrong, "the bus is started without --"+flag)
			}
		}
		if slices.ContainsFunc(p.container().Args, func(a string) bool { return strings.HasPrefix(a, "--insecure-bus") }) {
			wrong = append(wrong, "the bus is insecure")
		}
		wrong = append(wrong, busAccounts(all, p)...)
	}
	if buses != 1 {
		wrong = append(wrong, fmt.Sprintf("there are %d buses", buses))
	}
	if !providing {
		wrong = append(wrong, "nothing makes streams: the provisioner is missing")
	}
	return wrong
}

// busAccounts: the bus mounts the accounts of the installation.
func busAccounts(all []runtime.Object, p pod) (wrong []string) {
	for _, v := range p.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if m := source.ConfigMap; m != nil && slices.ContainsFunc(of[*corev1.ConfigMap](all), func(c *corev1.ConfigMap) bool {
				return c.Name == m.Name && c.Namespace == p.namespace && strings.Contains(c.Data["accounts.conf"], access.Main+" {")
			}) {
				return nil
			}
		}
	}
	return []string{"the bus is not given its accounts"}
}

// users: each service connects to the bus as its own user, and has only that user's Secret.
func users(all []runtime.Object) (wrong []string) {
	seen := map[string][]string{}
	for _, p := range pods(all) {
		name, user, own := p.container().Name, p.flag("nats-user"), "millrace-bus"
		if p.program() != "bus" {
			own = "millrace-" + user + "-bus"
			if !slices.Contains(access.Users, user) || user == access.All || p.flag("nats-password-file") == "" {
				wrong = append(wrong, name+" comes to the bus without a user")
			}
			seen[user] = append(seen[user], p.component()+p.Spec.ServiceAccountName)
		}
		var mounted []string
		for _, v := range p.Spec.Volumes {
			mounted = append(mounted, secretsOf(v)...)
			if s := v.Secret; s != nil && s.SecretName == metrics && (s.Optional == nil || !*s.Optional) {
				wrong = append(wrong, name+" does not start without a token of metrics")
			}
		}
		key := "millrace-notary" // of the notary alone
		mounted = slices.DeleteFunc(mounted, func(n string) bool { return n == metrics || n == key && p.program() == "notary" })
		if !slices.Equal(mounted, []string{own}) {
			wrong = append(wrong, fmt.Sprintf("%s has the Secrets %v, and its own is %s", name, mounted, own))
		}
		if c := p.container(); len(c.EnvFrom) > 0 || slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }) {
			wrong = append(wrong, name+" has passwords in its environment")
		}
	}
	for user, who := range seen {
		if slices.Sort(who); len(slices.Compact(who)) > 1 && user != access.Watcher { // both watchers use one user
			wrong = append(wrong, fmt.Sprintf("%v are one user of the bus, %s", who, user))
		}
	}
	return wrong
}

// metrics is the optional Secret with a token that gives access to metrics only.
const metrics = "millrace-metrics"

func secretsOf(v corev1.Volume) (names []string) {
	if v.Secret != nil {
		names = append(names, v.Secret.SecretName)
	}
	if v.Projected != nil {
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				names = append(names, source.Secret.Name)
			}
		}
	}
	return names
}

// signatures: each service signs the messages that others act on with its own key, and has the public keys of
// the messages that it acts on. A shadow stores no such message.
func signatures(all []runtime.Object) (wrong []string) {
	deciding := map[string]string{"turn-signing-key-file": "turn.key", "turn-keys-file": "turn.key.pub", "outcome-keys-file": "outcome.key.pub"}
	writing := map[string]string{"outcome-signing-key-file": "outcome.key", "outcome-keys-file": "outcome.key.pub", "turn-keys-file": "turn.key.pub"}
	for _, p := range pods(all) {
		asked := map[string]string{}
		switch {
		case p.program() == "reconcilers" && p.flag("nats-user") != access.Shadow:
			asked = deciding
		case p.program() == "writer":
			asked = writing
		}
		for flag, file := range asked {
			if got := p.flag(flag); got != "/etc/bus/"+file {
				wrong = append(wrong, fmt.Sprintf("%s has --%s=%s, not the key %s of its Secret", p.container().Name, flag, got, file))
			}
		}
		if slices.ContainsFunc(p.container().Args, func(a string) bool { return strings.HasPrefix(a, "--insecure-unsigned") }) {
			wrong = append(wrong, p.container().Name+" does without signatures")
		}
	}
	return wrong
}

// secrets: no file has a Secret.
func secrets(all []runtime.Object) (wrong []string) {
	for _, s := range of[*corev1.Secret](all) {
		wrong = append(wrong, "the Secret "+s.Name+" is in a file")
	}
	return wrong
}

// settings: the services use TLS, and the settings have no password.
func settings(all []runtime.Object) (wrong []string) {
	found := 0
	for _, m := range of[*corev1.ConfigMap](all) {
		for file, text := range m.Data {
			if file == "accounts.conf" {
				continue
			}
			found++
			if !strings.Contains(text, "nats-url: tls://") || !strings.Contains(text, "nats-ca-file:") || strings.Contains(text, "nats://") || strings.Contains(text, "@") {
				wrong = append(wrong, "the services are told to talk without TLS, or a password, in "+file)
			}
		}
	}
	if found != 2 {
		wrong = append(wrong, fmt.Sprintf("the services are told something in %d files", found))
	}
	return wrong
}

// restricted: pods have no rights on their node, their namespace admits restricted pods only, and each image
// has a version.
func restricted(all []runtime.Object) (wrong []string) {
	enforced := map[string]bool{}
	for _, n := range of[*corev1.Namespace](all) {
		enforced[n.Name] = n.Labels["pod-security.kubernetes.io/enforce"] == "restricted"
	}
	for _, p := range pods(all) {
		say := func(format string, args ...any) {
			wrong = append(wrong, p.container().Name+" "+fmt.Sprintf(format, args...))
		}
		if !enforced[p.namespace] {
			say("is in the namespace %q, which lets in any pod", p.namespace)
		}
		if p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks {
			say("is told of every service of the namespace")
		}
		s := p.Spec.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			say("may run as root, or make any system call")
		}
		if p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.HostIPC || slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
			say("sees its node")
		}
		if len(p.Spec.Containers)+len(p.Spec.InitContainers) != 1 {
			say("is not alone in its pod")
		}
		wrong = append(wrong, confined(p.container())...)
	}
	return wrong
}

func confined(c *corev1.Container) (wrong []string) {
	s := c.SecurityContext
	no := func(b *bool) bool { return b != nil && !*b }
	if s == nil || !no(s.AllowPrivilegeEscalation) || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.Privileged != nil && *s.Privileged ||
		s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		wrong = append(wrong, c.Name+" may gain privileges, or write to its image")
	}
	if _, bounded := c.Resources.Limits[corev1.ResourceMemory]; !bounded {
		wrong = append(wrong, c.Name+" may take all memory of its node")
	}
	if _, version, named := strings.Cut(c.Image[strings.LastIndex(c.Image, "/")+1:], ":"); !named || version == "latest" {
		wrong = append(wrong, c.Name+" runs whatever version "+c.Image+" is")
	}
	return wrong
}

// accounts: each pod that connects to the API server has an account of the installation, no other pod has a
// token, and no binding names an account that does not exist.
func accounts(all []runtime.Object) (wrong []string) {
	made := map[rbacv1.Subject]bool{}
	for _, a := range of[*corev1.ServiceAccount](all) {
		made[rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}] = true
	}
	given := map[string]bool{} // the accounts of pods
	for _, p := range pods(all) {
		mounts := p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken
		needs := slices.Contains([]string{"watcher", "writer"}, p.program())
		if mounts != needs {
			wrong = append(wrong, fmt.Sprintf("%s has a token of the API server: %t", p.container().Name, mounts))
		}
		given[p.Spec.ServiceAccountName] = true
		if needs && !made[rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: p.Spec.ServiceAccountName}] {
			wrong = append(wrong, fmt.Sprintf("%s runs as the account %q, which is not there", p.container().Name, p.Spec.ServiceAccountName))
		}
	}
	for binding, subjects := range bindings(all) {
		for _, s := range subjects {
			if s.Namespace != metav1.NamespaceSystem && (!made[s] || !given[s.Name]) {
				wrong = append(wrong, fmt.Sprintf("%s gives rights to %s, which is not there, or is no pod's", binding, s.Name))
			}
		}
	}
	return append(wrong, misplaced(all)...)
}

// bindings are the subjects of each binding.
func bindings(all []runtime.Object) map[string][]rbacv1.Subject {
	found := map[string][]rbacv1.Subject{}
	for _, b := range of[*rbacv1.ClusterRoleBinding](all) {
		found["the cluster role binding "+b.Name] = b.Subjects
	}
	for _, b := range of[*rbacv1.RoleBinding](all) {
		found["the role binding "+b.Namespace+"/"+b.Name] = b.Subjects
	}
	return found
}

// misplaced: bound roles exist, or belong to Kubernetes; objects in a namespace are in the installation's
// namespace.
func misplaced(all []runtime.Object) (wrong []string) {
	roles := map[string]bool{}
	for _, r := range of[*rbacv1.ClusterRole](all) {
		roles[r.Name] = true
	}
	bound := map[string]bool{}
	for _, b := range of[*rbacv1.ClusterRoleBinding](all) {
		bound[b.RoleRef.Name] = true
	}
	for _, b := range of[*rbacv1.RoleBinding](all) {
		bound[b.RoleRef.Name] = true
	}
	for name := range bound {
		if !roles[name] && !slices.Contains([]string{"system:auth-delegator", "extension-apiserver-authentication-reader"}, name) {
			wrong = append(wrong, "the role "+name+" is bound, and is not there")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		if !bound[name] {
			wrong = append(wrong, "the role "+name+" is of no use")
		}
	}
	spaces := of[*corev1.Namespace](all)
	for _, object := range all {
		m, err := meta.Accessor(object)
		if _, elsewhere := object.(*rbacv1.RoleBinding); err != nil || elsewhere {
			continue
		}
		if n := m.GetNamespace(); n != "" && (len(spaces) != 1 || n != spaces[0].Name) {
			wrong = append(wrong, fmt.Sprintf("%T %s is in the namespace %s", object, m.GetName(), n))
		}
	}
	return wrong
}
