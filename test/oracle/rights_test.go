package oracle_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// held compares a file with Kubernetes' data.
func held(t *testing.T, file string, want []byte) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" { // the stories' flag
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v) is not what Kubernetes has; write it anew: cd test/oracle && GOWORK=off go test . -run %s -update", file, err, t.Name())
	}
}

// TestBuiltInKindsAreUpstreams compares the list of built-in kinds with the API that Kubernetes documents,
// including alpha.
func TestBuiltInKindsAreUpstreams(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "api", "discovery", "api*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents of discovery (%v)", err)
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list metav1.APIResourceList
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if list.Kind != "APIResourceList" {
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			if group, _, grouped := strings.Cut(list.GroupVersion, "/"); grouped {
				r.Name += "." + group
			}
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	held(t, "../../pkg/events/kinds/builtin.txt", []byte(strings.Join(slices.Compact(names), "\n")+"\n"))
}

// TestRolesAreUpstreams compares the copy of the controllers' built-in roles, of which the writer's rights
// are subsets, with Kubernetes' own.
func TestRolesAreUpstreams(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		genericfeatures.APIServerIdentity: true, genericfeatures.StorageVersionAPI: true, features.GenericWorkload: true, features.PodCertificateRequest: true, features.DRADeviceTaintRules: true, features.DRAResourcePoolStatus: true, features.StorageVersionMigrator: true, features.ClusterTrustBundle: true,
	})
	roles := map[string][]rbacv1.PolicyRule{}
	for _, p := range controllers.Profiles() {
		for _, role := range bootstrappolicy.ControllerRoles() {
			if role.Name == "system:controller:"+p.Identity {
				roles[p.Identity] = role.Rules
			}
		}
		for _, namespace := range []string{metav1.NamespacePublic, metav1.NamespaceSystem} { // of some, the namespace of all their rights
			for _, role := range bootstrappolicy.NamespaceRoles()[namespace] {
				if role.Name == "system:controller:"+p.Identity {
					roles[p.Identity] = append(roles[p.Identity], role.Rules...)
				}
			}
		}
	}
	text, err := yaml.Marshal(roles)
	if err != nil {
		t.Fatal(err)
	}
	held(t, "../../cmd/internal/rights/upstream.yaml", text)
}
