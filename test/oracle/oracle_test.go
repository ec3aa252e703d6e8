package oracle_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle"
)

// whole is the number of worlds in a whole run of each test.
const whole = "2000"

func TestMain(m *testing.M) {
	oracle.Quiet()
	time.Local = time.UTC // upstream evaluates schedules in the machine's time zone
	// Each day has other worlds. The command line may set another seed or number.
	seed := strconv.FormatInt(time.Now().Unix()/86400*1_000_003, 10)
	for name, value := range map[string]string{"rapid.checks": whole, "rapid.seed": seed} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	fmt.Printf("worlds of today; again: cd test/oracle && GOWORK=off go test . -rapid.seed=%v\n", flag.Lookup("rapid.seed").Value)
	code := m.Run()
	if testing.Verbose() {
		fmt.Println(uses())
	}
	given := func(name string) string { return flag.Lookup(name).Value.String() }
	if code == 0 && given("test.run")+given("test.skip") == "" && given("rapid.checks") == whole {
		if idle := unused(); idle != "" {
			fmt.Print(idle)
		}
	}
	os.Exit(code)
}

func TestDeploymentDecidesAsUpstreamDoes(t *testing.T) {
	agree(t, oracle.Deployment, deploymentKey, deploymentWorld, gate.DeploymentReplicaSetTerminatingReplicas)
}

func TestReplicaSetDecidesAsUpstreamDoes(t *testing.T) {
	agree(t, oracle.ReplicaSet, replicaSetKey, replicaSetWorld, gate.PodDeletionCost, gate.DeploymentReplicaSetTerminatingReplicas)
}

// TestWorldsAreEventful makes sure that upstream does everything that it can do in the worlds.
func TestWorldsAreEventful(t *testing.T) {
	for _, c := range []struct {
		name   string
		pair   oracle.Pair
		key    events.Key
		worlds func(*rapid.T) []runtime.Object
		want   []string
	}{
		{"deployment", oracle.Deployment, deploymentKey, deploymentWorld, []string{
			"create replicasets", "update replicasets", "delete replicasets", "patch replicasets",
			"update deployments", "update deployments/status",
			"ScalingReplicaSet", "DeploymentRollback ", "DeploymentRollbackRevisionNotFound", "DeploymentRollbackTemplateUnchanged",
			"DeploymentPaused", "DeploymentResumed", "FoundNewReplicaSet", "NewReplicaSetCreated",
			"ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded",
		}},
		{"replica set", oracle.ReplicaSet, replicaSetKey, replicaSetWorld, []string{
			"create pods", "delete pods", "patch pods", "update replicasets/status", "SuccessfulCreate", "SuccessfulDelete",
		}},
		{"mirrors", oracle.EndpointSliceMirroring, mirrorKey, mirrorWorld, []string{
			"create endpointslices", "update endpointslices", "delete endpointslices", "InvalidIPAddress", "TooManyAddressesToMirror",
		}},
		{"pods' own volumes", oracle.EphemeralVolume, mirrorKey, ephemeralWorld, []string{"create persistentvolumeclaims", "FailedBinding"}},
		{"ranges of addresses", oracle.ServiceCIDRs, mirrorKey, rangeWorld, []string{"patch servicecidrs web", "patch servicecidrs/status", "deleteFromPrimitiveList", "Terminating"}},
		{"groups of pods", oracle.GroupProtection, mirrorKey, groupWorld, []string{"update podgroups"}},
		{"migrations", oracle.MigrationRunner, mirrorKey, migrationWorld, []string{"The migration is running", "Migration completed"}},
		{"classes of volumes", oracle.ClassProtection, mirrorKey, classWorld, []string{"update volumeattributesclasses"}},
		{"expansions of volumes", oracle.VolumeExpander, mirrorKey, expansionWorld, []string{"patch persistentvolumeclaims/status", "ExternalExpanding"}},
		{"requests for certificates", oracle.RequestCleaner, requestKey, oldRequest, []string{"delete certificatesigningrequests"}},
		{"requests of pods", oracle.PodRequestCleaner, mirrorKey, func(r *rapid.T) []runtime.Object {
			return []runtime.Object{podsRequest(r, []int{0, 900})}
		}, []string{"delete podcertificaterequests"}},
		{"requests about pools", oracle.PoolRequests, requestKey, poolWorld, []string{"update resourcepoolstatusrequests/status", "delete resourcepoolstatusrequests", "nodeName", `"allocatedDevices":2`}},
		{"bootstrap tokens", oracle.TokenCleaner, bootstrapKey, bootstrapWorld, []string{"delete secrets"}},
		{"approved requests", oracle.RequestSigner, requestKey, approvedRequest, []string{"certificate\":", "SignerValidationFailure", "update certificatesigningrequests/status"}},
		{"bundles", oracle.Bundles, events.Key{Name: bundleName(oracle.BundleCA)}, publishedBundle, []string{"create clustertrustbundles", "update clustertrustbundles"}},
		{"older bundles", oracle.Bundles, events.Key{Name: bundleName(olderCA)}, olderBundle, []string{"delete clustertrustbundles"}},
		{"requests of kubelets", oracle.RequestApprover, requestKey, kubeletRequest, []string{"update certificatesigningrequests/approval"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			left, generator := c.want, rapid.Custom(c.worlds)
			for seed := 0; seed < enough && len(left) > 0; seed++ {
				effects, err := c.pair.AskTheirs(t, c.key, generator.Example(seed), oracle.Now)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range effects {
					left = slices.DeleteFunc(slices.Clone(left), func(w string) bool { return strings.Contains(e.String(), w) })
				}
			}
			if len(left) > 0 {
				t.Errorf("in %d worlds upstream never came to %q", enough, left)
			}
		})
	}
}

// agree searches for a world in which the two decide differently, under random feature gates.
func agree(t *testing.T, pair oracle.Pair, key events.Key, worlds func(*rapid.T) []runtime.Object, gates ...string) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		world := worlds(r)
		p, err := pair.Under(anyGates(r, gates...))
		if err != nil {
			r.Fatal(err)
		}
		diff, err := p.Compare(t, key, world)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) decide differently under %v:\n%s\n%s", p.Gates, diff, page(r, world))
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
