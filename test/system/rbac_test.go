package system

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
)

// errand is work that only one controller can do.
type errand struct {
	identity   string // the service account that it needs
	controller string
	ask        func(name string) error
	missing    func(name string) string // "" when the errand is done
}

// TestMissingRights removes one right at a time from the service accounts of deployments/kubernetes: one
// controller stalls and reports the reason, the others are not affected, no process crashes, and all is well
// when the right is back.
func TestMissingRights(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kubectl"))
	s.kubectl(t, "apply", "-f", filepath.Join(manifests, "namespace.yaml"))
	s.kubectl(t, "apply", "-k", kustomization(t))
	s.kubectl(t, "delete", "deployments", "--all", "--namespace="+home) // the services run here
	t.Cleanup(func() { s.grant(t, roleOf(t, "millrace-writer-identities")) })
	t.Cleanup(func() { s.grant(t, roleOf(t, "millrace-watcher")) })

	m := s.separate(t, 1, map[string]string{
		"watcher": s.accountKubeconfig(t, "millrace-watcher"), otherWatcher: s.accountKubeconfig(t, "millrace-watcher-other"), "writer": s.accountKubeconfig(t, "millrace-writer"),
	})
	a := s.arena(t, "rights-missing")
	errands := s.errands(t, a.Namespace)
	for _, withheld := range errands {
		t.Run("no right to act as "+withheld.identity, func(t *testing.T) {
			s.withhold(t, m, withheld, errands)
		})
	}
	t.Run("no right to read config maps", func(t *testing.T) { s.blind(t, m, errands) })
	background := metav1.DeletePropagationBackground
	must(t, s.kube.AppsV1().ReplicaSets(a.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: &background}, everything))
	clear(t, a)
}

// withhold removes the identity of a controller, and restores it.
func (s *site) withhold(t *testing.T, m *apart, withheld errand, errands []errand) {
	role := roleOf(t, "millrace-writer-identities")
	role.Rules[0].ResourceNames = slices.DeleteFunc(role.Rules[0].ResourceNames, func(n string) bool { return n == withheld.identity })
	s.grant(t, role)
	s.awaitActing(t, m.kubeconfigs["writer"], withheld.identity, false)
	name := "without-" + withheld.identity
	run(t, errands, name, func(e errand) bool { return e.identity != withheld.identity })
	b := connect(t, m.nats)
	within(t, patience, "the record says what was forbidden", func() string {
		for _, message := range read(t, b, subject.OutcomeStream(withheld.controller)) {
			var o events.Outcome
			must(t, events.DecodeJSON(message, &o))
			for _, r := range o.Results {
				if r.Code == http.StatusForbidden && strings.Contains(r.Message, withheld.identity) {
					return ""
				}
			}
		}
		return "no outcome has code 403"
	})
	if withheld.missing(name) == "" {
		t.Errorf("the controller did its work on %s without the right to it", name)
	}
	s.grant(t, roleOf(t, "millrace-writer-identities"))
	s.awaitActing(t, m.kubeconfigs["writer"], withheld.identity, true)
	within(t, patience, "it is done when the right is back", func() string { return withheld.missing(name) })
	m.expectUp(t)
}

// blind removes the watcher's right to read one kind. Open watches stay open, so it restarts the watcher.
func (s *site) blind(t *testing.T, m *apart, errands []errand) {
	const kind, needs = "configmaps", "root-ca-cert-publisher"
	s.grant(t, s.allBut(t, kind))
	right := authorizationv1.ResourceAttributes{Verb: "list", Resource: kind}
	s.awaitRight(t, home, "millrace-watcher", false, right)
	m.services["watcher"][0].stop(t)
	m.services["watcher"] = nil
	w := m.add("watcher")
	within(t, patience, "the watcher says what it cannot read", func() string {
		if code, body := w.get(t, "/readyz?verbose"); code == http.StatusOK || !strings.Contains(body, kind) {
			return fmt.Sprint(code, " ", body)
		}
		_, metrics := w.get(t, "/metrics")
		if !strings.Contains(metrics, `millrace_watcher_degraded{kind="`+kind+`"} 1`) {
			return "no metric says so"
		}
		return ""
	})
	run(t, errands, "blind", func(e errand) bool { return e.identity != needs })
	s.grant(t, roleOf(t, "millrace-watcher"))
	s.awaitRight(t, home, "millrace-watcher", true, right)
	w.ready(t)
	run(t, errands, "seeing", func(errand) bool { return true })
	m.expectUp(t)
}

