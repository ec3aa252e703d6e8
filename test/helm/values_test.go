package helm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"sigs.k8s.io/yaml"
)

// TestLint: Helm's own linter reports nothing for any values that we ship or test.
func TestLint(t *testing.T) {
	texts := []string{"{}"}
	for _, pattern := range []string{chartDir + "/values/*.yaml", "testdata/*.yaml"} {
		files, err := filepath.Glob(pattern)
		ok(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			ok(t, err)
			texts = append(texts, string(text))
		}
	}
	version, err := common.ParseKubeVersion("v1.36.3")
	ok(t, err)
	for _, text := range texts {
		result := lint.RunAll(chartDir, values(t, text), system, lint.WithKubeVersion(version))
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%v, with the values\n%s", m, text)
			}
		}
	}
}

// TestValuesThatAreRefused: each error names the place of the value and what is wrong.
func TestValuesThatAreRefused(t *testing.T) {
	c := load(t)
	for _, r := range []struct {
		values string
		says   []string
	}{
		// Refused by the schema.
		{"nats: {}", []string{"additional properties 'nats' not allowed"}},
		{"bus: {sever: 3}", []string{"'/bus'", "additional properties 'sever' not allowed"}},
		{"bus: {external: {url: a}}", []string{"'/bus/external'", "'url' not allowed"}},
		{"bus: {servers: 2}", []string{"'/bus/servers'", "value must be one of 1, 3"}},
		{"bus: {mode: none}", []string{"'/bus/mode'", "'bundled', 'external'"}},
		{"bus: {external: {urls: ['nats://nats:4222']}}", []string{"'/bus/external/urls/0'", "does not match pattern"}},
		{"bus: {external: {urls: ['tls://user:password@nats:4222']}}", []string{"'/bus/external/urls/0'"}},
		{"controllers: {default: on}", []string{"'/controllers/default'", "'active', 'shadow', 'off'"}},
		{"controllers: {modes: {deployment-controler: active}}", []string{"'deployment-controler'", "'deployment-controller'"}},
		{"controllers: {modes: {deployment-controller: dry-run}}", []string{"'/controllers/modes/deployment-controller'", "'active', 'shadow', 'off'"}},
		{"writer: {mode: shadow}", []string{"'/writer/mode'", "'apply', 'dry-run', 'off'"}},
		{"writer: {split: {modes: {workload: off}}}", []string{"'/writer/split/modes'", "'workload' not allowed"}},
		{"writer: {extraArgs: [mode]}", []string{"'/writer/extraArgs/0'"}},
		{"reconcilers: {replicas: two}", []string{"'/reconcilers/replicas'", "got string, want integer"}},
		{"watcher: {resources: {limit: {}}}", []string{"'/watcher/resources'", "'limit' not allowed"}},
		{"image: {tag: latest}", []string{"'/image/tag'"}},
		{"image: {digest: 'sha256:12'}", []string{"'/image/digest'"}},
		{"certificates: {source: vault}", []string{"'/certificates/source'", "'secret', 'cert-manager'"}},
		{"credentials: {secrets: {stranger: a}}", []string{"'stranger'", "'writer-workloads'"}},
		{"flags: {services: {--v: 2}}", []string{"'--v'"}},
		{"podDisruptionBudget: {maxUnavailable: 0}", []string{"'/podDisruptionBudget/maxUnavailable'"}},
		{"rbac: {impersonation: modern}", []string{"'constrained', 'classic'"}},
		{"featureGates: {GenericWorkload: yes-please}", []string{"'/featureGates/GenericWorkload'", "want boolean"}},
		{"observability: {dashboard: {}}", []string{"'dashboard' not allowed"}},
		// Refused by the templates, because two values contradict each other.
		{"controllers: {default: 'off'}", []string{"every controller is off: name one in controllers.modes"}},
		{"bus: {mode: external}", []string{"bus.external.urls is empty"}},
		{"certificates: {source: cert-manager}", []string{"certificates.certManager.issuer.name is empty"}},
		{"{bus: {mode: external, external: {urls: ['tls://a:4222']}}, certificates: {source: cert-manager}}", []string{"put its authority into the Secrets as ca.crt"}},
		{"{controllers: {default: active}, writer: {split: {enabled: true}}, rbac: {impersonation: classic}}", []string{"writer.split needs rbac.impersonation=constrained"}},
		{"{controllers: {default: active}, writer: {split: {enabled: true}}, takeover: {lease: moves}}", []string{"takeover.lease: one writer holds the Lease"}},
		{"{takeover: {lease: Moves}}", []string{"'/takeover/lease'"}},
		{"{controllers: {default: active}, writer: {split: {modes: {workloads: 'off'}}}}", []string{"writer.split.modes is set, and writer.split.enabled is not"}},
		{"writer: {split: {enabled: true}}", []string{"no controller is active"}},
		{"tokens: {secret: sa-key}", []string{"no controller is active"}},
		{"rbac: {customKinds: ['*', widgets.example.com]}", []string{"give it alone, or the names without it"}},
	} {
		_, _, err := render(c, system, values(t, r.values))
		if err == nil {
			t.Errorf("%s is taken", r.values)
			continue
		}
		for _, word := range r.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s is refused without %q: %v", r.values, word, err)
			}
		}
	}
}

// TestTheSchemaKnowsEveryValue: values.yaml and the schema have the same values.
func TestTheSchemaKnowsEveryValue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	ok(t, err)
	var schema map[string]any
	ok(t, json.Unmarshal(text, &schema))
	text, err = os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	ok(t, err)
	var defaults map[string]any
	ok(t, yaml.Unmarshal(text, &defaults))
	compareKeys(t, "", schema, defaults)
}

