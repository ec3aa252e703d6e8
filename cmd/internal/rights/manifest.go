package rights

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/watcher"
)

// ConstrainedSince is x of the first version 1.x of Kubernetes whose API servers constrain
// impersonation by default.
const ConstrainedSince = 36

// Manifest are roles, their bindings and service accounts.
type Manifest struct {
	// Chosen are the selected controllers.
	Chosen []reconcile.Any
	// Custom are the custom kinds; "*" is all of them.
	Custom []kinds.Name
	// Classic leaves out the bounds of constrained impersonation, for API servers before
	// Kubernetes 1.36, which do not have it.
	Classic bool

	documents []document
	err       error
}

// document is an object of the manifest, with a comment.
type document struct {
	about  string
	object any
}

func (m *Manifest) put(about string, object any) {
	m.documents = append(m.documents, document{about, object})
}

// YAML is the manifest as YAML.
//
// Errors: the rights of a controller are not known.
func (m *Manifest) YAML() ([]byte, error) {
	var out bytes.Buffer
	for i, d := range m.documents {
		if i > 0 {
			out.WriteString("---\n")
		}
		if d.about != "" {
			out.WriteString("# " + strings.ReplaceAll(d.about, "\n", "\n# ") + "\n")
		}
		text, err := yaml.Marshal(d.object)
		if err != nil {
			return nil, fmt.Errorf("write roles: %w", err)
		}
		out.Write(text)
	}
	return out.Bytes(), m.err
}

// Account adds a service account to the manifest, and returns it as a subject.
func (m *Manifest) Account(namespace, name string) rbacv1.Subject {
	m.put("", corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// User is a user, with a certificate, as a subject.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// Cluster adds a ClusterRole, and binds it to subjects.
func (m *Manifest) Cluster(name, about string, rules []rbacv1.PolicyRule, to ...rbacv1.Subject) {
	const kind = "ClusterRole"
	m.put(about, rbacv1.ClusterRole{TypeMeta: typed(kind), ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	m.put("", rbacv1.ClusterRoleBinding{
		TypeMeta: typed("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: to,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
	})
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

const (
	aboutWatcher = "The watcher reads what the controllers read."
	aboutBuiltIn = `The watcher reads what the controllers read, by name: the garbage collector and quotas read
the metadata of every kind. Secrets, and kinds that are not Kubernetes' own, are read by
a watcher with an identity of its own, below.`
	aboutOther = `It reads Secrets, as metadata only. RBAC has no word for that: who takes this identity
over reads what is in them.`
	aboutCustom = `It also reads every kind that is not Kubernetes' own. RBAC has no word for these but "*".
Where they are known, name them instead: millrace rbac --custom-kinds=widgets.example.com,...`
	aboutIdentities = `The writer writes as the service accounts of these controllers, and as none else. What
each of them may do Kubernetes' own system:controller:* roles say.`
	aboutWriter = `What the writer may do while it impersonates one of them, and not with a right of its own:
the writes that the controllers promise, and the looks that belong to them. The rules
hold for all of its identities together; each is bound by its own role besides.`
	aboutDelegator = `It asks the API server who sends a request for metrics, and whether that user may.`
	aboutLeader    = `It holds the Lease by which one of several processes acts (--leader-elect, --enable-leader-migration).`
	aboutClassic   = "The API server is older than constrained impersonation: nothing else bounds the writer."
)

// Watchers adds the roles of watchers: one for a watcher that reads everything, or two, of
// which only that of other reads Secrets and custom kinds.
func (m *Manifest) Watchers(name string, other *rbacv1.Subject, who ...rbacv1.Subject) {
	if other == nil {
		m.Cluster(name, aboutWatcher, Watcher(m.Chosen, watcher.All, m.Custom), who...)
		return
	}
	m.Cluster(name, aboutBuiltIn, Watcher(m.Chosen, watcher.BuiltIn, m.Custom), who...)
	rest, about := Watcher(m.Chosen, watcher.Other, m.Custom), aboutOther
	if len(rest) == 0 {
		return // no controller needs these kinds
	}
	if len(rest[0].APIGroups) == 1 && rest[0].APIGroups[0] == Any {
		about += "\n" + aboutCustom
	}
	m.Cluster(name+"-other", about, rest, *other)
}

// Writer adds the roles of a writer: for its identities, and for its requests as them.
func (m *Manifest) Writer(name string, who ...rbacv1.Subject) {
	identities := name + "-identities"
	rule := rbacv1.PolicyRule{
		APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate:serviceaccount"},
		ResourceNames: Identities(m.Chosen),
	}
	about := aboutIdentities
	if m.Classic {
		rule.APIGroups, rule.Verbs = []string{""}, []string{"impersonate"}
		about += "\n" + aboutClassic
	}
	m.put(about, rbacv1.ClusterRole{TypeMeta: typed("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: identities}, Rules: []rbacv1.PolicyRule{rule}})
	// Bound in kube-system only, so that the writer cannot impersonate accounts of other namespaces.
	m.put("", rbacv1.RoleBinding{
		TypeMeta: typed("RoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: identities, Namespace: metav1.NamespaceSystem}, Subjects: who,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: identities},
	})
	if m.Classic {
		return
	}
	needs, err := Needs(m.Chosen)
	if err != nil {
		m.err = err
	}
	m.Cluster(name, aboutWriter, Writer(needs, m.Custom), who...)
}

// Delegator binds Kubernetes' own roles for delegated authentication and authorization:
// accounts may create reviews, and read the authorities of client certificates.
func (m *Manifest) Delegator(name string, who ...rbacv1.Subject) {
	m.put(aboutDelegator, rbacv1.ClusterRoleBinding{
		TypeMeta: typed("ClusterRoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: who,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
	})
	m.put("", rbacv1.RoleBinding{
		TypeMeta: typed("RoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}, Subjects: who,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
	})
}

// Leader adds the role for holding a Lease. RBAC cannot restrict a create to a name.
func (m *Manifest) Leader(name, namespace string, names []string, who ...rbacv1.Subject) {
	const kind = "Role"
	at, leases := metav1.ObjectMeta{Name: name, Namespace: namespace}, []string{"leases"}
	m.put(aboutLeader, rbacv1.Role{TypeMeta: typed(kind), ObjectMeta: at, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: leases, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: leases, Verbs: []string{"get", "update"}, ResourceNames: names},
	}})
	m.put("", rbacv1.RoleBinding{
		TypeMeta: typed("RoleBinding"), ObjectMeta: at, Subjects: who,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
	})
}

// Tokens adds the role of serviceaccount-token-controller, which Kubernetes does not have.
func (m *Manifest) Tokens(prefix string) {
	m.Cluster(prefix+"-tokens-controller", `Kubernetes has no role for the controller that makes tokens: in kube-controller-manager it
acts as kube-controller-manager itself, which may do far more than this.`, tokenRules,
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: tokens})
}