// run requests every errand, and waits for those that must be done.
func run(t *testing.T, errands []errand, name string, wanted func(errand) bool) {
	t.Helper()
	for _, e := range errands {
		within(t, patience, "ask for what takes "+e.identity, func() string { return ask(e.ask(name)) })
	}
	for _, e := range errands {
		if wanted(e) {
			within(t, patience, "what takes "+e.identity, func() string { return e.missing(name) })
		}
	}
}

// expectUp demands that the processes are the ones that were started.
func (m *apart) expectUp(t *testing.T) {
	t.Helper()
	for name, replicas := range m.services {
		for _, p := range replicas {
			if !p.Running() {
				t.Errorf("the %s has ended, want it to run:\n%s", name, tail(p.Log))
				continue
			}
			p.ready(t)
		}
	}
}

// errands has one errand for each controller. A deleted object that a controller must create again must have
// another uid.
func (s *site) errands(t *testing.T, namespace string) []errand {
	core, apps := s.kube.CoreV1(), s.kube.AppsV1()
	var account, published types.UID
	spare := namespace + "-spare"
	must(t, s.arenas.CreateNamespace(t.Context(), spare))
	must(t, s.arenas.AwaitAccount(t.Context(), spare))
	return []errand{
		{
			"deployment-controller", "deployment-controller",
			func(name string) error { return s.deploy(t, namespace, "d-"+name) },
			func(name string) string {
				sets, err := apps.ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=d-" + name})
				return oneOf(len(sets.Items), err)
			},
		},
		{
			"replicaset-controller", "replicaset-controller",
			func(name string) error {
				_, err := apps.ReplicaSets(namespace).Create(t.Context(), replicaSet("r-"+name, 1), metav1.CreateOptions{})
				return err
			},
			func(name string) string {
				pods, err := core.Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=r-" + name})
				return oneOf(len(pods.Items), err)
			},
		},
		{
			"service-account-controller", "serviceaccount-controller",
			func(string) error {
				old, err := core.ServiceAccounts(spare).Get(t.Context(), "default", metav1.GetOptions{})
				if err != nil {
					return err
				}
				account = old.UID
				return core.ServiceAccounts(spare).Delete(t.Context(), "default", metav1.DeleteOptions{})
			},
			func(string) string {
				now, err := core.ServiceAccounts(spare).Get(t.Context(), "default", metav1.GetOptions{})
				return another(now.UID, account, err)
			},
		},
		{
			"root-ca-cert-publisher", "root-ca-certificate-publisher-controller",
			func(string) error {
				old, err := core.ConfigMaps(spare).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
				if err != nil {
					return err
				}
				published = old.UID
				return core.ConfigMaps(spare).Delete(t.Context(), old.Name, metav1.DeleteOptions{})
			},
			func(string) string {
				now, err := core.ConfigMaps(spare).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
				return another(now.UID, published, err)
			},
		},
		{
			"generic-garbage-collector", "garbage-collector-controller",
			func(name string) error { return s.orphan(t, spare, "g-"+name) },
			func(name string) string {
				_, err := core.ServiceAccounts(spare).Get(t.Context(), "g-"+name, metav1.GetOptions{})
				return gone(err)
			},
		},
	}
}

// deploy creates a Deployment without pods.
func (s *site) deploy(t *testing.T, namespace, name string) error {
	set := replicaSet(name, 0)
	_, err := s.kube.AppsV1().Deployments(namespace).Create(t.Context(), deployment(set), metav1.CreateOptions{})
	return err
}

