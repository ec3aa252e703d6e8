package system

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/services/reconcilers/controllers"
)

const (
	manifests = "../../deployments/kubernetes"
	home      = "millrace-system"
)

// TestManifests applies deployments/kubernetes as a user does, and runs the program with exactly the rights
// in it.
func TestManifests(t *testing.T) {
	s := here(t)
	must(t, s.Programs.Build(t.Context(), "kubectl"))
	s.kubectl(t, "apply", "-f", filepath.Join(manifests, "namespace.yaml"))
	// A warning would mean that Pod Security rejects the pods of a Deployment.
	s.kubectl(t, "apply", "-k", kustomization(t), "--dry-run=server", "--warnings-as-errors")
	s.kubectl(t, "apply", "-k", kustomization(t))

	m := s.separate(t, 1, map[string]string{
		"watcher": s.accountKubeconfig(t, "millrace-watcher"), otherWatcher: s.accountKubeconfig(t, "millrace-watcher-other"), "writer": s.accountKubeconfig(t, "millrace-writer"),
	})
	t.Run("the services' own Deployments", func(t *testing.T) {
		for _, name := range serviceNames {
			s.kubectl(t, "rollout", "status", "deployment/millrace-"+name, "--namespace="+home, "--timeout="+patience.String())
		}
	})
	t.Run("deployment", func(t *testing.T) {
		a := s.arena(t, "rights")
		must(t, a.Deploy(t.Context(), "web", first, 3))
		until(t, a, clustertest.RolledOut("web", first, 3))
		must(t, a.SetImage(t.Context(), "web", second))
		until(t, a, clustertest.RolledOut("web", second, 3))
		clear(t, a)
	})
	t.Run("orphan", func(t *testing.T) { playOrphanIn(t, s, "rights-orphan") })
	for _, r := range outcomes(t, connect(t, m.nats)) {
		if r.Code == 401 || r.Code == 403 {
			t.Errorf("the API server forbade a write: %+v; want none, with the roles of the manifest", r)
		}
	}
	s.kubectl(t, "delete", "deployments,statefulsets", "--all", "--namespace="+home)
	within(t, patience, "the pods of the services are gone", func() string {
		pods, err := s.kube.CoreV1().Pods(home).List(t.Context(), everything)
		if err == nil && len(pods.Items) > 0 {
			return pods.Items[0].Name + " is left"
		}
		return ask(err)
	})
}

func (s *site) kubectl(t *testing.T, args ...string) {
	t.Helper()
	// kubectl's discovery cache must not come from another API server that had the same port before.
	args = append(args, "--cache-dir="+filepath.Join(s.Dir, "kubectl"))
	cmd := exec.CommandContext(t.Context(), s.Programs.Path("kubectl"), append(args, "--kubeconfig="+s.Kubeconfig(clustertest.Admin))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// accountKubeconfig is a kubeconfig for one of our service accounts.
func (s *site) accountKubeconfig(t *testing.T, account string) string {
	t.Helper()
	hour := int64(3600)
	token, err := s.kube.CoreV1().ServiceAccounts(home).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	must(t, err)
	return s.kubeconfig(t, s.Server, token.Status.Token)
}

// TestRights compares the manifest with the catalogue: the writer may impersonate every controller that
// exists, and no other user.
func TestRights(t *testing.T) {
	chosen, err := controllers.Select([]string{"*"}, controllers.Whole())
	must(t, err)
	var want []string
	for _, c := range chosen {
		d := c.Describe()
		if d.Identity == "" {
			d.Identity = d.Name
		}
		want = append(want, d.Identity)
	}
	slices.Sort(want)
	want = slices.Compact(want) // two controllers may share one
	var rule rbacv1.PolicyRule
	for _, role := range roles(t, "tokens.yaml") { // for the writer with the key
		if role.Name == "millrace-writer-tokens-identities" {
			want = slices.DeleteFunc(want, func(name string) bool { return slices.Contains(role.Rules[0].ResourceNames, name) })
		}
	}
	for _, role := range roles(t, "rbac.yaml") {
		if role.Name == "millrace-writer-identities" {
			rule = role.Rules[0]
		}
	}
	if !slices.Equal(rule.ResourceNames, want) {
		t.Errorf("the writer may impersonate\n%v\nwant the identities of the catalogue\n%v", rule.ResourceNames, want)
	}
	if !slices.Equal(rule.Verbs, []string{"impersonate:serviceaccount"}) || !slices.Equal(rule.Resources, []string{"serviceaccounts"}) {
		t.Errorf("the role of the writer's identities has the rule %v, want impersonate:serviceaccount of serviceaccounts alone", rule)
	}
}

// roles are the cluster roles in a manifest.
func roles(t *testing.T, manifest string) []rbacv1.ClusterRole {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, manifest))
	must(t, err)
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var found []rbacv1.ClusterRole
	for {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return found
		}
		must(t, err)
		if role.Kind == "ClusterRole" {
			found = append(found, role)
		}
	}
}
