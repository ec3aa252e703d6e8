package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/cmd/internal/rights"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// chart is the Helm chart.
var chart = filepath.Join(deployments, "helm", "millrace")

// chartFacts are the facts about the controllers from which the chart's templates make the roles of
// the selected controllers, as millrace rbac does.
type chartFacts struct {
	// BuiltIn are the kinds that a watcher of every kind reads by name.
	BuiltIn     []kinds.Name               `json:"builtIn"`
	TokenRules  any                        `json:"tokenRules"`
	Controllers map[string]controllerFacts `json:"controllers"`
}

// controllerFacts are those of one controller.
type controllerFacts struct {
	// Off is true for a controller that "*" does not include.
	Off      bool   `json:"off,omitempty"`
	Identity string `json:"identity"`
	// Writer is the split writer that has the controller.
	Writer string `json:"writer"`
	// Needs is the flag that the controller needs to run, Gate the feature gate, and GateOn
	// whether that is on by default.
	Needs  string `json:"needs,omitempty"`
	Gate   string `json:"gate,omitempty"`
	GateOn bool   `json:"gateOn,omitempty"`
	// Every is true for a controller that reads the metadata of all kinds.
	Every bool         `json:"every,omitempty"`
	Reads []kinds.Name `json:"reads"`
	// Writes are verbs on resources, such as "update apps deployments/status"; the core group
	// is "core". Paths are non-resource URLs for get.
	Writes []string `json:"writes"`
	Paths  []string `json:"paths,omitempty"`
}

const aboutFacts = `# What the templates know of each controller, for the roles of those that are chosen.
# Made by: make rbac
`

// facts are the facts of this version.
func facts(t *testing.T) chartFacts {
	t.Helper()
	all := chartFacts{BuiltIn: kinds.BuiltIn(), Controllers: map[string]controllerFacts{}}
	m := rights.Manifest{}
	m.Tokens("millrace")
	text, err := m.YAML()
	ok(t, err)
	role, _, _ := strings.Cut(string(text), "---\n")
	var rules struct{ Rules any }
	ok(t, yaml.Unmarshal([]byte(role), &rules))
	all.TokenRules = rules.Rules
	for _, e := range controllers.Catalog() {
		if !e.Exists() {
			continue
		}
		chosen, err := controllers.Select([]string{e.Name}, controllers.Whole())
		ok(t, err)
		if len(chosen) != 1 {
			t.Fatalf("%s is %d controllers", e.Name, len(chosen))
		}
		all.Controllers[e.Name] = factsOf(t, e, chosen)
	}
	return all
}

func factsOf(t *testing.T, e controllers.Entry, chosen []reconcile.Any) controllerFacts {
	t.Helper()
	f := controllerFacts{Off: e.Off, Identity: chosen[0].Describe().Identity, Needs: e.Needs}
	f.Gate, f.GateOn = gateOf(t, e)
	for _, user := range access.SplitWriters {
		if access.Carries(user, e.Name) {
			f.Writer = strings.TrimPrefix(user, access.Writer+"-")
		}
	}
	full, every := controllers.Kinds(chosen)
	f.Every = every
	for _, k := range full {
		f.Reads = append(f.Reads, k.Name)
	}
	needs, err := rights.Needs(chosen)
	ok(t, err)
	for _, n := range needs {
		if n.Path != "" {
			f.Paths = append(f.Paths, n.Path)
			continue
		}
		if n.Group == "" {
			n.Group = "core"
		}
		f.Writes = append(f.Writes, strings.Join([]string{n.Verb, n.Group, n.Resource}, " "))
	}
	return f
}

// gateOf is the feature gate that a controller needs, and whether it is on by default.
func gateOf(t *testing.T, e controllers.Entry) (name string, on bool) {
	t.Helper()
	if e.Needs != "feature-gates" {
		return "", false
	}
	for _, g := range gate.Known() {
		runs := func(on bool) bool {
			chosen, err := controllers.Select([]string{e.Name}, controllers.Config{
				RootCA: []byte("a certificate"), Gates: gate.Set{g.Name: on}, StorageVersions: on && g.Name == gate.StorageVersionAPI,
			})
			ok(t, err)
			return len(chosen) == 1
		}
		if slices.Contains(g.Readers, e.Name) && runs(true) && !runs(false) {
			name, on = g.Name, g.On
		}
	}
	if name == "" {
		t.Errorf("%s needs a feature gate; none that it reads turns it on and off", e.Name)
	}
	return name, on
}

// chosenNames is the list of names in the schema of the chart's values.
var chosenNames = regexp.MustCompile(`(?s)("controllerName": \{\s*"enum": )\[.*?\]`)

// TestRolesAreGeneratedForTheChart compares the generated files of the chart with this version and
// with the files that they copy. UPDATE_ROLES=1 (make rbac) writes them.
func TestRolesAreGeneratedForTheChart(t *testing.T) {
	all := facts(t)
	text, err := yaml.Marshal(all)
	ok(t, err)
	hold := func(file string, want []byte) {
		t.Helper()
		at := filepath.Join(chart, file)
		if os.Getenv("UPDATE_ROLES") != "" {
			ok(t, os.WriteFile(at, want, 0o644))
			return
		}
		if have, err := os.ReadFile(at); err != nil || string(have) != string(want) {
			t.Errorf("deployments/helm/millrace/%s is not up to date (%v): make rbac", file, err)
		}
	}
	hold("files/controllers.yaml", append([]byte(aboutFacts), text...))
	for file, from := range map[string]string{
		"files/accounts.conf":                       "nats/accounts.conf",
		"files/rules.yaml":                          "observability/prometheus/rules.yaml",
		"files/dashboards/millrace.json":            "observability/grafana/millrace.json",
		"files/dashboards/millrace-controller.json": "observability/grafana/millrace-controller.json",
	} {
		copied, err := os.ReadFile(filepath.Join(deployments, from))
		ok(t, err)
		hold(file, copied)
	}
	schema, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	ok(t, err)
	var names []string
	for name := range all.Controllers {
		names = append(names, name)
	}
	slices.Sort(names)
	list, err := json.Marshal(names)
	ok(t, err)
	if !chosenNames.Match(schema) {
		t.Fatal("the schema has no list of controllers")
	}
	hold("values.schema.json", chosenNames.ReplaceAll(schema, append([]byte("${1}"), list...)))
}