// orphan creates a service account whose owner has never existed.
func (s *site) orphan(t *testing.T, namespace, name string) error {
	_, err := s.kube.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ServiceAccount", Name: "owner-of-" + name, UID: types.UID("owner-of-" + name)},
		}},
	}, metav1.CreateOptions{})
	return err
}

func oneOf(n int, err error) string {
	if err == nil && n != 1 {
		return fmt.Sprintf("there are %d", n)
	}
	return ask(err)
}

func another(now, before types.UID, err error) string {
	if err == nil && now == before {
		return "it is the old one"
	}
	return ask(err)
}

// roleOf is a role of the manifest.
func roleOf(t *testing.T, name string) rbacv1.ClusterRole {
	t.Helper()
	all := roles(t, "rbac.yaml")
	if classic(t) {
		all = append(roles(t, "../kubernetes-classic/identities.yaml"), all...)
	}
	for _, role := range all {
		if role.Name == name {
			return role
		}
	}
	t.Fatalf("the manifest has no role %s", name)
	return rbacv1.ClusterRole{}
}

// grant updates a role.
func (s *site) grant(t *testing.T, role rbacv1.ClusterRole) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the role is also restored after the end of the test
	within(t, patience, "change the role "+role.Name, func() string {
		_, err := s.kube.RbacV1().ClusterRoles().Update(ctx, &role, metav1.UpdateOptions{})
		return ask(err)
	})
}

// may asks the API server whether a service account has a right.
func (s *site) may(t *testing.T, namespace, account string, right authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: &right,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	return review.Status.Allowed
}

// awaitRight waits until the API server applies a change of an account's rights, which happens a moment after
// the role has changed.
func (s *site) awaitRight(t *testing.T, namespace, account string, want bool, right authorizationv1.ResourceAttributes) {
	t.Helper()
	within(t, patience, fmt.Sprintf("whether %s may %s %s %s is %t", account, right.Verb, right.Resource, right.Name, want), func() string {
		if s.may(t, namespace, account, right) != want {
			return "it is not"
		}
		return ""
	})
}

// awaitActing waits until a writer may act as an identity, or may not. The API server caches an allowed
// impersonation for ten seconds, and access reviews do not show that.
func (s *site) awaitActing(t *testing.T, kubeconfig, identity string, want bool) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	config.Impersonate.UserName = "system:serviceaccount:" + metav1.NamespaceSystem + ":" + identity
	writer, err := kubernetes.NewForConfig(config)
	must(t, err)
	about := corev1.ObjectReference{Kind: "Namespace", Name: metav1.NamespaceDefault, Namespace: metav1.NamespaceDefault}
	within(t, patience, fmt.Sprintf("whether the writer may act as %s is %t", identity, want), func() string {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "acting-"}, InvolvedObject: about, Reason: "Acting"}
		_, err := writer.CoreV1().Events(metav1.NamespaceDefault).Create(t.Context(), event, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil != want {
			return "it is not: " + ask(err)
		}
		return ""
	})
}

// allBut is the watcher's role without one kind of the core group.
func (s *site) allBut(t *testing.T, kind string) rbacv1.ClusterRole {
	t.Helper()
	var lists []*metav1.APIResourceList
	within(t, patience, "the API server knows all kinds", func() (missing string) {
		var err error
		lists, err = s.kube.Discovery().ServerPreferredResources()
		return ask(err)
	})
	role := roleOf(t, "millrace-watcher")
	verbs := role.Rules[0].Verbs
	role.Rules = nil
	for _, list := range lists {
		group, _, grouped := strings.Cut(list.GroupVersion, "/")
		if !grouped {
			group = ""
		}
		for _, r := range list.APIResources {
			if group != "" || r.Name != kind {
				role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{r.Name}, Verbs: verbs})
			}
		}
	}
	return role
}