// optional are values without a default: Helm's own, and optional keys of a map.
var optional = []string{".global", ".writer.split.modes.workloads", ".writer.split.modes.collectors", ".writer.split.modes.credentials"}

func compareKeys(t *testing.T, at string, schema, defaults map[string]any) {
	t.Helper()
	known, _ := schema["properties"].(map[string]any)
	for key, one := range known {
		path := at + "." + key
		value, has := defaults[key]
		if !has && !slices.Contains(optional, path) {
			t.Errorf("values.yaml does not have %s", path)
		}
		if fields, is := value.(map[string]any); is {
			compareKeys(t, path, one.(map[string]any), fields)
		}
	}
	if len(known) > 0 && schema["additionalProperties"] != false {
		t.Errorf("the schema takes anything in %q", at)
	}
}

// TestPodsStartAnewWithTheirSettings: a change of the settings restarts the services' pods, and a change of
// the services alone does not restart the bus.
func TestPodsStartAnewWithTheirSettings(t *testing.T) {
	sums := func(text string) (services, bus string) {
		all, _ := rendered(t, system, "controllers: {default: active}", text)
		note := func(kind, name, key string) string {
			return find(t, all, kind, name).text("spec", "template", "metadata", "annotations", "checksum/"+key)
		}
		services = note("Deployment", "millrace-writer", "settings")
		for _, name := range []string{"millrace-watcher", "millrace-watcher-other", "millrace-reconcilers", "millrace-provisioner"} {
			if got := note("Deployment", name, "settings"); got == "" || got != services {
				t.Errorf("%s has the sum %q, the writer %q", name, got, services)
			}
		}
		return services, note("StatefulSet", "millrace-bus", "accounts")
	}
	services, bus := sums("{}")
	changed, same := sums("flags: {services: {v: 4}}")
	if services == changed || bus != same || bus == "" {
		t.Errorf("the sums are %s, %s; after a change %s, %s", services, bus, changed, same)
	}
}

// flagOf returns the controllers that the notes tell kube-controller-manager to leave out.
func flagOf(t *testing.T, notes string) (names []string) {
	t.Helper()
	for line := range strings.Lines(notes) {
		if list, is := strings.CutPrefix(strings.TrimSpace(line), "--controllers=*,"); is {
			for name := range strings.SplitSeq(list, ",") {
				names = append(names, strings.TrimPrefix(name, "-"))
			}
		}
	}
	return names
}

// TestNotes: the flag for kube-controller-manager names exactly the active controllers. Those that are in
// shadow, are off, or lack a requirement, stay with kube-controller-manager.
func TestNotes(t *testing.T) {
	mixed := "controllers: {default: shadow, modes: {job-controller: active, cronjob-controller: active, serviceaccount-token-controller: active, root-ca-certificate-publisher-controller: active, podgroup-protection-controller: active, ttl-controller: 'off'}}"
	for _, c := range []struct {
		values string
		want   []string
	}{
		{"{}", nil},
		{mixed, []string{"cronjob-controller", "job-controller"}},
		{mixed + "\ntokens: {secret: sa-key}", []string{"cronjob-controller", "job-controller", "serviceaccount-token-controller"}},
		{mixed + "\nrootCA: {configMap: kube-root-ca.crt}", []string{"cronjob-controller", "job-controller", "root-ca-certificate-publisher-controller"}},
		{mixed + "\nfeatureGates: {GenericWorkload: true}", []string{"cronjob-controller", "job-controller", "podgroup-protection-controller"}},
		{mixed + "\nfeatureGates: {GenericWorkload: false}", []string{"cronjob-controller", "job-controller"}},
		{mixed + "\ntakeover: {lease: moves}", []string{"cronjob-controller", "job-controller"}},
	} {
		_, notes := rendered(t, system, c.values)
		if got := flagOf(t, notes); !slices.Equal(got, c.want) {
			t.Errorf("with %s the notes name %v, want %v", c.values, got, c.want)
		}
		if says := strings.Contains(notes, "kube-controller-manager stays as it is"); says != (c.want == nil) {
			t.Errorf("with %s the notes are\n%s", c.values, notes)
		}
		for _, name := range []string{"ttl-controller"} {
			if c.want != nil && strings.Contains(notes, name) {
				t.Errorf("%s is off, and in the notes:\n%s", name, notes)
			}
		}
	}
}

// TestMovingControllers: with a Lease, the notes name the flags of the second kube-controller-manager and
// the commands that move exactly the active controllers. Without one, and without an active controller,
// nothing of a Lease is rendered.
func TestMovingControllers(t *testing.T) {
	const two = "controllers: {default: shadow, modes: {job-controller: active, cronjob-controller: active}}"
	all, notes := rendered(t, system, two+"\ntakeover: {lease: moves}")
	for _, line := range []string{
		"--controllers=cronjob-controller,job-controller --leader-elect-resource-name=moves",
		"kubectl millrace takeover cronjob-controller job-controller", "kubectl millrace giveback cronjob-controller job-controller",
	} {
		if !strings.Contains(notes, line) {
			t.Errorf("%q is not in the notes:\n%s", line, notes)
		}
	}
	if !strings.Contains(golden(t, all), "resourceNames") || !strings.Contains(golden(t, all), "leaderName: moves") {
		t.Error("no right to the Lease, or no file of Leader Migration")
	}
	for _, values := range []string{two, "takeover: {lease: moves}"} {
		all, notes := rendered(t, system, values)
		for _, word := range []string{"leader-migration", "leaderName", "millrace-leader"} {
			if strings.Contains(golden(t, all), word) || strings.Contains(notes, "takeover") {
				t.Errorf("with %s there is %s, or the notes name the command:\n%s", values, word, notes)
			}
		}
	}
}
