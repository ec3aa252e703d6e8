package rights

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/cmd/clustertest"
)

const (
	deployments = "../../deployments"
	home        = "default"
	patience    = 30 * time.Second
)

// site is an API server on which the test is administrator.
type site struct {
	kube   kubernetes.Interface
	config *rest.Config
	next   int
}

func begin(t *testing.T) *site {
	t.Helper()
	c := clustertest.Start(t, clustertest.Options{
		Lean: true, Nodes: -1,
		// Some of the identities have a role only with these feature gates.
		APIServerArgs: []string{
			"--feature-gates=APIServerIdentity=true,StorageVersionAPI=true,PodCertificateRequest=true,GenericWorkload=true,DRADeviceTaintRules=true,DRAResourcePoolStatus=true,StorageVersionMigrator=true,ClusterTrustBundle=true",
			"--runtime-config=internal.apiserver.k8s.io/v1alpha1=true,certificates.k8s.io/v1beta1/podcertificaterequests=true,scheduling.k8s.io/v1alpha2=true,resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true,storagemigration.k8s.io/v1beta1=true,certificates.k8s.io/v1beta1/clustertrustbundles=true",
		},
	})
	config, err := c.Config()
	ok(t, err)
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	ok(t, err)
	return &site{kube: kube, config: config}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clusterRoles are the rules of the cluster roles in a manifest, by name.
func clusterRoles(t *testing.T, folder, file string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	found := map[string][]rbacv1.PolicyRule{}
	for _, role := range read[rbacv1.ClusterRole](t, folder, file) {
		if role.Kind == "ClusterRole" {
			found[role.Name] = role.Rules
		}
	}
	return found
}

// bindings are the bindings of cluster roles and roles in a manifest.
func bindings(t *testing.T, folder, file string) (found []rbacv1.RoleBinding) {
	t.Helper()
	for _, b := range read[rbacv1.RoleBinding](t, folder, file) {
		if strings.HasSuffix(b.Kind, "RoleBinding") {
			found = append(found, b)
		}
	}
	return found
}

// read reads each document of a manifest as an object of one type.
func read[T any](t *testing.T, folder, file string) (all []T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployments, folder, file))
	ok(t, err)
	documents := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(bytes.NewReader(text)), 4096)
	for {
		var one T
		if err := documents.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

// writer is an account with a writer's rights. Each set of rights has its own account, because the API server
// caches for ten seconds what it has allowed to an account.
type writer struct {
	name   string
	server string
	http   *http.Client
	token  string
}

// writer creates an account that may impersonate identities, and has the rights of rules.
func (s *site) writer(t *testing.T, identities, rules []rbacv1.PolicyRule) *writer {
	t.Helper()
	s.next++
	name := fmt.Sprintf("writer-%d", s.next)
	_, err := s.kube.CoreV1().ServiceAccounts(home).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	ok(t, err)
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: name}
	s.role(t, name, rules, subject)
	_, err = s.kube.RbacV1().Roles(metav1.NamespaceSystem).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: identities}, metav1.CreateOptions{})
	ok(t, err)
	_, err = s.kube.RbacV1().RoleBindings(metav1.NamespaceSystem).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	ok(t, err)
	token, err := s.kube.CoreV1().ServiceAccounts(home).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	ok(t, err)
	config := rest.AnonymousClientConfig(s.config)
	client, err := rest.HTTPClientFor(config)
	ok(t, err)
	return &writer{name: name, server: s.config.Host, http: client, token: token.Status.Token}
}

// role creates a cluster role and binds a subject to it.
func (s *site) role(t *testing.T, name string, rules []rbacv1.PolicyRule, to rbacv1.Subject) {
	t.Helper()
	_, err := s.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	ok(t, err)
	_, err = s.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{to},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	ok(t, err)
}

// probe is one request: a verb on a resource of a group, or on a path.
type probe struct{ verb, group, resource, path string }

func (p probe) String() string {
	if p.path != "" {
		return p.verb + " " + p.path
	}
	resource, sub, nested := strings.Cut(p.resource, "/")
	if p.group != "" {
		resource += "." + p.group
	}
	if nested {
		resource += "/" + sub
	}
	return p.verb + " " + resource
}

var methods = map[string]string{
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet,
}

// address is the path of the request: the API server authorizes by the path alone, before it checks whether
// such an object exists.
func (p probe) address() string {
	if p.path != "" {
		return p.path
	}
	resource, sub, _ := strings.Cut(p.resource, "/")
	path := "/apis/" + p.group + "/v1"
	if p.group == "" {
		path = "/api/v1"
	}
	if resource != "namespaces" {
		path += "/namespaces/" + home
	}
	path += "/" + resource
	if !slices.Contains([]string{"create", "list", "watch"}, p.verb) {
		path += "/there-is-none"
		if sub != "" {
			path += "/" + sub
		}
	}
	switch p.verb {
	case "watch":
		return path + "?watch=true&timeoutSeconds=1"
	case "get", "list":
		return path
	default:
		return path + "?dryRun=All"
	}
}

// The answers: allowed; forbidden by the controller's own role; forbidden by the writer's role.
const (
	yes      = "yes"
	byRole   = "role"
	byWriter = "-"
)

// ask makes the request as an identity, or as the writer itself if identity is empty.
func (w *writer) ask(t *testing.T, identity string, p probe) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), methods[p.verb], w.server+p.address(), strings.NewReader("{}"))
	ok(t, err)
	request.Header.Set("Authorization", "Bearer "+w.token)
	request.Header.Set("Content-Type", "application/json")
	if p.verb == "patch" {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if identity != "" {
		request.Header.Set("Impersonate-User", "system:serviceaccount:"+metav1.NamespaceSystem+":"+identity)
	}
	response, err := w.http.Do(request)
	ok(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		if response.StatusCode == http.StatusUnauthorized || response.StatusCode >= 500 && response.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("%v as %s: %s", p, identity, response.Status)
		}
		return yes
	}
	body, err := io.ReadAll(response.Body)
	ok(t, err)
	switch said := string(body); {
	case strings.Contains(said, `User \"system:serviceaccount:`+home+":"+w.name+`\"`):
		return byWriter
	case strings.Contains(said, `User \"system:serviceaccount:`+metav1.NamespaceSystem+":"+identity+`\"`):
		return byRole
	default:
		return yes // admission refuses it, which comes after authorization
	}
}

// await repeats a request until the API server has seen the writer's roles. It ignores whether the identity's
// own role allows the request.
func (w *writer) await(t *testing.T, identity string, p probe) {
	t.Helper()
	for until := time.Now().Add(patience); w.ask(t, identity, p) == byWriter; {
		if time.Now().After(until) {
			t.Fatalf("%s may not %v as %s", w.name, p, identity)
		}
	}
}
