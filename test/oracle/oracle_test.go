package oracle_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/test/oracle"
)

func TestMain(m *testing.M) {
	oracle.Quiet()
	m.Run()
}

func TestDeploymentDecidesAsUpstreamDoes(t *testing.T) {
	agree(t, oracle.Deployment, deploymentKey, deploymentWorld)
}

func TestReplicaSetDecidesAsUpstreamDoes(t *testing.T) {
	agree(t, oracle.ReplicaSet, events.Key{Namespace: namespace, Name: owner + "-hash0"}, replicaSetWorld)
}

// agree looks for a world in which the two decide differently.
func agree(t *testing.T, p oracle.Pair, key events.Key, worlds func(*rapid.T) []runtime.Object) {
	rapid.Check(t, func(r *rapid.T) {
		world := worlds(r)
		diff, err := p.Compare(t, key, world)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) decide differently:\n%s\n%s", diff, page(r, world))
		}
	})
}

// page is a world as YAML.
func page(r *rapid.T, world []runtime.Object) string {
	var parts []string
	for _, obj := range world {
		text, err := yaml.Marshal(obj)
		if err != nil {
			r.Fatal(err)
		}
		parts = append(parts, string(text))
	}
	return strings.Join(parts, "---\n")
}
